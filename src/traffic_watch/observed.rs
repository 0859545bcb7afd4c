//! The facts that a plan rests on.
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{
    conflict::Claim, deployments::DeploymentFacts, evictions::PodFacts, limits::Headroom,
    memory::Memory, reading::Measurement, reservation::Seen,
};
use crate::{
    nodes::{Carrier, NodeFacts},
    prometheus::QueryError,
};

/// The facts that a judgment rests on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The time of the pass.
    pub now: Timestamp,
    /// Number of the tick of the interval: one tick is one judgment, however many passes it has.
    pub tick: u64,
    /// The judged nodes, by name.
    pub nodes: Arc<[NodeFacts]>,
    /// Nodes that carry a key of ours they should not: those that left the selection, and those with
    /// a former key.
    pub strays: Vec<Carrier>,
    /// The answers of Prometheus for each measure; `None` without a query, because nothing may be
    /// decided.
    pub readings: Option<Vec<Result<Arc<Measurement>, QueryError>>>,
    /// The memory of the last pass.
    pub memory: Arc<Memory>,
    /// The claim to the node label.
    pub claim: Claim,
    /// Number of further nodes that the operator may mark, for all objects together.
    pub headroom: Headroom,
    /// True if the certificate of the endpoint is not verified.
    pub insecure: bool,
    /// The Deployment as it is.
    pub deployment: Option<DeploymentFacts>,
    /// The Deployment's pods, if any may be evicted now; or why they are not known.
    pub pods: Result<Vec<PodFacts>, String>,
    /// The offers of nodes to pods, and the requests of pods.
    pub reservation: Seen,
}
