//! Times at which labels of nodes change, as a watch sees them.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use lab::wait::{Task, lock};
use serde_json::json;

use crate::nodes;

/// Number of nodes that the operator patches at once; the bare loop uses the same.
const AT_ONCE: usize = 8;

/// The value of one label by node, and the time since when it has it.
type Seen = HashMap<String, (bool, Instant)>;

/// Follows a label until it is dropped.
pub struct Labels {
    seen: Arc<Mutex<Seen>>,
    _task: Task,
}

impl Labels {
    pub fn follow(client: &Client, key: &'static str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let nodes = Api::<PartialObjectMeta<Node>>::all(client.clone());
        let reported = Arc::clone(&seen);
        let task = Task::spawn(async move {
            let events = watcher(nodes, watcher::Config::default());
            let mut events = events.default_backoff().applied_objects().boxed();
            while let Some(event) = events.next().await {
                let Ok(node) = event else { continue };
                let Some(value) = node.labels().get(key) else { continue };
                let (unfit, now) = (value == "true", Instant::now());
                let mut seen = lock(&reported);
                if seen.get(&node.name_any()).is_none_or(|(before, _)| *before != unfit) {
                    seen.insert(node.name_any(), (unfit, now));
                }
            }
        });
        Self { seen, _task: task }
    }

    pub fn count(&self, unfit: bool) -> usize {
        lock(&self.seen).values().filter(|(value, _)| *value == unfit).count()
    }

    pub fn marked(&self, node: usize) -> Option<Instant> {
        let seen = lock(&self.seen);
        seen.get(&nodes::name(node)).filter(|(unfit, _)| *unfit).map(|(_, at)| *at)
    }
}

/// Measures nothing but the patches: a label on each of `count` nodes, with as many concurrent
/// requests as the operator makes.
pub async fn bare_loop(client: &Client, count: usize, value: &str) -> anyhow::Result<Duration> {
    let nodes = &Api::<Node>::all(client.clone());
    let patch = &Patch::Merge(json!({"metadata": {"labels": {"bench.example.com/bare": value}}}));
    let started = Instant::now();
    stream::iter((0..count).map(Ok))
        .try_for_each_concurrent(AT_ONCE, |node| async move {
            nodes.patch_metadata(&nodes::name(node), &PatchParams::default(), patch).await.map(drop)
        })
        .await?;
    Ok(started.elapsed())
}
