//! The facts that a plan rests on.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    children::{ChildKey, ChildKind},
    snapshot::{ProberState, Setup},
};
use crate::webhook::configuration::Endpoint;

/// The facts about one object.
pub struct Observed {
    /// The object as every replica knows it; `None` until the snapshot has its generation.
    pub view: Option<Arc<ProberState>>,
    /// What this replica has learnt.
    pub setup: Setup,
    /// The certificates that the API server and the agents are to trust, as PEM.
    pub bundle: Option<String>,
    /// Where the API server reaches the webhook.
    pub endpoint: Endpoint,
    /// Whether the `MutatingWebhookConfiguration` is there that holds the entries of all.
    pub configuration: bool,
    /// Which kinds of the prometheus-operator the API server has.
    pub monitoring: BTreeSet<ChildKind>,
    /// Our children of this object that exist.
    pub existing: Vec<ChildKey>,
    /// What was applied before, by fingerprint, and is still as it was left.
    pub unchanged: BTreeMap<ChildKey, u64>,
    /// How long ago each was applied.
    pub written: BTreeMap<ChildKey, Duration>,
}
