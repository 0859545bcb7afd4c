//! Calico's objects of other owners.
use super::*;
use crate::route_reflector::datastore::Unreadable;

/// A BGPPeer of another owner between the nodes of two selectors.
fn theirs(name: &str, node_selector: &str, peer_selector: &str) -> CalicoPeer {
    CalicoPeer {
        name: name.into(),
        node_selector: Some(node_selector.into()),
        peer_selector: Some(peer_selector.into()),
        reverse: true,
        ..CalicoPeer::default()
    }
}

/// A critical alert reads this figure.
#[test]
fn no_route_is_missing_while_a_bgp_peer_that_cannot_be_read_may_carry_it() {
    let set = set(&json!({}));
    let mut stage = mesh();
    stage.snapshot.mesh = false;
    let pass = |stage: &Stage| plan(&set, &observed(&set, stage)).unwrap();
    let figures = |plan: &Plan<Desired, _>| {
        let figures = plan.desired.memory.as_ref().unwrap().figures.clone().unwrap();
        (figures.missing, figures.missing_without_one, figures.unreadable)
    };
    let before = pass(&stage);
    assert_eq!(condition(&before, "RoutesSafe").0, "RoutesMissing");
    assert_eq!(figures(&before), (Some(30), Some(30), 0));

    stage.snapshot.peers.push(theirs("theirs", "rack ==", "all()"));
    let named = "BGPPeer theirs (spec.nodeSelector at character 8: expected a text in quotes)";
    let after = pass(&stage);
    let (reason, text) = condition(&after, "RoutesSafe");
    assert_eq!(reason, "CalicoUnreadable");
    assert!(text.ends_with(named), "{text}");
    assert_eq!(figures(&after), (None, None, 1));
    assert!(condition(&after, "Ready").1.ends_with(named));
    // Calico's parser refuses it too: nothing waits for it.
    assert!(after.desired.step.is_some());
    let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
    assert_eq!((run.refused, run.unreadable), (None, vec![named.to_owned()]));

    // A router has no session that the fabric has.
    stage.snapshot.peers[0].peer_selector = None;
    stage.snapshot.peers[0].peer_ip = Some("192.0.2.1".into());
    assert_eq!(figures(&pass(&stage)), (Some(30), Some(30), 0));
    stage.snapshot.peers[0].peer_ip = Some("10.0.0.1:179".into());
    assert_eq!(figures(&pass(&stage)).2, 1);
    // One that is ours is written again.
    stage.snapshot.peers[0].ours = true;
    assert_eq!(figures(&pass(&stage)).2, 0);
}

#[test]
fn nothing_but_repair_is_done_beside_an_object_that_only_calico_can_read() {
    let (set, mut stage) = converged(&json!({}));
    let unreadable =
        Unreadable { object: "BGPPeer odd".into(), why: "spec: x".into(), ignored: false };
    stage.snapshot.unreadable.push(unreadable);
    assert_eq!(
        condition(&plan(&set, &observed(&set, &stage)).unwrap(), "Converged").0,
        "Converged"
    );
    stage.edit("n0", |speaker| speaker.cordoned = true);
    let waits = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&waits.desired), None);
    let (reason, text) = condition(&waits, "Converged");
    assert_eq!(reason, "CalicoUnreadable");
    assert!(text.ends_with("cannot be read are unknown: BGPPeer odd (spec: x)"), "{text}");
    let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
    assert!(run.refused.is_some_and(|why| why.ends_with("BGPPeer odd (spec: x)")));
    stage.speakers.retain(|speaker| *speaker.name != *"n0");
    assert_eq!(word(&plan(&set, &observed(&set, &stage)).unwrap().desired), Some("Promote"));
}
