//! What is to be done next. Pure.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    actual::{Ground, Marks},
    datastore,
    fabric::{Fabric, Node, Rule},
    gate::{self, Measured, Shut},
    memory::{Memory, Told},
    planner::{self, Member, Previous, PreviousSlot, Refusal, Slot, Target},
    report,
    settings::Settings,
    steps::{self, Goal, Step, Why},
    taints,
};
use crate::{
    api::{
        Mode, RouteReflectorSet, RouteReflectorSetStatus,
        route_reflector_set::{Gate, Topology},
    },
    controller::{Error, Notice, Plan},
    nodes::{Readiness, Speaker},
};

/// How long nothing changes before the network is looked at again: one scrape of most installations.
pub const PERIOD: Duration = Duration::from_secs(30);

/// How often the gate is tried.
pub const TRY: Duration = Duration::from_secs(2);

/// After a step the next is looked for at once; the watches need a moment to bring it.
const NEXT: Duration = Duration::from_millis(250);

/// How old the samples of an author's query may be: they do not say. Two scrapes of most
/// installations.
const UNDATED: Duration = Duration::from_mins(1);

/// How many nodes are left out of a count by their addresses: a query has to stay readable. With more
/// of them down, nothing is changed.
pub const MOST_EXCLUDED: usize = 100;

/// What was read of Calico, and everything put together.
pub type Read = (Arc<datastore::Snapshot>, Ground);

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
    pub ground: Result<Read, Calico>,
    /// What `candidates.fitnessRef` says.
    pub fitness: Option<Fitness>,
    /// What the gate says; `None` if nothing is to be asked.
    pub measured: Option<Counts>,
    /// What is remembered.
    pub memory: Memory,
}

/// Why Calico's objects are not known.
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

/// Key and value of the label of reflectors.
pub type Label = (Arc<str>, Arc<str>);

/// What is to be written.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// One step.
    pub step: Option<(Step, Label)>,
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
    let (snapshot, ground) = match &observed.ground {
        Ok((snapshot, ground)) => (snapshot, ground),
        Err(calico) => return Ok(report::unknown(set, calico)),
    };
    let Decision { target, goal, left, unfit_since } =
        match decide(set, observed, &settings, ground) {
            Ok(decision) => decision,
            Err(refusal) => {
                return Ok(report::refused(set, &observed.memory, &refusal.to_string()));
            }
        };
    let mut names = goal.peers.iter().map(|peer| &peer.name);
    let taken = names.find(|name| ground.taken.contains(*name)).cloned();
    let mut view = View {
        set,
        observed,
        settings: &settings,
        snapshot,
        ground,
        target: &target,
        left,
        next: Next::Done,
        taken,
        unfit_since,
    };
    if view.taken.is_none() && target.freeze.is_none() && !snapshot.locked {
        view.next = view.choose(&goal);
    } else {
        view.left.clear();
    }
    Ok(view.finish(&goal))
}

/// What is to be, and the writes that are missing.
pub(super) struct Decision {
    pub target: Target,
    pub goal: Goal,
    pub left: Vec<Step>,
    /// Since when reflectors have been unfit.
    pub unfit_since: BTreeMap<Arc<str>, Timestamp>,
}

/// Decides what is to be.
///
/// # Errors
/// What rules and nodes do not allow.
pub(super) fn decide(
    set: &RouteReflectorSet,
    observed: &Observed,
    settings: &Settings,
    ground: &Ground,
) -> Result<Decision, Refusal> {
    let unfit_since = unfit_since(set, observed);
    let members = members(settings, observed, ground, &unfit_since);
    let target = planner::target(&settings.rules, &members, &previous(set, ground))?;
    let goal = goal(settings, &target);
    let left = steps::pending(ground, &goal);
    Ok(Decision { target, goal, left, unfit_since })
}

/// All that a pass decides by.
pub(super) struct View<'a> {
    pub set: &'a RouteReflectorSet,
    pub observed: &'a Observed,
    pub settings: &'a Settings,
    pub snapshot: &'a datastore::Snapshot,
    pub ground: &'a Ground,
    pub target: &'a Target,
    pub left: Vec<Step>,
    pub next: Next,
    /// A BGPPeer of somebody else's that has a name of ours.
    pub taken: Option<String>,
    /// Since when reflectors have been unfit.
    pub unfit_since: BTreeMap<Arc<str>, Timestamp>,
}

/// Since when nodes have been unfit: as the status has it, and from now on for others. While there is no
/// evidence no clock runs.
fn unfit_since(set: &RouteReflectorSet, observed: &Observed) -> BTreeMap<Arc<str>, Timestamp> {
    let Some(fitness) = observed.fitness.as_ref().filter(|fitness| fitness.frozen.is_none()) else {
        return BTreeMap::new();
    };
    let known: BTreeMap<&str, Timestamp> = set
        .status
        .iter()
        .flat_map(|status| &status.slots)
        .filter_map(|slot| Some((slot.node.as_str(), slot.unfit_since.as_ref()?.0)))
        .collect();
    let since = |node: &Arc<str>| known.get(&**node).copied().unwrap_or(observed.now);
    fitness.unfit.iter().map(|node| (Arc::clone(node), since(node))).collect()
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// The nodes as the planner sees them.
fn members(
    settings: &Settings,
    observed: &Observed,
    ground: &Ground,
    unfit_since: &BTreeMap<Arc<str>, Timestamp>,
) -> Vec<Member> {
    let workloads = observed.memory.workloads.as_ref().map(|(_, workloads)| workloads);
    let member = |speaker: &Speaker| {
        let label = |key: &str| {
            let found = speaker.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
            Some(&*speaker.labels[found].1)
        };
        let matches = |selector: &Option<crate::selector::Selector>| {
            selector.as_ref().map(|selector| selector.matches(label))
        };
        let actual = ground.nodes.get(&speaker.name);
        let marks = actual.map(|actual| actual.marks.clone()).unwrap_or_default();
        let address = actual.and_then(|actual| actual.address);
        let not_ready_for = match speaker.readiness {
            Readiness::Ready => None,
            Readiness::NotReady(since) => since
                .and_then(|since| Timestamp::from_second(since).ok())
                .map(|since| elapsed(since, observed.now)),
        };
        Member {
            name: Arc::clone(&speaker.name),
            uid: Arc::clone(&speaker.name),
            zone: ground.zone(&speaker.name).cloned(),
            created: speaker.created,
            address,
            ready: speaker.readiness == Readiness::Ready,
            not_ready_for,
            closed: speaker.cordoned
                || taints::keeping_out(&speaker.taints, &settings.tolerations).is_some(),
            // Who speaks no BGP, or that of another AS, reflects nothing.
            suitable: address.is_some()
                && matches(&settings.selector) != Some(false)
                && matches(&settings.forbidden) != Some(true),
            preferred: matches(&settings.preferred) == Some(true),
            unfit: observed.fitness.as_ref().is_some_and(|f| f.unfit.contains(&speaker.name)),
            unfit_for: unfit_since.get(&speaker.name).map(|since| elapsed(*since, observed.now)),
            workloads: workloads.and_then(|w| w.get(&speaker.name)).copied().unwrap_or_default(),
            slot: marks.slot,
            group: marks.group,
            cluster_id: marks.cluster_id,
            labelled: marks.label.is_some(),
        }
    };
    observed.speakers.iter().map(member).collect()
}

/// What the status remembers; clients keep the slots of their groups' BGPPeers.
fn previous(set: &RouteReflectorSet, ground: &Ground) -> Previous {
    let Some(status) = &set.status else { return Previous::default() };
    let topology = match status.topology.as_deref() {
        Some("Simple") => Some(Topology::Simple),
        Some("Zonal") => Some(Topology::Zonal),
        Some("Multi") => Some(Topology::Multi),
        _ => None,
    };
    let slots = status.slots.iter().filter_map(|slot| {
        Some(PreviousSlot {
            id: u32::try_from(slot.id).ok()?,
            node: slot.node.as_str().into(),
            zone: slot.zone.as_deref().map(Into::into),
            cluster_id: slot.cluster_id.as_ref().and_then(|id| id.parse().ok()),
        })
    });
    let groups = status.groups.iter().map(|group| {
        let slots = group.slots.iter().filter_map(|slot| u32::try_from(*slot).ok()).collect();
        (group.name.as_str().into(), slots)
    });
    let groups = if ground.ours.is_empty() { BTreeMap::new() } else { groups.collect() };
    Previous { topology, slots: slots.collect(), groups }
}

fn goal(settings: &Settings, target: &Target) -> Goal {
    let grouped = target.topology != Topology::Simple;
    Goal {
        label: settings.label.clone(),
        slots: target.slots.clone(),
        groups: grouped.then(|| target.groups.clone()),
        peers: target.peers.clone(),
        mesh: settings.migrate.then_some(false),
        max_per_zone: settings.max_per_zone,
    }
}

/// What is to be when the mesh is to carry everything again.
#[must_use]
pub fn restoration(settings: &Settings, ground: &Ground) -> Goal {
    let grouped = ground.nodes.values().any(|actual| actual.marks.group.is_some());
    let reflects = ground.reflectors().next().is_some();
    // Clients keep their groups until no reflector is left; who was one gets none: it has the wide peer.
    Goal {
        label: settings.label.clone(),
        slots: vec![],
        groups: (grouped && reflects).then(BTreeMap::new),
        peers: if reflects { kept(settings, ground) } else { vec![] },
        mesh: Some(true),
        max_per_zone: settings.max_per_zone,
    }
}

/// The peers that are there, and the bridge.
fn kept(settings: &Settings, ground: &Ground) -> Vec<planner::PeerSpec> {
    let ours = ground.ours.iter().map(|(name, peer)| planner::PeerSpec {
        name: name.clone(),
        node_selector: peer.node_selector.clone(),
        peer_selector: peer.peer_selector.clone(),
    });
    let mut peers: Vec<_> = ours.collect();
    if !peers.iter().any(|peer| peer.name == steps::WIDE) {
        peers.push(steps::way_back(ground, &settings.label.0));
    }
    peers
}

/// Nodes whose sessions are not counted: those that are down, and reflectors that are to be none, which may
/// be broken.
#[must_use]
pub fn discounted(ground: &Ground, leaving: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    let down = ground.fabric.nodes().iter().filter(|node| !node.up).map(|node| &node.name);
    down.chain(leaving).cloned().collect()
}

/// The addresses that a count leaves out: those of such nodes, and everybody outside.
#[must_use]
pub fn excluded(ground: &Ground, discounted: &BTreeSet<Arc<str>>) -> Vec<IpAddr> {
    let addresses = discounted.iter().filter_map(|node| ground.fabric.node(node)?.address);
    let all: BTreeSet<_> = addresses.chain(ground.outside.iter().copied()).collect();
    all.into_iter().collect()
}

/// How many sessions each node is to have with the others: reflectors, or all nodes where the mesh is what
/// a step stands on.
#[must_use]
pub fn expected(
    ground: &Ground,
    discounted: &BTreeSet<Arc<str>>,
    everybody: bool,
) -> BTreeMap<Arc<str>, u32> {
    let counted = counting(ground, discounted);
    let sessions = counted.sessions();
    let nodes = counted.nodes().iter().filter(|node| node.up);
    let nodes = nodes.filter(|node| everybody || node.cluster_id.is_some());
    nodes
        .map(|node| (Arc::clone(&node.name), sessions.of(&node.name).map_or(0, |s| s.up)))
        .collect()
}

/// The network without those that are not counted.
fn counting(ground: &Ground, discounted: &BTreeSet<Arc<str>>) -> Fabric {
    if discounted.iter().all(|name| ground.fabric.node(name).is_none_or(|node| !node.up)) {
        return ground.fabric.clone();
    }
    let nodes = ground.fabric.nodes().iter().map(|node| {
        let up = node.up && !discounted.contains(&node.name);
        Node { up, ..node.clone() }
    });
    Fabric::new(nodes.collect(), ground.fabric.peers().to_vec(), ground.fabric.mesh())
}

/// Tries the steps that are left, in their order.
///
/// `gate` says whether the sessions are there that a step stands on; `blind` whether a step may be taken
/// though nobody can say.
pub fn choose(
    ground: &Ground,
    goal: &Goal,
    left: &[Step],
    gate: impl Fn(&Step) -> Result<(), Shut>,
    blind: impl Fn(&Step) -> bool,
) -> Next {
    if left.is_empty() {
        return Next::Done;
    }
    if goal.mesh != Some(true)
        && let Err(why) = steps::sound(ground, goal)
    {
        return Next::Refuse(None, why);
    }
    let mut refused = None;
    for step in left {
        let after = step.after(&ground.fabric, &goal.label.0, &goal.label.1);
        if let Err(why) = step.admit(&ground.fabric, &after) {
            refused.get_or_insert((step.clone(), why));
            continue;
        }
        if !step.needs_gate() {
            return Next::Take(step.clone());
        }
        return match gate(step) {
            Ok(()) => Next::Take(step.clone()),
            Err(shut) if shut.is_blind() && blind(step) => Next::Take(step.clone()),
            Err(shut) => Next::Wait(step.clone(), shut),
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
        let everybody = false;
        let last = self.last_step();
        let gate = |_: &Step| {
            let discounted = discounted(self.ground, &leaving);
            let expected = expected(self.ground, &discounted, everybody);
            opens(self.settings, &expected, self.observed, last)
        };
        // Who takes the place of a dead reflector takes nothing away.
        let blind = |step: &Step| {
            let Step::Mark { why: Why::Promote, slots } = step else { return false };
            let last = known_step(self.set, &self.observed.memory);
            let waited =
                last.is_none_or(|last| elapsed(last, self.observed.now) >= self.settings.wait);
            waited && slots.iter().all(|slot| !self.is_held(slot))
        };
        choose(self.ground, goal, &self.left, gate, blind)
    }

    /// Whether a node that is up holds the slot.
    fn is_held(&self, slot: &Slot) -> bool {
        self.ground.reflectors().any(|(node, marks)| {
            marks.slot == Some(slot.id)
                && *node != slot.node
                && self.ground.fabric.node(node).is_some_and(|node| node.up)
        })
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
            _ => None,
        };
        if refusal.is_some() && refusal != memory.refused {
            memory.counters.refusals += 1;
        }
        let news = refusal != memory.refused;
        memory.refused = refusal;
        let told = self.told(&memory);
        let (status, conditions, mut notices) =
            report::report(&self, &told, &memory, known_step(self.set, &memory));
        if news && let Some(text) = &memory.refused {
            notices.push(Notice {
                warning: true,
                reason: "PlanRefused",
                note: text.clone(),
                node: None,
            });
        }
        let step = match &self.next {
            Next::Take(step) if writes => Some((step.clone(), goal.label.clone())),
            _ => None,
        };
        let statuses = match (&self.next, self.settings.gate) {
            (Next::Wait(..), Gate::NodeStatus) if writes => self.asked(&memory),
            _ => vec![],
        };
        let period = match &self.next {
            Next::Take(_) if writes => NEXT,
            Next::Wait(..) if writes => TRY,
            _ => self.due().map_or(PERIOD, |due| due.clamp(TRY, PERIOD)),
        };
        memory.told = Arc::new(told);
        let desired = Desired { step, statuses, memory: Some(memory) };
        Plan { desired, status, conditions, notices, period }
    }

    /// When the next reflector has been NotReady or unfit for long enough: nothing else changes at that moment.
    fn due(&self) -> Option<Duration> {
        let rules = &self.settings.rules;
        let left = |time: Duration, since: Timestamp| {
            time.checked_sub(elapsed(since, self.observed.now)).filter(|left| !left.is_zero())
        };
        let reflects = |node: &Arc<str>| self.ground.marks(node).is_some_and(Marks::is_reflector);
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
        let discounted = discounted(self.ground, &self.leaving());
        let expected = expected(self.ground, &discounted, false);
        unseen(&expected, memory, self.last_step())
    }

    fn told(&self, memory: &Memory) -> Told {
        let fabric = &self.ground.fabric;
        let worst = fabric.worst_without_one(Rule::Rfc).map_or(0, |(_, missing)| missing.pairs);
        let missing = fabric.missing(Rule::Rfc).pairs;
        let mut slots: BTreeMap<(Arc<str>, &'static str), usize> = BTreeMap::new();
        let leaving = self.leaving();
        for (node, _) in self.ground.reflectors() {
            let up = fabric.node(node).is_some_and(|node| node.up);
            let state = match (up, leaving.contains(node)) {
                (_, true) => "leaving",
                (true, false) => "serving",
                (false, false) => "notready",
            };
            let zone = self.ground.zone(node).cloned().unwrap_or_default();
            *slots.entry((zone, state)).or_default() += 1;
        }
        Told {
            desired: if self.target.freeze.is_some() {
                memory.told.desired.clone()
            } else {
                self.target.by_zone.clone()
            },
            slots,
            mesh: fabric.mesh(),
            missing,
            missing_without_one: worst.max(missing),
            at_risk: at_risk(self),
            foreign: self.ground.foreign,
            paths: {
                let paths = fabric.paths(Rule::Bird);
                paths.reflector.table.max(paths.client.table)
            },
            steps_left: self.left.len(),
            waiting_since: memory.shut_since,
        }
    }
}

/// Clients with one established session or none, of those that are to have more and that were measured.
fn at_risk(view: &View<'_>) -> Option<usize> {
    let measured = view.observed.measured.as_ref()?.as_ref().ok()?;
    let sessions = view.ground.fabric.sessions();
    let clients = view.ground.fabric.nodes().iter();
    let clients = clients.filter(|node| node.up && node.cluster_id.is_none());
    let at_risk = clients.filter(|node| {
        let wanted = sessions.of(&node.name).map_or(0, |sessions| sessions.up);
        let counted = measured.nodes.get(&node.name);
        wanted > 1 && counted.is_some_and(|counted| counted.established.unwrap_or(0) < 2)
    });
    Some(at_risk.count())
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970, to the millisecond")]
pub(super) fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}

/// What is refused, and why, in one line.
#[must_use]
pub fn refusal(step: Option<&Step>, why: &steps::Refused) -> String {
    step.map_or_else(|| format!("the plan: {why}"), |step| format!("{step}: {why}"))
}

/// In whole seconds, as a status has it: a fraction would be written again at every pass. Upwards: no sample
/// of before a step may pass for one of after it.
#[must_use]
pub fn whole(time: Timestamp) -> Timestamp {
    let second = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(time)
}

/// Whether the gate is open.
///
/// # Errors
/// Why not.
pub fn opens(
    settings: &Settings,
    expected: &BTreeMap<Arc<str>, u32>,
    observed: &Observed,
    last_step: Option<Timestamp>,
) -> Result<(), Shut> {
    let left = |time: Duration| {
        let over = last_step.map(|last| elapsed(last, observed.now));
        over.map_or(0, |over| time.saturating_sub(over).as_secs())
    };
    // Nothing is expected where nobody reflects yet.
    if expected.values().all(|expected| *expected == 0) && settings.gate != Gate::Wait {
        return Ok(());
    }
    let wait = match settings.gate {
        Gate::Wait => left(settings.wait),
        Gate::Prometheus if settings.query.is_some() => left(UNDATED),
        _ => 0,
    };
    if wait > 0 {
        return Err(Shut::Waiting(wait));
    }
    let last_step = last_step.map(seconds);
    match settings.gate {
        Gate::Wait => Ok(()),
        Gate::NodeStatus => gate::judge(expected, &observed.memory.statuses, last_step),
        Gate::Prometheus => match &observed.measured {
            Some(Ok(measured)) => gate::judge(expected, measured, last_step),
            Some(Err(text)) => Err(Shut::Unavailable(text.clone())),
            None => Err(Shut::Unavailable("nothing was asked".into())),
        },
    }
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
    let (Ok(settings), Ok((_, ground))) = (&observed.settings, &observed.ground) else {
        return Sketch::default();
    };
    if deleting {
        return Sketch { moves: true, ..Sketch::default() };
    }
    let Ok(Decision { target, left, .. }) = decide(set, observed, settings, ground) else {
        return Sketch::default();
    };
    let chooses = left.iter().any(|step| matches!(step, Step::Mark { why: Why::Promote, .. }));
    let leaving = target.leaving.iter().map(|leaving| Arc::clone(&leaving.node)).collect();
    Sketch { leaving, chooses, moves: !left.is_empty() }
}

/// What is next on the way back to the mesh.
#[must_use]
pub fn back(
    set: &RouteReflectorSet,
    observed: &Observed,
    settings: &Settings,
    ground: &Ground,
) -> (Goal, Next) {
    let goal = restoration(settings, ground);
    let left = steps::pending(ground, &goal);
    let discounted = discounted(ground, &BTreeSet::new());
    let expected = expected(ground, &discounted, true);
    let last = last_step(set, &observed.memory);
    let gate = |_: &Step| opens(settings, &expected, observed, last);
    let next = choose(ground, &goal, &left, gate, |_| false);
    (goal, next)
}

/// For how long the gate has been shut.
#[must_use]
pub fn waited(memory: &Memory, now: Timestamp) -> Duration {
    memory.shut_since.map(|since| elapsed(since, now)).unwrap_or_default()
}

/// What gates and waits count from.
fn last_step(set: &RouteReflectorSet, memory: &Memory) -> Option<Timestamp> {
    known_step(set, memory).max(memory.began)
}

/// The last step that is known of.
fn known_step(set: &RouteReflectorSet, memory: &Memory) -> Option<Timestamp> {
    let told = set.status.as_ref().and_then(|status| status.last_step_time.as_ref());
    told.map(|time| time.0).max(memory.last_step)
}

/// On the way back to the mesh: the nodes whose `CalicoNodeStatus` is still wanted.
#[must_use]
pub fn asked(
    settings: &Settings,
    ground: &Ground,
    memory: &Memory,
    set: &RouteReflectorSet,
) -> Vec<Arc<str>> {
    if settings.gate != Gate::NodeStatus {
        return vec![];
    }
    let expected = expected(ground, &discounted(ground, &BTreeSet::new()), true);
    unseen(&expected, memory, last_step(set, memory))
}

/// The nodes that were not seen to have their sessions: Calico advises fewer than ten reports at a time.
fn unseen(
    expected: &BTreeMap<Arc<str>, u32>,
    memory: &Memory,
    last_step: Option<Timestamp>,
) -> Vec<Arc<str>> {
    let last = last_step.map(seconds);
    let wanted = expected.iter().filter(|(_, expected)| **expected > 0);
    let wanted = wanted.filter(|(node, expected)| {
        let one = [(Arc::clone(node), **expected)].into();
        gate::judge(&one, &memory.statuses, last).is_err()
    });
    wanted.map(|(node, _)| Arc::clone(node)).take(datastore::MAX_NODES).collect()
}

/// What the status would remember of a decision.
pub(super) fn remembered(
    set: &RouteReflectorSet,
    decision: &Decision,
    ground: &Ground,
    now: Timestamp,
) -> RouteReflectorSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    report::remember(&mut status, &decision.target, ground, &decision.unfit_since, now);
    status
}

#[cfg(test)]
mod tests;
