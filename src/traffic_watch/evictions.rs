//! The choice of pods that leave a node that stays unfit.
//!
//! Node affinity only counts when a pod is scheduled: without this, a pod that runs stays where it
//! is.
use std::{collections::HashSet, sync::Arc};

/// A pod of the managed Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Name of the pod.
    pub name: String,
    /// Its UID: the eviction is of this pod, not of a later one of its name.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// The time at which it was created, in Unix seconds.
    pub created: i64,
    /// True if it is Ready.
    pub ready: bool,
    /// True if it is being deleted.
    pub terminating: bool,
}

/// The replicas of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Number of pods in its spec.
    pub wanted: i32,
    /// Number of available pods.
    pub available: i32,
}

/// The pods to evict now, at most `most`, in the order of the nodes.
///
/// None while anything is under way: a pod that terminates anywhere, or one elsewhere that is not
/// Ready (or not even bound), is the replacement of an earlier one. So pods leave one after the
/// other even without a `PodDisruptionBudget`.
///
/// None while replicas are missing: where a replacement cannot be created (a quota, a webhook that
/// refuses, a controller manager that is down), no further pod is evicted. The one exception is a
/// pod on the unfit node that is not Ready: the node may be the cause, and the pod serves no
/// client.
///
/// Only pods that were created before `before`: if there is no other room, a preferred placement
/// starts the replacement on the same node again, and it should have its time there.
#[must_use]
pub fn choose<'a>(
    pods: &'a [PodFacts],
    replicas: Replicas,
    nodes: &[Arc<str>],
    before: i64,
    most: usize,
) -> Vec<&'a PodFacts> {
    let leave: HashSet<&str> = nodes.iter().map(|node| &**node).collect();
    let leaves = |pod: &PodFacts| {
        pod.created <= before && pod.node.as_deref().is_some_and(|node| leave.contains(node))
    };
    if pods.iter().any(|pod| pod.terminating || (!pod.ready && !leaves(pod))) {
        return vec![];
    }
    let wanted = usize::try_from(replicas.wanted).unwrap_or_default();
    let available = usize::try_from(replicas.available).unwrap_or_default();
    let unready = pods.iter().filter(|pod| !pod.ready).count();
    if pods.len() < wanted || available + unready < wanted {
        return vec![];
    }
    let only_unready = available < wanted;
    let mut chosen = Vec::new();
    for node in nodes {
        let here = |pod: &&PodFacts| pod.node.as_deref() == Some(&**node) && leaves(pod);
        let mut here: Vec<_> =
            pods.iter().filter(here).filter(|pod| !only_unready || !pod.ready).collect();
        here.sort_by(|a, b| a.name.cmp(&b.name));
        chosen.extend(here);
    }
    chosen.truncate(most);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: Option<&str>, ready: bool) -> PodFacts {
        PodFacts {
            name: name.into(),
            uid: format!("uid-{name}"),
            node: node.map(Into::into),
            created: 0,
            ready,
            terminating: false,
        }
    }

    /// With as many replicas wanted as there are pods, and all available that are Ready.
    fn names(pods: &[PodFacts], nodes: &[&str], most: usize) -> Vec<String> {
        let count = |count: usize| i32::try_from(count).unwrap();
        let available = count(pods.iter().filter(|pod| pod.ready).count());
        with(pods, Replicas { wanted: count(pods.len()), available }, nodes, most)
    }

    fn with(pods: &[PodFacts], replicas: Replicas, nodes: &[&str], most: usize) -> Vec<String> {
        let nodes: Vec<Arc<str>> = nodes.iter().map(|n| (*n).into()).collect();
        choose(pods, replicas, &nodes, 100, most).iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn no_pod_leaves_while_replicas_are_missing() {
        let three = ["a", "b", "c"].map(|name| pod(name, Some("bad"), true));
        let replicas = |wanted, available| Replicas { wanted, available };
        assert_eq!(with(&three, replicas(3, 3), &["bad"], 1), ["a"]);
        // The replacement of the first was never created, and what is listed is all Ready.
        assert!(with(&three[1..], replicas(3, 2), &["bad"], 1).is_empty());
        // Ready, but not for minReadySeconds yet.
        assert!(with(&three, replicas(3, 2), &["bad"], 1).is_empty());
        // The status lags behind: it reports all three as available.
        assert!(with(&three[1..], replicas(3, 3), &["bad"], 1).is_empty());
        // Scaled to zero, and one more than wanted: it is not needed.
        assert_eq!(with(&three[..1], replicas(0, 1), &["bad"], 1), ["a"]);
    }

    #[test]
    fn a_pod_that_is_not_ready_on_the_unfit_node_may_leave_and_no_other() {
        let pods = [pod("a", Some("bad"), true), pod("b", Some("bad"), false)];
        let replicas = Replicas { wanted: 2, available: 1 };
        assert_eq!(with(&pods, replicas, &["bad"], 9), ["b"]);
        // Its replacement never came.
        assert!(with(&pods[1..], replicas, &["bad"], 9).is_empty());
        assert!(with(&pods, Replicas { wanted: 3, available: 1 }, &["bad"], 9).is_empty());
    }

    #[test]
    fn pods_leave_the_unfit_nodes_only_and_few_at_once() {
        let pods = [
            pod("c", Some("bad"), true),
            pod("a", Some("bad"), true),
            pod("b", Some("good"), true),
        ];
        assert_eq!(names(&pods, &["bad"], 1), ["a"]);
        assert_eq!(names(&pods, &["bad"], 9), ["a", "c"]);
        assert!(names(&pods, &[], 9).is_empty());
        // A pod that is not Ready on the unfit node itself is no reason to leave it there.
        assert_eq!(names(&[pod("a", Some("bad"), false)], &["bad"], 1), ["a"]);
    }

    #[test]
    fn a_pod_that_has_just_come_to_the_same_node_has_its_time_there() {
        let young = |ready| PodFacts { created: 101, ..pod("a", Some("bad"), ready) };
        assert!(names(&[young(true)], &["bad"], 9).is_empty());
        let old = pod("b", Some("bad"), true);
        assert_eq!(names(&[young(true), old.clone()], &["bad"], 9), ["b"]);
        assert!(names(&[young(false), old], &["bad"], 9).is_empty(), "it is a replacement");
    }

    #[test]
    fn nobody_leaves_while_a_replacement_is_on_its_way() {
        let leaving = pod("a", Some("bad"), true);
        let pending = pod("b", None, false);
        let starting = pod("b", Some("good"), false);
        let gone = PodFacts { terminating: true, ..pod("b", Some("bad"), true) };
        for other in [pending, starting, gone] {
            assert!(names(&[leaving.clone(), other], &["bad"], 9).is_empty());
        }
    }
}
