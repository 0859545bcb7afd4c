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
//!
//! An object whose work never ends must not keep the others waiting: after [`TURN`] in a zone it
//! rests there for [`REST`], and the next object that asks takes the zone.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The time for which an object may go on in a zone without a rest.
pub const TURN: Duration = Duration::from_mins(5);

/// The time for which it then leaves the zone to others, after its last act is over: longer than
/// the default interval at which they ask.
pub const REST: Duration = Duration::from_secs(30);

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
    /// True if the object is the one that asks: it has been there for long, and rests.
    pub rests: bool,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, holder, rests } = self;
        let place = if zone.is_empty() {
            "nodes without a zone".to_owned()
        } else {
            format!("zone {zone}")
        };
        if *rests {
            let minutes = TURN.as_secs() / 60;
            return write!(
                f,
                "{holder} has disrupted {place} for {minutes} minutes and pauses to give others a turn"
            );
        }
        write!(f, "{holder} disrupts {place} at the moment")
    }
}

/// The holders of some zones, as [`Budget::stays`] found them.
#[derive(Debug)]
pub struct Stays(Vec<(Zone, Option<Stay>)>);

impl Stays {
    /// Reports whether they are of no zone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The time of an object in a zone.
#[derive(Clone, Debug)]
struct Stay {
    holder: Holder,
    /// The first of its acts that followed each other without a gap.
    since: Instant,
    /// The end of the last one.
    until: Instant,
}

impl Stay {
    fn is_held(&self, now: Instant) -> bool {
        self.until > now
    }

    /// Reports whether its holder rests.
    fn rests(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= TURN && now < self.until + REST
    }
}

/// The acts that are under way. The caller has the clock.
#[derive(Debug, Default)]
pub struct Budget {
    /// The last object that acted in each zone.
    stays: BTreeMap<Zone, Stay>,
}

impl Budget {
    /// Takes zones for an act, all of them or none. They stay taken for `time`.
    ///
    /// # Errors
    /// The first zone that another object holds, or in which this one rests.
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
        self.stays.retain(|_, stay| stay.is_held(now) || stay.rests(now));
        for zone in zones {
            let stay = self.stays.get(zone).filter(|stay| stay.holder == *holder);
            let since = stay.map_or(now, |stay| stay.since);
            let stay = Stay { holder: holder.clone(), since, until: now + time };
            self.stays.insert(Arc::clone(zone), stay);
        }
    }

    /// Returns who is in zones, so that a claim can be undone.
    #[must_use]
    pub fn stays(&self, zones: &BTreeSet<Zone>) -> Stays {
        Stays(zones.iter().map(|zone| (Arc::clone(zone), self.stays.get(zone).cloned())).collect())
    }

    /// Undoes a claim whose act was not made: the zones are as they were before, except those that
    /// another object took meanwhile.
    pub fn undo(&mut self, holder: &Holder, before: Stays) {
        for (zone, stay) in before.0 {
            if self.stays.get(&zone).is_none_or(|now| now.holder != *holder) {
                continue;
            }
            match stay {
                Some(stay) => self.stays.insert(zone, stay),
                None => self.stays.remove(&zone),
            };
        }
    }

    /// Frees the zones of an object that is gone.
    pub fn release(&mut self, holder: &Holder) {
        self.stays.retain(|_, stay| stay.holder != *holder);
    }

    /// Returns why an object must wait in a zone, if it must.
    #[must_use]
    pub fn busy(&self, holder: &Holder, zone: &Zone, now: Instant) -> Option<Busy> {
        let stay = self.stays.get(zone)?;
        let rests = stay.holder == *holder;
        let waits = if rests { stay.rests(now) } else { stay.is_held(now) };
        waits.then(|| Busy { zone: Arc::clone(zone), holder: stay.holder.clone(), rests })
    }

    /// Returns each zone that is held now, with its holder.
    pub fn held(&self, now: Instant) -> impl Iterator<Item = (&Zone, &Holder)> {
        let held = self.stays.iter().filter(move |(_, stay)| stay.is_held(now));
        held.map(|(zone, stay)| (zone, &stay.holder))
    }

    /// Reports whether nobody has to wait.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.stays.values().all(|stay| !stay.is_held(now) && !stay.rests(now))
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
    fn an_object_whose_work_never_ends_leaves_a_turn_to_the_others() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let (one, two) = (holder("one"), holder("two"));
        let (mut now, mut turns, mut waited) = (start, 0, 0);
        // One asks each second, and another one every ten.
        for second in 0..3600_u64 {
            now = start + Duration::from_secs(second);
            let _ = budget.claim(&one, &zones(&["a"]), TIME, now);
            if second % 10 == 9 {
                match budget.claim(&two, &zones(&["a"]), Duration::from_secs(10), now) {
                    Ok(()) => (turns, waited) = (turns + 1, 0),
                    Err(_) => waited += 10,
                }
            }
            assert!(waited <= (TURN + TIME + REST).as_secs(), "waits for {waited} s");
        }
        assert!(turns >= 8, "{turns} turns in an hour");
        // Alone, it goes on after its rest.
        let alone = now + TIME + REST;
        assert!(budget.claim(&one, &zones(&["a"]), TIME, alone).is_ok());
    }

    #[test]
    fn one_that_rests_reports_it_and_may_do_what_cannot_wait() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let one = holder("n/one");
        let mut now = start;
        while budget.claim(&one, &zones(&["a"]), TIME, now).is_ok() {
            now += Duration::from_secs(1);
        }
        assert_eq!(now - start, TURN);
        let busy = budget.busy(&one, &"a".into(), now).unwrap();
        assert_eq!(
            busy.to_string(),
            "Swarm n/one has disrupted zone a for 5 minutes and pauses to give others a turn"
        );
        assert!(!budget.is_idle(now));
        // Acts with gaps are no long stay.
        let mut rare = now + TIME + REST;
        for _ in 0..20 {
            assert!(budget.claim(&one, &zones(&["a"]), TIME, rare).is_ok());
            rare += TIME;
        }
        budget.take(&one, &zones(&["a"]), TIME, now);
        assert_eq!(budget.held(now).count(), 1);
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
        assert_eq!(budget.stays.len(), 1);
    }
}
