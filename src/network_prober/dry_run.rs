//! `plan` for a `NetworkProber`: which pods would get an agent, why others would not, and the cost.
use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};

use serde::Serialize;

use super::{
    constraints::ByNamespace,
    members::{Member, Members, Nodes, Selection, after_restarts, members},
    pinglists::Pinglists,
    places::{Places, webhook_bytes},
    reasons::{meaning, remedy},
    scope::{NamespaceFacts, Scope, Standing},
    settings::Settings,
    snapshot::{Pods, ProberState, Setup, Snapshot, Surroundings, reaches, recipe},
};
use crate::{
    api::{NetworkProber, network_prober::Mode},
    nodes::NodeStore,
    pods::PodObject,
    selector::Selector,
    webhook::injection::{NATIVE_SIDECARS, Recipe},
};

/// What the spec of a `NetworkProber` would do in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// Namespace of the `NetworkProber`.
    pub namespace: String,
    /// Name of the `NetworkProber`.
    pub name: String,
    /// Where agents run.
    pub mode: Mode,
    /// Why it would do nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The namespaces whose pods would get agents.
    pub namespaces: Vec<String>,
    /// The selected namespaces whose pods would get none, each with the reason.
    pub left_out: BTreeMap<String, &'static str>,
    /// Selected pods; in mode `DaemonSet`, the nodes that get one.
    pub selected: usize,
    /// Those that have an agent of this spec.
    pub current: usize,
    /// Those that get an agent, or one of this spec, when they are restarted; in mode `DaemonSet`
    /// without.
    pub after_restart: usize,
    /// Why the others get none.
    pub without: Vec<Without>,
    /// Peers of an agent at most, once every pod was restarted.
    pub peers: usize,
    /// Series of all agents then.
    pub estimated_series: usize,
}

/// Pods that get no agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Without {
    /// The reason in status and metrics.
    pub reason: String,
    /// Number of pods.
    pub pods: usize,
    /// The reason in a sentence.
    pub meaning: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
}

/// The cluster, as the API server has it.
pub struct Cluster<'a> {
    /// The settings of the operator.
    pub setup: &'a Setup,
    /// All namespaces.
    pub namespaces: &'a [NamespaceFacts],
    /// All `NetworkProber`s, the planned one among them, the oldest first.
    pub probers: &'a [&'a NetworkProber],
    /// All nodes.
    pub nodes: &'a NodeStore,
}

/// One that is planned, with its namespaces.
pub struct Planned {
    settings: Settings,
    scope: Scope,
    older: Snapshot,
    places: Places,
}

impl Cluster<'_> {
    /// Examines the namespaces of one of the `NetworkProber`s, by its place.
    ///
    /// # Errors
    /// Why it does nothing.
    pub fn plan(&self, place: usize) -> Result<Planned, String> {
        let (mut older, mut places) = (Snapshot::default(), Places::new(&self.setup.tenancy));
        let all = reaches(&self.probers[..=place], self.setup, self.namespaces);
        for (prober, reach) in self.probers.iter().zip(all) {
            let settings = Settings::of(prober, &self.setup.tenancy);
            let settings = settings.map_err(|error| error.to_text());
            if std::ptr::eq(*prober, self.probers[place]) {
                if let Some(over) = reach.beyond_all() {
                    return Err(over.to_string());
                }
                let settings = settings?;
                let image = recipe(&settings, self.setup).map(|recipe| recipe.image);
                let tenancy = &self.setup.tenancy;
                let scope = Scope::of(&settings, image.as_deref(), tenancy, self.namespaces);
                return Ok(Planned { settings, scope, older, places });
            }
            let surroundings = surroundings(&older, &places);
            let view = ProberState::of(prober, reach, Pods::Unlisted, None, &surroundings);
            view.take_place(&mut places);
            if let Ok(settings) = &view.settings {
                let key = (settings.namespace.clone(), settings.name.clone());
                older.views.insert(key, Arc::new(view));
            }
        }
        Err("it is not among them".into())
    }
}

/// Where the pods of a NetworkProber are of no interest.
fn surroundings<'a>(before: &'a Snapshot, places: &'a Places) -> Surroundings<'a> {
    static NONE: ByNamespace = ByNamespace::new();
    Surroundings {
        before,
        places,
        constraints: &NONE,
        nodes: Nodes { zone: &|_| String::new(), readiness: &|_| None, ends: &|_| false },
        entry_written: None,
        now: Duration::ZERO,
    }
}

impl Planned {
    /// The namespaces whose pods would get agents.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.scope.allowed().into_iter()
    }

    /// The labels of the pods that it selects, as the API server reads them.
    #[must_use]
    pub fn labels(&self) -> String {
        self.settings.pods.to_string()
    }

    /// Decides about the pods of these namespaces. `existing` is the object that this one replaces.
    #[must_use]
    pub fn decide(
        &self,
        cluster: &Cluster<'_>,
        pods: &[Arc<PodObject>],
        constraints: &ByNamespace,
        existing: Option<&NetworkProber>,
        now: Duration,
    ) -> DryRun {
        let settings = &self.settings;
        let mut setup = cluster.setup.clone();
        let oldest = cluster.nodes.oldest_kubelet();
        setup.native_sidecars &= oldest.is_none_or(|version| version >= NATIVE_SIDECARS);
        let nodes = Nodes {
            zone: &|node| cluster.nodes.zone(node),
            readiness: &|node| cluster.nodes.readiness(node),
            ends: &|node| cluster.nodes.is_ending(node),
        };
        let recipe = recipe(settings, &setup);
        let selection = Selection {
            settings,
            recipe: recipe.as_ref(),
            scope: &self.scope,
            older: &self.older.older(&settings.rank),
            pods,
            nodes: &nodes,
            constraints,
            last: None,
            appeared: None,
            calls_since: None,
            now: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        };
        let found = members(&selection);
        let (selected, then) = match settings.mode {
            Mode::Sidecar => (found.selected, after_restarts(&selection)),
            Mode::DaemonSet => {
                let then = one_on_each_node(settings, cluster.nodes);
                (then.len(), then)
            }
        };
        let then = Members { members: then, ..Members::default() };
        let lists = Pinglists::of_members(settings, &then, now);
        let agents = then.members.len();
        let current = current(existing, recipe.as_ref(), &setup).min(found.injected).min(agents);
        let bytes = webhook_bytes(settings, &self.scope, &setup.tenancy);
        let full = self.places.full(&settings.namespace, bytes);
        let restarts = ["CreatedBefore", "NotCalled"];
        let without = found
            .not_injected
            .iter()
            .filter(|(reason, _)| settings.mode == Mode::Sidecar && !restarts.contains(reason));
        DryRun {
            namespace: settings.namespace.clone(),
            name: settings.name.clone(),
            mode: settings.mode,
            refused: full.map(|why| why.to_string()),
            namespaces: self.namespaces().map(ToOwned::to_owned).collect(),
            left_out: self.left_out(cluster.namespaces),
            selected,
            current,
            after_restart: agents - current,
            without: without
                .map(|(reason, pods)| Without {
                    reason: (*reason).to_owned(),
                    pods: *pods,
                    meaning: meaning(reason).to_owned(),
                    remedy: remedy(reason),
                })
                .collect(),
            peers: lists.longest(),
            estimated_series: lists.estimated_series,
        }
    }

    fn left_out(&self, namespaces: &[NamespaceFacts]) -> BTreeMap<String, &'static str> {
        let reason = |namespace: &NamespaceFacts| {
            let why = match self.scope.standing(&namespace.name)? {
                Standing::Allowed => return None,
                // Only the operator knows the digest of its own image.
                Standing::NotConsenting if self.may_consent_to_ours(namespace) => {
                    "it consents to an image by digest, which that of the operator may have"
                }
                Standing::NotConsenting => "it does not consent: probes.bigmikes.io/allow",
                Standing::Excluded => "it is never selected",
                Standing::OptedOut => "it has opted out: probes.bigmikes.io/inject",
            };
            Some((namespace.name.clone(), why))
        };
        namespaces.iter().filter_map(reason).collect()
    }

    fn may_consent_to_ours(&self, namespace: &NamespaceFacts) -> bool {
        let by_digest = namespace.allow.as_deref().is_some_and(|allow| allow.contains('@'));
        self.settings.image.is_none() && by_digest
    }
}

/// The number of agents of this very recipe, by the last status: what the hash of an agent was made
/// of, the operator's image and the address of its lists, only the operator knows.
fn current(existing: Option<&NetworkProber>, recipe: Option<&Recipe>, setup: &Setup) -> usize {
    let there = existing.and_then(|existing| {
        let was = super::snapshot::recipe(&Settings::of(existing, &setup.tenancy).ok()?, setup)?;
        let status =
            existing.status.as_ref().filter(|_| recipe.map(Recipe::hash) == Some(was.hash()));
        status.map(|status| status.injected.saturating_sub(status.need_restart))
    });
    there.and_then(|there| usize::try_from(there).ok()).unwrap_or(0)
}

/// An agent on each node that the `DaemonSet` selects, whatever its taints.
fn one_on_each_node(settings: &Settings, nodes: &NodeStore) -> Vec<Member> {
    let selected = nodes.select(&Selector::linux(), "");
    let member = |name: &str| Member {
        namespace: settings.namespace.clone(),
        name: name.to_owned(),
        uid: name.to_owned(),
        ips: vec![],
        port: settings.http_port,
        node: name.to_owned(),
        zone: nodes.zone(name),
    };
    selected.nodes.iter().map(|node| member(&node.name)).collect()
}

/// Returns the answer as text, with a line break at its end.
#[must_use]
pub fn text(run: &DryRun) -> String {
    let DryRun { namespace, name, selected, current, after_restart, .. } = run;
    let mut text = format!("NetworkProber {namespace}/{name}");
    // Writing to a String cannot fail.
    if let Some(why) = &run.refused {
        let _ = writeln!(text, ": it has no effect: {why}");
        return text;
    }
    let all = current + after_restart;
    match run.mode {
        Mode::Sidecar if *selected == 0 => {
            text.push_str(": spec.podSelector matches no pod of the namespaces with agents\n");
        }
        Mode::Sidecar => {
            let _ = writeln!(text, ": {all} of {selected} selected pods would have an agent");
            let _ = writeln!(text, "  {current} have one of this spec");
            let _ = writeln!(text, "  {after_restart} get one when they are restarted");
        }
        Mode::DaemonSet => {
            let _ = writeln!(text, ": {all} nodes would have an agent, {current} have one now");
        }
    }
    for Without { reason, pods, meaning, remedy } in &run.without {
        let _ = writeln!(text, "  {pods} get none, {reason}: {meaning}");
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "    {remedy}");
        }
    }
    if run.mode == Mode::Sidecar {
        let names = run.namespaces.join(", ");
        let names = if names.is_empty() { "none" } else { &names };
        let _ = writeln!(text, "Namespaces with agents: {names}");
    }
    for (namespace, why) in &run.left_out {
        let _ = writeln!(text, "  not {namespace}: {why}");
    }
    let _ = writeln!(
        text,
        "Each agent would probe {} peers at most; all agents export about {} series",
        run.peers, run.estimated_series
    );
    text
}
