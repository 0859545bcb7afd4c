//! The facts about one node that decisions need.
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Toleration;
use kube::core::ObjectMeta;

use super::Readiness;
use crate::api::UNFIT_SUFFIX;

/// Labels or annotations, sorted by key. Keys and values are shared texts: most are the same on
/// every node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(Arc<[(Arc<str>, Arc<str>)]>);

impl Texts {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let place = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    /// Returns both, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl FromIterator<(Arc<str>, Arc<str>)> for Texts {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(texts: I) -> Self {
        let sorted: BTreeMap<_, _> = texts.into_iter().collect();
        Self(sorted.into_iter().collect())
    }
}

/// Taints by which others announce that a node is going to end: cluster-autoscaler, Karpenter (also
/// before v1), a non-graceful shutdown, cloud providers, the handler of AWS's notices.
const ENDS: [&str; 6] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    "aws-node-termination-handler/spot-itn",
];

/// The facts about one node that a judgment needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's name.
    pub name: Arc<str>,
    /// The value of the requested label.
    pub label: Option<Arc<str>>,
    /// The effect of the taint of the same key.
    pub taint: Option<Arc<str>>,
    /// The value of the capacity annotation.
    pub capacity: Option<Arc<str>>,
    /// True if it is Ready and not cordoned.
    pub schedulable: bool,
    /// True if it can take pods that tolerate nothing.
    pub open: bool,
    /// Distinguishes it from another node with the same name, before or after it.
    pub incarnation: Incarnation,
    /// The revision of the store ([`NodeStore::revision`](super::NodeStore::revision)) at which it
    /// was first in it: what was measured before is not about it.
    pub since: u64,
    /// Its labels, by key.
    pub labels: Texts,
    /// Taints in the node's spec.
    pub taints: Arc<[Taint]>,
    /// True if it has the mark of any `TrafficWatch`.
    pub unfit: bool,
}

/// One incarnation of a node: a node that is deleted and registered again under the same name is
/// another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incarnation {
    /// A hash of its UID; 0 if nodes have none.
    pub uid: u64,
    /// The time at which it was created, in seconds since 1970; 0 if unknown.
    pub created: i64,
}

impl Incarnation {
    /// The incarnation that an object's metadata is of.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        let uid = metadata.uid.as_deref().map_or(0, |uid| {
            let mut hasher = DefaultHasher::new();
            uid.hash(&mut hasher);
            hasher.finish()
        });
        let created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        Self { uid, created }
    }
}

/// One extended resource in the status of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Amount in `status.capacity`, from which the kubelet computes the other one.
    pub capacity: Option<u64>,
    /// Amount in `status.allocatable`, which the scheduler counts.
    pub allocatable: Option<u64>,
}

impl Offer {
    /// Returns an offer of the same amount in both places.
    #[must_use]
    pub fn of(amount: u64) -> Self {
        Self { capacity: Some(amount), allocatable: Some(amount) }
    }

    /// Returns the amount that the node offers.
    #[must_use]
    pub fn amount(self) -> u64 {
        self.capacity.or(self.allocatable).unwrap_or_default()
    }
}

/// Number of nodes in the cluster, and of those with the mark of any `TrafficWatch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Of all nodes.
    pub all: Marked,
    /// Of those that can take ordinary pods: [`NodeFacts::open`].
    pub open: Marked,
}

/// Some nodes, and the marked ones among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of these that are marked unfit.
    pub unfit: usize,
}

impl NodeFacts {
    /// Returns the facts of a node with only a name: nothing keeps pods away from it.
    #[must_use]
    pub fn named(name: Arc<str>) -> Self {
        Self {
            name,
            label: None,
            taint: None,
            capacity: None,
            schedulable: true,
            open: true,
            incarnation: Incarnation::default(),
            since: 0,
            labels: Texts::default(),
            taints: Arc::default(),
            unfit: false,
        }
    }

    /// Returns the value of one of its labels.
    #[must_use]
    pub fn label_of(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|value| &**value)
    }
}

/// Reports whether a taint announces the end of its node.
pub(super) fn announces_end(taints: &[Taint]) -> bool {
    taints.iter().any(|taint| ENDS.contains(&&*taint.key))
}

/// Reports whether no taint keeps ordinary pods away, apart from the marks of `TrafficWatch`es.
pub(super) fn is_untainted(taints: &[Taint]) -> bool {
    taints.iter().all(|taint| !taint.keeps_away() || taint.key.ends_with(UNFIT_SUFFIX))
}

/// The facts about one node that a choice of route reflectors needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The node's name.
    pub name: Arc<str>,
    /// Distinguishes it from another node with the same name.
    pub incarnation: Incarnation,
    /// Its labels, by key.
    pub labels: Texts,
    /// Taints in the node's spec.
    pub taints: Arc<[Taint]>,
    /// Its readiness, with the time since when it is not Ready.
    pub readiness: Readiness,
    /// True if it is cordoned.
    pub cordoned: bool,
    /// Calico's data on the node: the annotations of `projectcalico.org`, by key.
    pub calico: Texts,
}

/// One taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Key of the taint.
    pub key: Arc<str>,
    /// Its value, "" if it has none.
    pub value: Arc<str>,
    /// Effect of the taint, e.g. `NoSchedule`.
    pub effect: Arc<str>,
}

impl Taint {
    /// Reports whether it keeps pods away that do not tolerate it: `PreferNoSchedule` does not.
    #[must_use]
    pub fn keeps_away(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }

    /// Reports whether a toleration covers it, as Kubernetes defines it: an empty key with `Exists`
    /// covers every taint, an empty effect covers every effect.
    #[must_use]
    pub fn is_tolerated_by(&self, toleration: &Toleration) -> bool {
        let effect = toleration.effect.as_deref().unwrap_or_default();
        if !effect.is_empty() && *effect != *self.effect {
            return false;
        }
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        if key.is_empty() {
            return exists;
        }
        *key == *self.key
            && (exists || toleration.value.as_deref().unwrap_or_default() == &*self.value)
    }
}

/// A node that has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// Name of the node.
    pub node: Arc<str>,
    /// The key.
    pub key: Arc<str>,
    /// True if set as a label.
    pub label: bool,
    /// True if set as a taint.
    pub taint: bool,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// Reports whether two texts are the same. Shared ones are compared by address: `==` reads both.
#[must_use]
pub fn is_same(a: &Arc<str>, b: &Arc<str>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// Finds names in a list that is sorted by name. A name that follows the last one costs nothing, if
/// both are the same shared text; every other name costs a binary search.
#[derive(Clone, Copy, Debug, Default)]
pub struct SortedCursor(usize);

impl SortedCursor {
    /// Finds the place of a name.
    pub fn find<T>(
        &mut self,
        list: &[T],
        name_of: impl Fn(&T) -> &Arc<str>,
        name: &Arc<str>,
    ) -> Option<usize> {
        let found = match list.get(self.0) {
            Some(next) if is_same(name_of(next), name) => Ok(self.0),
            _ => list.binary_search_by(|other| name_of(other).cmp(name)),
        };
        self.0 = found.map_or_else(|place| place, |place| place + 1);
        found.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_in_every_order_and_misses_those_that_are_not_there() {
        let list = ["b", "d", "f"].map(Arc::<str>::from);
        let mut cursor = SortedCursor::default();
        for (name, place) in [
            ("a", None),
            ("b", Some(0)),
            ("c", None),
            ("d", Some(1)),
            ("f", Some(2)),
            ("g", None),
            ("f", Some(2)),
            ("b", Some(0)),
        ] {
            assert_eq!(cursor.find(&list, |name| name, &name.into()), place, "{name}");
        }
    }
}
