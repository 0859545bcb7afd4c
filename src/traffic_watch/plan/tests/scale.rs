//! Fifty thousand nodes: answers as Prometheus sends them are read and judged, and every write,
//! mark and byte is counted. Numbers and not times.
use std::fmt::Write as _;

use super::*;
use crate::{
    nodes::Identity,
    traffic_watch::{query::Question, reading::Names},
};

/// The measures of the built-in query, with the value of each for a fit node.
const MEASURES: [(&str, &str); 6] = [
    ("transmit_rate", "10"),
    ("transmit_total", "1e12"),
    ("transmit_total_before", "1e12"),
    ("speed", "100"),
    ("age", "3.25"),
    ("age_before", "123.25"),
];

/// The judgments in a row that mark a node, by default.
const CONSECUTIVE: usize = 2;

/// A large cluster, and the identities of its nodes.
struct Large {
    world: World,
    identity: Identity,
    nodes: usize,
    /// Measurements by the number of nodes above their threshold.
    readings: BTreeMap<usize, Arc<Measurement>>,
}

/// The effects of one judgment, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Effects {
    /// Labels that were written.
    writes: usize,
    /// Nodes that are marked afterwards.
    marked: usize,
    events: usize,
    /// Bytes of the status.
    status: usize,
}

fn name(i: usize) -> String {
    format!("node-{i:05}")
}

fn address(i: usize) -> String {
    format!("10.{}.{}.{}", i / 65536, i / 256 % 256, i % 256)
}

impl Large {
    fn new(nodes: usize) -> Self {
        let names: Vec<_> = (0..nodes).map(name).collect();
        let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>(), json!({}));
        let addresses: Vec<[Arc<str>; 1]> = (0..nodes).map(|i| [address(i).into()]).collect();
        let named = names.iter().zip(&addresses);
        let identity =
            Identity::new(named.map(|(n, a)| (n.as_str().into(), a.as_slice())).collect());
        Self { world, identity, nodes, readings: BTreeMap::new() }
    }

    /// The answer of Prometheus, in which the first nodes are above their threshold.
    fn answer(&self, above: usize) -> String {
        let mut body = r#"{"status":"success","data":{"resultType":"vector","result":["#.to_owned();
        for (measure, fit) in MEASURES {
            for i in 0..self.nodes {
                let value = if measure == "transmit_rate" && i < above { "90" } else { fit };
                let comma = if body.ends_with('[') { "" } else { "," };
                let host = address(i);
                write!(
                    body,
                    r#"{comma}{{"metric":{{"device":"eth0","instance":"{host}:9100","measure":"{measure}"}},"value":[1700000000.123,"{value}"]}}"#
                )
                .unwrap();
            }
        }
        body + "]}}"
    }

    /// Reads such an answer, which must have a sample of every node.
    fn read(&self, above: usize) -> Measurement {
        let names = Names { identity: &self.identity, labels: &[] };
        let question = Question::BuiltIn {
            devices: "eth0".into(),
            direction: crate::api::traffic_watch::Direction::Transmit,
            window: std::time::Duration::from_mins(2),
        };
        let body = self.answer(above);
        let json = "application/json";
        let reading = Measurement::read(200, json, body.as_bytes(), &question, names).unwrap();
        assert_eq!(reading.unmapped.0, 0, "every series has its node");
        let has_sample = |name: &&Arc<str>| {
            let node = reading.get(name);
            node.is_some_and(|node| node.has(Measure::Age))
        };
        let with_sample = self.identity.names().iter().filter(has_sample).count();
        assert_eq!(with_sample, self.nodes, "every node has its sample");
        reading
    }

    /// One judgment of such an answer.
    fn judge(&mut self, above: usize) -> Effects {
        if !self.readings.contains_key(&above) {
            self.readings.insert(above, Arc::new(self.read(above)));
        }
        let reading = Ok(Arc::clone(&self.readings[&above]));
        self.world.next();
        let observed = Observed { readings: Some(vec![reading]), ..self.world.observed(vec![]) };
        let step = self.world.carry_out(&observed);
        let is_marked = |label: &&Option<String>| label.as_deref() == Some("true");
        Effects {
            writes: step.writes.len(),
            marked: self.world.labels.values().filter(is_marked).count(),
            events: step.notices.len(),
            status: serde_json::to_string(&self.world.watch.status).unwrap().len(),
        }
    }

    /// Judges the same until it decides.
    fn decide(&mut self, above: usize) -> Effects {
        (1..CONSECUTIVE).for_each(|_| assert_eq!(self.judge(above).writes, 0, "not yet"));
        self.judge(above)
    }
}

/// Plays a rush and its end; returns the bytes of the largest status.
fn play(nodes: usize) -> usize {
    let mut large = Large::new(nodes);
    let first = large.judge(0);
    assert_eq!((first.writes, first.marked), (nodes, 0), "each node gets its label once");
    let rest = large.judge(0);
    assert_eq!((rest.writes, rest.events), (0, 0), "and nothing is written at rest");

    let one = large.decide(1);
    assert_eq!((one.writes, one.marked), (1, 1), "one node that changes is one write");

    // Four of five nodes are above their threshold, and the limit is a half of them.
    let rush = large.decide(nodes / 5 * 4);
    assert_eq!((rush.writes, rush.marked), (nodes / 2 - 1, nodes / 2));
    let held = large.judge(nodes / 5 * 4);
    assert_eq!((held.writes, held.marked, held.events), (0, nodes / 2, 0));

    let back = large.decide(0);
    assert_eq!((back.writes, back.marked), (nodes / 2, 0), "as many as were marked");
    [first, rest, one, rush, held, back].iter().map(|effects| effects.status).max().unwrap()
}

/// Writes grow as what changes, and the status does not grow: etcd stores at most 1.5 MB.
#[test]
fn fifty_thousand_nodes_are_judged_with_a_write_for_each_change_and_a_status_that_does_not_grow() {
    let [small, large] = [5_000, 50_000].map(play);
    println!("bytes of the largest status: {small} and {large}");
    assert!(large < small + 1_000, "{small} and {large} bytes");
}
