//! Decides what to do next. Pure.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    datastore::{self, Idle},
    gate::{GateClosed, Measured, Wanted},
    memory::{Blocked, Figures, Memory, elapsed, known_step, last_step},
    overlap,
    report::{self, Decided},
    settings::Settings,
    steps::{self, Goal, Next, Step, Why, Write},
    topology::{BgpTopology, ReflectorLabels},
};
use crate::{
    api::{Mode, RouteReflectorSet, RouteReflectorSetStatus, route_reflector_set::Gate},
    controller::{Error, Notice, Plan, Verdict, disruptions::Busy, verdict},
    nodes::{Readiness, Speaker},
};

mod counting;
mod eligible;
pub(super) mod retire;
mod target;

use counting::remarks;
pub use counting::{discounted, expected, figures, opens, unseen};
pub use target::{Decision, decide, remembered};

/// Time between two passes without any change: one scrape of most installations.
pub const PERIOD: Duration = Duration::from_secs(30);

/// Time between two checks of the gate.
pub const TRY: Duration = Duration::from_secs(2);

/// After a step the next is determined at once; the watches need a moment to deliver it.
const NEXT: Duration = Duration::from_millis(250);

/// The data read from Calico, and the combined topology.
pub type Read = (Arc<datastore::Snapshot>, BgpTopology);

/// Prometheus' count of sessions, or the reason why there is none.
pub type Counts = Result<Arc<Measured>, String>;

/// Facts.
pub struct Observed {
    /// The time.
    pub now: Timestamp,
    /// The older set that serves the cluster.
    pub held: Option<String>,
    /// The spec.
    pub settings: Result<Settings, String>,
    /// The mistake in the fields that only the gate needs: it stays shut, and only repairs are
    /// done.
    pub misconfigured: Option<String>,
    /// All nodes.
    pub speakers: Vec<Speaker>,
    /// Calico's objects, and everything put together.
    pub bgp: Result<Read, Calico>,
    /// The fitness from `candidates.fitnessRef`.
    pub fitness: Option<Fitness>,
    /// The measurements for the gate; `None` if none are needed.
    pub measured: Option<Counts>,
    /// Nodes in whose zones another object disrupts something.
    pub busy: BTreeMap<Arc<str>, Busy>,
    /// The memory of earlier passes.
    pub memory: Memory,
}

impl Observed {
    /// Succeeds if no other object disrupts a zone of the nodes that a step changes.
    ///
    /// # Errors
    /// The object that does.
    pub(super) fn undisturbed(&self, step: &Step) -> Result<(), GateClosed> {
        if self.busy.is_empty() {
            return Ok(());
        }
        let busy = step.changed().iter().find_map(|node| self.busy.get(node).cloned());
        busy.map_or(Ok(()), |busy| Err(GateClosed::Busy(busy)))
    }
}

/// Why the state of Calico's objects is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calico {
    /// The reason of the condition.
    pub reason: &'static str,
    /// In words.
    pub text: String,
}

/// The state of a `TrafficWatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fitness {
    /// The nodes that it marks unfit.
    pub unfit: BTreeSet<Arc<str>>,
    /// Why that is not to be acted on: it has no measurement, or is not there.
    pub frozen: Option<String>,
}

/// The writes to make.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// One step and its writes.
    pub step: Option<(Step, Vec<Write>)>,
    /// The settings of a BGPPeer's sessions if the step creates one.
    pub session: datastore::Session,
    /// The changes of the `CalicoNodeStatus` objects.
    pub reports: Reports,
    /// The new memory.
    pub memory: Option<Memory>,
}

/// The changes of the `CalicoNodeStatus` objects, with which nodes report their sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reports {
    /// They stay.
    #[default]
    Keep,
    /// These nodes get one, all others lose theirs.
    Start(Vec<Arc<str>>),
    /// All are deleted.
    Stop,
}

impl Reports {
    /// From the nodes that have one to those that need one; the memory notes the latter.
    pub(super) fn next(memory: &mut Memory, needed: Vec<Arc<str>>) -> Self {
        let before = std::mem::replace(&mut memory.asked, needed);
        if before == memory.asked && !memory.unsettled {
            return Self::Keep;
        }
        if memory.asked.is_empty() { Self::Stop } else { Self::Start(memory.asked.clone()) }
    }
}

/// Decides one pass.
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
    let misconfigured = observed.misconfigured.as_deref();
    if set.spec.paused {
        let paused = || Ok(plan_paused(set, &observed.memory));
        return misconfigured.map_or_else(paused, |text| Err(Error::Invalid(text.to_owned())));
    }
    let refused = |memory: Memory, why: &str| match misconfigured {
        Some(text) => plan_misconfigured(set, memory, text),
        None => plan_refused(set, memory, why),
    };
    let (snapshot, bgp) = match &observed.bgp {
        Ok((snapshot, bgp)) => (snapshot, bgp),
        Err(calico) => return Ok(plan_unknown(set, calico)),
    };
    let idle = snapshot.routing.idle();
    if let Some(idle) = idle.as_ref().filter(|_| !settings.retire) {
        return Ok(plan_idle(set, &observed.memory, idle));
    }
    // The critical alerts read these figures, also where nothing can be decided.
    let counted = || {
        if idle.is_some() {
            return no_figures(&observed.memory);
        }
        let figures = Figures {
            desired: observed.memory.desired(),
            ..figures(bgp, &BTreeSet::new(), observed.measured.as_ref())
        };
        let figures = Some(Arc::new(figures));
        Memory { figures, idle: false, shut_since: None, ..observed.memory.clone() }
    };
    if settings.migrate && snapshot.mesh && !snapshot.only_of_mesh.is_empty() {
        let text = format!(
            "spec.mesh: the mesh has settings that no BGPPeer can have, and Migrate would lose them: spec.{} of \
             BGPConfiguration default; remove it there, or use mesh: Leave",
            snapshot.only_of_mesh.join(", spec.")
        );
        return Ok(refused(counted(), &text));
    }
    let Decision { target, goal, mut left, unfit_since, unsound, refused, obstacles, retires } =
        match decide(set, observed, &settings, bgp) {
            Ok(decision) => decision,
            Err(refusal) => {
                let mut plan = refused(counted(), &refusal);
                plan.status.mesh_before = retire::mesh_before(set, bgp, false);
                plan.conditions.extend(idle.as_ref().map(not_judged));
                return Ok(plan);
            }
        };
    let mut names = goal.peers.iter().map(|peer| &peer.name);
    let taken = names.find(|name| bgp.taken.contains(*name)).cloned();
    let stands = taken.is_some() || target.freeze.is_some() || snapshot.locked;
    let session = if retires.is_some() {
        Ok(datastore::Session::default())
    } else {
        overlap::settings(snapshot, bgp, &goal)
    };
    if stands {
        left.clear();
    } else if misconfigured.is_some() || session.is_err() {
        left.retain(|step| step.repairs() || *step == Step::Mesh(true));
    }
    let fitness = observed.fitness.as_ref();
    let decided = Decided {
        set,
        now: observed.now,
        timeout: settings.timeout,
        frozen: fitness.and_then(|fitness| fitness.frozen.as_deref()),
        snapshot,
        bgp,
        target: &target,
        left,
        next: Next::Done,
        misconfigured,
        taken,
        contested: session.as_ref().err().cloned(),
        refused,
        obstacles,
        retires,
        unfit_since,
        remarks: [remarks(bgp, observed.measured.as_ref()), snapshot.routing.remarks()].concat(),
    };
    let session = session.unwrap_or_default();
    let mut pass = Pass { observed, settings: &settings, unsound, session, decided };
    if !stands {
        pass.decided.next = pass.choose(&goal);
    }
    Ok(pass.finish(&goal))
}

/// A pass that has a target.
struct Pass<'a> {
    observed: &'a Observed,
    settings: &'a Settings,
    /// Why the steps to the target are not taken.
    unsound: Option<steps::Refused>,
    /// The settings of a new BGPPeer.
    session: datastore::Session,
    decided: Decided<'a>,
}

impl Pass<'_> {
    fn last_step(&self) -> Option<Timestamp> {
        last_step(self.decided.set, &self.observed.memory, self.observed.now)
    }

    fn leaving(&self) -> BTreeSet<Arc<str>> {
        self.decided.target.leaving.iter().map(|leaving| Arc::clone(&leaving.node)).collect()
    }

    /// The next step. One that the API server has just refused waits, and one that another client
    /// undoes again and again.
    fn choose(&self, goal: &Goal) -> Next {
        match self.choose_accepted(goal) {
            Next::Take(step) if self.is_contested(&step) => Next::Wait(step, GateClosed::Contested),
            next => next,
        }
    }

    fn is_contested(&self, step: &Step) -> bool {
        let Some((rounds, at)) = self.observed.memory.taken.get(&step.deed()) else {
            return false;
        };
        rounds.left(elapsed(*at, self.observed.now)).is_some_and(|left| !left.is_zero())
    }

    fn choose_accepted(&self, goal: &Goal) -> Next {
        match (self.choose_any(goal), &self.observed.memory.blocked) {
            (Next::Take(step), Some(blocked)) if blocked.step == step => {
                let again = |at| elapsed(at, self.observed.now) >= PERIOD;
                if blocked.at.is_none_or(again) {
                    return Next::Take(step);
                }
                Next::Wait(step, GateClosed::Refused(blocked.verdict.message.clone()))
            }
            (next, _) => next,
        }
    }

    fn choose_any(&self, goal: &Goal) -> Next {
        let Decided { bgp, left, snapshot, .. } = &self.decided;
        let leaving = self.leaving();
        let last = self.last_step();
        let gate = |step: &Step| {
            if let Some(witness) = &self.decided.retires {
                return self.retires(witness, step);
            }
            bgp.known()?;
            self.observed.undisturbed(step)?;
            let discounted = discounted(bgp, &leaving);
            let expected = expected(bgp, &discounted, false);
            opens(self.settings, &expected, self.observed, last)?;
            steps::allowed(snapshot, step)
        };
        let unsound = self.unsound.as_ref();
        let Some(stale) = &snapshot.stale else {
            return steps::choose(bgp, goal, left, unsound, gate);
        };
        let nodes: Vec<Step> = left.iter().filter(|s| s.writes_nodes()).cloned().collect();
        let next = steps::choose(bgp, goal, &nodes, unsound, gate);
        match left.iter().find(|step| !step.writes_nodes()) {
            Some(step) if matches!(next, Next::Done | Next::Refuse(..)) => {
                Next::Wait(step.clone(), GateClosed::Datastore(stale.to_string()))
            }
            _ => next,
        }
    }

    fn finish(self, goal: &Goal) -> Plan<Desired, RouteReflectorSetStatus> {
        let Decided { set, target, bgp, snapshot, next, .. } = &self.decided;
        let writes = set.spec.mode == Mode::Enforce;
        let now = self.observed.now;
        let mut memory = self.observed.memory.clone();
        let witnessed = matches!(self.decided.retires, Some(Ok(_)));
        memory.shut_since = match next {
            // It ends by itself.
            Next::Wait(_, GateClosed::Routes(_)) if witnessed => None,
            Next::Wait(..) => memory.shut_since.or(Some(now)),
            _ => None,
        };
        memory.witnessed = memory.witnessed.or(Some(now)).filter(|_| witnessed);
        memory.blocked = match next {
            Next::Wait(step, GateClosed::Refused(text)) if memory.blocked.is_none() => {
                let verdict = verdict("Ready", Some(false), "Conflict", text.clone());
                Some(Blocked { step: step.clone(), verdict, at: None })
            }
            _ => memory.blocked.filter(|blocked| self.decided.left.contains(&blocked.step)),
        };
        let refusal = match next {
            Next::Refuse(step, why) => Some(steps::refusal(step.as_ref(), why)),
            _ => self.decided.refused.clone(),
        };
        if refusal.is_some() && refusal != memory.refused {
            memory.counters.refusals += 1;
        }
        let news = refusal != memory.refused;
        memory.refused = refusal;
        let mut figures = Figures {
            desired: if target.freeze.is_some() {
                memory.desired()
            } else {
                target.by_zone.clone()
            },
            steps_left: self.decided.left.len(),
            waiting_since: memory.shut_since,
            ..figures(bgp, &self.leaving(), self.observed.measured.as_ref())
        };
        if self.decided.retires.is_some() {
            figures =
                Figures { retiring: true, missing: None, missing_without_one: None, ..figures };
        }
        let (status, conditions, mut notices) =
            report::report(&self.decided, &figures, &memory, known_step(set, &memory, now));
        if news && let Some(text) = &memory.refused {
            notices.push(Notice {
                warning: true,
                reason: "PlanRefused",
                note: text.clone(),
                node: None,
            });
        }
        let step = match next {
            Next::Take(step) if writes => Some((step.clone(), goal.writes(step, bgp))),
            _ => None,
        };
        let needed = match (next, self.settings.gate) {
            // They are Calico's objects.
            _ if snapshot.stale.is_some() => None,
            (Next::Wait(..), Gate::NodeStatus) if writes => Some(self.unseen(&memory)),
            _ => Some(vec![]),
        };
        let reports = needed.map(|needed| Reports::next(&mut memory, needed));
        let mut reports = reports.unwrap_or_default();
        // A process before this one may have left some.
        let first = memory.began == Some(now) && snapshot.stale.is_none();
        if first && writes && self.settings.gate == Gate::NodeStatus && reports == Reports::Keep {
            reports = Reports::Stop;
        }
        let period = match next {
            Next::Take(_) if writes => NEXT,
            // The watch signals when it answers; who programs the routes is read each time.
            Next::Wait(_, GateClosed::Datastore(_) | GateClosed::Routes(_)) => PERIOD,
            Next::Wait(..) if writes => TRY,
            _ => self.due().map_or(PERIOD, |due| due.clamp(TRY, PERIOD)),
        };
        memory.figures = Some(Arc::new(figures));
        memory.idle = false;
        let session = self.session;
        let desired = Desired { step, session, reports, memory: Some(memory) };
        Plan { desired, status, conditions, notices, period }
    }

    /// The time until the next reflector has been NotReady or unfit for long enough: nothing else
    /// changes at that moment.
    fn due(&self) -> Option<Duration> {
        let rules = &self.settings.rules;
        let left = |time: Duration, since: Timestamp| {
            time.checked_sub(elapsed(since, self.observed.now)).filter(|left| !left.is_zero())
        };
        let reflects = |node: &Arc<str>| {
            self.decided.bgp.labels(node).is_some_and(ReflectorLabels::is_reflector)
        };
        let speakers = self.observed.speakers.iter();
        let not_ready = speakers.filter_map(|speaker| match speaker.readiness {
            Readiness::NotReady(Some(since)) if reflects(&speaker.name) => {
                left(rules.replace_after, Timestamp::from_second(since).ok()?)
            }
            _ => None,
        });
        let unfit = self.decided.unfit_since.iter().filter(|(node, _)| reflects(node));
        not_ready.chain(unfit.filter_map(|(_, since)| left(rules.demote_after, *since))).min()
    }

    /// Returns the nodes for which a `CalicoNodeStatus` is still needed.
    fn unseen(&self, memory: &Memory) -> Vec<Arc<str>> {
        let discounted = discounted(self.decided.bgp, &self.leaving());
        let expected = expected(self.decided.bgp, &discounted, false);
        unseen(&expected, memory, self.last_step(), self.observed.now)
    }
}

/// The status as it was, with other conditions: nothing is decided.
fn standing(
    set: &RouteReflectorSet,
    mut memory: Option<Memory>,
    conditions: Vec<Verdict>,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let mut status = set.status.clone().unwrap_or_default();
    status.plan = vec![];
    if let Some(memory) = &mut memory {
        memory.witnessed = None;
    }
    let reports = memory.as_mut().map(|memory| Reports::next(memory, vec![])).unwrap_or_default();
    let desired = Desired { reports, memory, ..Desired::default() };
    Plan { desired, status, conditions, notices: vec![], period: PERIOD }
}

/// Nothing is decided.
fn plan_paused(set: &RouteReflectorSet, memory: &Memory) -> Plan<Desired, RouteReflectorSetStatus> {
    let text = "spec.paused: nothing is decided or written";
    let conditions = vec![
        verdict("Ready", Some(true), "Paused", text),
        verdict("Converged", None, "Paused", text),
    ];
    standing(set, Some(memory.clone()), conditions)
}

/// Calico's objects are not known.
fn plan_unknown(
    set: &RouteReflectorSet,
    calico: &Calico,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let known = ["CalicoNotFound", "CalicoUnreadable", "SecretInvalid"].contains(&calico.reason);
    let conditions = vec![
        verdict("Ready", known.then_some(false), calico.reason, calico.text.clone()),
        verdict("Converged", None, calico.reason, "the state of Calico's objects is unknown"),
        verdict("RoutesSafe", None, calico.reason, "the state of Calico's objects is unknown"),
    ];
    standing(set, None, conditions)
}

fn not_judged(idle: &Idle) -> Verdict {
    verdict("RoutesSafe", None, idle.reason, "no session of BGP carries a route to pods")
}

fn no_figures(memory: &Memory) -> Memory {
    Memory { idle: true, figures: None, shut_since: None, ..memory.clone() }
}

/// Handles a network in which no session carries a route to pods. Figures of routes would be about
/// routes that nobody uses.
fn plan_idle(
    set: &RouteReflectorSet,
    memory: &Memory,
    idle: &Idle,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let (reason, text) = (idle.reason, idle.to_string());
    let conditions = vec![
        verdict("Ready", Some(false), reason, text.clone()),
        verdict("Converged", Some(false), "Frozen", "nothing is written; see Ready"),
        not_judged(idle),
    ];
    let mut plan = standing(set, Some(no_figures(memory)), conditions);
    let mut known = set.status.iter().flat_map(|status| &status.conditions);
    if !known.any(|known| known.type_ == "Ready" && known.reason == reason) {
        plan.notices.push(Notice { warning: true, reason, note: text, node: None });
    }
    plan
}

/// Handles a spec of which the gate's part is invalid, where nothing can be repaired either.
fn plan_misconfigured(
    set: &RouteReflectorSet,
    memory: Memory,
    text: &str,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let conditions = vec![
        verdict("Ready", Some(false), "InvalidSpec", text),
        verdict("Converged", Some(false), "Frozen", "nothing is written; see Ready"),
    ];
    let mut plan = standing(set, Some(memory), conditions);
    plan.notices.extend(report::invalid(set, text));
    plan
}

/// Handles a target that the nodes do not allow: nothing is written, and every reflector stays.
fn plan_refused(
    set: &RouteReflectorSet,
    mut memory: Memory,
    text: &str,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let conditions = vec![
        verdict("Ready", Some(false), "PlanRefused", text),
        verdict("Converged", Some(false), "PlanRefused", "nothing is written"),
    ];
    let news = memory.refused.as_deref() != Some(text);
    if news {
        memory.counters.refusals += 1;
        memory.refused = Some(text.to_owned());
    }
    let mut plan = standing(set, Some(memory), conditions);
    if news {
        let note = text.to_owned();
        plan.notices.push(Notice { warning: true, reason: "PlanRefused", note, node: None });
    }
    plan
}

/// The remaining reads.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The sessions that Prometheus counts; `None` if none is expected, or if another gate is used.
    pub sessions: Option<Arc<Wanted>>,
    /// A node becomes a reflector: the pods that its interruption hits count.
    pub workloads: bool,
    /// Maximum age of the count of sessions.
    pub interval: Duration,
}

/// Decides once, without the gate.
#[must_use]
pub fn questions(set: &RouteReflectorSet, observed: &Observed, deleting: bool) -> Questions {
    let nothing = Questions { sessions: None, workloads: false, interval: PERIOD };
    let (Ok(settings), Ok((_, bgp))) = (&observed.settings, &observed.bgp) else {
        return nothing;
    };
    if deleting {
        // On the way back to the mesh its sessions matter once no node reflects any more.
        let sessions = sessions(settings, bgp, &BTreeSet::new(), true);
        return Questions { sessions, interval: TRY, ..nothing };
    }
    let Ok(Decision { target, left, retires, .. }) = decide(set, observed, settings, bgp) else {
        return Questions { sessions: sessions(settings, bgp, &BTreeSet::new(), false), ..nothing };
    };
    if retires.is_some() {
        return nothing;
    }
    let promotes =
        |step: &Step| matches!(step, Step::Promote { why: Why::Repair | Why::Promote, .. });
    let leaving = target.leaving.iter().map(|leaving| Arc::clone(&leaving.node)).collect();
    Questions {
        sessions: sessions(settings, bgp, &leaving, false),
        workloads: left.iter().any(promotes),
        interval: if left.is_empty() { PERIOD } else { TRY },
    }
}

/// The sessions to count, as the gate expects them. A node that reflects for Calico alone, because
/// a process ended between two writes, counts like any other.
fn sessions(
    settings: &Settings,
    bgp: &BgpTopology,
    leaving: &BTreeSet<Arc<str>>,
    everybody: bool,
) -> Option<Arc<Wanted>> {
    if settings.gate != Gate::Prometheus {
        return None;
    }
    let wanted = expected(bgp, &discounted(bgp, leaving), everybody);
    (everybody || !wanted.is_empty()).then(|| Arc::new(wanted))
}

#[cfg(test)]
mod tests;
