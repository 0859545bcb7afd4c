//! Which pods leave a node that stays unfit.
//!
//! Node affinity only counts when a pod is scheduled: without this, a pod that runs stays where it is.
use std::{collections::HashSet, sync::Arc};

/// A pod of the managed Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// Its UID: the eviction is of this pod, not of a later one of its name.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// When it was created, in Unix seconds.
    pub created: i64,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// The pods to evict now, at most `most`, in the order of the nodes.
///
/// None while anything is under way: a pod that terminates anywhere, or one elsewhere that is not
/// Ready (or not even bound), is the replacement of an earlier one. So pods leave one after the other
/// even where no `PodDisruptionBudget` says so.
///
/// Only pods that were created before `before`: where there is no other room, a preferred placement
/// starts the replacement on the same node again, and it is to have its time there.
#[must_use]
pub fn choose<'a>(
    pods: &'a [PodFacts],
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
    let mut chosen = Vec::new();
    for node in nodes {
        let mut there: Vec<_> =
            pods.iter().filter(|p| p.node.as_deref() == Some(&**node) && leaves(p)).collect();
        there.sort_by(|a, b| a.name.cmp(&b.name));
        chosen.extend(there);
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

    fn names(pods: &[PodFacts], nodes: &[&str], most: usize) -> Vec<String> {
        let nodes: Vec<Arc<str>> = nodes.iter().map(|n| (*n).into()).collect();
        choose(pods, &nodes, 100, most).iter().map(|pod| pod.name.clone()).collect()
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
