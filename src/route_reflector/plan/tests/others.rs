//! Calico's objects of other owners.
use super::*;
use crate::route_reflector::datastore::{Pool, Routing, Session, Unreadable};

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

/// The settings of the mesh's sessions, and a Calico that has them only with the mesh.
fn strict() -> (RouteReflectorSet, Stage) {
    let (set, mut stage) = converged(&json!({}));
    let time = serde_json::Map::from_iter([("maxRestartTime".to_owned(), json!("300s"))]);
    (stage.snapshot.mesh, stage.snapshot.mesh_session) = (true, Session(time));
    (set, stage)
}

const COMMAND: &str = "kubectl patch bgpconfiguration default --type merge -p \
     '{\"spec\":{\"nodeMeshMaxRestartTime\":null,\"nodeToNodeMeshEnabled\":false}}'";

#[test]
fn a_write_that_calico_would_refuse_is_not_tried_and_its_command_is_shown() {
    let (set, mut stage) = strict();
    let pass = |stage: &Stage, age: f64, memory: Option<Memory>| {
        let mut seen = observed(&set, stage);
        seen.measured = Some(Ok(Arc::new(healthy(&seen, age))));
        seen.memory = memory.unwrap_or(seen.memory);
        plan(&set, &seen).unwrap()
    };
    assert_eq!(word(&pass(&stage, 1.0, None).desired), Some("MeshOff"));
    stage.snapshot.strict_mesh = true;
    // The command is for the time at which every session is verified.
    let stale = pass(&stage, 100.0, None);
    assert_eq!(condition(&stale, "Converged").0, "WaitingForSamples");
    assert_eq!(condition(&stale, "Ready").0, "Planned");
    let refused = pass(&stage, 1.0, None);
    assert_eq!(word(&refused.desired), None);
    let (reason, text) = condition(&refused, "Ready");
    assert!(reason == "Conflict" && text.ends_with(COMMAND), "{reason} {text}");
    assert_eq!(condition(&refused, "Converged").0, "Refused");
    // It does not hide behind the gate.
    let memory = refused.desired.memory.clone();
    let stale = pass(&stage, 100.0, memory.clone());
    assert_eq!(condition(&stale, "Ready"), condition(&refused, "Ready"));
    assert_eq!(condition(&stale, "Converged").0, "Refused");
    let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
    assert!(run.refused.is_some_and(|why| why.ends_with(COMMAND)));
    stage.edit("n5", |speaker| speaker.readiness = Readiness::NotReady(None));
    let mut seen = observed(&set, &stage);
    let mut some = healthy(&seen, 1.0);
    some.nodes.get_mut("n0").unwrap().established = Some(1);
    (seen.measured, seen.memory) = (Some(Ok(Arc::new(some))), memory.clone().unwrap());
    let text = condition(&plan(&set, &seen).unwrap(), "Ready").1.to_owned();
    assert!(text.contains("; not now: sessions are not established: n0 has 1 of"), "{text}");
    // The field is gone.
    stage.snapshot.mesh_session = Session::default();
    assert_eq!(word(&pass(&stage, 1.0, memory).desired), Some("MeshOff"));
}

#[test]
fn a_write_that_was_refused_is_reported_until_one_succeeds_and_tried_again_later() {
    let (set, stage) = strict();
    let blocked = |step: Step, at: i64| {
        let mut seen = observed(&set, &stage);
        seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
        let verdict = verdict("Ready", None, "Forbidden", "no");
        seen.memory.blocked = Some(Blocked { step, verdict, at: Some(ago(at)) });
        plan(&set, &seen).unwrap()
    };
    let waits = blocked(Step::Mesh(false), 29);
    assert_eq!((word(&waits.desired), condition(&waits, "Ready")), (None, ("Forbidden", "no")));
    assert_eq!(condition(&waits, "Converged").0, "Refused");
    let again = blocked(Step::Mesh(false), 30);
    assert_eq!(word(&again.desired), Some("MeshOff"));
    assert_eq!(condition(&again, "Ready"), ("Forbidden", "no"));
    // It is no longer planned.
    let other = blocked(Step::Mesh(true), 1);
    assert_eq!(condition(&other, "Ready").0, "Planned");
    assert_eq!(other.desired.memory.unwrap().blocked, None);
}

/// A tool that applies BGPConfiguration from a repository, for example.
#[test]
fn a_step_that_another_client_undoes_again_and_again_is_taken_ever_less_often() {
    let (set, mut stage) = converged(&json!({}));
    stage.snapshot.mesh = true;
    let mut memory = Memory { last_step: Some(ago(60)), ..Memory::default() };
    let pass = |memory: &mut Memory, since: i64| {
        let mut seen = observed(&set, &stage);
        seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
        for (_, at) in memory.taken.values_mut() {
            *at = ago(since);
        }
        seen.memory = memory.clone();
        let plan = plan(&set, &seen).unwrap();
        if let Some((step, _)) = &plan.desired.step {
            memory.takes(step, now());
        }
        let (ready, converged) = (condition(&plan, "Ready"), condition(&plan, "Converged").0);
        (word(&plan.desired), ready.0.to_owned(), converged.to_owned())
    };
    let planned = || (Some("MeshOff"), "Planned".to_owned(), "SwitchingMesh".to_owned());
    let contested = || (None, "Contested".to_owned(), "Contested".to_owned());
    for _ in 0..3 {
        assert_eq!(pass(&mut memory, 1), planned());
    }
    assert_eq!(pass(&mut memory, 9), contested());
    assert_eq!(pass(&mut memory, 10), planned());
    assert_eq!(pass(&mut memory, 19), contested());
    // Another time, it is news.
    assert_eq!(pass(&mut memory, 600), planned());
    assert_eq!(pass(&mut memory, 1), planned());
}

/// Calico with VXLAN alone, or without BGP: a plan would be about sessions that carry nothing.
#[test]
fn where_no_session_carries_a_route_nothing_is_planned_but_the_way_out() {
    let pool: Pool = serde_json::from_value(json!({"vxlanMode": "Always"})).unwrap();
    let felix = Routing { pools: vec![Pool { name: "pods".into(), ..pool }], ..Routing::default() };
    let none = Routing { bgp: Some("Disabled".into()), ..Routing::default() };
    for (routing, reason) in [(felix, "RoutesByFelix"), (none, "BGPDisabled")] {
        let set = set(&json!({"deletionPolicy": "RestoreMesh"}));
        let mut stage = mesh();
        stage.snapshot.routing = routing.clone();
        let idle = plan(&set, &observed(&set, &stage)).unwrap();
        assert_eq!(word(&idle.desired), None);
        assert!(idle.status.plan.is_empty());
        for type_ in ["Ready", "RoutesSafe"] {
            assert_eq!(condition(&idle, type_).0, reason);
        }
        assert_eq!(condition(&idle, "Converged").0, "Frozen");
        assert_eq!(idle.notices[0].reason, reason);
        // No alert is about routes that nobody uses.
        let memory = idle.desired.memory.unwrap();
        assert!(memory.idle && memory.figures.is_none());
        let run = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
        assert_eq!((run.idle, run.steps.len()), (Some(reason), 0));
        assert!(run.refused.as_ref().is_some_and(|why| why.contains("nothing to reflect")));
        assert!(!crate::route_reflector::dry_run::text(&run).contains("sessions"));

        // Of a network that had reflectors before: no session is waited for on the way back.
        let (mut set, mut stage) = converged(&json!({}));
        set.spec.deletion_policy = crate::api::route_reflector_set::DeletionPolicy::RestoreMesh;
        stage.snapshot.routing = routing;
        stage.snapshot.mesh = true;
        let seen = observed(&set, &stage);
        let back = restore(&set, &seen).unwrap().desired.unwrap();
        assert_eq!(word(&back), Some("Demote"));
        // It is over.
        stage.snapshot.routing = Routing::default();
        let mut seen = observed(&set, &stage);
        seen.memory.idle = true;
        let plan = plan(&set, &seen).unwrap();
        assert!(!plan.desired.memory.unwrap().idle);
    }
}

/// Reflectors made by hand as Calico documents it: a label, an id, and one BGPPeer with settings.
fn by_hand(session: &Value) -> Stage {
    let mut stage = mesh();
    stage.snapshot.mesh = false;
    for node in ["n4", "n5"] {
        stage.edit(node, |speaker| {
            speaker.labels = texts(&[("rr", "true"), ("topology.kubernetes.io/zone", "a")]);
            let address = format!("10.0.0.{}/24", &node[1..]);
            let id = ("projectcalico.org/RouteReflectorClusterID", "244.0.0.1");
            speaker.calico = texts(&[("projectcalico.org/IPv4Address", &address), id]);
        });
    }
    let session = Session(session.as_object().unwrap().clone());
    let peer = theirs("peer-with-route-reflectors", "all()", "rr == 'true'");
    stage.snapshot.peers = vec![CalicoPeer { session, ..peer }];
    stage
}

#[test]
fn reflectors_made_by_hand_are_adopted_with_the_settings_of_their_sessions() {
    let set = set(&json!({"nodeLabel": "rr=true", "mesh": "Leave"}));
    let settings = json!({
        "password": {"secretKeyRef": {"name": "bgp", "key": "rr"}}, "keepaliveTime": "10s",
        "filters": ["pods"], "ttlSecurity": 1,
    });
    let mut stage = by_hand(&settings);
    let first = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(json!(first.desired.session.0), settings);
    let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
    let steps: Vec<_> = run.steps.iter().map(|step| step.step).collect();
    assert_eq!((run.refused, steps), (None, vec!["Adopt", "WritePeer"]));
    let ids: Vec<_> = run.reflectors.iter().map(|r| (&*r.node, &*r.cluster_id)).collect();
    assert_eq!(ids, [("n4", "244.0.0.1"), ("n5", "244.0.0.1")]);
    // Ours have them, and Calico may use either.
    let ours = |name: &str, session: &Value| CalicoPeer {
        ours: true,
        session: Session(session.as_object().unwrap().clone()),
        ..theirs(name, "has(rr)", "has(rr)")
    };
    stage.snapshot.peers.push(ours("rrs-to-rrs", &settings));
    let same = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(condition(&same, "Ready").0, "Planned");
    // They are changed, or ours are older.
    stage.snapshot.peers[1].session = Session::default();
    let other = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&other.desired), None);
    let (reason, text) = condition(&other, "Ready");
    assert_eq!(reason, "Conflict");
    let named = "peer-with-route-reflectors (spec.filters, spec.keepaliveTime, spec.password, spec.ttlSecurity)";
    assert!(text.contains(named), "{text}");
    assert_eq!(other.notices[0].reason, "Conflict");
    let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
    assert!(run.refused.is_some_and(|why| why.contains(named)));
}

#[test]
fn settings_that_cannot_be_shared_are_refused_and_those_of_other_pairs_are_none_of_ours() {
    let set = set(&json!({"nodeLabel": "rr=true", "mesh": "Leave"}));
    let ready = |stage: &Stage| {
        let plan = plan(&set, &observed(&set, stage)).unwrap();
        condition(&plan, "Ready").0.to_owned()
    };
    assert_eq!(ready(&by_hand(&json!({}))), "Planned");
    assert_eq!(ready(&by_hand(&json!({"localASNumber": 65_000}))), "Conflict");
    // Two of them that differ: none of them can be followed.
    let mut stage = by_hand(&json!({"keepaliveTime": "10s"}));
    let mut second = stage.snapshot.peers[0].clone();
    (second.name, second.session) = ("second".into(), Session::default());
    stage.snapshot.peers.push(second);
    assert_eq!(ready(&stage), "Conflict");
    // A router, and nodes that are no reflectors.
    let mut stage = by_hand(&json!({"keepaliveTime": "10s"}));
    stage.snapshot.peers[0].peer_selector = None;
    stage.snapshot.peers[0].peer_ip = Some("192.0.2.1".into());
    assert_eq!(ready(&stage), "Planned");
    stage.snapshot.peers[0].peer_ip = Some("10.0.0.4".into());
    assert_eq!(ready(&stage), "Planned", "taken over");
    stage.snapshot.peers[0].session =
        Session(serde_json::Map::from_iter([("reachableBy".to_owned(), json!("x"))]));
    assert_eq!(ready(&stage), "Conflict");
    stage.snapshot.peers[0].peer_ip = Some("10.0.0.1".into());
    stage.snapshot.peers[0].node_selector = Some("!has(rr)".into());
    assert_eq!(ready(&stage), "Planned");
}
