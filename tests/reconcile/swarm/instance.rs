//! One pod, from its creation to its end.
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use traffic_operator::placement::part;

use super::{
    fake_kubelet::{Delivery, Inner, NAMESPACE, State},
    file::File,
};

/// The puppet's record of a pod.
#[derive(Debug)]
pub struct Instance {
    pub name: String,
    pub ip: Ipv4Addr,
    /// The object as last seen.
    pub pod: Pod,
    /// True once the object is deleted.
    pub gone: bool,
    /// True while its worker runs.
    pub runs: bool,
    /// The version of the file that the worker has applied.
    pub loaded: u64,
    volume: Option<File>,
    /// True if the pod changed, so that the kubelet syncs its volumes.
    nudged: bool,
}

impl Instance {
    pub fn new(pod: Pod, ip: Ipv4Addr) -> Self {
        let name = pod.name_any();
        let (gone, runs, nudged) = (false, false, false);
        Self { name, ip, pod, gone, runs, loaded: 0, volume: None, nudged }
    }

    pub fn see(&mut self, pod: Pod) {
        self.nudged |= pod.annotations() != self.pod.annotations();
        self.pod = pod;
    }

    /// Returns the ConfigMap that it mounts; of a divided file, its own part.
    pub fn map(&self) -> Option<String> {
        let volumes = self.pod.spec.as_ref()?.volumes.as_ref()?;
        let projected = volumes.iter().filter_map(|volume| volume.projected.as_ref());
        let sources = projected.flat_map(|projected| projected.sources.iter().flatten());
        let maps = sources.filter_map(|source| Some(source.config_map.as_ref()?.name.as_str()));
        let parts: Vec<_> = maps.filter(|map| map.contains("-part-")).collect();
        if !parts.is_empty() {
            let part = part::of(&self.name, u32::try_from(parts.len()).expect("few"));
            let part = parts.iter().find(|map| map.ends_with(&format!("-part-{part}")));
            return part.map(ToString::to_string);
        }
        let mut maps = volumes.iter().filter_map(|volume| volume.config_map.as_ref());
        maps.find(|map| map.name != "kube-root-ca.crt").map(|map| map.name.clone())
    }

    /// Returns the streams that will come, by the file that it has.
    pub fn next(&self) -> &[String] {
        self.volume.as_ref().map_or(&[], |file| file.next(&self.name))
    }

    fn container(&self) -> String {
        self.pod.spec.as_ref().map_or_else(String::new, |spec| spec.containers[0].name.clone())
    }

    fn is_bound(&self) -> bool {
        self.pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
    }
}

/// The next event in a pod's life.
#[derive(Debug, PartialEq)]
enum Next {
    /// Binds it to this node, or to the kubelet's own.
    Bind(Option<String>),
    Read(Option<String>),
    Apply(Box<File>),
    /// Reports Ready.
    Say,
    End,
    Vanish,
    Wait,
    Over,
}

/// Decides on the next event; the caller holds the lock.
fn next(state: &mut State, uid: &str, said: bool) -> Next {
    let Some(pod) = state.pods.get_mut(uid) else { return Next::Over };
    let controls = &state.controls;
    if pod.gone {
        return Next::Vanish;
    }
    if pod.pod.metadata.deletion_timestamp.is_some() {
        return Next::End;
    }
    if !pod.is_bound() {
        let node = controls.nodes.get(&pod.name).cloned();
        return Next::Bind(node);
    }
    if pod.volume.is_none() {
        return Next::Read(pod.map());
    }
    let held = controls.held.contains(&pod.name);
    let due = match controls.delivery {
        Delivery::Nudged => pod.nudged,
        Delivery::Eager => true,
        Delivery::Birth => false,
    };
    if due && !held && pod.runs {
        pod.nudged = false;
        let newest = pod.map().and_then(|map| state.maps.get(&map)?.last().cloned());
        if newest.is_some() && newest != pod.volume {
            pod.volume = newest;
        }
    }
    if let Some(file) = &pod.volume
        && (!pod.runs || file.version > pod.loaded)
    {
        return Next::Apply(Box::new(file.clone()));
    }
    if said { Next::Wait } else { Next::Say }
}

/// Runs the life of one pod.
pub async fn live(inner: Arc<Inner>, uid: String) {
    let mut changed = inner.subscribe();
    // True once it is reported as Ready.
    let mut said = false;
    loop {
        changed.mark_unchanged();
        let next = next(&mut inner.state(), &uid, said);
        match next {
            Next::Wait => {
                if changed.changed().await.is_err() {
                    return;
                }
            }
            Next::Bind(node) => {
                bind(&inner, &uid, &node.unwrap_or_else(|| inner.node())).await;
            }
            Next::Read(map) => read(&inner, &uid, map).await,
            Next::Apply(file) => {
                if !inner.state().pods[&uid].runs {
                    // The kubelet reports a running container only once it runs; no other component
                    // needs to know earlier.
                    inner.change(|state| state.pods.get_mut(&uid).expect("pod").runs = true);
                }
                apply(&inner, &uid, &file).await;
            }
            Next::Say => {
                report_ready(&inner, &uid, true).await;
                said = true;
            }
            Next::End => return end(&inner, &uid).await,
            Next::Vanish => {
                stop_all(&inner, &uid, Duration::ZERO).await;
                inner.change(|state| state.pods.get_mut(&uid).expect("pod").runs = false);
                return;
            }
            Next::Over => return,
        }
    }
}

fn name(inner: &Inner, uid: &str) -> String {
    inner.state().pods[uid].name.clone()
}

/// Puts the pod on a node, as the scheduler does.
async fn bind(inner: &Inner, uid: &str, node: &str) {
    let pod = name(inner, uid);
    let bind = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding");
    let request = http::Request::post(path).header("Content-Type", "application/json");
    let request = request.body(serde_json::to_vec(&bind).expect("JSON")).expect("request");
    // It may be gone, or bound already: its events show that.
    let _ = inner.client.request::<Value>(request).await;
    seen_again(inner, uid).await;
}

async fn seen_again(inner: &Inner, uid: &str) {
    let api = Api::<Pod>::namespaced(inner.client.clone(), NAMESPACE);
    let now = api.get_opt(&name(inner, uid)).await.ok().flatten();
    inner.change(|state| {
        let instance = state.pods.get_mut(uid).expect("pod");
        match now {
            Some(pod) if pod.metadata.uid.as_deref() == Some(uid) => instance.see(pod),
            _ => instance.gone = true,
        }
    });
}

/// Fills the pod's volume.
async fn read(inner: &Inner, uid: &str, map: Option<String>) {
    let api = Api::<ConfigMap>::namespaced(inner.client.clone(), NAMESPACE);
    let found = match &map {
        None => Some(File::default()),
        Some(map) => {
            api.get_opt(map).await.ok().flatten().map(|map| File::of(&map).unwrap_or_default())
        }
    };
    let Some(mut found) = found else {
        // A pod waits for its ConfigMap; a kubelet tries again after some time.
        tokio::time::sleep(Duration::from_millis(100)).await;
        return seen_again(inner, uid).await;
    };
    inner.change(|state| {
        if let Some(history) =
            map.and_then(|map| state.maps.get(&map)).filter(|_| state.controls.stale)
            && let [.., before, _] = history.as_slice()
        {
            found = before.clone();
        }
        state.pods.get_mut(uid).expect("pod").volume = Some(found);
    });
}

/// Brings a worker to its share: it stops streams, then starts others, then acknowledges.
async fn apply(inner: &Inner, uid: &str, file: &File) {
    let worker = name(inner, uid);
    let jobs = file.jobs(&worker);
    let mine: Vec<_> = running(inner, uid);
    for stream in mine.iter().filter(|stream| !jobs.contains(stream)) {
        stop(inner, uid, stream).await;
    }
    inner.change(|state| {
        for stream in jobs.iter().filter(|stream| !mine.contains(stream)) {
            state.ledger.start(stream, uid);
        }
        state.pods.get_mut(uid).expect("pod").loaded = file.version;
    });
}

fn running(inner: &Inner, uid: &str) -> Vec<String> {
    let state = inner.state();
    let all = state.ledger.running().iter();
    all.filter(|(_, pods)| pods.contains(uid)).map(|(stream, _)| stream.clone()).collect()
}

async fn stop(inner: &Inner, uid: &str, stream: &str) {
    let pause = inner.state().controls.stop;
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    inner.change(|state| state.ledger.stop(stream, uid));
}

async fn stop_all(inner: &Inner, uid: &str, pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    for stream in running(inner, uid) {
        inner.change(|state| state.ledger.stop(&stream, uid));
    }
}

fn status(pod: &Instance, ready: bool, state: &Value) -> Value {
    let word = |yes: bool| if yes { "True" } else { "False" };
    json!({
        "phase": "Running", "podIP": pod.ip, "podIPs": [{"ip": pod.ip}],
        "conditions": [
            {"type": "Ready", "status": word(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "ContainersReady", "status": word(ready)},
            {"type": "PodScheduled", "status": "True"},
        ],
        "containerStatuses": [{
            "name": pod.container(), "image": "", "imageID": "", "ready": ready,
            "restartCount": 0, "started": true, "state": state,
        }],
    })
}

async fn write(inner: &Inner, uid: &str, status: Value) {
    let api = Api::<Pod>::namespaced(inner.client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "status": status}));
    // It may be gone.
    let _ = api.patch_status(&name(inner, uid), &PatchParams::default(), &patch).await;
}

async fn report_ready(inner: &Inner, uid: &str, ready: bool) {
    let status = status(&inner.state().pods[uid], ready, &json!({"running": {}}));
    write(inner, uid, status).await;
}

/// Ends a pod: SIGTERM, the end of its streams, and the report that it has ended.
async fn end(inner: &Inner, uid: &str) {
    let (pause, bound) = {
        let state = inner.state();
        (state.controls.stop, state.pods[uid].is_bound())
    };
    if bound {
        report_unready_if_running(inner, uid).await;
        stop_all(inner, uid, pause).await;
        let ended = {
            let mut state = inner.state();
            let pod = state.pods.get_mut(uid).expect("pod");
            pod.runs = false;
            status(pod, false, &json!({"terminated": {"exitCode": 0, "reason": "Completed"}}))
        };
        write(inner, uid, ended).await;
    }
    let api = Api::<Pod>::namespaced(inner.client.clone(), NAMESPACE);
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let _ = api.delete(&name(inner, uid), &now).await;
}

/// Reports a pod that is being deleted as not Ready while it is ending.
async fn report_unready_if_running(inner: &Inner, uid: &str) {
    if inner.state().pods[uid].runs {
        report_ready(inner, uid, false).await;
    }
}
