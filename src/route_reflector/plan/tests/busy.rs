//! Another object disrupts a zone of the nodes that a step changes.
use traffic_operator_core::disruption::Holder;

use super::*;

fn busy(nodes: &[&str]) -> BTreeMap<Arc<str>, Busy> {
    let holder = Holder { kind: "Swarm", name: "default/web".into() };
    let busy = Busy { zone: "a".into(), holder, rests: false };
    nodes.iter().map(|node| (Arc::from(*node), busy.clone())).collect()
}

#[test]
fn a_step_waits_while_another_object_disrupts_the_zone() {
    let set = set(&json!({}));
    let mut stage = mesh();
    begin(&set, &mut stage);
    let mut seen = observed(&set, &stage);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), Some("Promote"));
    // The next one is n1.
    seen.busy = busy(&["n1", "n2"]);
    let waiting = plan(&set, &seen).unwrap();
    assert_eq!(word(&waiting.desired), None);
    assert_eq!(
        condition(&waiting, "Converged"),
        ("WaitingForZone", "promoting n1: Swarm default/web disrupts zone a at the moment")
    );
    assert_eq!(waiting.period, TRY);
    // A zone that the step does not touch is no reason to wait.
    seen.busy = busy(&["n5"]);
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), Some("Promote"));
}

/// The sessions were never missing: no time of the gate runs while another object has the zone.
#[test]
fn a_restoration_is_not_given_up_while_another_object_disrupts_the_zone() {
    let spec = |wait: &str| {
        let transition = json!({"gate": "Wait", "wait": wait, "timeout": "5m"});
        json!({"deletionPolicy": "RestoreMesh", "transition": transition})
    };
    let look = |wait: &str, nodes: &[&str]| {
        // The last step was a minute ago.
        let (set, mut stage) = converged(&spec(wait));
        stage.snapshot.mesh = true;
        let mut seen = observed(&set, &stage);
        seen.memory.shut_since = Some(ago(301));
        seen.busy = busy(nodes);
        restore(&set, &seen).unwrap()
    };
    let all = ["n0", "n1", "n2", "n3", "n4", "n5"];
    let waits = look("60s", &all);
    let Err(Error::Pending(reason, text)) = &waits.end else { panic!("{:?}", waits.end) };
    assert_eq!(*reason, "RestoringMesh");
    assert!(text.ends_with("Swarm default/web disrupts zone a at the moment"), "{text}");
    let desired = waits.desired.unwrap();
    assert_eq!(word(&desired), None);
    assert_eq!(desired.memory.unwrap().shut_since, None);
    assert_eq!(word(&look("60s", &[]).desired.unwrap()), Some("Demote"));
    // The gate itself has been shut for too long.
    let left = look("90s", &all).end.unwrap();
    assert_eq!(left[0].reason, "ReflectorsLeft");
}
