//! What is known of one node, for those who decide.
use std::sync::Arc;

use super::Readiness;

/// What one judgement needs to know of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's name.
    pub name: Arc<str>,
    /// The value of the label that was asked for.
    pub label: Option<Arc<str>>,
    /// The effect of the taint of the same key.
    pub taint: Option<Arc<str>>,
    /// The value of the capacity annotation.
    pub capacity: Option<Arc<str>>,
    /// Whether a pod can be started on it.
    pub schedulable: bool,
}

/// Labels or annotations: keys and values, by key.
pub type Texts = Arc<[(Arc<str>, Arc<str>)]>;

/// What one choice of route reflectors needs to know of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The node's name.
    pub name: Arc<str>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Its labels, by key.
    pub labels: Texts,
    /// Its taints.
    pub taints: Arc<[Taint]>,
    /// Whether it is Ready, or since when not.
    pub readiness: Readiness,
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// What Calico keeps on it: the annotations of `projectcalico.org`, by key.
    pub calico: Texts,
}

/// One taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: Arc<str>,
    /// Its value, "" if it has none.
    pub value: Arc<str>,
    /// Its effect.
    pub effect: Arc<str>,
}

/// A node that carries a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The node.
    pub node: Arc<str>,
    /// Whether as a label.
    pub label: bool,
    /// Whether as a taint.
    pub taint: bool,
}
