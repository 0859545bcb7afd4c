//! Properties of every value, from any writer.
use proptest::{collection, option, prelude::*};

use super::*;
use crate::{
    any_json,
    controller::MANAGED_BY,
    route_reflector::datastore::{MANAGED_BY_LABEL, SET_LABEL, WantedPeer},
};

/// Any JSON of words that mean something in one of Calico's objects.
fn anything() -> impl Strategy<Value = Value> {
    let names = "metadata labels spec bgp orchRefs nodeName orchestrator asNumber ipv4Address \
        routeReflectorClusterID nodeSelector peerSelector peerIP node listenPort \
        nodeToNodeMeshEnabled datastoreReady password x";
    let texts = ["k8s", "n1", "10.0.0.1/24", "224.0.0.1", "64512", "1.10", "all()"];
    any_json::of(names, &texts)
}

/// A Node of Calico's with fields that nobody here knows.
fn calico_node() -> impl Strategy<Value = Value> {
    let labels = option::of(collection::btree_map("[a-c]", "[x-z]{0,1}", 0..3));
    let id = option::of(prop::sample::select(vec!["", "224.0.0.1", "224.0.0.2", "not one"]));
    let bgp = option::of((id, anything()));
    (labels, bgp, anything(), anything()).prop_map(|(labels, bgp, one, other)| {
        let mut node = json!({
            "kind": "Node", "metadata": {"name": "c1", "annotations": one},
            "spec": {"orchRefs": [{"orchestrator": "k8s", "nodeName": "n1"}], "future": other},
        });
        if let Some(labels) = labels {
            node["metadata"]["labels"] = json!(labels);
        }
        if let Some((id, more)) = bgp {
            node["spec"]["bgp"] = json!({"ipv4Address": "10.0.0.1/24", "more": more});
            if let Some(id) = id {
                node["spec"]["bgp"]["routeReflectorClusterID"] = json!(id);
            }
        }
        node
    })
}

/// A change of labels: a null removes one.
fn change() -> impl Strategy<Value = (Value, IdChange)> {
    let labels = collection::btree_map("[a-c]", option::of("[x-z]{0,1}"), 0..4);
    let id = prop_oneof![
        Just(IdChange::Keep),
        Just(IdChange::Remove),
        (0..4_u8).prop_map(|last| IdChange::Set(Ipv4Addr::new(224, 0, 0, last))),
    ];
    (labels.prop_map(|labels| json!(labels)), id)
}

fn entry(value: Value) -> Entry {
    Entry { name: "c1".into(), value, revision: 7 }
}

/// The object without what a change may touch.
fn others(mut value: Value, labels: &Value) -> Value {
    let all = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    let left = all.map(|all| {
        all.retain(|key, _| labels.get(key).is_none());
        all.len()
    });
    if left == Some(0)
        && let Some(metadata) = value["metadata"].as_object_mut()
    {
        metadata.remove("labels");
    }
    if let Some(bgp) = value.pointer_mut("/spec/bgp").and_then(Value::as_object_mut) {
        bgp.remove("routeReflectorClusterID");
    }
    value
}

proptest! {
    #[test]
    fn no_value_makes_it_panic_and_each_error_says_why(
        value in anything(), bytes: Vec<u8>, (labels, id) in change(),
    ) {
        // As a read takes what is no JSON.
        let bytes: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        for value in [value, bytes] {
            let entry = entry(value);
            let errors = [
                entry.peer().err().map(|error| error.to_string()),
                entry.configuration().err().map(|error| error.to_string()),
                entry.information().err().map(|error| error.to_string()),
                entry.node().err(),
                entry.marked(&labels, id).err().map(|error| error.to_string()),
            ];
            prop_assert!(errors.iter().flatten().all(|text| !text.trim().is_empty()), "{errors:?}");
            if let Ok(Some(node)) = entry.node() {
                prop_assert!(entry.is_kubernetes_node(&node.kubernetes));
            }
            if let Ok(configuration) = entry.configuration() {
                let _ = (configuration.session(), configuration.only_of_mesh());
                let _ = (configuration.mesh(), configuration.as_number());
            }
        }
    }

    /// A write is what was read with the marks changed, and a second one has nothing to do.
    #[test]
    fn only_the_marks_of_a_node_change_and_only_once(
        node in calico_node(), (labels, id) in change(),
    ) {
        let before = entry(node.clone());
        match before.marked(&labels, id) {
            Err(_) => {
                prop_assert!(matches!(id, IdChange::Set(_)) && node.pointer("/spec/bgp").is_none());
            }
            Ok(None) => {
                for (key, wanted) in labels.as_object().unwrap() {
                    prop_assert_eq!(&node["metadata"]["labels"][key], wanted);
                }
            }
            Ok(Some(after)) => {
                for (key, wanted) in labels.as_object().unwrap() {
                    prop_assert_eq!(&after["metadata"]["labels"][key], wanted);
                }
                let found = after.pointer("/spec/bgp/routeReflectorClusterID");
                match id {
                    IdChange::Set(id) => {
                        let found = found.and_then(Value::as_str);
                        let id = id.to_string();
                        prop_assert_eq!(found, Some(id.as_str()));
                    }
                    IdChange::Remove => {
                        prop_assert!(found.is_none_or(|found| *found == ""), "{found:?}");
                    }
                    IdChange::Keep => {
                        prop_assert_eq!(found, node.pointer("/spec/bgp/routeReflectorClusterID"));
                    }
                }
                prop_assert_eq!(others(after.clone(), &labels), others(node, &labels));
                prop_assert_eq!(entry(after).marked(&labels, id).unwrap(), None);
            }
        }
    }

    #[test]
    fn patches_merge_as_rfc_7386_has_it(value in anything(), patch in anything()) {
        let (mut ours, mut theirs) = (value.clone(), value);
        merge(&mut ours, patch.clone());
        json_patch::merge(&mut theirs, &patch);
        prop_assert_eq!(ours, theirs);
    }

    /// One number, in the three forms that Calico takes; every other text is none.
    #[test]
    fn an_as_number_is_one_in_every_form(number: u32, text in "[0-9.+-]{0,12}") {
        let read = |value: Value| serde_json::from_value::<AsNumber>(value).ok();
        let dotted = format!("{}.{}", number >> 16, number & 0xffff);
        for form in [json!(number), json!(number.to_string()), json!(dotted)] {
            prop_assert_eq!(read(form.clone()), Some(AsNumber(number)), "{}", form);
        }
        prop_assert_eq!(read(json!(u64::from(number) + (1 << 32))), None);
        if let Some(AsNumber(number)) = read(json!(text)) {
            let again = [number.to_string(), format!("{}.{}", number >> 16, number & 0xffff)];
            let digits = |text: &str| text.replace('+', "").trim_start_matches('0').to_owned();
            let known = again.iter().any(|again| digits(again) == digits(&text));
            // Zeros before either half are the same number.
            prop_assert!(known || text.contains('0') || text.contains('+'), "{text} is {number}");
        }
    }

    /// A peer of ours gets what it lacks and keeps what others set; one that is not ours is left.
    #[test]
    fn a_peer_is_patched_once_and_keeps_what_others_set(
        spec in anything(), ours: bool, set in option::of("[a-b]"),
    ) {
        let wanted = WantedPeer {
            name: "p", node_selector: "!has(rr)", peer_selector: "has(rr)", set: "a", session: None,
        };
        let mut object = json!({"metadata": {"name": "p", "labels": {"x": "y"}}, "spec": spec});
        if ours {
            object["metadata"]["labels"][MANAGED_BY_LABEL] = json!(MANAGED_BY);
        }
        if let Some(set) = set {
            object["metadata"]["labels"][SET_LABEL] = json!(set);
        }
        let Ok(patch) = wanted.patch(&object) else {
            prop_assert!(!ours);
            return Ok(());
        };
        prop_assert!(ours);
        let mut after = object.clone();
        if let Some(patch) = patch {
            merge(&mut after, patch);
            prop_assert_ne!(&after, &object);
        }
        prop_assert_eq!(wanted.patch(&after).unwrap(), None);
        prop_assert_eq!(&after["spec"]["nodeSelector"], "!has(rr)");
        prop_assert_eq!(&after["spec"]["peerSelector"], "has(rr)");
        prop_assert_eq!(&after["metadata"]["labels"][SET_LABEL], "a");
        for (field, value) in object["spec"].as_object().into_iter().flatten() {
            let theirs = ["password", "listenPort", "bgp", "labels", "x"].contains(&field.as_str());
            prop_assert!(!theirs || after["spec"][field] == *value, "{field}");
        }
    }
}
