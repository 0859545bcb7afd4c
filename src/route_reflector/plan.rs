//! What is to be done next. Pure.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    datastore,
    election::Target,
    gate::{Measured, Shut},
    memory::{Figures, Memory},
    report,
    settings::Settings,
    steps::{self, Goal, Step, Why, Write},
    topology::{BgpTopology, ReflectorLabels},
};
use crate::{
    api::{Mode, RouteReflectorSet, RouteReflectorSetStatus, route_reflector_set::Gate},
    controller::{Error, Notice, Plan},
    nodes::{Readiness, Speaker},
};

mod cleanup;
mod clock;
mod counting;
mod status;
mod target;

#[cfg(test)]
pub use cleanup::restoration;
pub use cleanup::{Back, asked, back};
use clock::{elapsed, known_step, last_step};
pub use clock::{seconds, waited, whole};
pub use counting::{discounted, expected};
use counting::{opens, unseen};
use status::figures;
pub use status::remarks;
pub use target::{Decision, decide, remembered};

/// How long nothing changes before the network is looked at again: one scrape of most installations.
pub const PERIOD: Duration = Duration::from_secs(30);

/// How often the gate is tried.
pub const TRY: Duration = Duration::from_secs(2);

/// After a step the next is looked for at once; the watches need a moment to bring it.
const NEXT: Duration = Duration::from_millis(250);

/// What was read of Calico, and everything put together.
pub type Read = (Arc<datastore::Snapshot>, BgpTopology);

/// What Prometheus counted, or why it did not.
pub type Counts = Result<Arc<Measured>, String>;

/// Facts.
pub struct Observed {
    /// The time.
    pub now: Timestamp,
    /// The older set that holds the cluster.
    pub held: Option<String>,
    /// The spec.
    pub settings: Result<Settings, String>,
    /// All nodes.
    pub speakers: Vec<Speaker>,
    /// Calico's objects, and everything put together.
    pub bgp: Result<Read, Calico>,
    /// What `candidates.fitnessRef` says.
    pub fitness: Option<Fitness>,
    /// What the gate says; `None` if nothing is to be asked.
    pub measured: Option<Counts>,
    /// What is remembered.
    pub memory: Memory,
}

/// Why the state of Calico's objects is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calico {
    /// The reason of the condition.
    pub reason: &'static str,
    /// In words.
    pub text: String,
}

/// What a `TrafficWatch` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fitness {
    /// The nodes that it marks unfit.
    pub unfit: BTreeSet<Arc<str>>,
    /// Why that is not to be acted on: it has no measurement, or is not there.
    pub frozen: Option<String>,
}

/// What is to be written.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// One step and its writes.
    pub step: Option<(Step, Vec<Write>)>,
    /// What the sessions of a BGPPeer have if the step creates one.
    pub session: datastore::Session,
    /// The nodes that are to have a `CalicoNodeStatus`, if that is what the gate asks.
    pub statuses: Vec<Arc<str>>,
    /// What is remembered from now on.
    pub memory: Option<Memory>,
}

/// What is next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing is left to do.
    Done,
    /// This.
    Take(Step),
    /// This, once the gate opens.
    Wait(Step, Shut),
    /// Nothing that is left can be done without costing routes; the first of it, or all, and why.
    Refuse(Option<Step>, steps::Refused),
}

/// Puts it all together.
///
/// # Errors
/// [`Error::Invalid`] and [`Error::Conflict`].
pub fn plan(
    set: &RouteReflectorSet,
    observed: &Observed,
) -> Result<Plan<Desired, RouteReflectorSetStatus>, Error> {
    if let Some(held) = &observed.held {
        return Err(Error::Conflict(held.clone()));
    }
    let settings = observed.settings.clone().map_err(Error::Invalid)?;
    if set.spec.paused {
        return Ok(report::paused(set, &observed.memory));
    }
    let (snapshot, bgp) = match &observed.bgp {
        Ok((snapshot, bgp)) => (snapshot, bgp),
        Err(calico) => return Ok(report::unknown(set, calico)),
    };
    if settings.migrate && snapshot.mesh && !snapshot.only_of_mesh.is_empty() {
        let text = format!(
            "spec.mesh: the mesh has settings that no BGPPeer can have, and Migrate would lose them: spec.{} of \
             BGPConfiguration default; remove it there, or use mesh: Leave",
            snapshot.only_of_mesh.join(", spec.")
        );
        return Ok(report::refused(set, observed.memory.clone(), &text));
    }
    let Decision { target, goal, left, unfit_since, unsound, refused } =
        match decide(set, observed, &settings, bgp) {
            Ok(decision) => decision,
            Err(refusal) => {
                let nobody = BTreeSet::new();
                let figures = Figures {
                    desired: observed.memory.figures.desired.clone(),
                    ..figures(bgp, &nobody, observed.measured.as_ref())
                };
                let memory = Memory {
                    figures: Arc::new(figures),
                    shut_since: None,
                    ..observed.memory.clone()
                };
                return Ok(report::refused(set, memory, &refusal.to_string()));
            }
        };
    let mut names = goal.peers.iter().map(|peer| &peer.name);
    let taken = names.find(|name| bgp.taken.contains(*name)).cloned();
    let mut view = View {
        set,
        observed,
        settings: &settings,
        snapshot,
        bgp,
        target: &target,
        left,
        unsound,
        next: Next::Done,
        taken,
        refused,
        unfit_since,
    };
    if view.taken.is_none() && target.freeze.is_none() && !snapshot.locked {
        view.next = view.choose(&goal);
    } else {
        view.left.clear();
    }
    Ok(view.finish(&goal))
}

/// All that a pass decides by.
pub(super) struct View<'a> {
    pub set: &'a RouteReflectorSet,
    pub observed: &'a Observed,
    pub settings: &'a Settings,
    pub snapshot: &'a datastore::Snapshot,
    pub bgp: &'a BgpTopology,
    pub target: &'a Target,
    pub left: Vec<Step>,
    /// Why they are not gone for.
    pub unsound: Option<steps::Refused>,
    pub next: Next,
    /// A BGPPeer of somebody else's that has a name of ours.
    pub taken: Option<String>,
    /// Why the topology that the spec asks for is not gone for; the one in use is kept up.
    pub refused: Option<String>,
    /// Since when reflectors have been unfit.
    pub unfit_since: BTreeMap<Arc<str>, Timestamp>,
}

/// Tries the steps that are left, in their order.
///
/// `unsound` is why the whole plan is not gone for: then only what repairs is done. `gate` says whether the
/// sessions are there that a step stands on.
pub fn choose(
    bgp: &BgpTopology,
    goal: &Goal,
    left: &[Step],
    unsound: Option<&steps::Refused>,
    gate: impl Fn(&Step) -> Result<(), Shut>,
) -> Next {
    let harmless = |step: &&Step| step.repairs() || **step == Step::Mesh(true);
    if let Some(why) = unsound {
        let repair = left.iter().find(harmless).cloned();
        return repair.map_or_else(|| Next::Refuse(None, why.clone()), Next::Take);
    }
    let mut refused = None;
    for step in left.iter().flat_map(Step::tries) {
        let after = step.after(&bgp.fabric, &goal.label.0, &goal.label.1);
        if let Err(why) = step.admit(&bgp.fabric, &after) {
            refused.get_or_insert((step, why));
            continue;
        }
        if !step.needs_gate() {
            return Next::Take(step);
        }
        return match gate(&step) {
            Ok(()) => Next::Take(step),
            Err(shut) => Next::Wait(step, shut),
        };
    }
    refused.map_or(Next::Done, |(step, why)| Next::Refuse(Some(step), why))
}

impl View<'_> {
    fn last_step(&self) -> Option<Timestamp> {
        last_step(self.set, &self.observed.memory)
    }

    fn leaving(&self) -> BTreeSet<Arc<str>> {
        self.target.leaving.iter().map(|leaving| Arc::clone(&leaving.node)).collect()
    }

    fn choose(&self, goal: &Goal) -> Next {
        let leaving = self.leaving();
        let last = self.last_step();
        let gate = |_: &Step| {
            let discounted = discounted(self.bgp, &leaving);
            let expected = expected(self.bgp, &discounted, false);
            opens(self.settings, &expected, self.observed, last)
        };
        let unsound = self.unsound.as_ref();
        let Some(stale) = &self.snapshot.stale else {
            return choose(self.bgp, goal, &self.left, unsound, gate);
        };
        let nodes: Vec<Step> = self.left.iter().filter(|s| s.writes_nodes()).cloned().collect();
        let next = choose(self.bgp, goal, &nodes, unsound, gate);
        match self.left.iter().find(|step| !step.writes_nodes()) {
            Some(step) if matches!(next, Next::Done | Next::Refuse(..)) => {
                Next::Wait(step.clone(), Shut::Datastore(stale.to_string()))
            }
            _ => next,
        }
    }

    fn finish(self, goal: &Goal) -> Plan<Desired, RouteReflectorSetStatus> {
        let writes = self.set.spec.mode == Mode::Enforce;
        let now = self.observed.now;
        let mut memory = self.observed.memory.clone();
        memory.shut_since = match &self.next {
            Next::Wait(..) => memory.shut_since.or(Some(now)),
            _ => None,
        };
        let refusal = match &self.next {
            Next::Refuse(step, why) => Some(refusal(step.as_ref(), why)),
            _ => self.refused.clone(),
        };
        if refusal.is_some() && refusal != memory.refused {
            memory.counters.refusals += 1;
        }
        let news = refusal != memory.refused;
        memory.refused = refusal;
        let figures = Figures {
            desired: if self.target.freeze.is_some() {
                memory.figures.desired.clone()
            } else {
                self.target.by_zone.clone()
            },
            steps_left: self.left.len(),
            waiting_since: memory.shut_since,
            ..figures(self.bgp, &self.leaving(), self.observed.measured.as_ref())
        };
        let (status, conditions, mut notices) =
            report::report(&self, &figures, &memory, known_step(self.set, &memory));
        if news && let Some(text) = &memory.refused {
            notices.push(Notice {
                warning: true,
                reason: "PlanRefused",
                note: text.clone(),
                node: None,
            });
        }
        let step = match &self.next {
            Next::Take(step) if writes => Some((step.clone(), self.bgp.writes(step, goal))),
            _ => None,
        };
        let statuses = match (&self.next, self.settings.gate) {
            // They are Calico's objects.
            _ if self.snapshot.stale.is_some() => memory.asked.clone(),
            (Next::Wait(..), Gate::NodeStatus) if writes => self.asked(&memory),
            _ => vec![],
        };
        let period = match &self.next {
            Next::Take(_) if writes => NEXT,
            // The watch tells when it answers.
            Next::Wait(_, Shut::Datastore(_)) => PERIOD,
            Next::Wait(..) if writes => TRY,
            _ => self.due().map_or(PERIOD, |due| due.clamp(TRY, PERIOD)),
        };
        memory.figures = Arc::new(figures);
        let session = self.snapshot.session();
        let desired = Desired { step, session, statuses, memory: Some(memory) };
        Plan { desired, status, conditions, notices, period }
    }

    /// When the next reflector has been NotReady or unfit for long enough: nothing else changes at that moment.
    fn due(&self) -> Option<Duration> {
        let rules = &self.settings.rules;
        let left = |time: Duration, since: Timestamp| {
            time.checked_sub(elapsed(since, self.observed.now)).filter(|left| !left.is_zero())
        };
        let reflects =
            |node: &Arc<str>| self.bgp.labels(node).is_some_and(ReflectorLabels::is_reflector);
        let speakers = self.observed.speakers.iter();
        let not_ready = speakers.filter_map(|speaker| match speaker.readiness {
            Readiness::NotReady(Some(since)) if reflects(&speaker.name) => {
                left(rules.replace_after, Timestamp::from_second(since).ok()?)
            }
            _ => None,
        });
        let unfit = self.unfit_since.iter().filter(|(node, _)| reflects(node));
        not_ready.chain(unfit.filter_map(|(_, since)| left(rules.demote_after, *since))).min()
    }

    /// The nodes whose `CalicoNodeStatus` is still wanted.
    fn asked(&self, memory: &Memory) -> Vec<Arc<str>> {
        let discounted = discounted(self.bgp, &self.leaving());
        let expected = expected(self.bgp, &discounted, false);
        unseen(&expected, memory, self.last_step())
    }
}

/// What is refused, and why, in one line.
#[must_use]
pub fn refusal(step: Option<&Step>, why: &steps::Refused) -> String {
    step.map_or_else(|| format!("the plan: {why}"), |step| format!("{step}: {why}"))
}

/// What a pass is going to need to know.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    /// Reflectors that are to be none.
    pub leaving: BTreeSet<Arc<str>>,
    /// A node is to become a reflector.
    pub chooses: bool,
    /// Something is left to be done.
    pub moves: bool,
}

/// The same decision without the gate.
#[must_use]
pub fn sketch(set: &RouteReflectorSet, observed: &Observed, deleting: bool) -> Sketch {
    let (Ok(settings), Ok((_, bgp))) = (&observed.settings, &observed.bgp) else {
        return Sketch::default();
    };
    if deleting {
        return Sketch { moves: true, ..Sketch::default() };
    }
    let Ok(Decision { target, left, .. }) = decide(set, observed, settings, bgp) else {
        return Sketch::default();
    };
    let promotes =
        |step: &Step| matches!(step, Step::Promote { why: Why::Repair | Why::Promote, .. });
    let chooses = left.iter().any(promotes);
    let leaving = target.leaving.iter().map(|leaving| Arc::clone(&leaving.node)).collect();
    Sketch { leaving, chooses, moves: !left.is_empty() }
}

#[cfg(test)]
mod tests;
