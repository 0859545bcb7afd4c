//! The facts that a plan rests on.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    children::{ChildKey, ChildKind},
    memory::Contest,
    snapshot::{ProberState, Setup},
};
use crate::webhook::configuration::Endpoint;

/// The facts about one object.
pub struct Observed {
    /// The object as every replica knows it; `None` until the snapshot has its generation.
    pub view: Option<Arc<ProberState>>,
    /// The settings of this replica.
    pub setup: Setup,
    /// The certificates that the API server and the agents should trust, as PEM.
    pub bundle: Option<String>,
    /// The address at which the API server reaches the webhook.
    pub endpoint: Endpoint,
    /// True if the `MutatingWebhookConfiguration` exists that holds the entries of all.
    pub configuration: bool,
    /// The API server's words in namespaces that refuse pods with an agent, as far as known.
    pub failed_creates: BTreeMap<String, String>,
    /// The kinds of the prometheus-operator that the API server serves.
    pub monitoring: BTreeSet<ChildKind>,
    /// Our children of this object that exist.
    pub existing: Vec<ChildKey>,
    /// The objects that were applied before and are unchanged, by fingerprint.
    pub unchanged: BTreeMap<ChildKey, u64>,
    /// The objects that another client changes again and again.
    pub contests: BTreeMap<ChildKey, Contest>,
    /// Time since each was applied.
    pub written: BTreeMap<ChildKey, Duration>,
}
