//! The budget of disruptions of this process, over the objects of all kinds: which of them disrupts
//! which zone.
//!
//! Only the leader acts, so the budget is in its memory. A new leader does not know the acts of the
//! last seconds. After a leader that was lost, it takes over when the lease ends, which is about as
//! long; after one that released the lease, as in an update, half a second later, so that the acts
//! of the two may overlap in one zone once.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use traffic_operator_core::disruption::{Budget, Holder, Stays, Zone};

pub use traffic_operator_core::disruption::Busy;

use super::Key;
use crate::{clock, metrics::Family, nodes::NodeStore};

/// The time for which an eviction holds its zone: a pod usually runs again elsewhere by then, and
/// the kinds themselves wait for the replacement before the next one.
pub const EVICTION: Duration = Duration::from_secs(10);

/// The time for which a reflector that changes holds its zone: a session that fails at first is
/// retried within 30 s.
pub const REFLECTOR: Duration = Duration::from_secs(30);

/// The budget; clones share it.
#[derive(Clone)]
pub struct Disruptions(Arc<Inner>);

struct Inner {
    nodes: NodeStore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    budget: Budget,
    /// Acts by kind and result.
    counts: BTreeMap<(&'static str, &'static str), u64>,
}

impl State {
    fn count(&mut self, holder: &Holder, result: &'static str) {
        *self.counts.entry((holder.kind, result)).or_default() += 1;
    }
}

/// Returns an object as a holder of zones.
#[must_use]
pub fn holder(kind: &'static str, (namespace, name): &Key) -> Holder {
    let name = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    Holder { kind, name: name.into() }
}

impl Disruptions {
    /// A budget over the zones of the nodes of a store.
    #[must_use]
    pub fn new(nodes: NodeStore) -> Self {
        Self(Arc::new(Inner { nodes, state: Mutex::default() }))
    }

    /// Takes the zones of nodes for an act that is made next.
    ///
    /// # Errors
    /// A zone in which another object disrupts something: the act must wait.
    pub fn claim<'a>(
        &self,
        holder: &Holder,
        nodes: impl IntoIterator<Item = &'a str>,
        time: Duration,
    ) -> Result<(), Busy> {
        self.attempt(holder, nodes, time).map(Attempt::made)
    }

    /// The same for an act that may be refused.
    ///
    /// # Errors
    /// A zone in which another object disrupts something: the act must wait.
    pub fn attempt<'a>(
        &self,
        holder: &Holder,
        nodes: impl IntoIterator<Item = &'a str>,
        time: Duration,
    ) -> Result<Attempt, Busy> {
        let zones = self.zones(nodes);
        let mut state = self.state();
        let before = state.budget.stays(&zones);
        let claimed = state.budget.claim(holder, &zones, time, clock::instant());
        claimed.inspect_err(|_| state.count(holder, "deferred"))?;
        Ok(Attempt { disruptions: self.clone(), holder: holder.clone(), before })
    }

    /// Takes the zones of nodes for an act that cannot wait.
    pub fn take<'a>(
        &self,
        holder: &Holder,
        nodes: impl IntoIterator<Item = &'a str>,
        time: Duration,
    ) {
        let zones = self.zones(nodes);
        if zones.is_empty() {
            return;
        }
        let mut state = self.state();
        state.budget.take(holder, &zones, time, clock::instant());
        state.count(holder, "urgent");
    }

    /// Frees the zones of an object that is gone.
    pub fn release(&self, holder: &Holder) {
        self.state().budget.release(holder);
    }

    /// Returns the nodes in whose zones the object must wait now.
    #[must_use]
    pub fn blocked<'a>(
        &self,
        holder: &Holder,
        nodes: impl IntoIterator<Item = &'a Arc<str>>,
    ) -> BTreeMap<Arc<str>, Busy> {
        let (state, now) = (self.state(), clock::instant());
        // The rule: nothing is under way.
        if state.budget.is_idle(now) {
            return BTreeMap::new();
        }
        let blocked = nodes.into_iter().filter_map(|node| {
            let zone = Zone::from(self.0.nodes.zone(node));
            Some((Arc::clone(node), state.budget.busy(holder, &zone, now)?))
        });
        blocked.collect()
    }

    /// The metrics, read at scrape time.
    #[must_use]
    pub fn gauges(&self) -> Box<dyn Collector> {
        Box::new(Gauges(self.clone()))
    }

    fn zones<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) -> BTreeSet<Zone> {
        nodes.into_iter().map(|node| Zone::from(self.0.nodes.zone(node))).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An act whose zones are taken, and which may be refused. Without a result, the zones stay taken.
#[derive(Debug)]
#[must_use]
pub struct Attempt {
    disruptions: Disruptions,
    holder: Holder,
    before: Stays,
}

impl Attempt {
    /// The act was made.
    pub fn made(self) {
        if !self.before.is_empty() {
            self.disruptions.state().count(&self.holder, "started");
        }
    }

    /// The API server has answered an eviction, or has not. One that it refuses disrupts nothing,
    /// and holds no zone; without an answer, it may have been made.
    pub fn answered<T>(self, answer: &kube::Result<T>) {
        match answer {
            Err(kube::Error::Api(_)) => self.refused(),
            Ok(_) | Err(_) => self.made(),
        }
    }

    /// It was not: nothing is disrupted.
    pub fn refused(self) {
        self.disruptions.state().budget.undo(&self.holder, self.before);
    }
}

impl fmt::Debug for Disruptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Disruptions").field(&self.state().budget).finish()
    }
}

#[derive(Debug)]
struct Gauges(Disruptions);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let state = self.0.state();
        let mut family = Family::gauges(
            &mut encoder,
            "traffic_operator_disruption_in_progress",
            "1 for a zone in which an object disrupts something: a reflector changes, a pod is evicted",
        )?;
        for (zone, holder) in state.budget.held(clock::instant()) {
            let labels = [("zone", &**zone), ("kind", holder.kind), ("name", &*holder.name)];
            family.gauge(&labels, 1.0)?;
        }
        let mut family = Family::counters(
            &mut encoder,
            "traffic_operator_disruptions",
            "Disruptive acts by kind: started, deferred to a later pass, or urgent",
        )?;
        for ((kind, result), number) in &state.counts {
            let labels = [("kind", *kind), ("result", *result)];
            family.counter(&labels, *number)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::metrics::Metrics;

    fn cluster() -> Disruptions {
        let store = NodeStore::default();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            let metadata = json!({"name": name, "labels": labels, "resourceVersion": "1"});
            let node = json!({"metadata": metadata, "spec": {"taints": []}});
            store.apply(Event::Apply(serde_json::from_value(node).unwrap()));
        }
        Disruptions::new(store)
    }

    fn one() -> Holder {
        holder("Swarm", &("n".into(), "one".into()))
    }

    fn two() -> Holder {
        holder("RouteReflectorSet", &(String::new(), "two".into()))
    }

    #[test]
    fn nodes_of_one_zone_are_disrupted_by_one_object_at_a_time() {
        let disruptions = cluster();
        assert_eq!(disruptions.claim(&one(), ["a1"], EVICTION), Ok(()));
        let busy = disruptions.claim(&two(), ["a2"], REFLECTOR).unwrap_err();
        assert_eq!(busy.to_string(), "Swarm n/one disrupts zone a at the moment");
        assert_eq!(disruptions.claim(&two(), ["b1"], REFLECTOR), Ok(()));
        let nodes = ["a1", "a2", "b1"].map(Arc::<str>::from);
        let blocked = disruptions.blocked(&two(), &nodes);
        assert_eq!(blocked.keys().map(|node| &**node).collect::<Vec<_>>(), ["a1", "a2"]);
        assert_eq!(disruptions.blocked(&one(), &nodes).len(), 1);
    }

    #[test]
    fn an_act_that_was_refused_leaves_its_zone_as_it_was() {
        let disruptions = cluster();
        disruptions.attempt(&one(), ["a1"], EVICTION).unwrap().refused();
        assert!(
            disruptions.state().counts.is_empty()
                && disruptions.state().budget.is_idle(clock::instant())
        );
        // What it disrupts already stays disrupted.
        disruptions.attempt(&one(), ["a1"], EVICTION).unwrap().made();
        disruptions.attempt(&one(), ["a2"], EVICTION).unwrap().refused();
        disruptions.claim(&two(), ["a1"], REFLECTOR).unwrap_err();
        // An act that cannot wait took the zone meanwhile.
        let attempt = disruptions.attempt(&one(), ["b1"], EVICTION).unwrap();
        disruptions.take(&two(), ["b1"], REFLECTOR);
        attempt.refused();
        disruptions.claim(&one(), ["b1"], EVICTION).unwrap_err();
        assert_eq!(disruptions.state().counts[&("Swarm", "started")], 1);
    }

    #[test]
    fn an_act_without_nodes_disrupts_nothing() {
        let disruptions = cluster();
        assert_eq!(disruptions.claim(&one(), [], EVICTION), Ok(()));
        disruptions.take(&two(), [], REFLECTOR);
        assert!(disruptions.state().counts.is_empty());
    }

    #[test]
    fn each_zone_has_one_series_and_acts_are_counted() {
        let (disruptions, metrics) = (cluster(), Metrics::new());
        metrics.register(disruptions.gauges());
        disruptions.claim(&one(), ["a1"], EVICTION).unwrap();
        disruptions.claim(&two(), ["a2"], REFLECTOR).unwrap_err();
        disruptions.take(&two(), ["a2"], REFLECTOR);
        let page = metrics.encode().unwrap();
        let series: Vec<_> = page.lines().filter(|line| line.contains("_disruption")).collect();
        let expected = [
            r#"traffic_operator_disruption_in_progress{zone="a",kind="RouteReflectorSet",name="two"}"#,
            r#"traffic_operator_disruptions_total{kind="Swarm",result="started"} 1"#,
            r#"traffic_operator_disruptions_total{kind="RouteReflectorSet",result="deferred"} 1"#,
            r#"traffic_operator_disruptions_total{kind="RouteReflectorSet",result="urgent"} 1"#,
        ];
        for line in expected {
            assert!(series.iter().any(|found| found.starts_with(line)), "{line} in {series:#?}");
        }
        let held = series.iter().filter(|line| line.starts_with("traffic_operator_disruption_in"));
        assert_eq!(held.count(), 1);
    }
}
