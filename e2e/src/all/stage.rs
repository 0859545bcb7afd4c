//! What every act asks the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use lab::streams::Sink;
use serde_json::Value;

use super::figures;
use crate::objects;
use crate::prober::objects::limited_pod;
use crate::stage::Stage as Ground;
use crate::traffic_watch::pods::{insufficient, only_on};

/// The time of several writes of a `RouteReflectorSet`: each waits a minute after the one before.
pub(super) const STEPS: Duration = Duration::from_mins(10);
/// Label of the workers' pods, and the name of their Swarm and `StatefulSet`.
pub(super) const WORKERS: &str = "recorder";

pub(super) struct Stage<'a> {
    ground: &'a Ground<'a>,
    /// Takes the reports of the workers.
    pub sink: Sink,
}

impl<'a> Deref for Stage<'a> {
    type Target = Ground<'a>;

    fn deref(&self) -> &Ground<'a> {
        self.ground
    }
}

impl<'a> Stage<'a> {
    pub async fn new(ground: &'a Ground<'a>) -> Result<Self> {
        Ok(Self { ground, sink: ground.cluster.stream_sink().await? })
    }

    /// Applies one of the manifests, with the address for the workers' reports.
    pub async fn apply_with_sink(&self, file: &str) -> Result<()> {
        self.say(&format!("kubectl apply -f {file}"));
        self.apply(&objects::manifest(file)?.replace("SINK", &self.sink.url())).await
    }

    pub fn nodes(&self) -> Result<Vec<Value>> {
        self.list(&["nodes"])
    }

    /// The nodes that carry the label of a reflector.
    pub fn reflectors(&self) -> Result<BTreeSet<String>> {
        Ok(figures::reflectors(&self.nodes()?))
    }

    /// The nodes that the `TrafficWatch` has marked unfit.
    pub fn unfit(&self) -> Result<BTreeSet<String>> {
        Ok(figures::unfit(&self.nodes()?))
    }

    /// Units of bandwidth that a node offers to pods.
    pub fn offered(&self, node: &str) -> Result<Option<u64>> {
        Ok(figures::offered(&self.get(&["node", node])?))
    }

    /// The node of each worker.
    pub fn workers(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.list(&["pods", "-l", &format!("app={WORKERS}")])?;
        Ok(pods.iter().map(|pod| (objects::name(pod), objects::node(pod))).collect())
    }

    /// Creates pods that reserve bandwidth, all at once; on one node or where the scheduler puts
    /// them.
    pub async fn reserve(&self, pods: &[String], mbits: u64, node: Option<&str>) -> Result<()> {
        let place = node.map(only_on).unwrap_or_default();
        let limits = format!("{{{}: \"{mbits}\"}}", figures::RESOURCE);
        let document = |pod: &String| limited_pod("default", pod, "reserving", &place, &limits);
        let documents: Vec<String> = pods.iter().map(document).collect();
        self.apply(&documents.join("---\n")).await
    }

    /// Returns the node of each pod that reserves bandwidth and has been placed.
    pub fn reserving(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.list(&["pods", "-l", "app=reserving"])?;
        let places = pods.iter().map(|pod| (objects::name(pod), objects::node(pod)));
        Ok(places.filter(|(_, node)| !node.is_empty()).collect())
    }

    /// Deletes the pods that reserve bandwidth.
    pub fn reserve_nothing(&self) -> Result<()> {
        let arguments = ["delete", "pods", "-l", "app=reserving", "--grace-period=0", "--force"];
        self.kubectl(&arguments).map(drop)
    }

    /// Waits for the words with which the scheduler says why a pod waits.
    pub async fn reason(&self, pod: &str) -> Result<String> {
        insufficient(self, pod, figures::RESOURCE).await
    }
}
