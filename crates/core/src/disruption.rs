//! The budget of disruptions: in a zone, at most one object disrupts something at a time, whatever
//! its kind.
//!
//! Each kind limits its own acts: evictions wait for their replacement, a Swarm restarts its
//! workers behind their readiness, a reflector moves after its sessions have been counted. None of
//! them sees the acts of the others. So before an act an object claims the zones of its nodes here.
//!
//! An object that holds a zone goes on there without asking again: its own limits count its acts,
//! and its next act is often the one that ends the disruption. A zone is free again some time after
//! the last act in it. Nodes without a zone are one zone together.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The name of a zone; empty for nodes without one.
pub type Zone = Arc<str>;

/// An object that disrupts something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its kind.
    pub kind: &'static str,
    /// Namespace and name, or the name.
    pub name: Arc<str>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A zone in which another object disrupts something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The zone.
    pub zone: Zone,
    /// The object.
    pub holder: Holder,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, holder } = self;
        if zone.is_empty() {
            return write!(f, "{holder} disrupts nodes without a zone at the moment");
        }
        write!(f, "{holder} disrupts zone {zone} at the moment")
    }
}

/// The acts that are under way. The caller has the clock.
#[derive(Debug, Default)]
pub struct Budget {
    /// The last object that acted in each zone, and the end of its time there.
    held: BTreeMap<Zone, (Holder, Instant)>,
}

impl Budget {
    /// Takes zones for an act, all of them or none. They stay taken for `time`.
    ///
    /// # Errors
    /// The first zone that another object holds.
    pub fn claim(
        &mut self,
        holder: &Holder,
        zones: &BTreeSet<Zone>,
        time: Duration,
        now: Instant,
    ) -> Result<(), Busy> {
        if let Some(busy) = zones.iter().find_map(|zone| self.busy(holder, zone, now)) {
            return Err(busy);
        }
        self.take(holder, zones, time, now);
        Ok(())
    }

    /// Takes zones for an act that cannot wait, even from another object.
    pub fn take(&mut self, holder: &Holder, zones: &BTreeSet<Zone>, time: Duration, now: Instant) {
        self.held.retain(|_, (_, until)| *until > now);
        for zone in zones {
            self.held.insert(Arc::clone(zone), (holder.clone(), now + time));
        }
    }

    /// Frees the zones of an object that is gone.
    pub fn release(&mut self, holder: &Holder) {
        self.held.retain(|_, (other, _)| *other != *holder);
    }

    /// Returns the other object that holds a zone, if there is one.
    #[must_use]
    pub fn busy(&self, holder: &Holder, zone: &Zone, now: Instant) -> Option<Busy> {
        let (other, until) = self.held.get(zone)?;
        let is_held = *until > now && other != holder;
        is_held.then(|| Busy { zone: Arc::clone(zone), holder: other.clone() })
    }

    /// Returns each zone that is held now, with its holder.
    pub fn held(&self, now: Instant) -> impl Iterator<Item = (&Zone, &Holder)> {
        let held = self.held.iter().filter(move |(_, (_, until))| *until > now);
        held.map(|(zone, (holder, _))| (zone, holder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    fn holder(name: &str) -> Holder {
        Holder { kind: "Swarm", name: name.into() }
    }

    fn zones(names: &[&str]) -> BTreeSet<Zone> {
        names.iter().map(|name| Zone::from(*name)).collect()
    }

    #[test]
    fn of_two_objects_one_disrupts_a_zone_and_the_other_waits() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let (one, two) = (holder("n/one"), holder("n/two"));
        assert_eq!(budget.claim(&one, &zones(&["a"]), TIME, now), Ok(()));
        let busy = budget.claim(&two, &zones(&["a"]), TIME, now).unwrap_err();
        assert_eq!(busy.to_string(), "Swarm n/one disrupts zone a at the moment");
        assert_eq!(budget.claim(&two, &zones(&["b"]), TIME, now), Ok(()));
        assert_eq!(budget.claim(&two, &zones(&["a"]), TIME, now + TIME), Ok(()));
    }

    #[test]
    fn all_zones_of_an_act_are_taken_or_none() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let (one, two) = (holder("one"), holder("two"));
        budget.claim(&one, &zones(&["b"]), TIME, now).unwrap();
        assert!(budget.claim(&two, &zones(&["a", "b"]), TIME, now).is_err());
        let held: Vec<_> = budget.held(now).map(|(zone, _)| zone.to_string()).collect();
        assert_eq!(held, ["b"]);
    }

    #[test]
    fn an_object_goes_on_where_it_is_and_its_time_begins_again() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let (one, two) = (holder("one"), holder("two"));
        let later = now + TIME / 2;
        budget.claim(&one, &zones(&["a"]), TIME, now).unwrap();
        budget.claim(&one, &zones(&["a"]), TIME, later).unwrap();
        assert!(budget.claim(&two, &zones(&["a"]), TIME, now + TIME).is_err());
        assert!(budget.claim(&two, &zones(&["a"]), TIME, later + TIME).is_ok());
    }

    #[test]
    fn an_object_that_is_gone_holds_nothing() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let (one, two) = (holder("one"), holder("two"));
        budget.claim(&one, &zones(&["a"]), TIME, now).unwrap();
        budget.claim(&two, &zones(&["b"]), TIME, now).unwrap();
        budget.release(&one);
        let held: Vec<_> = budget.held(now).map(|(zone, _)| zone.to_string()).collect();
        assert_eq!(held, ["b"]);
    }

    #[test]
    fn an_act_that_cannot_wait_takes_the_zone() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let (one, two) = (holder("one"), holder("two"));
        budget.claim(&one, &zones(&[""]), TIME, now).unwrap();
        let busy = budget.busy(&two, &"".into(), now).unwrap();
        assert_eq!(busy.to_string(), "Swarm one disrupts nodes without a zone at the moment");
        budget.take(&two, &zones(&[""]), TIME, now);
        assert_eq!(budget.busy(&two, &"".into(), now), None);
        assert!(budget.busy(&one, &"".into(), now).is_some());
    }

    #[test]
    fn a_zone_is_never_held_by_two_and_nothing_is_kept_that_is_over() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let names = ["a", "b", "c"];
        let mut claimed = BTreeMap::new();
        for step in 0..300_u32 {
            let now = start + Duration::from_secs(step.into());
            // Objects of every pattern: each asks for other zones at other times.
            let object = holder(&format!("o{}", step % 7));
            let wanted: BTreeSet<Zone> = (0..names.len())
                .filter(|number| (step >> number) % 2 == 1)
                .map(|number| Zone::from(names[number]))
                .collect();
            if budget.claim(&object, &wanted, TIME, now).is_ok() {
                for zone in wanted {
                    let before = claimed.insert(zone, (object.clone(), now));
                    let free =
                        |(other, at): &(Holder, Instant)| *other == object || *at + TIME <= now;
                    assert!(before.as_ref().is_none_or(free), "{before:?} {object:?}");
                }
            }
        }
        let over = start + Duration::from_secs(1000);
        assert_eq!(budget.held(over).count(), 0);
        budget.take(&holder("last"), &zones(&["d"]), TIME, over);
        assert_eq!(budget.held.len(), 1);
    }
}
