//! A kubelet without containers: pods of the test namespace get a node, an address and a worker
//! that follows its file, keeps a ledger, and fails as the test requires.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, ResourceExt,
    runtime::watcher::{self, Event, watcher},
};
use tokio::{sync::watch, task::AbortHandle};
use traffic_operator::acknowledgement::KEY_FILE;

use super::{
    file::File,
    instance::{self, Instance},
    ledger::Ledger,
    version,
};

pub const NAMESPACE: &str = "default";

/// The time at which a changed ConfigMap reaches a running pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// With the next change of the pod: a kubelet acts on it at once, besides its sync every
    /// minute.
    #[default]
    Nudged,
    /// At once.
    Eager,
    /// Never: the worker reads its file when it starts.
    Birth,
}

/// Faults and settings of the test.
#[derive(Debug, Default)]
pub struct Controls {
    pub delivery: Delivery,
    /// The time that a worker takes to stop a stream.
    pub stop: Duration,
    /// Names of pods that get no new file.
    pub held: BTreeSet<String>,
    /// Workers prepare streams that will come.
    pub prepare: bool,
    /// Names of pods that have prepared nothing yet.
    pub unprepared: BTreeSet<String>,
    /// Names of pods that do not answer.
    pub mute: BTreeSet<String>,
    /// Names of pods whose address another server answers, which has no key.
    pub forged: BTreeSet<String>,
    /// True if pods start with the previous file, as with a kubelet whose cache is stale.
    pub stale: bool,
    /// The node of a pod, where it is not this kubelet's own.
    pub nodes: HashMap<String, String>,
}

#[derive(Default)]
pub struct State {
    pub controls: Controls,
    /// By UID.
    pub pods: BTreeMap<String, Instance>,
    /// The contents of each ConfigMap since the test began, newest last.
    pub maps: BTreeMap<String, Vec<File>>,
    /// The key that answers are signed with, of each ConfigMap.
    pub keys: BTreeMap<String, String>,
    pub ledger: Ledger,
    /// Addresses assigned so far.
    addresses: u16,
    tasks: Vec<AbortHandle>,
}

/// The kubelet; it ends when this value is dropped.
pub struct Puppet {
    pub inner: Arc<Inner>,
}

pub struct Inner {
    pub client: Client,
    /// The port of all workers, each of which has its own address.
    pub port: u16,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Inner {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("lock")
    }

    /// Changes the state, and wakes everything that waits for it.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// The name of its node, which has no object: the controller manager deletes the pods of a node
    /// that is missing for 40 s, so each test has another one.
    pub fn node(&self) -> String {
        format!("puppet-{}", self.port)
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl Puppet {
    pub async fn start(client: Client) -> Self {
        // One listener for all workers: the destination address identifies the worker.
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let port = listener.local_addr().expect("address").port();
        let (changed, _) = watch::channel(0);
        let inner = Inner { client, port, state: Mutex::default(), changed };
        let this = Self { inner: Arc::new(inner) };
        let pods = tokio::spawn(follow_pods(Arc::clone(&this.inner)));
        let maps = tokio::spawn(follow_maps(Arc::clone(&this.inner)));
        let served = tokio::spawn(version::serve(Arc::clone(&this.inner), listener));
        this.inner.state().tasks = [pods, maps, served].map(|task| task.abort_handle()).into();
        this
    }

    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// Changes the faults and settings.
    pub fn control<T>(&self, change: impl FnOnce(&mut Controls) -> T) -> T {
        self.inner.change(|state| change(&mut state.controls))
    }

    /// Returns each running stream, with the names of the pods that run it.
    pub fn running(&self) -> BTreeMap<String, Vec<String>> {
        let state = self.inner.state();
        let name = |uid: &String| state.pods.get(uid).map_or("?".into(), |pod| pod.name.clone());
        let each = state.ledger.running().iter();
        each.map(|(stream, pods)| (stream.clone(), pods.iter().map(name).collect())).collect()
    }

    pub fn streams(&self, pod: &str) -> Vec<String> {
        let running = self.running().into_iter();
        running.filter(|(_, pods)| pods.iter().any(|p| p == pod)).map(|(s, _)| s).collect()
    }

    pub fn ledger<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.inner.state().ledger)
    }

    #[track_caller]
    pub fn assert_no_overlap(&self) {
        let overlaps = self.ledger(|ledger| ledger.overlaps().to_vec());
        assert!(overlaps.is_empty(), "{overlaps:#?}");
    }

    /// Returns the UID of the pod that has this name now.
    pub fn uid(&self, pod: &str) -> Option<String> {
        let state = self.inner.state();
        let mut all = state.pods.iter().filter(|(_, instance)| instance.name == pod);
        all.find(|(_, instance)| !instance.gone).map(|(uid, _)| uid.clone())
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // A failing test sometimes holds the lock.
        let mut state = self.inner.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for task in state.tasks.drain(..) {
            task.abort();
        }
    }
}

async fn follow_pods(inner: Arc<Inner>) {
    let api = Api::<Pod>::namespaced(inner.client.clone(), NAMESPACE);
    let mut events = watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => seen(&inner, pod),
            Ok(Event::Delete(pod)) => inner.change(|state| {
                if let Some(instance) = state.pods.get_mut(&pod.uid().unwrap_or_default()) {
                    instance.gone = true;
                }
            }),
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

fn seen(inner: &Arc<Inner>, pod: Pod) {
    let uid = pod.uid().expect("UID");
    let new = inner.change(|state| {
        if let Some(instance) = state.pods.get_mut(&uid) {
            instance.see(pod);
            return false;
        }
        // The process id is part of it, since other tests on this machine do the same.
        state.addresses += 1;
        let [_, _, a, b] = std::process::id().to_be_bytes();
        let [c, d] = state.addresses.to_be_bytes();
        let ip = Ipv4Addr::new(127, a.max(1), b ^ c, d);
        state.pods.insert(uid.clone(), Instance::new(pod, ip));
        true
    });
    if new {
        let task = tokio::spawn(instance::live(Arc::clone(inner), uid));
        inner.state().tasks.push(task.abort_handle());
    }
}

async fn follow_maps(inner: Arc<Inner>) {
    let api = Api::<ConfigMap>::namespaced(inner.client.clone(), NAMESPACE);
    let mut events = watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(map) | Event::InitApply(map)) = event else { continue };
        if let Some(key) = map.data.as_ref().and_then(|data| data.get(KEY_FILE)) {
            inner.change(|state| state.keys.insert(map.name_any(), key.clone()));
        }
        if let Some(file) = File::of(&map) {
            inner.change(|state| {
                let all = state.maps.entry(map.name_any()).or_default();
                if all.last() != Some(&file) {
                    all.push(file);
                }
            });
        }
    }
}
