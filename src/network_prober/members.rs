//! Which of the selected pods have an agent, which of those take part, and why the others have none.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{
    scope::{Scope, Standing},
    settings::Settings,
};
use crate::{
    api::network_prober::Mode,
    pods::address::is_probeable,
    pods::{AgentFacts, DEPLOYED_ANNOTATION, HASH_ANNOTATION, INJECTED_BY_ANNOTATION, PodObject},
    webhook::injection::{self, Recipe, SkipReason},
};

/// What the kubelet says of a container that is on its way.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// A pod that probes and is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its addresses; never empty.
    pub ips: Vec<IpAddr>,
    /// Where its agent answers: what the pod says, not what the spec says now.
    pub port: u16,
    /// Its node.
    pub node: String,
    /// The zone of its node; "" if it has none.
    pub zone: String,
}

impl Member {
    /// What placement knows it by.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.name, self.uid)
    }

    /// What the original's file and metric call it: its name, with its namespace before it if that is
    /// not the `NetworkProber`'s, because two pods of one name were one there.
    #[must_use]
    pub fn key(&self, home: &str) -> String {
        if self.namespace == home {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// What became of the selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// How many pods are selected.
    pub selected: usize,
    /// How many of them have our agent.
    pub injected: usize,
    /// How many have one of an earlier spec.
    pub need_restart: usize,
    /// Why the others have none.
    pub not_injected: BTreeMap<&'static str, usize>,
    /// The pods that take part, by namespace, name and UID.
    pub members: Vec<Member>,
    /// Pods with an agent that do not take part (yet), by UID.
    pub guests: BTreeMap<String, Member>,
    /// Namespaces of selected pods.
    pub namespaces: BTreeSet<String>,
    /// Agents of the present spec that cannot start: how many, and what the kubelet says of the first.
    pub failing: Option<(usize, String)>,
    /// Whether any agent of the present spec runs.
    pub any_runs: bool,
}

impl Members {
    /// Whether agents of the present spec cannot start anywhere: one more would be one more pod that
    /// never starts.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failing.is_some() && !self.any_runs
    }

    /// How many selected pods have no agent.
    #[must_use]
    pub fn uncovered(&self) -> usize {
        self.not_injected.values().sum()
    }
}

/// What is looked at.
pub struct Selection<'a> {
    /// The checked spec.
    pub settings: &'a Settings,
    /// What it injects now, if it can.
    pub recipe: Option<&'a Recipe>,
    /// Its namespaces.
    pub scope: &'a Scope,
    /// Older `NetworkProber`s, whose pods are theirs.
    pub older: &'a [(&'a Settings, &'a Scope)],
    /// The pods that the selector matches, in any order.
    pub pods: &'a [Arc<PodObject>],
}

/// Looks at every selected pod; `zone` is that of a node.
pub fn members(selection: &Selection<'_>, zone: impl Fn(&str) -> String) -> Members {
    let mut found = Members::default();
    let hash = selection.recipe.map(Recipe::hash);
    for pod in selection.pods {
        let Some(standing) = selection.scope.standing(pod.namespace()) else { continue };
        if pod.is_finished() || pod.is_terminating() || !is_ours_to_count(selection.settings, pod) {
            continue;
        }
        found.selected += 1;
        if standing == Standing::Allowed {
            found.namespaces.insert(pod.namespace().to_owned());
        }
        match look(selection, pod, standing) {
            Ok(agent) => found.take(hash.as_deref(), pod, &agent, &zone),
            Err(reason) => *found.not_injected.entry(reason).or_default() += 1,
        }
    }
    if found.is_failing()
        && let Some(count) = found.not_injected.remove(SkipReason::CreatedBefore.as_str())
    {
        // Whether they were there before or were passed over since: a restart would not help them.
        found.not_injected.insert(SkipReason::AgentFailing.as_str(), count);
    }
    found
        .members
        .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    found
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
    // Its address is the node's: whatever it says, nobody is sent there.
    if pod.is_host_network() {
        return Err(SkipReason::HostNetwork.as_str());
    }
    let key = selection.settings.key();
    let by = pod.annotation(INJECTED_BY_ANNOTATION);
    // The original's webhook named nobody: what it has injected is taken over.
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
        // Our annotations without our container: somebody took it out again.
        return Err(SkipReason::Stripped.as_str());
    }
    if is_claimed(selection.older, pod) {
        return Err(SkipReason::OtherProber.as_str());
    }
    let skipped = selection.recipe.and_then(|recipe| injection::skip_reason(pod, recipe));
    Err(skipped.unwrap_or(SkipReason::CreatedBefore).as_str())
}

/// Whether an older one selects the pod.
#[must_use]
pub fn is_claimed(older: &[(&Settings, &Scope)], pod: &PodObject) -> bool {
    older.iter().any(|(settings, scope)| {
        settings.mode == Mode::Sidecar
            && scope.standing(pod.namespace()) == Some(Standing::Allowed)
            && settings.pods.matches(|key| pod.label(key))
    })
}

impl Members {
    fn take(
        &mut self,
        hash: Option<&str>,
        pod: &PodObject,
        agent: &AgentFacts<'_>,
        zone: impl Fn(&str) -> String,
    ) {
        self.injected += 1;
        let current = hash.is_none_or(|hash| pod.annotation(HASH_ANNOTATION) == Some(hash));
        if !current {
            self.need_restart += 1;
        }
        // That it is being made is no failure.
        let waiting = agent.waiting.filter(|reason| current && !STARTING.contains(reason));
        if let Some(waiting) = waiting {
            let (count, _) = self.failing.get_or_insert_with(|| (0, waiting.to_owned()));
            *count += 1;
        }
        self.any_runs |= current && agent.running;
        let node = pod.node().unwrap_or_default();
        let member = Member {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
            ips: pod.ips().iter().copied().filter(is_probeable).collect(),
            port: agent.ping_port,
            node: node.to_owned(),
            zone: zone(node),
        };
        let takes_part = pod.is_ready() && !member.ips.is_empty() && !node.is_empty();
        if takes_part {
            self.members.push(member);
        } else {
            self.guests.insert(member.uid.clone(), member);
        }
    }
}
