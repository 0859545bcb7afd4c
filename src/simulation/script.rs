//! The script of one seed: the first state of the world, and what happens to it.
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    dice::{Dice, number},
    faults::{Fault, FaultWindow},
    loads::Exporter,
};

/// The longest time in which things happen.
const ACT: u64 = 20 * 60_000;

/// The loads of the script, in percent: at rest, between the thresholds, at them and above.
const LOADS: [f64; 7] = [3.0, 20.0, 50.0, 57.0, 61.0, 75.0, 95.0];

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Step {
    Load(String, f64),
    LoadOfAll(f64),
    Exporter(String, Exporter),
    AddNode(String),
    RemoveNode(String),
    /// Removes a node, and registers another one under its name.
    ReplaceNode(String),
    /// Merges this into a node, or into its status.
    Node(String, Value),
    NodeStatus(String, Value),
    /// Merges this into an object, by namespace and name.
    Watch(&'static str, Value),
    CreateWatch(&'static str),
    DeleteWatch(&'static str),
    /// Another client edits a label of ours.
    Label(String, &'static str, Value),
    Fault(FaultWindow),
    Compact,
    /// Ends a replica, and starts it again after these milliseconds.
    Kill(usize, u64),
}

pub struct Script {
    pub nodes: Vec<String>,
    pub replicas: usize,
    /// The specs of the two objects.
    pub specs: [(&'static str, Value); 2],
    /// Sorted by time.
    pub steps: Vec<(Duration, Step)>,
    /// The loads at the end.
    pub last: Vec<f64>,
}

/// The names of the objects; each is in the namespace of its name.
pub const NAMES: [&str; 2] = ["web", "batch"];

/// Returns the first state of a node.
pub fn node(name: &str, dice: &mut Dice) -> Value {
    let zone = *dice.one(&["a", "a", "b"]);
    let taints = json!([{"key": "reserved", "effect": "NoSchedule"}]);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"labels": {"kubernetes.io/os": "linux", "zone": zone, "team": "others"}},
        "spec": {"taints": if dice.percent(10) { taints } else { json!([]) }},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    })
}

fn spec(name: &str, dice: &mut Dice) -> Value {
    let mut spec = json!({"maxBandwidthPercent": "60", "mode": "Enforce", "paused": false});
    change(&mut spec, "maxUnfit", limits(dice));
    change(&mut spec, "minFit", floors(dice));
    change(&mut spec, "consecutive", consecutive(dice));
    // In some worlds, both objects claim one key.
    let label = if dice.percent(25) { "web" } else { name };
    change(&mut spec, "label", json!(label));
    if dice.percent(30) {
        change(&mut spec, "nodeSelector", json!({"matchLabels": {"zone": "a"}}));
    }
    if dice.percent(30) {
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": []}});
        let deployment = json!({"selector": {"matchLabels": {"app": name}}, "template": template});
        change(&mut spec, "deployment", deployment);
    }
    spec
}

fn change(spec: &mut Value, field: &str, value: Value) {
    spec[field] = value;
}

fn limits(dice: &mut Dice) -> Value {
    let all = [json!("50%"), json!("30%"), json!(1), json!(2), json!("100%"), json!("50%")];
    if dice.percent(4) { json!(0) } else { dice.one(&all).clone() }
}

fn floors(dice: &mut Dice) -> Value {
    dice.one(&[json!(1), json!(1), json!(0), json!(2), json!("30%")]).clone()
}

fn consecutive(dice: &mut Dice) -> Value {
    json!({"unfit": dice.between(1, 3), "fit": dice.between(1, 3)})
}

impl Script {
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(&[seed, number(b"script")]);
        let count = dice.between(1, 9);
        let nodes: Vec<_> = (0..count).map(|place| format!("node-{place}")).collect();
        let specs = NAMES.map(|name| (name, spec(name, &mut dice)));
        let replicas = if dice.percent(40) { 2 } else { 1 };
        let mut script = Self { nodes, replicas, specs, steps: vec![], last: vec![] };
        let mut at = 0;
        // Calm worlds are judged more strictly: what is seen is what is there.
        let calm = dice.percent(40);
        while at < ACT {
            at +=
                if dice.percent(30) { dice.between(1, 3_000) } else { dice.between(5_000, 90_000) };
            let step = script.step(at, calm, &mut dice);
            script.steps.push((Duration::from_millis(at), step));
        }
        // Nothing lies between the thresholds at the end.
        script.last = (0..20).map(|_| *dice.one(&[3.0, 20.0, 50.0, 75.0, 80.0, 95.0])).collect();
        script
    }

    fn step(&self, at: u64, calm: bool, dice: &mut Dice) -> Step {
        let node = dice.one(&self.nodes).clone();
        let name = *dice.one(&NAMES);
        let load = *dice.one(&LOADS);
        match dice.below(100) {
            0..30 => Step::Load(node, load),
            30..33 => Step::LoadOfAll(load),
            33..40 => {
                let since = Exporter::Stale(at);
                let all = [Exporter::Missing, since, Exporter::Odd, Exporter::Twice];
                let up = dice.percent(60);
                Step::Exporter(node, if up { Exporter::Up } else { *dice.one(&all) })
            }
            40..43 => Step::AddNode(format!("more-{}", dice.below(4))),
            43..45 => Step::RemoveNode(node),
            45..48 => Step::ReplaceNode(node),
            48..51 => Step::Node(node, json!({"spec": {"unschedulable": dice.percent(50)}})),
            51..54 => {
                let ready = if dice.percent(60) { "True" } else { "Unknown" };
                let conditions = json!([{"type": "Ready", "status": ready}]);
                Step::NodeStatus(node, json!({"status": {"conditions": conditions}}))
            }
            54..57 => {
                let zone = json!(dice.one(&["a", "b"]));
                Step::Node(node, json!({"metadata": {"labels": {"zone": zone}}}))
            }
            57..63 => {
                let beat = json!({"status": {"heartbeat": at}});
                Step::NodeStatus(node, beat)
            }
            63..75 => Step::Watch(name, json!({"spec": self.edit(name, dice)})),
            75..77 => Step::CreateWatch(name),
            77..79 => Step::DeleteWatch(name),
            79..82 => {
                let values = [json!("true"), json!("false"), json!(null)];
                Step::Label(node, name, dice.one(&values).clone())
            }
            82..84 => Step::Compact,
            84..87 => {
                let place = usize::try_from(dice.below(2)).unwrap() % self.replicas;
                Step::Kill(place, dice.between(0, 20_000))
            }
            _ if calm => Step::Load(node, load),
            _ => {
                let from = Duration::from_millis(at);
                let until = from + Duration::from_millis(dice.between(1_000, 100_000));
                Step::Fault(FaultWindow { from, until, fault: fault(dice) })
            }
        }
    }

    fn edit(&self, name: &str, dice: &mut Dice) -> Value {
        match dice.below(9) {
            0 => json!({"maxUnfit": limits(dice)}),
            1 => json!({"minFit": floors(dice)}),
            2 => json!({"consecutive": consecutive(dice)}),
            3 => json!({"paused": dice.percent(50)}),
            4 => json!({"mode": dice.one(&["Enforce", "Observe"])}),
            5 => json!({"placement": dice.one(&["Required", "Preferred"])}),
            6 => json!({"nodeSelector": {"matchLabels": {"zone": dice.one(&["a", "b"])}}}),
            7 => json!({"nodeSelector": null}),
            _ => {
                let threshold = json!({"maxBandwidthPercent": dice.one(&["40", "60", "70"])});
                let spec = self.specs.iter().find(|(other, _)| *other == name);
                if dice.percent(50) { threshold } else { spec.unwrap().1.clone() }
            }
        }
    }
}

fn fault(dice: &mut Dice) -> Fault {
    let percent = dice.between(10, 100);
    let all = [
        Fault::Away,
        Fault::Refuses(500, percent),
        Fault::Refuses(503, percent),
        Fault::Refuses(429, percent),
        Fault::Loses(percent),
        Fault::Hangs(percent / 3),
        Fault::Conflicts(percent),
        Fault::Slow(dice.between(100, 6_000)),
        Fault::Lags(dice.between(100, 8_000)),
        Fault::Repeats(percent),
        Fault::Cuts(percent),
        Fault::Unreachable,
        Fault::Answers(500),
        Fault::Answers(503),
        Fault::Empty,
        Fault::Silent,
        Fault::Late(dice.between(500, 15_000)),
        Fault::Partial(percent),
    ];
    *dice.one(&all)
}
