//! The selected pods with an agent, those of them that take part, and the reasons why the others
//! have none.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use super::{
    constraints::ByNamespace,
    scope::{Scope, Standing, is_claimed},
    settings::Settings,
};
use crate::{
    api::network_prober::Mode,
    nodes::Readiness,
    pods::{
        AgentFacts, DEPLOYED_ANNOTATION, HASH_ANNOTATION, INJECTED_BY_ANNOTATION, PodObject,
        REFUSED_ANNOTATION, SOUND_SECONDS, is_probeable,
    },
    webhook::injection::{self, Recipe, SkipReason},
};

/// A pod that probes and is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Its addresses; never empty.
    pub ips: Vec<IpAddr>,
    /// The port on which its agent answers: the one in the pod, not in the current spec.
    pub port: u16,
    /// Node of the pod.
    pub node: String,
    /// The zone of its node; "" if it has none.
    pub zone: String,
}

impl Member {
    /// Returns its id for placement.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.name, self.uid)
    }

    /// Reports whether it has an address, and a node by which its probes can be distinguished.
    #[must_use]
    pub fn can_be_reached(&self) -> bool {
        !self.ips.is_empty() && !self.node.is_empty()
    }

    /// Returns its name in the original's file and metric: prefixed with its namespace if that is
    /// not the `NetworkProber`'s, because the original confused two pods of one name.
    #[must_use]
    pub fn key(&self, home: &str) -> String {
        if self.namespace == home {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// The state of the selected pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The number of pods that are selected.
    pub selected: usize,
    /// Number of them with our agent.
    pub injected: usize,
    /// Number of them with an agent of an earlier spec.
    pub need_restart: usize,
    /// Why the others have none.
    pub not_injected: BTreeMap<&'static str, usize>,
    /// Number of pods with an agent for which the scheduler finds no node.
    pub unschedulable: usize,
    /// When the youngest pod was created that the webhook has seen, in seconds since 1970.
    pub called: Option<i64>,
    /// The pods that take part, by namespace, name and UID. No two have an address in common.
    pub members: Vec<Member>,
    /// True if these are the previous ones, because currently no agent runs anywhere.
    pub held: bool,
    /// Pods with an agent that do not take part (yet), by UID.
    pub guests: BTreeMap<String, Member>,
    /// Namespaces of selected pods.
    pub namespaces: BTreeSet<String>,
    /// The namespaces in which agents read a file of peers.
    pub readers: BTreeSet<String>,
    /// Agents that cannot start, of any spec, as their kubelets report.
    pub failing: BTreeMap<String, usize>,
    /// The namespaces in which no further pod gets an agent for now, each with a kubelet's message
    /// about an agent there.
    pub paused: BTreeMap<String, String>,
    /// The namespaces in which no further pod gets an agent for now because the API server refuses
    /// pods with one, each with the time at which the youngest pod was created without.
    pub refusing: BTreeMap<String, i64>,
    /// When the youngest pod of each owner was created with an agent of the present spec, whether it
    /// exists or not, if that is not long ago.
    pub appeared: BTreeMap<Owner, i64>,
}

impl Members {
    /// Reports whether agents cannot start in a namespace: one more would be one more pod that
    /// never starts.
    #[must_use]
    pub fn is_paused(&self, namespace: &str) -> bool {
        self.paused.contains_key(namespace)
    }

    /// Returns the number of namespaces in which no further pod gets an agent for now.
    #[must_use]
    pub fn pauses(&self) -> usize {
        self.paused.keys().chain(self.refusing.keys()).collect::<BTreeSet<_>>().len()
    }

    /// Returns the number of agents that cannot start, with the kubelets' reason; `None` if all
    /// can.
    #[must_use]
    pub fn failure(&self) -> Option<(usize, String)> {
        let words: Vec<_> = self.failing.keys().map(String::as_str).collect();
        (!words.is_empty()).then(|| (self.failures(), words.join(", ")))
    }

    /// Returns the number of agents that cannot start.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.failing.values().sum()
    }

    /// Reports whether pods were created that the webhook must have seen and has not, and none since
    /// that it has.
    #[must_use]
    pub fn is_never_called(&self) -> bool {
        self.not_injected.contains_key(SkipReason::NotCalled.as_str())
    }

    /// Returns the number of selected pods without an agent.
    #[must_use]
    pub fn uncovered(&self) -> usize {
        self.not_injected.values().sum()
    }
}

/// The inputs of the selection.
pub struct Selection<'a> {
    /// The checked spec.
    pub settings: &'a Settings,
    /// The recipe that it injects now, if it can.
    pub recipe: Option<&'a Recipe>,
    /// Its namespaces.
    pub scope: &'a Scope,
    /// Older `NetworkProber`s, which have precedence.
    pub older: &'a [(&'a Settings, &'a Scope)],
    /// The pods that the selector matches, in any order.
    pub pods: &'a [Arc<PodObject>],
    /// The nodes on which they run.
    pub nodes: &'a Nodes<'a>,
    /// The requirements of namespaces on pods.
    pub constraints: &'a ByNamespace,
    /// The previous result.
    pub last: Option<&'a Members>,
    /// [`Members::appeared`] of it, if the recipe is the same.
    pub appeared: Option<&'a BTreeMap<Owner, i64>>,
    /// Since when the webhook must have seen every pod, in seconds since 1970, if that is known.
    pub calls_since: Option<i64>,
    /// Now, in seconds since 1970.
    pub now: i64,
}

/// The queries about nodes, by name.
pub struct Nodes<'a> {
    /// The zone of a node; "" if it has none.
    pub zone: &'a dyn Fn(&str) -> String,
    /// Returns the readiness of a node; `None` if there is no such node.
    pub readiness: &'a dyn Fn(&str) -> Option<Readiness>,
    /// Reports whether the end of a node is announced: what its agents lose is no fault of a
    /// network.
    pub ends: &'a dyn Fn(&str) -> bool,
}

/// Seconds after which pods of a namespace are created with an agent again, although the API server
/// has refused them.
const AGAIN: i64 = 60 * 60;

/// Seconds before the creation of a marked pod in which a pod of the same owner with an agent
/// contradicts the mark.
const CONTRADICTS: i64 = 10 * 60;

/// The namespace of pods, and what creates them: kind and name, "" for pods that nothing does.
pub type Owner = (String, String);

/// Returns the owner of a pod.
#[must_use]
pub fn owner(pod: &PodObject) -> Owner {
    let controller = pod.controller().map(|owner| format!("{}/{}", owner.kind, owner.name));
    (pod.namespace().to_owned(), controller.unwrap_or_default())
}

/// Examines every selected pod.
#[must_use]
pub fn members(selection: &Selection<'_>) -> Members {
    let mut found = Members::default();
    let hash = selection.recipe.map(Recipe::hash);
    let mark = selection.recipe.map(Recipe::mark);
    let mut tallies = BTreeMap::<&str, Tally>::new();
    let mut marked = Vec::new();
    let ours = selection.pods.iter().filter_map(|pod| {
        let standing = selection.scope.standing(pod.namespace())?;
        // The author learns nothing about a namespace that does not consent, not even a number.
        let seen = standing == Standing::Allowed || pod.namespace() == selection.settings.namespace;
        (seen && is_ours_to_count(selection.settings, pod)).then_some((&**pod, standing))
    });
    let ours: Vec<_> = ours.collect();
    let allowed = ours.iter().filter(|(_, standing)| *standing == Standing::Allowed);
    let addresses = Addresses::of(allowed.map(|(pod, _)| *pod));
    for (pod, standing) in ours {
        // Those that have ended were created too.
        let created = pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        let called = was_called(selection.settings, pod);
        if called {
            found.called = found.called.max(Some(created));
        }
        if mark.is_some() && pod.annotation(REFUSED_ANNOTATION) == mark.as_deref() {
            marked.push((owner(pod), created));
        } else if called && is_current(hash.as_deref(), pod) {
            let last = found.appeared.entry(owner(pod)).or_insert(created);
            *last = created.max(*last);
        }
        let ends = pod.node().is_some_and(selection.nodes.ends);
        let node = pod.node().and_then(selection.nodes.readiness);
        let presence = presence(pod, node, selection.now);
        if presence == Presence::Gone {
            continue;
        }
        let agent = look(selection, pod, standing);
        let member = |agent: &AgentFacts<'_>| Member {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
            ips: addresses.own(pod),
            port: agent.ping_port,
            node: pod.node().unwrap_or_default().to_owned(),
            zone: pod.node().map(selection.nodes.zone).unwrap_or_default(),
        };
        if presence == Presence::Stranded {
            // It counts no more, it is only still probed.
            let running = agent.ok().filter(|agent| agent.running && !ends);
            found.members.extend(running.map(|a| member(&a)).filter(Member::can_be_reached));
            continue;
        }
        found.selected += 1;
        if standing == Standing::Allowed {
            found.namespaces.insert(pod.namespace().to_owned());
        }
        match agent {
            Ok(agent) => {
                let tally = tallies.entry(pod.namespace()).or_default();
                found.count(hash.as_deref(), pod, &agent, tally, selection.now);
                found.place(agent.running && !ends, member(&agent));
            }
            Err(reason) if reason == SkipReason::CreatedBefore.as_str() => {
                tallies.entry(pod.namespace()).or_default().bare.push(created);
            }
            Err(reason) => {
                let stripped = reason == SkipReason::Stripped.as_str();
                if stripped && waits_for_ever(selection, hash.as_deref(), pod) {
                    tallies.entry(pod.namespace()).or_default().strip();
                }
                *found.not_injected.entry(reason).or_default() += 1;
            }
        }
    }
    found.remember(selection.appeared, selection.now);
    found.refuse(marked, selection.now);
    let due = selection.calls_since.map(|since| since.max(found.called.unwrap_or(since)));
    for (namespace, tally) in &tallies {
        found.conclude(namespace, tally, due);
    }
    found.hold(selection.last);
    found
        .members
        .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    found
}

/// Returns the pods that would take part if each selected one were restarted now.
#[must_use]
pub fn after_restarts(selection: &Selection<'_>) -> Vec<Member> {
    let allowed = selection.pods.iter().map(|pod| &**pod).filter(|pod| {
        selection.scope.standing(pod.namespace()) == Some(Standing::Allowed)
            && is_ours_to_count(selection.settings, pod)
            && !pod.is_finished()
            && !pod.is_terminating()
    });
    let gets_agent = |pod: &&PodObject| match look(selection, pod, Standing::Allowed) {
        Ok(_) => true,
        Err(reason) => reason == SkipReason::CreatedBefore.as_str(),
    };
    let member = |pod: &PodObject| Member {
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        ips: pod.ips().iter().copied().filter(is_probeable).collect(),
        port: selection.settings.http_port,
        node: pod.node().unwrap_or_default().to_owned(),
        zone: pod.node().map(selection.nodes.zone).unwrap_or_default(),
    };
    allowed.filter(gets_agent).map(member).collect()
}

/// Reports whether the webhook was called for a pod.
fn was_called(settings: &Settings, pod: &PodObject) -> bool {
    let key = settings.key();
    pod.annotation(INJECTED_BY_ANNOTATION) == Some(&*key) || is_marked(settings, pod)
}

/// Reports whether a pod would have been refused with an agent, of whatever spec.
fn is_marked(settings: &Settings, pod: &PodObject) -> bool {
    let mark = pod.annotation(REFUSED_ANNOTATION).and_then(|mark| mark.split_once(' '));
    mark.is_some_and(|(prober, _)| prober == settings.key())
}

/// In mode `DaemonSet` only the pods of our own `DaemonSet` count: others may have the same labels.
fn is_ours_to_count(settings: &Settings, pod: &PodObject) -> bool {
    settings.mode == Mode::Sidecar
        || pod
            .controller()
            .is_some_and(|o| (o.kind, o.name) == ("DaemonSet", settings.name.as_str()))
            && pod.namespace() == settings.namespace
}

/// The pod's agent, if it is ours; else why it has none.
fn look<'a>(
    selection: &Selection<'_>,
    pod: &'a PodObject,
    standing: Standing,
) -> Result<AgentFacts<'a>, &'static str> {
    match standing {
        Standing::Excluded => return Err(SkipReason::NamespaceExcluded.as_str()),
        Standing::NotConsenting => return Err(SkipReason::NamespaceNotConsenting.as_str()),
        Standing::OptedOut => return Err(SkipReason::OptedOut.as_str()),
        Standing::Allowed => {}
    }
    // Its address is the node's: no agent probes it, regardless of its status.
    if pod.is_host_network() {
        return Err(SkipReason::HostNetwork.as_str());
    }
    let key = selection.settings.key();
    let by = pod.annotation(INJECTED_BY_ANNOTATION);
    // The original's webhook recorded no prober: its injected pods are taken over.
    let original = by.is_none() && pod.annotation(DEPLOYED_ANNOTATION).is_some();
    if let Some(agent) = pod.agent() {
        if agent.stripped {
            return Err(SkipReason::Stripped.as_str());
        }
        if by == Some(&*key) || (original && !is_claimed(selection.older, pod)) {
            return Ok(agent);
        }
        let other = by.is_some() || original;
        let reason = if other { SkipReason::OtherProber } else { SkipReason::NameTaken };
        return Err(reason.as_str());
    }
    if by == Some(&*key) {
        // Our annotations without our container: something removed it again.
        return Err(SkipReason::Stripped.as_str());
    }
    if is_claimed(selection.older, pod) {
        return Err(SkipReason::OtherProber.as_str());
    }
    if is_marked(selection.settings, pod) {
        return Err(SkipReason::AgentRefused.as_str());
    }
    let skipped = selection.recipe.and_then(|recipe| {
        let constraints = selection.constraints.get(pod.namespace());
        let refusal = || constraints?.refusal_of_existing(pod, recipe);
        injection::skip_reason(pod, recipe)
            .or_else(|| refusal().map(|_| SkipReason::ResourcesRefused))
    });
    Err(skipped.unwrap_or(SkipReason::CreatedBefore).as_str())
}

/// Reports whether a pod waits for the end of its stripped agent: one of the present spec, as its
/// kubelet reports.
fn waits_for_ever(selection: &Selection<'_>, hash: Option<&str>, pod: &PodObject) -> bool {
    let ours = pod.annotation(INJECTED_BY_ANNOTATION) == Some(&*selection.settings.key());
    let waits =
        |agent: AgentFacts<'_>| agent.stripped && (agent.running || agent.waiting.is_some());
    ours && is_current(hash, pod) && pod.agent().is_some_and(waits)
}

/// Reports whether a pod's agent is of the present spec; always, if that is unknown.
fn is_current(hash: Option<&str>, pod: &PodObject) -> bool {
    hash.is_none_or(|hash| pod.annotation(HASH_ANNOTATION) == Some(hash))
}

impl Members {
    fn count(
        &mut self,
        hash: Option<&str>,
        pod: &PodObject,
        agent: &AgentFacts<'_>,
        tally: &mut Tally,
        now: i64,
    ) {
        self.injected += 1;
        self.unschedulable += usize::from(pod.is_unschedulable());
        if !agent.pulls && !self.readers.contains(pod.namespace()) {
            self.readers.insert(pod.namespace().to_owned());
        }
        let current = is_current(hash, pod);
        if !current {
            self.need_restart += 1;
        }
        let failure = failure(agent, now);
        if let Some((why, _)) = failure {
            count(&mut self.failing, why);
        }
        // Failures of an earlier spec do not count: its author has corrected it.
        if current {
            tally.take(agent, failure);
        }
    }

    /// Remembers the pods that are gone.
    fn remember(&mut self, appeared: Option<&BTreeMap<Owner, i64>>, now: i64) {
        for (owner, created) in appeared.into_iter().flatten() {
            let known = self.appeared.entry(owner.clone()).or_insert(*created);
            *known = (*created).max(*known);
        }
        self.appeared.retain(|_, created| created.saturating_add(AGAIN + CONTRADICTS) > now);
    }

    /// Finds the namespaces that refuse agents: those with a marked pod that is young enough, and
    /// whose owner has no pod with an agent of about the same age.
    fn refuse(&mut self, marked: Vec<(Owner, i64)>, now: i64) {
        for (owner, created) in marked {
            let contradicts = |agent: &i64| *agent > created.saturating_sub(CONTRADICTS);
            if created.saturating_add(AGAIN) > now
                && !self.appeared.get(&owner).is_some_and(contradicts)
            {
                let last = self.refusing.entry(owner.0).or_insert(created);
                *last = created.max(*last);
            }
        }
    }

    /// `due` is the time after which the webhook must have seen every pod.
    fn conclude(&mut self, namespace: &str, tally: &Tally, due: Option<i64>) {
        let pause = tally.pause();
        if let Some(why) = pause {
            self.paused.insert(namespace.to_owned(), why.to_owned());
        }
        for created in &tally.bare {
            let reason = if pause.is_some() {
                // These existed before or were skipped since: in both cases, a restart would not
                // help.
                SkipReason::AgentFailing
            } else if due.is_some_and(|due| *created > due) {
                SkipReason::NotCalled
            } else {
                SkipReason::CreatedBefore
            };
            *self.not_injected.entry(reason.as_str()).or_default() += 1;
        }
    }

    /// True if it is probed: its agent runs, and it is reachable at all.
    fn place(&mut self, runs: bool, member: Member) {
        if runs && member.can_be_reached() {
            self.members.push(member);
        } else {
            self.guests.insert(member.uid.clone(), member);
        }
    }

    /// Keeps the earlier members if all agents end at one moment: this indicates an error in the
    /// reports rather than in the agents, so probes continue, and real loss becomes visible.
    fn hold(&mut self, last: Option<&Self>) {
        if !self.members.is_empty() {
            return;
        }
        for was in last.iter().flat_map(|last| &last.members) {
            let there = self.guests.get(&was.uid).is_some_and(Member::can_be_reached);
            if let Some(member) = there.then(|| self.guests.remove(&was.uid)).flatten() {
                self.members.push(member);
                self.held = true;
            }
        }
    }
}

/// The time for which a pod that is being deleted stays on a node that is not Ready, in seconds.
/// Loss over five minutes and an alert `for: 5m` take ten; the rest is for the intervals of scrapes
/// and rules. A node that stays dead for longer has had its alert, and its pods, which cannot be
/// deleted, are no longer measured.
const EVIDENCE_SECONDS: i64 = 15 * 60;

/// The presence of a pod for probing.
///
/// The kubelet's last report that the agent runs decides: an application that is not ready because
/// the network is bad, and a node that died, are exactly what should be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// It is gone, or is about to be.
    Gone,
    /// It officially still exists: it cannot be deleted on a node that does not answer.
    Stranded,
    /// It exists.
    There,
}

/// Determines the presence of a pod; `node` is the state of its node, if that exists, `now` seconds
/// since 1970.
///
/// A pod that is being deleted leaves at once, so that a rollout costs no packet. On a node that is
/// not Ready it has not ended: evictions begin five minutes after the node fell silent, which is
/// before the alert on its loss.
#[must_use]
fn presence(pod: &PodObject, node: Option<Readiness>, now: i64) -> Presence {
    if pod.is_finished() {
        return Presence::Gone;
    }
    if !pod.is_terminating() {
        return Presence::There;
    }
    match node {
        // A clock that is behind ours by a little must not matter, nor one that is ahead.
        Some(Readiness::NotReady(Some(since))) if now.saturating_sub(since) < EVIDENCE_SECONDS => {
            Presence::Stranded
        }
        // A node that never reported has no running pods.
        _ => Presence::Gone,
    }
}

/// The owner of each address.
///
/// The network reuses an address once the kubelet has released it, or considers it released: the
/// pod on a dead node still claims it, and its successor would be measured under the name of the
/// dead one. So an address belongs to the newest pod, with or without an agent.
struct Addresses<'a>(HashMap<IpAddr, Claim<'a>>);

/// The creation time of a pod; among those of one second, whether it should stay, and its UID.
type Claim<'a> = (i64, bool, &'a str);

impl<'a> Addresses<'a> {
    /// Returns the owners of addresses among these pods; those that have ended have released
    /// theirs.
    #[must_use]
    fn of(pods: impl Iterator<Item = &'a PodObject>) -> Self {
        let mut newest = HashMap::new();
        // A node's address is that of all its pods on the host network.
        for pod in pods.filter(|pod| !pod.is_finished() && !pod.is_host_network()) {
            for ip in pod.ips() {
                let held = newest.entry(*ip).or_insert_with(|| claim(pod));
                *held = claim(pod).max(*held);
            }
        }
        Self(newest)
    }

    /// Returns the addresses of a pod that no other pod has, and that agents may be sent to.
    #[must_use]
    fn own(&self, pod: &PodObject) -> Vec<IpAddr> {
        let ips = pod.ips().iter().copied().filter(is_probeable);
        ips.filter(|ip| self.0.get(ip).is_none_or(|held| *held == claim(pod))).collect()
    }
}

fn claim(pod: &PodObject) -> Claim<'_> {
    let created = pod.metadata.creation_timestamp.as_ref();
    (created.map_or(0, |time| time.0.as_second()), !pod.is_terminating(), pod.uid())
}

/// Reasons that the kubelet reports for a container that is still starting.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Seconds after which an agent counts as waiting: an image that was refused by chance has been
/// tried four times by then (after 10, 20, 40 and 80 s).
const LONG_SECONDS: i64 = 2 * 60;

/// Number of waiting agents that pauses their namespace, even if others run in it: one or two may
/// share a node with a full disk. Fewer do where no agent runs at all, which is all of a small
/// namespace.
const MANY: usize = 3;

/// A container that ended so often, each time soon, has been given 150 s of pauses by its kubelet.
const CRASHES: u32 = 4;

/// Maximum number of different reasons to report: kubelets know about ten.
const REASONS: usize = 8;

/// Longer words are not a kubelet's.
const LONGEST_REASON: usize = 40;

/// Why an agent does not run, and whether for long; `None` if it runs, or is on its way.
fn failure<'a>(agent: &AgentFacts<'a>, now: i64) -> Option<(&'a str, bool)> {
    if let Some(reason) = agent.waiting {
        let since = agent.since.unwrap_or(now);
        let long = agent.crashes >= CRASHES || now.saturating_sub(since) >= LONG_SECONDS;
        return (!STARTING.contains(&reason)).then_some((reason, long));
    }
    // It runs for the moment, as it did each time.
    let soon = agent.since.is_some_and(|since| now.saturating_sub(since) < SOUND_SECONDS);
    let again = agent.running && agent.crashes >= CRASHES && soon;
    again.then_some(("CrashLoopBackOff", true))
}

/// The agents of the present spec in one namespace.
///
/// A pod waits for its agent before its application starts, so one agent too many is a pod too few.
/// Only the kubelets' reports about pods of the same namespace count: forged annotations in a
/// namespace pause only that namespace, and a registry that is gone pauses each separately.
#[derive(Clone, Debug, Default)]
struct Tally {
    runs: usize,
    fails: usize,
    long: usize,
    why: String,
    /// When the pods without an agent were created that show no trace of the webhook.
    bare: Vec<i64>,
}

impl Tally {
    /// Adds an agent of the present spec.
    fn take(&mut self, agent: &AgentFacts<'_>, failure: Option<(&str, bool)>) {
        let Some((why, long)) = failure else {
            self.runs += usize::from(agent.running);
            return;
        };
        self.fail(why, long);
    }

    /// Adds a pod that waits for the end of its agent of the present spec: no time helps.
    fn strip(&mut self) {
        self.fail(SkipReason::Stripped.as_str(), true);
    }

    fn fail(&mut self, why: &str, long: bool) {
        self.fails += 1;
        self.long += usize::from(long);
        if self.why.is_empty() || *self.why > *why {
            self.why = short(why);
        }
    }

    /// Returns the reason why no further pod of the namespace gets an agent, if there is one.
    fn pause(&self) -> Option<&str> {
        let paused = self.long >= MANY || (self.fails > 0 && self.runs == 0);
        paused.then_some(&self.why)
    }
}

/// Counts a reason among others, whose number is limited.
fn count(reasons: &mut BTreeMap<String, usize>, why: &str) {
    let mut reason = short(why);
    if !reasons.contains_key(&reason) && reasons.len() >= REASONS {
        "Other".clone_into(&mut reason);
    }
    *reasons.entry(reason).or_default() += 1;
}

fn short(reason: &str) -> String {
    reason.chars().take(LONGEST_REASON).collect()
}

#[cfg(test)]
mod tests;
