//! Reflectors and mesh retire where no route depends on BGP.
use super::*;
use crate::{
    api::route_reflector_set::Mesh,
    route_reflector::datastore::{Pool, Routing},
};

/// `mode` is that of VXLAN: without, BIRD programs the routes.
fn pool(name: &str, mode: &str) -> Pool {
    let mode = Some(mode.to_owned());
    Pool { name: name.into(), vxlan_mode: mode, ..Pool::default() }
}

/// Two reflectors, with the mesh or without, of which the routes are Felix's.
fn retiring(mesh: bool) -> (RouteReflectorSet, Stage) {
    let (mut set, mut stage) = converged(&json!({}));
    set.spec.mesh = Mesh::Retire;
    stage.snapshot.mesh = mesh;
    stage.snapshot.routing.pools = vec![pool("pods", "Always")];
    (set, stage)
}

type Pass = Plan<Desired, RouteReflectorSetStatus>;

/// Passes until nothing is done; `since` is how long no route has depended on BGP.
fn passes(set: &mut RouteReflectorSet, stage: &mut Stage, since: i64) -> (Vec<&'static str>, Pass) {
    let mut words = vec![];
    // The first publishes the state of the mesh.
    let mut quiet = 0;
    loop {
        let mut seen = observed(set, stage);
        seen.memory.witnessed = Some(ago(since));
        let pass = plan(set, &seen).unwrap();
        set.status = Some(pass.status.clone());
        let Some((step, _)) = &pass.desired.step else {
            quiet += 1;
            if quiet > 1 {
                return (words, pass);
            }
            continue;
        };
        quiet = 0;
        words.push(step.word());
        stage.take(step, (KEY, ""), "main");
        assert!(words.len() < 20, "{words:?}");
    }
}

#[test]
fn what_would_keep_the_routes_of_bgp_goes_before_what_would_not() {
    for (mesh, expected) in [
        (true, &["Demote", "Demote", "DeletePeer", "MeshOff"][..]),
        (false, &["DeletePeer", "Demote", "Demote"][..]),
    ] {
        let (mut set, mut stage) = retiring(mesh);
        let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
        let steps: Vec<_> = run.steps.iter().map(|step| step.step).collect();
        assert_eq!((run.refused.as_deref(), &*steps), (None, expected));
        assert_eq!((run.idle, run.after.peers, run.after.mesh), (Some("RoutesByFelix"), 0, false));
        let text = crate::route_reflector::dry_run::text(&run);
        assert!(text.contains("RoutesByFelix, reflectors and mesh go\n"), "{text}");

        let (words, last) = passes(&mut set, &mut stage, 90);
        assert_eq!(words, expected);
        let (reason, text) = condition(&last, "Ready");
        assert_eq!(reason, "Retired");
        assert!(text.starts_with("the mesh is off, and no reflector of ours is left: "), "{text}");
        assert_eq!(condition(&last, "Converged").0, "Converged");
        assert_eq!(condition(&last, "RoutesSafe").0, "RoutesByFelix");
        assert_eq!(last.notices[0].reason, "Retired");
        let status = &last.status;
        assert_eq!((status.desired, status.slots.len(), &status.topology), (0, 0, &None));
        let before = if mesh { "On" } else { "Off" };
        assert_eq!(status.mesh_before.as_deref(), Some(before));
        // No alert is about routes that nobody uses, nor about a set that has nothing to do.
        let memory = last.desired.memory.unwrap();
        let figures = memory.figures.unwrap();
        assert!(figures.retiring && !memory.idle);
        assert_eq!((figures.missing, figures.missing_without_one), (None, None));
    }
}

#[test]
fn nothing_goes_before_no_route_has_depended_on_bgp_for_some_time() {
    let (mut set, mut stage) = retiring(true);
    let (words, last) = passes(&mut set, &mut stage, 89);
    assert!(words.is_empty(), "{words:?}");
    assert_eq!(condition(&last, "Ready").0, "Retiring");
    assert_eq!(condition(&last, "Converged").0, "WaitingForRoutes");
    assert!(last.status.plan[0].waiting_for.is_some());
    assert_eq!(last.period, PERIOD);
    // Nor where that is not published.
    set.status.as_mut().unwrap().mesh_before = None;
    let mut seen = observed(&set, &stage);
    seen.memory.witnessed = Some(ago(900));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), None);
    // Another process begins to count again.
    assert_eq!(
        plan(&set, &observed(&set, &stage)).unwrap().desired.memory.unwrap().witnessed,
        Some(now())
    );
}

/// What is not known is no reason to take anything away, nor to bring it back.
#[test]
fn what_is_not_known_takes_nothing_away() {
    let unknown = Routing { unknown: Some("list IPPools: no".into()), ..Routing::default() };
    for (routing, why) in [(unknown, "list IPPools: no"), (Routing::default(), "no IPPool")] {
        let (mut set, mut stage) = retiring(true);
        let routing = || routing.clone();
        stage.snapshot.routing = routing();
        let (words, last) = passes(&mut set, &mut stage, 90);
        assert!(words.is_empty(), "{words:?}");
        let ready = last.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        assert_eq!((ready.status, ready.reason), (None, "RoutesUnknown"));
        assert!(ready.message.contains(why), "{}", ready.message);
        assert_eq!(condition(&last, "Converged").0, "WaitingForRoutes");
        let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
        assert!(run.refused.is_some_and(|refused| refused.contains(why)));
        // Gone already.
        stage.snapshot.routing.unknown = None;
        stage.snapshot.routing.pools = vec![pool("pods", "Always")];
        assert_eq!(passes(&mut set, &mut stage, 90).0.len(), 4);
        stage.snapshot.routing = routing();
        assert_eq!(passes(&mut set, &mut stage, 90).0.len(), 0);
    }
}

#[test]
fn while_a_pool_needs_bgp_reflectors_stay_and_are_repaired() {
    let (mut set, mut stage) = retiring(false);
    stage.snapshot.routing.pools.push(pool("plain", ""));
    let (words, last) = passes(&mut set, &mut stage, 90);
    assert!(words.is_empty(), "{words:?}");
    let (reason, text) = condition(&last, "Ready");
    assert_eq!(reason, "PlanRefused");
    let why = "spec.mesh: Retire would lose routes: BIRD programs the routes of these IPPools: plain; what is in use";
    assert!(text.starts_with(why), "{text}");
    assert_eq!(condition(&last, "Converged").0, "PlanRefused");
    assert_eq!(condition(&last, "RoutesSafe").0, "Redundant");
    assert_eq!(last.notices[0].reason, "PlanRefused");
    assert_eq!(last.status.slots.len(), 2);
    let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
    assert_eq!((run.refused.as_deref(), run.steps.len()), (Some(text), 0));
    stage.edit("n0", |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
    assert_eq!(word(&plan(&set, &observed(&set, &stage)).unwrap().desired), Some("Promote"));
}

#[test]
fn a_mesh_that_a_pool_needs_stays() {
    let mut set = set(&json!({"mesh": "Retire"}));
    let mut stage = mesh();
    stage.snapshot.routing.pools = vec![pool("plain", "Never")];
    let (words, last) = passes(&mut set, &mut stage, 90);
    assert!(words.is_empty(), "{words:?}");
    assert_eq!(condition(&last, "Ready").0, "PlanRefused");
    assert_eq!(condition(&last, "Ready").1.lines().count(), 1);
    let refused = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap_err();
    assert!(refused.to_string().contains("IPPools: plain"), "{refused}");
    stage.snapshot.routing.pools = vec![pool("pods", "CrossSubnet")];
    assert_eq!(passes(&mut set, &mut stage, 90).0, ["MeshOff"]);
}

#[test]
fn what_went_comes_back_when_a_pool_needs_bgp() {
    for mesh in [true, false] {
        let (mut set, mut stage) = retiring(mesh);
        passes(&mut set, &mut stage, 90);
        stage.snapshot.routing.pools.push(pool("plain", ""));
        // Without measurements, what brings routes back waits for none.
        let pass = plan(&set, &observed(&set, &stage)).unwrap();
        assert_eq!(condition(&pass, "Ready").0, "PlanRefused");
        let (step, _) = pass.desired.step.expect("a step");
        assert_eq!(step.word(), if mesh { "MeshOn" } else { "WritePeer" });
        set.status = Some(pass.status);
        stage.take(&step, (KEY, ""), "main");
        let after = plan(&set, &observed(&set, &stage)).unwrap();
        // It is restored once: what its owner does then is no concern of ours.
        let before = after.status.mesh_before.as_deref();
        assert_eq!(before, if mesh { None } else { Some("Off") });
        assert_eq!(word(&after.desired), if mesh { None } else { Some("Promote") });
    }
}

/// Racks are divided among their routers; a router that only some nodes know is another matter.
#[test]
fn what_is_of_other_owners_stays_and_is_named() {
    let theirs = |name: &str, selector: &str, ip: &str| CalicoPeer {
        name: name.into(),
        node_selector: Some(selector.into()),
        peer_ip: Some(ip.into()),
        ..CalicoPeer::default()
    };
    let (mut set, mut stage) = retiring(false);
    for node in ["n4", "n5"] {
        stage.edit(node, |speaker| {
            speaker.labels = texts(&[("rack", "b")]);
            if node == "n5" {
                speaker.labels = texts(&[(KEY, ""), ("rack", "b")]);
                let id = (crate::api::CLUSTER_ID_ANNOTATION, "244.0.0.1");
                speaker.calico = texts(&[("projectcalico.org/IPv4Address", "10.0.0.6/24"), id]);
            }
        });
    }
    stage.snapshot.peers.push(theirs("edge", "rack == 'b'", "192.0.2.1"));
    let refused = plan(&set, &observed(&set, &stage)).unwrap();
    let (reason, text) = condition(&refused, "Ready");
    assert_eq!(reason, "PlanRefused");
    assert!(
        text.contains("(BGPPeers edge)") && text.contains(": n0, n1, n2 and 1 more;"),
        "{text}"
    );
    assert_eq!(condition(&refused, "RoutesSafe").0, "RoutesByFelix");
    assert!(refused.desired.memory.unwrap().idle);
    // The others have a router of their own.
    stage.snapshot.peers.push(theirs("other", "rack != 'b'", "192.0.2.2"));
    let (words, last) = passes(&mut set, &mut stage, 90);
    assert_eq!(words, ["DeletePeer", "Demote", "Demote"]);
    let text = condition(&last, "Ready").1;
    assert!(
        text.ends_with(
            "BGPPeers of other owners stay: edge, other; reflectors of other owners stay: n5"
        ),
        "{text}"
    );
    assert_eq!(stage.snapshot.peers.len(), 2);
    // A node of both racks.
    stage.snapshot.peers.push(theirs("both", "has(rack) || all()", "192.0.2.3"));
    assert_eq!(condition(&plan(&set, &observed(&set, &stage)).unwrap(), "Ready").0, "Retired");
    stage.edit("n0", |speaker| speaker.labels = texts(&[("edge", "")]));
    stage.snapshot.peers.push(theirs("far", "has(edge)", "192.0.2.4"));
    let text = condition(&plan(&set, &observed(&set, &stage)).unwrap(), "Ready").1.to_owned();
    assert!(text.contains(": n0;"), "{text}");
}
