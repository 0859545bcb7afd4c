//! Calico's objects in the Kubernetes API, from any writer.
use proptest::prelude::*;

use super::*;
use crate::any_json;

/// Any JSON of words that mean something in one of Calico's specs.
fn anything() -> impl Strategy<Value = Value> {
    let names = "node nodeSelector peerIP peerSelector asNumber reversePeering password \
        listenPort nodeToNodeMeshEnabled nodeMeshMaxRestartTime x";
    let texts = ["all()", "10.0.0.1:179", "64512", "1.10", "70000.1", "Manual", "", "120s"];
    any_json::of(names, &texts)
}

fn object(spec: &Value) -> DynamicObject {
    let object = json!({"metadata": {"name": "o"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

proptest! {
    #[test]
    fn a_peer_is_read_as_it_is_or_refused_with_a_reason(spec in anything()) {
        let read = match super::spec::<PeerSpec>(&object(&spec)) {
            Ok(read) => read,
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                return Ok(());
            }
        };
        let peer = CalicoPeer::new("o".into(), None, read, "1".into());
        prop_assert!(!peer.ours && peer.set.is_none());
        for (field, text) in [
            ("node", &peer.node),
            ("nodeSelector", &peer.node_selector),
            ("peerIP", &peer.peer_ip),
            ("peerSelector", &peer.peer_selector),
        ] {
            let there = spec[field].as_str().filter(|text| !text.is_empty());
            prop_assert_eq!(text.as_deref(), there, "{}", field);
        }
        prop_assert_eq!(peer.as_number.is_some(), !spec["asNumber"].is_null());
        prop_assert_eq!(peer.reverse, spec["reversePeering"] != "Manual");
    }

    #[test]
    fn a_configuration_is_read_as_it_is_or_refused_with_a_reason(spec in anything()) {
        let read = match super::spec::<ConfigurationSpec>(&object(&spec)) {
            Ok(read) => read,
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                return Ok(());
            }
        };
        // Only an explicit `false` means that there is no mesh.
        prop_assert_eq!(read.mesh(), spec["nodeToNodeMeshEnabled"] != false);
        let port = read.listen_port.map(u64::from);
        prop_assert_eq!(port, spec["listenPort"].as_u64());
        let _ = (read.as_number(), read.session(), read.only_of_mesh());
    }

    #[test]
    fn labels_in_an_annotation_are_those_or_none(text in ".{0,40}", spec in anything()) {
        let with = |text: String| {
            let mut object = object(&spec);
            let annotations = [("projectcalico.org/metadata".to_owned(), text)];
            object.metadata.annotations = Some(annotations.into());
            hidden_labels(&object)
        };
        let _ = with(text.clone());
        let _ = with(spec.to_string());
        let hidden = with(json!({"labels": {"a": text}, "more": spec}).to_string());
        prop_assert_eq!(hidden, Some([("a".to_owned(), text)].into()));
    }
}

/// Otherwise one mistake in Calico's object would end all repair until the operator restarts,
/// although it was corrected a minute later.
#[test]
fn an_unreadable_configuration_is_read_again_and_no_mistake_of_the_set() {
    let read = super::spec::<ConfigurationSpec>(&object(&json!({"asNumber": -1})));
    let error = read.map_err(unreadable("BGPConfiguration", DEFAULT)).unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("CalicoUnreadable", true));
    let error = crate::controller::Error::from(error);
    assert!(error.to_text().starts_with("BGPConfiguration default: "), "{error}");
    assert!(error.requeue_after(1).is_some());
}
