//! A BIRD on every node, as Calico would configure it: the number of its sessions, the metrics of
//! Prometheus about them, and every missed route. All of it by the lab's model of confd and BIRD,
//! which was verified against real BIRD and shares no code with the operator's own.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures::{FutureExt, Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, ListParams},
    runtime::{WatchStreamExt, watcher, watcher::Config},
};
use lab::{
    bgp::{Peer, Rule, Sessions, World, missing, sessions, two_ended},
    calico::Group,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{task::AbortHandle, time::timeout};

use super::datastore::kind;

/// The time between two looks at nodes and peers, if they change all the time.
const LOOK: Duration = Duration::from_millis(150);

/// The same if they do not change.
const IDLE: Duration = Duration::from_secs(1);

/// The time that a session takes to be established.
const ESTABLISHING: Duration = Duration::from_secs(1);

/// The time for which a reflector must have served before another one, or the mesh, may be removed:
/// the five seconds by which a sample is younger than a step, with the time that reading takes.
const BEFORE_BREAK: Duration = Duration::from_millis(4500);

/// The faults that a test injects.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    /// Nodes with a dead BIRD: it has no series, and no sessions.
    pub dead: BTreeSet<String>,
    /// The number of sessions that a node lacks.
    pub lacking: BTreeMap<String, u32>,
    /// The time of the last scrape of everything, in seconds since 1970; `None` for now.
    pub scraped: Option<f64>,
    /// Missing routes are no complaint: the test causes them.
    pub careless: bool,
}

/// BGPPeers and `BGPConfigurations`.
pub type Objects = (Vec<DynamicObject>, Vec<DynamicObject>);

/// The input of Calico, and the nodes that are down.
#[derive(Default, PartialEq)]
pub struct Scene {
    world: World,
    down: BTreeSet<String>,
    /// The reasons why some of it cannot be read.
    unread: Vec<String>,
}

/// A scene, and its consequences.
struct Seen {
    scene: Scene,
    /// The sessions that have two ends.
    sessions: Sessions,
    complaints: Vec<String>,
}

#[derive(Default)]
struct Inner {
    controls: Controls,
    scenes: Vec<(Instant, Arc<Seen>)>,
    /// Events that must not happen.
    complaints: Vec<String>,
}

pub struct Birds {
    inner: Arc<Mutex<Inner>>,
    task: AbortHandle,
}

impl Birds {
    /// Configured by what is in the Kubernetes API.
    pub fn start(client: Client, group: Group) -> Self {
        let events = changes(&client, group);
        let look = move || {
            let client = client.clone();
            async move {
                let nodes = nodes(&client).await?;
                let objects = match objects(&client, group).await {
                    // Calico may be installed later.
                    Err(kube::Error::Api(status)) if status.code == 404 => Objects::default(),
                    found => found.ok()?,
                };
                Some(Scene::new(&nodes, objects))
            }
        };
        Self::following(look, events)
    }

    /// Configured by the result of `look`; `None` if it failed.
    pub fn seeing<F>(look: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Option<Scene>> + Send,
    {
        Self::following(look, stream::pending())
    }

    fn following<F>(
        look: impl Fn() -> F + Send + 'static,
        mut events: impl Stream<Item = (usize, bool)> + Send + Unpin + 'static,
    ) -> Self
    where
        F: Future<Output = Option<Scene>> + Send,
    {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let shared = Arc::clone(&inner);
        let look = async move {
            let mut seen = Arc::new(Seen::new(Scene::default()));
            let mut watched = [false; 3];
            loop {
                if let Some(scene) = look().await {
                    if scene != seen.scene {
                        seen = Arc::new(Seen::new(scene));
                    }
                    shared.lock().expect("lock").see(Arc::clone(&seen));
                }
                tokio::time::sleep(LOOK).await;
                let idle = if watched == [true; 3] { IDLE } else { Duration::ZERO };
                let mut event = timeout(idle, events.next()).await.ok().flatten();
                while let Some((watch, works)) = event {
                    watched[watch] = works;
                    event = events.next().now_or_never().flatten();
                }
            }
        };
        Self { inner, task: tokio::spawn(look).abort_handle() }
    }

    /// Forgets what was seen so far: the test has set its scene.
    pub fn forget(&self) {
        self.inner.lock().expect("lock").complaints.clear();
    }

    pub fn control(&self, change: impl FnOnce(&mut Controls)) {
        change(&mut self.inner.lock().expect("lock").controls);
    }

    /// The answer of Prometheus to the built-in query.
    pub fn answer(&self) -> impl Fn(&str) -> Value + Send + Sync + 'static {
        let inner = Arc::clone(&self.inner);
        move |query| inner.lock().expect("lock").answer(query)
    }

    /// The names of the sessions that each node has.
    pub fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.inner.lock().expect("lock").established()
    }

    /// Returns the number of sessions of each node when all of them are established.
    pub fn sessions(&self) -> BTreeMap<String, u32> {
        let inner = self.inner.lock().expect("lock");
        let Some((_, seen)) = inner.scenes.last() else { return BTreeMap::new() };
        let count = |names: BTreeSet<_>| u32::try_from(names.len()).expect("few");
        seen.names(&[].into()).into_iter().map(|(node, names)| (node, count(names))).collect()
    }

    /// Returns the violations: a node missed a route, or lost a reflector before the next one could
    /// have been established.
    pub fn complaints(&self) -> Vec<String> {
        self.inner.lock().expect("lock").complaints.clone()
    }
}

impl Drop for Birds {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

impl Scene {
    /// Reads the objects. A BGPPeer that the lab cannot read is left out if it is not the
    /// operator's, and is a complaint otherwise.
    pub fn new(nodes: &[Node], (mut peers, configurations): Objects) -> Self {
        let ours = |peer: &DynamicObject| {
            let by = peer.labels().get("app.kubernetes.io/managed-by");
            by.is_some_and(|by| by == "traffic-operator")
        };
        peers.retain(|peer| ours(peer) || Peer::read(peer).is_ok());
        let (world, unread) = World::read(nodes, &peers, &configurations);
        let ready = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let down = nodes.iter().filter(|node| !ready(node)).map(ResourceExt::name_any).collect();
        Self { world, down, unread }
    }

    fn is_up(&self, node: &str) -> bool {
        self.world.nodes.contains_key(node) && !self.down.contains(node)
    }
}

impl Seen {
    fn new(scene: Scene) -> Self {
        let sessions = two_ended(&sessions(&scene.world));
        let down = scene.down.iter().map(String::as_str).collect();
        // By RFC 4456 at least as many routes are missing as by BIRD's rule.
        let missing = missing(&sessions, &down, Rule::Rfc);
        let mut complaints = scene.unread.clone();
        if let Some((who, whose)) = missing.first() {
            complaints.push(format!("{who} has no route of {whose} ({} pairs)", missing.len()));
        }
        Self { scene, sessions, complaints }
    }

    fn reflectors(&self) -> BTreeSet<&str> {
        let all = self.scene.world.nodes.iter().filter(|(_, node)| node.cluster_id.is_some());
        all.map(|(name, _)| name.as_str()).filter(|name| self.scene.is_up(name)).collect()
    }

    /// The names of the sessions of every node whose BIRD is not dead, with such nodes.
    fn names(&self, dead: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
        let alive = |node: &str| self.scene.is_up(node) && !dead.contains(node);
        let mut all = BTreeMap::new();
        for (node, ends) in self.sessions.iter().filter(|(node, _)| !dead.contains(*node)) {
            let with = ends.iter().filter(|(_, end)| alive(&end.peer));
            all.insert(node.clone(), with.map(|(name, _)| name.clone()).collect());
        }
        all
    }
}

impl Inner {
    fn see(&mut self, seen: Arc<Seen>) {
        if !self.controls.careless {
            self.judge(&seen);
        }
        // No query reaches further back than this; the newest state of that time still holds.
        let old = |at: &Instant| at.elapsed() > Duration::from_secs(10);
        let stale = self.scenes.iter().take_while(|(at, _)| old(at)).count();
        self.scenes.drain(..stale.saturating_sub(1));
        self.scenes.push((Instant::now(), seen));
    }

    fn judge(&mut self, seen: &Seen) {
        self.complaints.extend_from_slice(&seen.complaints);
        let Some((_, before)) = self.scenes.last() else { return };
        let (old, new) = (before.reflectors(), seen.reflectors());
        let demoted: Vec<_> = old.difference(&new).filter(|node| seen.scene.is_up(node)).collect();
        let mesh = before.scene.world.mesh;
        let mesh_off = mesh && !seen.scene.world.mesh;
        if demoted.is_empty() && !mesh_off {
            return;
        }
        let then = self.scenes.iter().rev().find(|(at, _)| at.elapsed() >= BEFORE_BREAK);
        let long = then.map(|(_, seen)| seen.reflectors()).unwrap_or_default();
        if !new.is_subset(&long) && !mesh || mesh_off && new.is_empty() {
            let mut text = format!("reflectors {new:?} had no time to be there before ");
            let _ = write!(text, "{demoted:?} went (mesh off: {mesh_off})");
            self.complaints.push(text);
        }
    }

    /// The names of the established sessions of every node: those that have had the time to be
    /// established.
    fn established(&self) -> BTreeMap<String, BTreeSet<String>> {
        let Controls { dead, lacking, .. } = &self.controls;
        let mut all: Option<BTreeMap<String, BTreeSet<String>>> = None;
        for (at, seen) in self.scenes.iter().rev() {
            let seen = seen.names(dead);
            match &mut all {
                None => all = Some(seen),
                Some(all) => {
                    for (node, names) in all {
                        names.retain(|name| seen.get(node).is_some_and(|all| all.contains(name)));
                    }
                }
            }
            if at.elapsed() > ESTABLISHING {
                break;
            }
        }
        let mut all = all.unwrap_or_default();
        for (node, lacking) in lacking {
            for _ in 0..*lacking {
                all.get_mut(node).map(BTreeSet::pop_last);
            }
        }
        all
    }

    fn answer(&self, query: &str) -> Value {
        let (sets, all) = (sets(query), self.established());
        let age = self.controls.scraped.map_or(0.0, |scraped| now() - scraped);
        let mut result = vec![];
        let mut say = |metric: Value, value: String| {
            result.push(json!({"metric": metric, "value": [0, value]}));
        };
        let anybodys: BTreeSet<_> = all.values().flatten().collect();
        for name in anybodys {
            say(json!({"name": name, "measure": "name"}), "1".into());
        }
        for (node, names) in &all {
            let mut of = |measure: &str, value: String| {
                say(json!({"instance": node, "measure": measure}), value);
            };
            for (tag, set) in &sets {
                let count = names.iter().filter(|name| set.contains(name.as_str())).count();
                if count > 0 {
                    of(tag, count.to_string());
                }
            }
            of("age", age.to_string());
        }
        json!({"status": "success", "data": {"resultType": "vector", "result": result}})
    }
}

/// The sets of names in a query, by the measure that it gives them.
fn sets(query: &str) -> Vec<(&str, BTreeSet<&str>)> {
    let set = |part| {
        let (_, names) = str::split_once(part, "name=~\"")?;
        let (names, rest) = names.split_once('"')?;
        let (tag, _) = rest.split_once("\"measure\", \"")?.1.split_once('"')?;
        Some((tag, names.split('|').collect()))
    };
    query.split("label_replace(count by ").skip(1).filter_map(set).collect()
}

/// The events of nodes and of Calico's two kinds: which of the three, and whether its watch works.
fn changes(
    client: &Client,
    group: Group,
) -> impl Stream<Item = (usize, bool)> + Send + Unpin + use<> {
    let configurations = kind(client, group, "BGPConfiguration", "bgpconfigurations").0;
    stream::select_all([
        watch(0, Api::<Node>::all(client.clone())),
        watch(1, kind(client, group, "BGPPeer", "bgppeers").0),
        watch(2, configurations),
    ])
}

fn watch<K>(number: usize, api: Api<K>) -> stream::BoxStream<'static, (usize, bool)>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, Config::default()).default_backoff();
    events.map(move |event| (number, event.is_ok())).boxed()
}

/// The nodes of Kubernetes; `None` if it does not answer.
pub async fn nodes(client: &Client) -> Option<Vec<Node>> {
    Some(Api::<Node>::all(client.clone()).list(&ListParams::default()).await.ok()?.items)
}

/// Calico's objects in the Kubernetes API.
pub async fn objects(client: &Client, group: Group) -> kube::Result<Objects> {
    let all = ListParams::default();
    let peers = kind(client, group, "BGPPeer", "bgppeers").0.list(&all).await?;
    let configurations = kind(client, group, "BGPConfiguration", "bgpconfigurations");
    Ok((peers.items, configurations.0.list(&all).await?.items))
}
