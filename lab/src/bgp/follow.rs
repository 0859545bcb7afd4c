//! The loop of confd: whatever changes in the API server changes the configuration of the nodes
//! that it is about.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::confd::Confd;
use super::machine::Machine;
use super::render::{Texts, texts};
use super::world::World;
use crate::wait::{Task, lock};
use crate::workspace::share;

/// Follows an API server. Dropping it ends that; the nodes stay as they are.
#[derive(Debug)]
pub struct Follower {
    _task: Task,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Follower {
    /// Begins to follow; each node hears of a change within `skew`, each in its own time.
    ///
    /// BIRDs that have never run are started with their first configuration.
    pub fn start(client: Client, confd: Confd, skew: Duration) -> Self {
        let faults = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&faults);
        let task = Task::spawn(async move {
            if let Err(error) = follow(client, &confd, skew, &kept).await {
                note(&kept, format!("{error:#}"));
            }
        });
        Self { _task: task, faults }
    }

    /// Fails if something could not be read, or a BIRD refused its configuration.
    pub fn check(&self) -> Result<()> {
        let faults = lock(&self.faults);
        match faults.first() {
            Some(first) => bail!("{first} ({} more)", faults.len() - 1),
            None => Ok(()),
        }
    }
}

fn note(faults: &Mutex<Vec<String>>, fault: String) {
    let mut faults = lock(faults);
    // The same one comes again with every change of anything.
    if !faults.contains(&fault) {
        faults.push(fault);
    }
}

/// The known objects of the API server.
struct Known {
    nodes: Store<v1::Node>,
    peers: Store<DynamicObject>,
    configurations: Store<DynamicObject>,
}

impl Known {
    /// Returns the readable objects; unreadable ones count as missing.
    fn world(&self, faults: &Mutex<Vec<String>>) -> World {
        let (nodes, peers) = (self.nodes.state(), self.peers.state());
        let (world, unread) = World::read(&nodes, &peers, &self.configurations.state());
        for fault in unread {
            note(faults, fault);
        }
        world
    }
}

fn calicos(client: &Client, kind: &str, plural: &str) -> (Api<DynamicObject>, ApiResource) {
    let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    (Api::all_with(client.clone(), &resource), resource)
}

/// A cache of all objects of a kind, and a stream that says when it has changed.
fn cached<K>(
    api: Api<K>,
    kind: K::DynamicType,
) -> (Store<K>, impl stream::Stream<Item = Result<(), watcher::Error>> + Send)
where
    K: Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + Sync + 'static,
    K::DynamicType: Clone + std::hash::Hash + Eq + Unpin + Send + Sync,
{
    let writer = reflector::store::Writer::new(kind);
    let store = writer.as_reader();
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    (store, events.map(|event| event.map(drop)))
}

async fn follow(
    client: Client,
    confd: &Confd,
    skew: Duration,
    faults: &Arc<Mutex<Vec<String>>>,
) -> Result<()> {
    let (peers, peer) = calicos(&client, "BGPPeer", "bgppeers");
    let (configurations, configuration) = calicos(&client, "BGPConfiguration", "bgpconfigurations");
    let (nodes, node_events) = cached(Api::all(client), ());
    let (peers, peer_events) = cached(peers, peer);
    let (configurations, other_events) = cached(configurations, configuration);
    let known = Known { nodes, peers, configurations };
    let mut changes =
        pin!(stream::select_all([node_events.boxed(), peer_events.boxed(), other_events.boxed(),]));
    let mut ready = [false; 3];
    let mut daemons =
        Daemons { skew, faults: Arc::clone(faults), nodes: BTreeMap::new(), tasks: JoinSet::new() };
    loop {
        let change = changes.next().await.context("the API server is not watched any more")?;
        if let Err(error) = change {
            // The watch continues by itself.
            crate::progress(&format!("confd: {error}"));
        }
        // What else has come already belongs to the same look.
        while let Some(Some(_)) = changes.next().now_or_never() {}
        ready[0] |= known.nodes.wait_until_ready().now_or_never().is_some();
        ready[1] |= known.peers.wait_until_ready().now_or_never().is_some();
        ready[2] |= known.configurations.wait_until_ready().now_or_never().is_some();
        let world = known.world(faults);
        // An empty answer of a list that is under way is no reason to take everything away.
        if ready.contains(&false) || world == confd.last().world {
            continue;
        }
        let version = confd.remember(world);
        daemons.tell(confd, texts(&version.world, &version.sessions));
    }
}

/// One confd on each node, which acts in its own time on what is configured then.
struct Daemons {
    skew: Duration,
    faults: Arc<Mutex<Vec<String>>>,
    nodes: BTreeMap<String, watch::Sender<Texts>>,
    tasks: JoinSet<()>,
}

impl Daemons {
    fn tell(&mut self, confd: &Confd, texts: BTreeMap<String, Texts>) {
        self.nodes.retain(|name, _| texts.contains_key(name));
        for (name, texts) in texts {
            if let Some(node) = self.nodes.get(&name) {
                node.send_if_modified(|old| {
                    let differs = *old != texts;
                    *old = texts;
                    differs
                });
            } else if let Ok(machine) = confd.machine(&name) {
                let (sender, receiver) = watch::channel(texts);
                self.nodes.insert(name, sender);
                let faults = Arc::clone(&self.faults);
                self.tasks.spawn(daemon(machine, receiver, self.skew, faults));
            }
        }
    }
}

async fn daemon(
    machine: Arc<Machine>,
    mut configured: watch::Receiver<Texts>,
    skew: Duration,
    faults: Arc<Mutex<Vec<String>>>,
) {
    configured.mark_changed();
    while configured.changed().await.is_ok() {
        tokio::time::sleep(skew.mul_f64(share())).await;
        let texts = configured.borrow_and_update().clone();
        let machine = Arc::clone(&machine);
        let done = tokio::task::spawn_blocking(move || machine.boot(&texts)).await;
        if let Ok(Err(error)) = done {
            note(&faults, format!("{error:#}"));
        }
    }
}
