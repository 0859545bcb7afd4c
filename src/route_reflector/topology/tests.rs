//! Labels and annotations of nodes, from any writer.
use kube::runtime::watcher::Event;
use proptest::{collection, prelude::*};
use serde_json::json;

use super::*;
use crate::nodes::{NodeObject, NodeStore};

/// Texts of addresses and numbers, some of them almost right.
fn text() -> impl Strategy<Value = String> {
    let almost = ["10.0.0.1/24", "10.0.0.1", "fd00::1/64", "64512", "1.10", "", "/", "::/", "-1"];
    prop_oneof![prop::sample::select(almost.to_vec()).prop_map(String::from), ".{0,12}"]
}

fn entries(keys: Vec<&'static str>) -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop_oneof![prop::sample::select(keys).prop_map(String::from), "[a-z./-]{0,8}"];
    collection::btree_map(key, text(), 0..6)
}

proptest! {
    #[test]
    fn any_annotation_of_a_node_is_an_address_or_none(
        annotations in entries(
            [&BGP_ADDRESS_ANNOTATIONS[..], &[BGP_AS_ANNOTATION, CLUSTER_ID_ANNOTATION]].concat()
        ),
        labels in entries(vec![SLOT_LABEL, GROUP_LABEL]),
        as_number: u32,
    ) {
        let node = json!({
            "metadata": {"name": "n", "annotations": annotations, "labels": labels},
        });
        let node: NodeObject = serde_json::from_value(node).unwrap();
        let store = NodeStore::default();
        store.apply(Event::Apply(node));
        let speakers = store.speakers();
        let [speaker] = &speakers[..] else { panic!("{speakers:?}") };
        for key in [SLOT_LABEL, GROUP_LABEL] {
            prop_assert_eq!(of(speaker, key), labels.get(key).map(String::as_str));
        }
        let snapshot = Snapshot { as_number, ..Snapshot::default() };
        let found = addresses(speaker, &snapshot);
        let annotation = |key: &str| annotations.get(key).filter(|text| !text.is_empty());
        // Of another AS, or of one that cannot be read, it has no session with the others.
        let own = annotation(BGP_AS_ANNOTATION).is_none_or(|own| own.parse() == Ok(as_number));
        let [v4, v6] = BGP_ADDRESS_ANNOTATIONS;
        for (address, key, family) in [(found.v4, v4, 4), (found.v6, v6, 6)] {
            let Some(address) = address else { continue };
            prop_assert!(own && (address.is_ipv4() == (family == 4)));
            let written = annotation(key).unwrap();
            prop_assert_eq!(written.split('/').next().unwrap().parse(), Ok(address));
        }
    }
}
