//! Judgments in sequence, without a cluster: labels and status are fed back as the API server
//! would.
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    super::{
        children::Applied,
        deployments::DeploymentFacts,
        limits::Headroom,
        query::Measure,
        reading::{Measurement, NodeMeasurement},
    },
    *,
};
use crate::{
    api::traffic_watch::{NodeState, NodeStatus, Placement, Summary},
    nodes::{Incarnation, NodeFacts},
    prometheus::{Class, QueryError},
};

mod bad_days;
mod details;
mod eviction;
mod judging;
mod policies;
mod properties;
mod reservation;
mod scale;
mod scrapes;
mod without_evidence;

const KEY: &str = "web.traffic.example.com/unfit";

/// The report of one node's exporter: percent, or one of the kinds of missing data.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Percent(f64),
    Nothing,
    NaN,
    Old,
    NoSpeed,
    /// Two links, each with this percentage in use.
    Both(f64),
}

/// A cluster as the plan sees it.
struct World {
    watch: TrafficWatch,
    labels: BTreeMap<String, Option<String>>,
    taints: BTreeMap<String, String>,
    /// Nodes that are not Ready.
    away: BTreeSet<String>,
    lives: BTreeMap<String, Incarnation>,
    headroom: Headroom,
    /// Wanted and available, if there is a Deployment.
    replicas: Option<(i32, i32)>,
    /// `None`: they cannot be listed.
    pods: Option<Vec<PodFacts>>,
    /// Offers of nodes and requests of pods.
    bandwidth: reservation::Bandwidth,
    memory: Memory,
    tick: u64,
    second: i64,
}

/// The effects of one judgment.
#[derive(Debug, PartialEq)]
struct Step {
    /// Labels set, and labels removed.
    writes: Vec<(String, Option<bool>)>,
    evicted: Vec<String>,
    states: Vec<NodeState>,
    notices: Vec<&'static str>,
    /// Amounts set, and resources removed, by node.
    offers: Vec<(String, Option<u64>)>,
    conditions: Vec<Verdict>,
    deployment: bool,
}

/// A node whose link has a speed of 100 bytes per second.
fn sending(percent: f64, age: f64) -> NodeMeasurement {
    NodeMeasurement::default().sending("", percent, age).with("", &[(Measure::Speed, 100.0)])
}

impl World {
    fn new(nodes: &[&str], spec: Value) -> Self {
        let mut spec = spec;
        if ["maxBandwidthPercent", "maxBandwidth", "criteria"].iter().all(|k| spec.get(k).is_none())
        {
            spec["maxBandwidthPercent"] = "60".into();
        }
        let watch = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 1}, "spec": spec
        });
        Self {
            watch: serde_json::from_value(watch).unwrap(),
            labels: nodes.iter().map(|&n| (n.to_owned(), None)).collect(),
            taints: BTreeMap::new(),
            away: BTreeSet::new(),
            lives: BTreeMap::new(),
            headroom: Headroom::UNLIMITED,
            replicas: None,
            pods: Some(vec![]),
            bandwidth: reservation::Bandwidth::default(),
            memory: Memory::default(),
            tick: 0,
            second: 1_000_000,
        }
    }

    fn observed(&self, readings: Vec<Result<Measurement, QueryError>>) -> Observed {
        Observed {
            now: Timestamp::from_second(self.second).unwrap(),
            tick: self.tick,
            nodes: self
                .labels
                .iter()
                .map(|(name, label)| NodeFacts {
                    label: label.as_deref().map(Into::into),
                    taint: self.taints.get(name).map(|effect| effect.as_str().into()),
                    schedulable: !self.away.contains(name.as_str()),
                    open: !self.away.contains(name.as_str()),
                    incarnation: self.lives.get(name).copied().unwrap_or_default(),
                    unfit: label.as_deref() == Some("true"),
                    ..NodeFacts::named(name.as_str().into())
                })
                .collect(),
            strays: vec![],
            readings: Some(readings.into_iter().map(|r| r.map(Arc::new)).collect()),
            memory: Arc::new(self.memory.clone()),
            claim: Claim::Ours,
            headroom: self.headroom,
            insecure: false,
            deployment: self.replicas.map(|(wanted, available)| DeploymentFacts {
                wanted,
                available,
                ..DeploymentFacts::default()
            }),
            pods: self.pods.clone().ok_or_else(|| "forbidden".to_owned()),
            reservation: self.bandwidth.seen(&self.watch),
        }
    }

    /// The next tick, with the value of each node in the order of their names.
    fn judge(&mut self, says: &[Says]) -> Step {
        self.next();
        let reading = self.reading(says);
        self.pass(vec![Ok(reading)])
    }

    /// The same with several measures; `None` is one with a failing request.
    fn judge_all(&mut self, measures: &[Option<&[Says]>]) -> Step {
        self.next();
        let readings =
            measures.iter().map(|says| says.map(|says| self.reading(says)).ok_or_else(no));
        let readings = readings.collect();
        self.pass(readings)
    }

    fn fail(&mut self) -> Step {
        self.next();
        self.pass(vec![Err(no())])
    }

    fn next(&mut self) {
        self.tick += 1;
        self.second += 10;
    }

    fn reading(&self, says: &[Says]) -> Measurement {
        let mut nodes = BTreeMap::new();
        for (name, says) in self.labels.keys().zip(says) {
            let (percent, age) = match *says {
                Says::Nothing => continue,
                Says::Percent(percent) | Says::Both(percent) => (percent, 1.0),
                Says::NaN => (f64::NAN, 1.0),
                Says::NoSpeed => (1.0, 1.0),
                Says::Old => (1.0, 1000.0),
            };
            let mut node = sending(percent, age);
            match says {
                Says::NoSpeed => {
                    node = NodeMeasurement::default().sending("", percent, age);
                }
                Says::Old => {}
                Says::Both(_) => {
                    let two = ["eth0", "eth1"].into_iter();
                    node = two.fold(NodeMeasurement::default(), |node, link| {
                        node.sending(link, percent, age).with(link, &[(Measure::Speed, 100.0)])
                    });
                }
                _ => node.put(Measure::Own, Some(percent), None),
            }
            nodes.insert(name.as_str().into(), node);
        }
        Measurement::of(nodes)
    }

    /// One pass, its writes carried out.
    fn pass(&mut self, readings: Vec<Result<Measurement, QueryError>>) -> Step {
        let observed = self.observed(readings);
        self.carry_out(&observed)
    }

    fn carry_out(&mut self, observed: &Observed) -> Step {
        let plan = plan(&self.watch, observed).unwrap();
        let desired = plan.desired;
        let mut writes = vec![];
        for write in &desired.nodes {
            let node = write.node.to_string();
            let value = match write.label {
                Edit::Keep => None,
                Edit::Set(unfit) => Some(Some(unfit)),
                Edit::Remove => Some(None),
            };
            if let Some(value) = value {
                self.labels.insert(node.clone(), value.map(|v| v.to_string()));
                writes.push((node.clone(), value));
            }
            match write.taint {
                Edit::Keep => {}
                Edit::Set(effect) => drop(self.taints.insert(node, effect.as_str().into())),
                Edit::Remove => drop(self.taints.remove(&node)),
            }
        }
        let offers = self.bandwidth.carry_out(&desired.offers);
        let memory = desired.memory.unwrap();
        let states = self.labels.keys().map(|n| memory.nodes.get(n).unwrap().state).collect();
        self.memory = memory;
        if let Some(child) = &desired.deployment {
            let outcome = Outcome::Refused {
                text: "so that it is not applied again".into(),
                at: Timestamp::from_second(self.second).unwrap(),
                there: None,
            };
            self.memory.applied = Some(Applied { hash: child.hash, outcome });
        }
        let mut status = plan.status;
        let generation = self.watch.metadata.generation;
        for verdict in &plan.conditions {
            let now = Timestamp::from_second(self.second).unwrap();
            crate::controller::conditions::set(&mut status.conditions, verdict, generation, now);
        }
        self.watch.status = Some(status);
        Step {
            writes,
            evicted: desired.evictions.iter().map(|pod| pod.name.clone()).collect(),
            states,
            notices: plan.notices.iter().map(|n| n.reason).collect(),
            offers,
            conditions: plan.conditions,
            deployment: desired.deployment.is_some(),
        }
    }

    /// The process dies and another takes over: labels and status are all it knows.
    fn restart(&mut self) {
        self.memory = Memory::default();
    }

    fn label(&self, node: &str) -> Option<&str> {
        self.labels[node].as_deref()
    }

    fn node(&self, node: &str) -> &NodeStatus {
        &self.watch.status.as_ref().unwrap().nodes[node]
    }
}

fn no() -> QueryError {
    QueryError::new(Class::Unreachable, "refused")
}

use NodeState::{Fit, Suppressed, Unfit, Unknown};
use Says::{Both, NaN, NoSpeed, Nothing, Old, Percent};
