//! Tests of the store of nodes.
use super::*;

fn node(name: &str, version: u64, label: Option<&str>) -> NodeObject {
    let mut labels =
        serde_json::json!({"kubernetes.io/os": "linux", "kubernetes.io/hostname": name});
    if let Some(label) = label {
        labels["key"] = label.into();
    }
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "resourceVersion": version.to_string(), "labels": labels},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("ip-{name}")}]}
    }))
    .unwrap()
}

fn labels(store: &NodeStore) -> Vec<(String, Option<String>)> {
    let nodes = store.select(&Selector::linux(), "key").nodes;
    nodes.iter().map(|n| (n.name.to_string(), n.label.as_ref().map(ToString::to_string))).collect()
}

#[test]
fn a_list_replaces_and_events_change() {
    let store = NodeStore::default();
    for event in [
        Event::Init,
        Event::InitApply(node("b", 1, None)),
        Event::InitApply(node("a", 2, Some("true"))),
        Event::InitDone,
        Event::Apply(node("c", 3, None)),
        Event::Delete(node("b", 4, None)),
    ] {
        store.apply(event);
    }
    assert_eq!(labels(&store), [("a".into(), Some("true".into())), ("c".into(), None)]);
    let carrier = Carrier {
        node: "a".into(),
        key: "key".into(),
        label: true,
        taint: false,
        incarnation: Incarnation::default(),
    };
    assert_eq!(store.carriers("key"), [carrier]);
    let by_ip = store.identity().resolve(&[], |_| Some("ip-c:9100"));
    assert_eq!(by_ip, crate::nodes::Resolution::Node(1));
    store.apply(Event::Init);
    store.apply(Event::InitDone);
    assert!(store.is_empty());
}

#[test]
fn texts_of_labels_that_keep_changing_do_not_pile_up() {
    let store = NodeStore::default();
    for version in 1..10_000 {
        store.apply(Event::Apply(node("a", version, Some(&format!("load-{version}")))));
    }
    let texts = store.read().texts_kept();
    assert!(texts < 300, "{texts} texts of one node");
    assert_eq!(labels(&store), [("a".into(), Some("load-9999".into()))]);
}

#[test]
fn the_oldest_kubelet_that_runs_agents_decides() {
    let store = NodeStore::default();
    let add = |name: &str, version: &str, label: (&str, &str)| {
        let node = serde_json::json!({
            "metadata": {"name": name, "resourceVersion": "1", "labels": {label.0: label.1}},
            "status": {"nodeInfo": {"kubeletVersion": version}}
        });
        let before = *store.changes().borrow();
        store.apply(Event::Apply(serde_json::from_value(node).unwrap()));
        *store.changes().borrow() != before
    };
    assert_eq!(store.oldest_kubelet(), None);
    let linux = ("kubernetes.io/os", "linux");
    add("new", "v1.34.1", linux);
    add("virtual", "v1.15.2-vk-azure-aci-1.4", ("type", "virtual-kubelet"));
    add("windows", "v1.20.0", ("kubernetes.io/os", "windows"));
    add("odd", "unknown", linux);
    add("unsaid", "", linux);
    assert_eq!(store.oldest_kubelet(), Some((1, 34)));
    for (version, read) in
        [("v1.28.9-gke.1000", (1, 28)), ("v1.9.11+k3s1", (1, 9)), ("v1.30-rc.0", (1, 30))]
    {
        assert!(add("other", version, linux), "an upgrade counts as a change");
        assert_eq!(store.oldest_kubelet(), Some(read));
    }
}

#[test]
fn what_nodes_offer_is_known_and_wakes_nobody() {
    let store = NodeStore::default();
    let add = |version: &str, amount: &str| {
        let node = serde_json::json!({
            "metadata": {"name": "a", "resourceVersion": version},
            "status": {
                "capacity": {"example.com/a": amount}, "allocatable": {"example.com/a": amount}
            }
        });
        store.apply(Event::Apply(serde_json::from_value(node).unwrap()));
        *store.changes().borrow()
    };
    let before = add("1", "7");
    assert_eq!(store.offering("example.com/a"), [("a".into(), Offer::of(7))]);
    assert!(store.offering("example.com/b").is_empty());
    assert_eq!(add("2", "8"), before);
    assert_eq!(store.offering("example.com/a"), [("a".into(), Offer::of(8))]);
}

#[test]
fn our_own_write_is_seen_before_the_watch_brings_it() {
    let store = NodeStore::default();
    store.apply(Event::Apply(node("a", 5, None)));
    store.wrote(&node("a", 7, Some("true")).metadata);
    assert_eq!(labels(&store), [("a".into(), Some("true".into()))]);
    // The answer to a write does not bring back a node that is gone.
    store.wrote_node(&node("gone", 9, Some("true")));
    assert_eq!(store.len(), 1);
    // An older event (a delayed heartbeat) does not undo it; a newer one does.
    store.apply(Event::Apply(node("a", 6, None)));
    assert_eq!(labels(&store), [("a".into(), Some("true".into()))]);
    store.apply(Event::Apply(node("a", 8, Some("false"))));
    assert_eq!(labels(&store), [("a".into(), Some("false".into()))]);
}

/// Versions of a restored etcd are lower: nodes that were kept for their higher ones stayed as
/// they were before, for as long as the process ran.
#[test]
fn a_list_replaces_nodes_of_higher_versions_but_no_newer_write_of_ours() {
    let store = NodeStore::default();
    let list = |nodes: Vec<NodeObject>| {
        store.apply(Event::Init);
        nodes.into_iter().map(Event::InitApply).for_each(|event| store.apply(event));
        store.apply(Event::InitDone);
    };
    list(vec![node("a", 50, Some("true")), node("b", 50, None), node("c", 50, None)]);
    store.wrote(&node("b", 60, Some("true")).metadata);
    store.wrote_node(&node("c", 61, Some("true")));
    store.apply(Event::Apply(node("c", 61, Some("true"))));
    list(vec![node("a", 7, Some("false")), node("b", 8, None), node("c", 9, None)]);
    let expected = [("a", Some("false")), ("b", Some("true")), ("c", None)];
    let expected = expected.map(|(name, label)| (name.to_owned(), label.map(str::to_owned)));
    assert_eq!(labels(&store), expected);
}

/// An answer that was asked for before a node came is not about it, even if it has the name of the
/// one before.
#[test]
fn a_node_is_there_since_the_revision_that_brought_its_incarnation() {
    let store = NodeStore::default();
    let of = |uid: &str, version: u64| {
        let mut node = node("a", version, None);
        node.metadata.uid = Some(uid.into());
        node
    };
    let list = |node: NodeObject| {
        for event in [Event::Init, Event::InitApply(node), Event::InitDone] {
            store.apply(event);
        }
    };
    let since = || store.select(&Selector::linux(), "key").nodes[0].since;
    list(of("first", 1));
    let before = store.revision();
    assert!(since() <= before);
    // Changes, and another list, leave it what it is.
    store.apply(Event::Apply(of("first", 2)));
    store.wrote(&of("first", 3).metadata);
    list(of("first", 4));
    assert!(since() <= before);
    let before = store.revision();
    store.apply(Event::Apply(of("second", 5)));
    assert!(since() > before && since() <= store.revision());
    let before = store.revision();
    list(of("third", 6));
    assert!(since() > before && since() <= store.revision());
    let before = store.revision();
    store.apply(Event::Delete(of("third", 7)));
    store.apply(Event::Apply(of("fourth", 8)));
    assert!(since() > before && since() <= store.revision());
}

/// A node that an autoscaler, Karpenter or a person takes away.
#[test]
fn the_end_of_a_node_is_announced_by_a_taint_or_by_a_cordon_before_it_is_silent() {
    let ends = |taint: Option<&str>, cordoned: bool, ready: &str| {
        let taints: Vec<_> = taint
            .map(|key| serde_json::json!({"key": key, "effect": "NoSchedule"}))
            .into_iter()
            .collect();
        let node = serde_json::json!({
            "metadata": {"name": "n", "resourceVersion": "1"},
            "spec": {"taints": taints, "unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        let store = NodeStore::default();
        store.apply(Event::Apply(serde_json::from_value(node).unwrap()));
        store.is_ending("n")
    };
    for key in ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"] {
        assert!(ends(Some(key), false, "True"), "{key}");
    }
    assert!(ends(None, true, "Unknown"));
    for (taint, cordoned, ready) in [
        (None, true, "True"),
        (None, false, "Unknown"),
        (Some("node.kubernetes.io/unreachable"), false, "Unknown"),
    ] {
        assert!(!ends(taint, cordoned, ready), "{taint:?} {cordoned} {ready}");
    }
    assert!(!NodeStore::default().is_ending("n"));
}
