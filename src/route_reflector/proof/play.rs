//! The operator at work: its own decisions, one write after another, each judged by the lab.
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::network::Network;
use crate::{
    api::{CLUSTER_ID_ANNOTATION, RouteReflectorSet},
    nodes::{Readiness, Speaker},
    route_reflector::{
        dry_run::Stage,
        memory::Memory,
        plan::{self, Calico, Observed},
        settings::Settings,
        steps::{self, Next, Step, Why},
    },
};

/// More steps than any change of a layout needs: each reflector is promoted, renumbered, joined to
/// a bridge and demoted, each group has a peer that is written twice.
const MOST_STEPS: usize = 400;

/// The end of a sequence of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing is left to do.
    Done,
    /// The same, in another topology or size than requested: the sentence.
    Kept(String),
    /// There is no such layout: the sentence.
    Refused(String),
    /// No further step is possible.
    Stuck(String),
    /// It was asked to stop.
    Paused,
}

/// The cost of a sequence of steps.
#[derive(Clone, Debug)]
pub struct Way {
    pub end: End,
    pub steps: usize,
    pub interrupted: BTreeMap<String, usize>,
    /// The nodes that were promoted or demoted.
    pub moved: BTreeSet<String>,
    pub harm: Vec<String>,
    /// The steps, in words.
    pub words: Vec<String>,
}

/// A cluster and its set.
#[derive(Clone)]
pub struct Play {
    pub set: RouteReflectorSet,
    pub stage: Stage,
    pub now: Timestamp,
}

/// Returns the cluster id with which a node reflects.
pub fn cluster_id(speaker: &Speaker) -> Option<&str> {
    speaker.calico.get(CLUSTER_ID_ANNOTATION).map(|id| &**id)
}

impl Play {
    pub fn new(set: RouteReflectorSet, stage: Stage) -> Self {
        Self { set, stage, now: Timestamp::from_second(1_000_000).expect("a time") }
    }

    /// The names of the nodes that reflect.
    pub fn reflectors(&self) -> Vec<String> {
        let all = self.stage.speakers.iter().filter(|speaker| cluster_id(speaker).is_some());
        all.map(|speaker| speaker.name.to_string()).collect()
    }

    pub fn zone(&self, node: &str) -> Option<String> {
        let speaker = self.stage.speakers.iter().find(|speaker| *speaker.name == *node)?;
        speaker.labels.get("topology.kubernetes.io/zone").map(ToString::to_string)
    }

    /// A node has not been ready for longer than `replaceAfter`.
    pub fn kill(&mut self, node: &str) {
        let since = self.now.as_second() - 3_600;
        self.stage.edit(node, |speaker| speaker.readiness = Readiness::NotReady(Some(since)));
    }

    pub fn cordon(&mut self, node: &str) {
        self.stage.edit(node, |speaker| speaker.cordoned = true);
    }

    fn observed(&self, settings: &Settings) -> Observed {
        Observed {
            now: self.now,
            held: None,
            settings: Ok(settings.clone()),
            misconfigured: None,
            speakers: self.stage.speakers.clone(),
            bgp: Err(Calico { reason: "Unknown", text: String::new() }),
            fitness: None,
            measured: None,
            busy: BTreeMap::new(),
            // No memory: the process may have been killed before each step.
            memory: Memory::default(),
        }
    }

    /// Continues until nothing is left, or for this many steps.
    pub fn go(&mut self, most: usize) -> Way {
        let mut way = Way {
            end: End::Paused,
            steps: 0,
            interrupted: BTreeMap::new(),
            moved: BTreeSet::new(),
            harm: vec![],
            words: vec![],
        };
        let settings = match Settings::of(&self.set) {
            Ok(settings) => settings,
            Err(error) => return Way { end: End::Refused(error.to_string()), ..way },
        };
        let label = (&*settings.label.0, &*settings.label.1);
        let mut network = Network::of(&self.stage);
        while way.steps < most {
            let bgp = self.stage.bgp(settings.keys(), "main");
            let decision = match plan::decide(&self.set, &self.observed(&settings), &settings, &bgp)
            {
                Ok(decision) => decision,
                Err(refusal) => return Way { end: End::Refused(refusal), ..way },
            };
            if decision.target.freeze.is_some() {
                return Way { end: End::Stuck("frozen".into()), ..way };
            }
            self.set.status = Some(plan::remembered(&self.set, &decision, &bgp, self.now));
            let unsound = decision.unsound.as_ref();
            let next = steps::choose(&bgp, &decision.goal, &decision.left, unsound, |_| Ok(()));
            let step = match next {
                Next::Done => {
                    let mut notes = decision.target.notes.iter().chain(&decision.refused);
                    let end = notes.next().map_or(End::Done, |note| End::Kept(note.clone()));
                    return Way { end, ..way };
                }
                Next::Take(step) => step,
                Next::Wait(step, _) => {
                    return Way { end: End::Stuck(format!("waits: {step}")), ..way };
                }
                Next::Refuse(step, why) => {
                    let text = steps::refusal(step.as_ref(), &why);
                    // The plan as a whole, before anything was done for it.
                    let refused = step.is_none() && way.steps == 0;
                    let end = if refused { End::Refused(text) } else { End::Stuck(text) };
                    return Way { end, ..way };
                }
            };
            if way.steps == MOST_STEPS {
                return Way { end: End::Stuck("no end".into()), ..way };
            }
            let mesh = self.stage.snapshot.mesh;
            self.stage.take(&step, label, "main");
            way.steps += 1;
            way.words.push(step.to_string());
            // Where no route depends on BGP, its routes may go, with the last step beside a mesh.
            network = if decision.retires.is_some() && (!mesh || step == Step::Mesh(false)) {
                Network::of(&self.stage)
            } else {
                self.judge(&step, &network, &mut way)
            };
        }
        way
    }

    fn judge(&self, step: &Step, before: &Network, way: &mut Way) -> Network {
        let after = Network::of(&self.stage);
        let changed: BTreeSet<String> = step.changed().iter().map(ToString::to_string).collect();
        if matches!(
            step,
            Step::Promote { why: Why::Promote | Why::Repair, .. } | Step::Demote { .. }
        ) {
            way.moved.extend(changed.iter().cloned());
        }
        for harm in before.harm(&after, &changed) {
            let word = step.word();
            let pair = harm.pair.map(|(who, whose)| format!(" ({who} of {whose})"));
            let pairs =
                if harm.pairs > 0 { format!(", {} pairs", harm.pairs) } else { String::new() };
            if way.harm.is_empty() {
                way.harm.extend(before.disagreement().into_iter().chain(after.disagreement()));
            }
            way.harm.push(format!("{}, {word}{pairs}{}", harm.what, pair.unwrap_or_default()));
        }
        for node in changed {
            *way.interrupted.entry(node).or_default() += 1;
        }
        after
    }
}
