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
