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
#[must_use]
pub fn choose<'a>(pods: &'a [PodFacts], nodes: &[Arc<str>], most: usize) -> Vec<&'a PodFacts> {
    let leave: HashSet<&str> = nodes.iter().map(|node| &**node).collect();
    let leaves = |pod: &PodFacts| pod.node.as_deref().is_some_and(|node| leave.contains(node));
    if pods.iter().any(|pod| pod.terminating || (!pod.ready && !leaves(pod))) {
        return vec![];
    }
    let mut chosen = Vec::new();
    for node in nodes {
        let mut there: Vec<_> =
            pods.iter().filter(|pod| pod.node.as_deref() == Some(&**node)).collect();
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
            ready,
            terminating: false,
        }
    }

    fn names(pods: &[PodFacts], nodes: &[&str], most: usize) -> Vec<String> {
        let nodes: Vec<Arc<str>> = nodes.iter().map(|n| (*n).into()).collect();
        choose(pods, &nodes, most).iter().map(|pod| pod.name.clone()).collect()
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
