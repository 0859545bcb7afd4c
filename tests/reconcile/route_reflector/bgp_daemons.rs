//! A BIRD on every node, as Calico configures it: the number of sessions of each, Prometheus'
//! series about them, and a check that no node ever misses a route.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use kube::Client;
use lab::calico::Group;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use traffic_operator::route_reflector::bgp_model::{
    Fabric, Labels, Local, Node, Peer, Remote, Rule, Selector,
};

/// Interval between two looks at nodes and peers.
const LOOK: Duration = Duration::from_millis(150);

/// Time that a session takes to be established.
const ESTABLISHING: Duration = Duration::from_secs(1);

/// Time for which a reflector must have been one before another, or the mesh, may go: the five
/// seconds by which a sample is younger than a step, minus the time that looking takes.
const BEFORE_BREAK: Duration = Duration::from_millis(4500);

/// Settings of the test.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    /// Nodes whose BIRD is dead: it has no series, and no node has a session with it.
    pub dead: BTreeSet<String>,
    /// Number of sessions that a node lacks.
    pub lacking: BTreeMap<String, u32>,
    /// Time of the last scrape of all series, in seconds since 1970; `None` for now.
    pub scraped: Option<f64>,
    /// Routes may be missing, because the test causes that itself.
    pub careless: bool,
}

/// An observation at one instant.
#[derive(Clone)]
struct Scene {
    at: Instant,
    fabric: Fabric,
}

#[derive(Default)]
struct Inner {
    controls: Controls,
    scenes: Vec<Scene>,
    /// Violations seen so far.
    complaints: Vec<String>,
}

/// All of them.
pub struct Birds {
    inner: Arc<Mutex<Inner>>,
    task: AbortHandle,
}

impl Birds {
    /// Starts BIRDs that are configured by the objects in the Kubernetes API.
    pub fn start(client: Client, group: Group) -> Self {
        Self::seeing(move || {
            let client = client.clone();
            async move { look(&client, group).await }
        })
    }

    /// Starts BIRDs that are configured by the result of `look`; `None` if it failed.
    pub fn seeing<F>(look: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Option<Fabric>> + Send,
    {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let shared = Arc::clone(&inner);
        let look = async move {
            loop {
                if let Some(fabric) = look().await {
                    shared.lock().expect("lock").see(fabric);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        Self { inner, task: tokio::spawn(look).abort_handle() }
    }

    /// Forgets the violations so far: the test has set its scene.
    pub fn forget(&self) {
        self.inner.lock().expect("lock").complaints.clear();
    }

    pub fn control(&self, change: impl FnOnce(&mut Controls)) {
        change(&mut self.inner.lock().expect("lock").controls);
    }

    /// Returns Prometheus' answer to the built-in query.
    pub fn answer(&self) -> impl Fn(&str) -> Value + Send + Sync + 'static {
        let inner = Arc::clone(&self.inner);
        move |query| inner.lock().expect("lock").answer(query)
    }

    /// The names of the sessions that each node has.
    pub fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.inner.lock().expect("lock").established()
    }

    /// Returns the number of sessions of each node, when they are all up.
    pub fn sessions(&self) -> BTreeMap<String, u32> {
        let inner = self.inner.lock().expect("lock");
        let Some(scene) = inner.scenes.last() else { return BTreeMap::new() };
        let sessions = scene.fabric.sessions();
        sessions.iter().map(|(node, expected)| (node.to_string(), expected.up)).collect()
    }

    /// Returns the violations: a node missed a route, or lost a reflector before the next one had
    /// the time to be established.
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

fn reflectors(fabric: &Fabric) -> BTreeSet<Arc<str>> {
    let all = fabric.nodes().iter().filter(|node| node.cluster_id.is_some() && node.up);
    all.map(|node| Arc::clone(&node.name)).collect()
}

impl Inner {
    fn see(&mut self, fabric: Fabric) {
        let scene = Scene { at: Instant::now(), fabric };
        if !self.controls.careless {
            self.judge(&scene);
        }
        // No one asks for older observations; the newest of them still holds.
        let old = |scene: &Scene| scene.at.elapsed() > Duration::from_secs(10);
        let stale = self.scenes.iter().take_while(|scene| old(scene)).count();
        self.scenes.drain(..stale.saturating_sub(1));
        self.scenes.push(scene);
    }

    fn judge(&mut self, scene: &Scene) {
        let missing = scene.fabric.missing(Rule::Rfc);
        if let Some((who, whose)) = missing.examples.first() {
            let text = format!("{who} has no route of {whose} ({} pairs)", missing.pairs);
            self.complaints.push(text);
        }
        let Some(before) = self.scenes.last() else { return };
        let up: BTreeSet<_> =
            scene.fabric.nodes().iter().filter(|n| n.up).map(|n| &n.name).collect();
        let (old, new) = (reflectors(&before.fabric), reflectors(&scene.fabric));
        let demoted: Vec<_> = old.difference(&new).filter(|node| up.contains(node)).collect();
        let mesh_off = before.fabric.mesh() && !scene.fabric.mesh();
        if demoted.is_empty() && !mesh_off {
            return;
        }
        let then = self.scenes.iter().rev().find(|scene| scene.at.elapsed() >= BEFORE_BREAK);
        let long = then.map(|scene| reflectors(&scene.fabric)).unwrap_or_default();
        if !new.is_subset(&long) && !before.fabric.mesh() || mesh_off && new.is_empty() {
            let mut text = format!("reflectors {new:?} had no time to be there before ");
            let _ = write!(text, "{demoted:?} went (mesh off: {mesh_off})");
            self.complaints.push(text);
        }
    }

    /// The names of the sessions that every node has, those that have had the time to be
    /// established.
    fn established(&self) -> BTreeMap<String, BTreeSet<String>> {
        let Controls { dead, lacking, .. } = &self.controls;
        let mut all: Option<BTreeMap<String, BTreeSet<String>>> = None;
        for scene in self.scenes.iter().rev() {
            let seen = names(&scene.fabric, dead);
            match &mut all {
                None => all = Some(seen),
                Some(all) => {
                    for (node, names) in all {
                        names.retain(|name| seen.get(node).is_some_and(|all| all.contains(name)));
                    }
                }
            }
            if scene.at.elapsed() > ESTABLISHING {
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

/// The sets of names that a query asks for, by the measures that it gives them.
fn sets(query: &str) -> Vec<(&str, BTreeSet<&str>)> {
    let set = |part| {
        let (_, names) = str::split_once(part, "name=~\"")?;
        let (names, rest) = names.split_once('"')?;
        let (tag, _) = rest.split_once("\"measure\", \"")?.1.split_once('"')?;
        Some((tag, names.split('|').collect()))
    };
    query.split("label_replace(count by ").skip(1).filter_map(set).collect()
}

/// The names of the sessions between nodes whose BIRD is not dead, by node.
fn names(fabric: &Fabric, dead: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let alive = |node: &&&Node| node.up && !dead.contains(&*node.name);
    let all = fabric.nodes().iter().filter(|node| !dead.contains(&*node.name));
    let mut all: BTreeMap<_, BTreeSet<_>> =
        all.map(|node| (node.name.to_string(), BTreeSet::new())).collect();
    for neighbours in fabric.neighbours() {
        for by in neighbours.by.iter().filter(|by| !dead.contains(&*by.name)) {
            let of = neighbours.of.iter().filter(alive).filter(|of| of.name != by.name);
            let named = of.filter_map(|of| Some(neighbours.kind.protocol(of.address?, None)));
            all.entry(by.name.to_string()).or_default().extend(named);
        }
    }
    all
}

/// The nodes of Kubernetes.
pub async fn nodes(client: &Client) -> Option<Vec<Node>> {
    Some(list(client, "/api/v1/nodes").await?.iter().map(node).collect())
}

async fn list(client: &Client, path: &str) -> Option<Vec<Value>> {
    let request = http::Request::get(path).body(vec![]).expect("request");
    match client.request::<Value>(request).await {
        Ok(mut list) => Some(std::mem::take(list["items"].as_array_mut()?)),
        Err(kube::Error::Api(status)) if status.code == 404 => Some(vec![]),
        Err(_) => None,
    }
}

/// BGPPeers and `BGPConfigurations`; `None` while Calico's API does not answer.
pub async fn objects(client: &Client, group: Group) -> Option<(Vec<Value>, Vec<Value>)> {
    let mut found = vec![];
    for plural in ["bgppeers", "bgpconfigurations"] {
        let path = format!("/apis/{}/{plural}", group.api_version());
        let request = http::Request::get(path).body(vec![]).expect("request");
        // The library tries for minutes.
        let answer = tokio::time::timeout(Duration::from_secs(1), client.request::<Value>(request));
        let mut list = answer.await.ok()?.ok()?;
        found.push(std::mem::take(list["items"].as_array_mut()?));
    }
    let configurations = found.pop()?;
    Some((found.pop()?, configurations))
}

async fn look(client: &Client, group: Group) -> Option<Fabric> {
    let base = format!("/apis/{}", group.api_version());
    let nodes = nodes(client).await?;
    let peers = list(client, &format!("{base}/bgppeers")).await?;
    let configurations = list(client, &format!("{base}/bgpconfigurations")).await?;
    Some(fabric(nodes, &peers, &configurations))
}

/// Builds the fabric of these nodes, peers and configurations.
pub fn fabric(nodes: Vec<Node>, peers: &[Value], configurations: &[Value]) -> Fabric {
    let off = |c: &Value| {
        c["metadata"]["name"] == "default" && c["spec"]["nodeToNodeMeshEnabled"] == false
    };
    let peers = peers.iter().filter_map(peer).collect();
    Fabric::new(nodes, peers, !configurations.iter().any(off))
}

fn node(node: &Value) -> Node {
    let metadata = &node["metadata"];
    let annotation = |key: &str| metadata["annotations"][key].as_str();
    let address = annotation("projectcalico.org/IPv4Address").and_then(|a| a.split('/').next());
    let id = annotation("projectcalico.org/RouteReflectorClusterID");
    let labels = metadata["labels"].as_object();
    let labels = labels.into_iter().flatten();
    let labels: Labels =
        labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or(""))).collect();
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    Node {
        name: metadata["name"].as_str().expect("name").into(),
        address: address.and_then(|address| address.parse().ok()),
        labels,
        cluster_id: id.and_then(|id| id.parse().ok()),
        up: ready,
    }
}

fn peer(peer: &Value) -> Option<Peer> {
    let spec = &peer["spec"];
    let text = |field: &str| spec[field].as_str().filter(|text| !text.is_empty());
    let local = match (text("node"), text("nodeSelector")) {
        (Some(node), _) => Local::Node(node.into()),
        (_, Some(selector)) => Local::Selected(Selector::parse(selector).ok()?),
        _ => Local::All,
    };
    let remote = match (text("peerSelector"), text("peerIP")) {
        (Some(selector), _) => Remote::Selected(Selector::parse(selector).ok()?),
        (_, Some(address)) => Remote::Address(address.parse().ok()?),
        _ => return None,
    };
    let name = peer["metadata"]["name"].as_str()?.into();
    Some(Peer { name, local, remote, reverse: text("reversePeering") != Some("Manual") })
}
