//! The external view of the `NetworkProber`s: the answers of `/api/v1/networkprobers`, read by the
//! status page and by the commands that explain. Every replica knows it.
//!
//! It contains nothing of namespaces that do not consent: it is made from the same data as for the
//! webhook and the agents.
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch as latest;

use super::{
    measurement::{self, AgentFigures, Measurement, Querier, Subject},
    members::Member,
    reasons,
    settings::Settings,
    snapshot::{Key, ProberState, Snapshot},
    state::ClusterState,
    watches::Over,
};
use crate::{
    agent::pinglist::{Pinglist, Protocol},
    api::network_prober::Mode,
    prometheus::{Class, DEFAULT, Endpoints, Late, QueryError, Shared},
};

/// Maximum number of listed nodes with agents, those with the fewest agents first: in a cluster of
/// 5,000, ask for one.
const LISTED: usize = 200;

/// One replica and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Its name in the Lease.
    pub identity: String,
    /// Version of the answering replica.
    pub version: String,
    /// Its clock.
    pub now: Timestamp,
    /// True if it has listed the `NetworkProber`s; false also where the kind does not run.
    pub synced: bool,
    /// By namespace and name.
    pub probers: Vec<ProberView>,
}

/// One `NetworkProber`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProberView {
    /// Namespace of the `NetworkProber`.
    pub namespace: String,
    /// Name of the `NetworkProber`.
    pub name: String,
    /// The error in its spec; then nothing else is known.
    pub problem: Option<String>,
    /// The place where agents run.
    pub mode: Mode,
    /// The time from one probe of a peer to the next, in seconds.
    pub period_seconds: f64,
    /// The time for which a probe waits for its answer, in seconds.
    pub timeout_seconds: f64,
    /// The protocols of the probes.
    pub probes: Vec<Protocol>,
    /// The image of new agents.
    pub image: Option<String>,
    /// True if its pods were listed.
    pub listed: bool,
    /// The number of pods that are selected.
    pub selected: usize,
    /// Number of them with an agent.
    pub injected: usize,
    /// Number of them with an agent of an earlier spec.
    pub need_restart: usize,
    /// Why the others have none.
    pub not_injected: Vec<Uncovered>,
    /// Agents that cannot start: their number, and the kubelet's message about the first.
    pub failing: Option<(usize, String)>,
    /// The namespaces in which no further pod gets an agent, because agents there cannot start.
    pub paused: Vec<String>,
    /// Number of pods that probe and are probed.
    pub members: usize,
    /// The number of nodes.
    pub nodes: usize,
    /// These nodes: those with the fewest agents first, `LISTED` at most.
    pub agents: Vec<NodeAgents>,
    /// About how many series the agents export together.
    pub estimated_series: usize,
    /// The data of Prometheus; only if one `NetworkProber` was requested.
    pub measured: Option<Measured>,
}

/// Selected pods without an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncovered {
    /// The name in status and metrics.
    pub reason: String,
    /// Number of pods.
    pub count: usize,
    /// The meaning of the reason.
    pub meaning: String,
    /// The advice.
    pub remedy: Option<String>,
}

impl Uncovered {
    /// The number for this reason, in words.
    #[must_use]
    pub fn of(reason: &str, count: usize) -> Self {
        Self {
            reason: reason.to_owned(),
            count,
            meaning: reasons::meaning(reason).to_owned(),
            remedy: reasons::remedy(reason).map(str::to_owned),
        }
    }
}

/// Number of agents on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAgents {
    /// Name of the node.
    pub node: String,
    /// Zone of the node; empty if unknown.
    pub zone: String,
    /// Number of its pods that take part.
    pub agents: usize,
}

/// A query to Prometheus with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Its name in the operator's configuration.
    pub endpoint: String,
    /// Why there are no figures.
    pub problem: Option<String>,
    /// The figures, if Prometheus has answered.
    pub figures: Option<Measurement>,
}

/// One pod that has an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// The `NetworkProber` of its agent, as `<namespace>/<name>`; none if it has no agent.
    pub prober: Option<String>,
    /// True if it probes and is probed.
    pub takes_part: bool,
    /// The peers that its list currently names.
    pub peers: Vec<PeerView>,
    /// The report of its agent, from Prometheus.
    pub agent: Option<AgentFigures>,
    /// Why that is not known.
    pub problem: Option<String>,
}

/// A pod that is probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Node of the pod.
    pub node: String,
    /// The zone of its node.
    pub zone: String,
}

impl ProberView {
    /// One `NetworkProber` of a snapshot, without figures.
    #[must_use]
    pub fn of((namespace, name): &Key, view: &ProberState) -> Self {
        let members = &view.members;
        let agents = agents(&members.members);
        let settings = view.settings.as_ref();
        Self {
            namespace: namespace.clone(),
            name: name.clone(),
            problem: settings.err().cloned().or_else(|| view.over.as_ref().map(Over::to_string)),
            mode: settings.map_or(Mode::Sidecar, |s| s.mode),
            period_seconds: settings.map_or(0.0, |s| s.period.as_secs_f64()),
            timeout_seconds: settings.map_or(0.0, |s| s.timeout.as_secs_f64()),
            probes: settings.map(|s| s.probes.clone()).unwrap_or_default(),
            image: view.recipe.as_ref().map(|recipe| recipe.image.clone()),
            listed: view.synced,
            selected: members.selected,
            injected: members.injected,
            need_restart: members.need_restart,
            not_injected: members.not_injected.iter().map(|(r, n)| Uncovered::of(r, *n)).collect(),
            failing: members.failure(),
            paused: members.paused.keys().cloned().collect(),
            members: members.members.len(),
            nodes: agents.len(),
            agents: agents.into_iter().take(LISTED).collect(),
            estimated_series: view.pinglists.estimated_series,
            measured: None,
        }
    }

    /// `<namespace>/<name>`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn agents(members: &[Member]) -> Vec<NodeAgents> {
    let mut nodes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for member in members {
        *nodes.entry((&member.node, &member.zone)).or_default() += 1;
    }
    let one = |((node, zone), agents): ((&str, &str), usize)| NodeAgents {
        node: node.into(),
        zone: zone.into(),
        agents,
    };
    let mut nodes: Vec<_> = nodes.into_iter().map(one).collect();
    nodes.sort_by(|a, b| (a.agents, &a.node).cmp(&(b.agents, &b.node)));
    nodes
}

/// The requested `NetworkProber`s.
#[must_use]
pub fn probers(snapshot: &Snapshot, filter: &Filter) -> Vec<ProberView> {
    let asked = snapshot.views.iter().filter(|((namespace, name), _)| {
        filter.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
            && filter.name.as_ref().is_none_or(|wanted| wanted == name)
    });
    asked.map(|(key, view)| ProberView::of(key, view)).collect()
}

/// Returns the knowledge about a pod.
#[must_use]
pub fn pod(snapshot: &Snapshot, namespace: &str, name: &str) -> PodView {
    let is = |member: &&Member| (&*member.namespace, &*member.name) == (namespace, name);
    for view in snapshot.views.values() {
        let members = &view.members;
        let (found, takes_part) = match members.members.iter().find(is) {
            Some(member) => (Some(member), true),
            None => (members.guests.values().find(is), false),
        };
        let (Some(member), Ok(settings)) = (found, &view.settings) else { continue };
        let list = view.pinglists.of(&member.uid).map(|list| list.body());
        let list = list.and_then(|body| serde_json::from_slice::<Pinglist>(&body).ok());
        let peers = list.map(|list| list.peers).unwrap_or_default().into_iter();
        let peers = peers.map(|peer| PeerView {
            namespace: peer.namespace,
            name: peer.name,
            node: peer.node,
            zone: peer.zone,
        });
        let prober = Some(Settings::key(settings));
        return PodView { prober, takes_part, peers: peers.collect(), ..PodView::default() };
    }
    PodView::default()
}

/// Selects the requested part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only this name. With a namespace it selects one object, and its figures are queried.
    pub name: Option<String>,
}

impl Filter {
    /// No name in Kubernetes is longer.
    const NAME: usize = 253;

    /// Reads the query part of a URL.
    ///
    /// # Errors
    /// Returns the error for an invalid parameter, with the valid values.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*key {
                "namespace" => &mut filter.namespace,
                "name" => &mut filter.name,
                _ => return Err(format!("{key}: unknown parameter; known are namespace, name")),
            };
            if place.is_some() {
                return Err(format!("{key}: given twice; give it once"));
            }
            match value.chars().count() {
                0 => return Err(format!("{key}: empty; leave it out to get all")),
                1..=Self::NAME => *place = Some(value.into_owned()),
                long => {
                    let most = Self::NAME;
                    return Err(format!("{key}: {long} characters; a name has at most {most}"));
                }
            }
        }
        Ok(filter)
    }

    /// The requested one.
    #[must_use]
    pub fn one(&self) -> Option<(&str, &str)> {
        Some((self.namespace.as_deref()?, self.name.as_deref()?))
    }
}

/// Maximum age of figures: the rules that record them are evaluated every 30 s by default, so more
/// frequent queries would return the same.
const FRESH: Duration = Duration::from_secs(30);

/// The time for which a page waits for Prometheus: less than its own timeout, so that it shows the
/// rest.
const PATIENCE: Duration = Duration::from_secs(8);

/// A source of knowledge about the `NetworkProber`s.
pub trait ProberSource: Send + Sync + 'static {
    /// Returns the current knowledge, filtered.
    fn overview<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Overview>;
    /// Returns the knowledge about a pod.
    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, PodView>;
}

/// The knowledge of this process.
pub struct LiveProbers {
    identity: String,
    cluster: OnceLock<latest::Receiver<Option<ClusterState>>>,
    endpoints: Endpoints,
    /// Shares one request among all viewers within [`FRESH`], whatever their number.
    figures: Shared<Subject, measurement::Shared<Measurement>>,
    agents: Shared<(Subject, String, String), measurement::Shared<AgentFigures>>,
}

impl LiveProbers {
    /// Creates one without any state yet.
    #[must_use]
    pub fn new(identity: &str, endpoints: &Endpoints) -> Self {
        Self {
            identity: identity.to_owned(),
            cluster: OnceLock::new(),
            endpoints: endpoints.clone(),
            figures: Shared::default(),
            agents: Shared::default(),
        }
    }

    /// Sets the source of the cluster's state, and returns it.
    pub fn follow(
        &self,
        cluster: &latest::Receiver<Option<ClusterState>>,
    ) -> latest::Receiver<Option<ClusterState>> {
        self.cluster.get_or_init(|| cluster.clone()).clone()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        let cluster = self.cluster.get().and_then(|cluster| cluster.borrow().clone());
        cluster.map(|cluster| cluster.snapshot()).unwrap_or_default()
    }

    async fn measured(&self, prober: &ProberView) -> Measured {
        let (figures, problem) = match self.ask(prober).await {
            Ok(figures) => (Some((*figures).clone()), None),
            Err(problem) => (None, Some(problem)),
        };
        Measured { endpoint: DEFAULT.to_owned(), problem, figures }
    }

    /// The figures of one `NetworkProber`, which are queried once for all readers.
    async fn ask(&self, prober: &ProberView) -> Result<Arc<Measurement>, String> {
        let (subject, querier) =
            (subject(prober), Querier::of_operator(&self.endpoints, &prober.namespace)?);
        let asked = subject.clone();
        let request =
            |()| async move { measurement::measure(&querier, &asked).await.map(Arc::new) };
        answered(self.figures.get(&subject, fresh(), PATIENCE, || async {}, request).await)
    }

    /// Returns the same for one agent.
    async fn ask_of_agent(
        &self,
        prober: &ProberView,
        (namespace, pod): (&str, &str),
    ) -> Result<Arc<AgentFigures>, String> {
        let querier = Querier::of_operator(&self.endpoints, &prober.namespace)?;
        let key = (subject(prober), namespace.to_owned(), pod.to_owned());
        let asked = key.clone();
        let request = |()| async move {
            let (subject, namespace, pod) = &asked;
            measurement::agent(&querier, subject, (namespace, pod)).await.map(Arc::new)
        };
        answered(self.agents.get(&key, fresh(), PATIENCE, || async {}, request).await)
    }
}

fn subject(prober: &ProberView) -> Subject {
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let (period, timeout) = (seconds(prober.period_seconds), seconds(prober.timeout_seconds));
    Subject { prober: prober.key(), period, timeout }
}

/// The moment after which an answer is fresh.
fn fresh() -> Instant {
    let now = Instant::now();
    now.checked_sub(FRESH).unwrap_or(now)
}

fn answered<T>(answer: Result<measurement::Shared<T>, Late>) -> Result<Arc<T>, String> {
    let late = |_| QueryError::new(Class::Timeout, "Prometheus has not responded yet");
    answer.map_err(late).flatten().map_err(|error| error.message)
}

impl ProberSource for LiveProbers {
    fn overview<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Overview> {
        Box::pin(async move {
            let snapshot = self.snapshot();
            let mut probers = probers(&snapshot, filter);
            if filter.one().is_some() {
                for prober in probers.iter_mut().filter(|prober| prober.problem.is_none()) {
                    prober.measured = Some(self.measured(prober).await);
                }
            }
            Overview {
                identity: self.identity.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                now: Timestamp::now(),
                synced: snapshot.synced,
                probers,
            }
        })
    }

    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, PodView> {
        Box::pin(async move {
            let snapshot = self.snapshot();
            let mut pod = pod(&snapshot, namespace, name);
            let Some(prober) = pod.prober.as_deref().and_then(|key| of_key(&snapshot, key)) else {
                return pod;
            };
            match self.ask_of_agent(&prober, (namespace, name)).await {
                Ok(agent) => pod.agent = Some((*agent).clone()),
                Err(problem) => pod.problem = Some(problem),
            }
            pod
        })
    }
}

fn of_key(snapshot: &Snapshot, key: &str) -> Option<ProberView> {
    let (namespace, name) = key.split_once('/')?;
    let key = (namespace.to_owned(), name.to_owned());
    Some(ProberView::of(&key, snapshot.views.get(&key)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_parameters_are_named() {
        let long = format!("name={}", "x".repeat(254));
        for (query, error) in [
            ("node=a", "node: unknown parameter; known are namespace, name"),
            ("name=", "name: empty; leave it out to get all"),
            ("name=a&name=b", "name: given twice; give it once"),
            (&long, "name: 254 characters; a name has at most 253"),
        ] {
            assert_eq!(Filter::parse(query), Err(error.to_owned()), "{query}");
        }
        let filter = Filter::parse("namespace=shop&name=w%C3%A9b").unwrap();
        assert_eq!(filter.one(), Some(("shop", "wéb")));
        assert_eq!(Filter::parse("name=a").unwrap().one(), None);
    }

    #[test]
    fn nodes_with_the_fewest_agents_stand_first() {
        let member = |node: &str| Member {
            namespace: "n".into(),
            name: "p".into(),
            uid: "u".into(),
            ips: vec![],
            port: 1,
            node: node.into(),
            zone: "a".into(),
        };
        let all = agents(&[member("n1"), member("n2"), member("n1"), member("n3")]);
        let seen: Vec<_> = all.iter().map(|one| (&*one.node, one.agents)).collect();
        assert_eq!(seen, [("n2", 1), ("n3", 1), ("n1", 2)]);
    }

    /// One query for each interval, for any number of readers.
    #[tokio::test]
    async fn viewers_share_their_questions() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let shared = Shared::<Subject, usize>::default();
        let subject = Subject {
            prober: "n/p".into(),
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
        };
        let look = || {
            let request = |()| async {
                tokio::task::yield_now().await;
                ASKED.fetch_add(1, Ordering::Relaxed)
            };
            shared.get(&subject, fresh(), PATIENCE, || async {}, request)
        };
        let seen = futures::future::join_all((0..100).map(|_| look())).await;
        assert!(seen.into_iter().all(|answer| answer == Ok(0)));
        assert_eq!(look().await, Ok(0));
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_does_not_answer_in_time_reports_it() {
        let late: Result<Arc<()>, _> = answered(Err(Late::Answer));
        assert_eq!(late.unwrap_err(), "Prometheus has not responded yet");
    }
}
