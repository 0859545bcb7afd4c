//! Unrealistic clusters, and several faults in a row.
use proptest::prelude::*;
use serde_json::json;

use super::{
    layout::{mesh, speaker, texts, zone},
    network::Network,
    play::{End, Play},
};
use crate::{
    api::route_reflector_set::Topology,
    nodes::{Readiness, Speaker, Taint},
};

/// Number of clusters to try, unless `PROVE_RANDOM` in the environment sets another.
const CASES: u32 = 24;

/// The advice of a step that makes too many paths.
const FEWER_IDS: &str = "use fewer cluster ids or fewer reflectors";

/// The advice where one reflector carries everything.
const TWO: &str = "set count.min to 2";

/// A step that its runbook answers with topology Simple.
const ROUTES: &str = "would lose the routes to";

/// An event, with a number that picks the node.
#[derive(Clone, Debug)]
enum Event {
    /// A node dies, reflectors first.
    Kill(usize),
    Revive(usize),
    Cordon(usize),
    Uncordon(usize),
    Count(usize),
    Topology(&'static str),
    /// A node joins, in a zone or in none.
    Join(usize),
    /// A node is deleted.
    Leave(usize),
}

#[derive(Clone, Debug)]
struct Cluster {
    zones: Vec<usize>,
    /// Nodes without one.
    strays: usize,
    /// Nodes with a problem: by a number that picks the node.
    closed: Vec<usize>,
    down: Vec<usize>,
    topology: &'static str,
    count: usize,
    /// Events, each with the number of steps that the operator takes after it.
    events: Vec<(Event, usize)>,
}

const TOPOLOGIES: [&str; 4] = ["Auto", "Simple", "Zonal", "Multi"];

fn event() -> impl Strategy<Value = Event> {
    let any = || 0..1_000_usize;
    prop_oneof![
        3 => any().prop_map(Event::Kill),
        1 => any().prop_map(Event::Revive),
        2 => any().prop_map(Event::Cordon),
        1 => any().prop_map(Event::Uncordon),
        2 => (1..13_usize).prop_map(Event::Count),
        3 => prop::sample::select(&TOPOLOGIES[..]).prop_map(Event::Topology),
        1 => any().prop_map(Event::Join),
        1 => any().prop_map(Event::Leave),
    ]
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let picks = || prop::collection::vec(0..1_000_usize, 0..4);
    (
        prop::collection::vec(1..8_usize, 1..6),
        0..3_usize,
        picks(),
        picks(),
        prop::sample::select(&TOPOLOGIES[..]),
        1..13_usize,
        prop::collection::vec((event(), 0..12_usize), 0..6),
    )
        .prop_map(|(zones, strays, closed, down, topology, count, events)| Cluster {
            zones,
            strays,
            closed,
            down,
            topology,
            count,
            events,
        })
}

fn tainted(speaker: &mut Speaker) {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: "NoSchedule".into(),
    };
    speaker.taints = [taint].into();
}

impl Cluster {
    fn play(&self) -> Play {
        let zones = self.zones.iter().enumerate();
        let zones = zones.flat_map(|(number, nodes)| (0..*nodes).map(move |_| Some(zone(number))));
        let zones = zones.chain((0..self.strays).map(|_| None));
        let mut nodes: Vec<_> =
            zones.enumerate().map(|(number, zone)| speaker(number, zone.as_deref())).collect();
        let all = nodes.len();
        self.closed.iter().for_each(|pick| tainted(&mut nodes[pick % all]));
        for pick in &self.down {
            nodes[pick % all].readiness = Readiness::NotReady(Some(0));
        }
        let set = serde_json::from_value(json!({
            "metadata": {"name": "main"},
            "spec": {"count": {"min": self.count, "max": self.count}, "mesh": "Migrate",
                "topology": self.topology}
        }));
        Play::new(set.expect("a spec"), mesh(nodes))
    }
}

impl Event {
    fn happens(&self, play: &mut Play) {
        let names: Vec<_> =
            play.stage.speakers.iter().map(|speaker| speaker.name.to_string()).collect();
        let reflectors = play.reflectors();
        let of = |pick: usize| {
            // Mostly a reflector: others matter little.
            let some = if !pick.is_multiple_of(4) && !reflectors.is_empty() {
                &reflectors
            } else {
                &names
            };
            some[pick / 4 % some.len()].clone()
        };
        match self {
            Self::Kill(pick) => play.kill(&of(*pick)),
            Self::Cordon(pick) => play.cordon(&of(*pick)),
            Self::Revive(pick) => play.stage.edit(&names[pick % names.len()], |speaker| {
                speaker.readiness = Readiness::Ready;
            }),
            Self::Uncordon(pick) => play.stage.edit(&names[pick % names.len()], |speaker| {
                speaker.cordoned = false;
                speaker.taints = [].into();
            }),
            Self::Count(count) => {
                let count = u32::try_from(*count).expect("few");
                (play.set.spec.count.min, play.set.spec.count.max) = (count, count);
            }
            Self::Topology(topology) => {
                play.set.spec.topology = serde_json::from_value(json!(topology)).expect("one");
            }
            Self::Join(pick) => {
                let zone = (!pick.is_multiple_of(4)).then(|| zone(pick % 5));
                let number = 60 + play.stage.speakers.len();
                let mut joining = speaker(number, zone.as_deref());
                if names.iter().any(|name| **name == *joining.name) {
                    joining.name = format!("{}-again", joining.name).into();
                    let address = format!("10.1.0.{}/16", pick % 250 + 1);
                    joining.calico = texts(&[("projectcalico.org/IPv4Address", &address)]);
                }
                play.stage.speakers.push(joining);
            }
            Self::Leave(pick) if names.len() > 2 => {
                let name = of(*pick);
                play.stage.speakers.retain(|speaker| *speaker.name != *name);
            }
            Self::Leave(_) => {}
        }
    }
}

impl Play {
    /// Topologies that change half-way can reach sizes that none of them has, and clusters outgrow
    /// a count. The message or its runbook must name a remedy that works.
    fn follow_advice(&mut self, end: &End) -> bool {
        let End::Stuck(text) = end else { return false };
        let spec = &mut self.set.spec;
        if text.contains(FEWER_IDS) || text.contains(ROUTES) {
            spec.topology = Topology::Simple;
        } else if text.contains(TWO) {
            (spec.count.min, spec.count.max) = (2, 2);
        } else {
            return false;
        }
        true
    }
}

fn failures(cluster: &Cluster) -> Vec<String> {
    let mut play = cluster.play();
    let mut way = play.go(40);
    for (event, steps) in &cluster.events {
        event.happens(&mut play);
        way = way.then(play.go(*steps));
    }
    way = way.then(play.go(usize::MAX));
    if play.follow_advice(&way.end) {
        way = way.then(play.go(usize::MAX));
    }
    let mut failures = std::mem::take(&mut way.harm);
    match &way.end {
        End::Done | End::Kept(_) => {
            let missing = Network::of(&play.stage).missing();
            if missing > 0 {
                failures.push(format!("missing: {missing} pairs in the end"));
            }
        }
        // No node is eligible, or these nodes do not allow this.
        End::Refused(_) => {}
        End::Stuck(text) if text == "frozen" => {}
        end => failures.push(format!("{end:?}")),
    }
    if !failures.is_empty() {
        failures.push(way.words.join("; "));
    }
    failures
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROVE_RANDOM").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// For any events in any cluster, no step costs a route, and the operator settles.
    #[test]
    fn no_step_takes_a_route_in_any_cluster(cluster in cluster()) {
        prop_assert_eq!(failures(&cluster), Vec::<String>::new());
    }
}
