//! Totals: the values of the nodes' counters. They decide nothing, and a status shows new ones once
//! a minute: requests ask for them no more often, because they are a quarter of an answer.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    query::{Question, Request},
    reading::Measurement,
};
use crate::{clock, nodes::Identity};

/// For how long totals are shown: a little less than the time between two updates of the values in
/// a status, so that each shows new ones although ticks are not exact.
const KEEP: Duration = Duration::from_secs(55);

/// Maximum number of requests whose totals are kept, with 9 bytes for each node. Others ask for
/// theirs each time.
const MOST: usize = 64;

/// The totals of the last answers that had any, by request; clones share them.
#[derive(Clone, Default)]
pub struct Totals(Arc<Mutex<HashMap<Request, Known>>>);

struct Known {
    asked: Instant,
    totals: Measurement,
    /// True if each node that was measured had a total.
    complete: bool,
}

impl Totals {
    /// Reports whether a request must ask for totals: the known ones are too old, or about other
    /// nodes.
    #[must_use]
    pub fn are_due(&self, request: &Request, nodes: &Identity) -> bool {
        if matches!(request.question, Question::Own(_)) {
            return false;
        }
        let mut known = self.known();
        let now = clock::instant();
        known.retain(|_, known| now.saturating_duration_since(known.asked) < KEEP);
        known.get(request).is_none_or(|known| !known.totals.is_about(nodes))
    }

    /// Keeps the totals of an answer; `asked` is the time of its request.
    pub fn keep(&self, request: &Request, asked: Instant, answer: &Measurement) {
        let mut known = self.known();
        if known.len() < MOST || known.contains_key(request) {
            let (totals, complete) = (answer.totals(), !answer.lacks_totals());
            known.insert(request.clone(), Known { asked, totals, complete });
        }
    }

    /// Adds the known totals to an answer without any. If a node had no exporter when they were
    /// asked for and has one now, the next request asks again; not if an exporter had no total even
    /// then.
    pub fn add_to(&self, request: &Request, answer: &mut Measurement) {
        let mut all = self.known();
        let Some(known) = all.get(request) else { return };
        answer.take_totals(&known.totals);
        if known.complete && answer.lacks_totals() {
            all.remove(request);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Request, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        super::{
            query::Measure,
            reading::{OneNode, Value},
        },
        *,
    };
    use crate::api::traffic_watch::Direction;

    fn request(endpoint: &str) -> Request {
        let question = Question::BuiltIn {
            devices: "eth0".into(),
            direction: Direction::Transmit,
            window: Duration::from_mins(2),
            speed: false,
        };
        Request { endpoint: endpoint.into(), question }
    }

    fn nodes(names: &[&str]) -> Identity {
        Identity::new(names.iter().map(|name| (Arc::from(*name), [].as_slice())).collect())
    }

    fn answer(names: &[&str], total: Option<f64>) -> Measurement {
        let node = |name: &&str| {
            let mut numbers = OneNode::default();
            numbers.put(Measure::Age, Value::One(1.0, None));
            if let Some(total) = total {
                numbers.put(Measure::Total, Value::One(total, None));
            }
            (Arc::from(*name), numbers)
        };
        Measurement::of(names.iter().map(node).collect::<BTreeMap<_, _>>())
    }

    fn total(answer: &Measurement, node: &str) -> Option<f64> {
        match answer.get(node)?.get(Measure::Total) {
            Value::One(total, _) => Some(total),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn totals_are_asked_for_once_a_minute_and_shown_in_between() {
        let (totals, request) = (Totals::default(), request("main"));
        let two = nodes(&["a", "b"]);
        assert!(totals.are_due(&request, &two));
        totals.keep(&request, clock::instant(), &answer(&["a", "b"], Some(7.0)));
        tokio::time::advance(Duration::from_secs(54)).await;
        assert!(!totals.are_due(&request, &two));
        let mut next = answer(&["a", "b"], None);
        totals.add_to(&request, &mut next);
        assert_eq!((total(&next, "a"), total(&next, "b")), (Some(7.0), Some(7.0)));
        // The rest is the answer's own.
        assert_eq!(next.get("a").unwrap().get(Measure::Age), Value::One(1.0, None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(totals.are_due(&request, &two));
        // Another request has others, and a query of the author's has none.
        assert!(totals.are_due(&self::request("other"), &two));
        let own = Request { question: Question::Own("up".into()), ..request };
        assert!(!totals.are_due(&own, &two));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_has_come_is_asked_about_at_once() {
        let (totals, request) = (Totals::default(), request("main"));
        totals.keep(&request, clock::instant(), &answer(&["a"], Some(7.0)));
        assert!(!totals.are_due(&request, &nodes(&["a"])));
        assert!(totals.are_due(&request, &nodes(&["a", "b"])));
        // The totals of other nodes are never taken for its own.
        let mut next = answer(&["a", "b"], None);
        totals.add_to(&request, &mut next);
        assert_eq!(total(&next, "a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_counter_that_an_exporter_lacks_is_asked_for_once_a_minute() {
        let (totals, request) = (Totals::default(), request("main"));
        totals.keep(&request, clock::instant(), &answer(&["a"], None));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(15)).await;
            assert!(!totals.are_due(&request, &nodes(&["a"])));
            totals.add_to(&request, &mut answer(&["a"], None));
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(totals.are_due(&request, &nodes(&["a"])));
    }

    #[tokio::test(start_paused = true)]
    async fn an_exporter_that_has_come_is_asked_about_in_the_next_request() {
        let (totals, request) = (Totals::default(), request("main"));
        let two = nodes(&["a", "b"]);
        // A node that is not measured at all has no exporter yet.
        totals.keep(&request, clock::instant(), &Measurement::empty(&two));
        assert!(!totals.are_due(&request, &two));
        totals.add_to(&request, &mut Measurement::empty(&two));
        assert!(!totals.are_due(&request, &two));
        totals.add_to(&request, &mut answer(&["a", "b"], None));
        assert!(totals.are_due(&request, &two));
    }

    #[tokio::test(start_paused = true)]
    async fn no_number_of_requests_fills_the_memory() {
        let totals = Totals::default();
        for i in 0..2 * MOST {
            totals.keep(&request(&i.to_string()), clock::instant(), &answer(&["a"], Some(1.0)));
        }
        assert_eq!(totals.known().len(), MOST);
        // One that is kept is renewed; one that is not asks each time.
        totals.keep(&request("0"), clock::instant(), &answer(&["a"], Some(2.0)));
        let mut next = answer(&["a"], None);
        totals.add_to(&request("0"), &mut next);
        assert_eq!(total(&next, "a"), Some(2.0));
        assert!(totals.are_due(&request(&MOST.to_string()), &nodes(&["a"])));
        tokio::time::advance(KEEP).await;
        assert!(totals.are_due(&request("0"), &nodes(&["a"])));
        assert_eq!(totals.known().len(), 0);
    }
}
