//! Tables of which objects need attention, and the whole report as text.
use serde_json::json;

use super::{gather::Reported, *};
use crate::{
    api::{
        KINDS, KindInfo, NetworkProber, NetworkProberStatus, RouteReflectorSet, Swarm, SwarmStatus,
        TrafficWatch, network_prober::NotInjected, swarm::Summary,
    },
    text::{Tone, plain},
};

fn condition(text: &str) -> Condition {
    let words: Vec<_> = text.splitn(4, ' ').collect();
    serde_json::from_value(json!({
        "type": words[0], "status": words[1], "reason": words[2],
        "message": words.get(3).unwrap_or(&""), "lastTransitionTime": "2026-01-01T00:00:00Z"
    }))
    .unwrap()
}

fn object(conditions: &[&str]) -> Object {
    Object {
        namespace: Some("shop".into()),
        name: "web".into(),
        generation: Some(2),
        observed: Some(2),
        conditions: conditions.iter().map(|text| condition(text)).collect(),
        ..Object::default()
    }
}

fn facts(kinds: Vec<KindFacts>) -> Facts {
    let at = |seconds| Timestamp::from_second(seconds).ok();
    Facts {
        now: at(1_790_000_000).unwrap(),
        lease: "system/operator".into(),
        leadership: Ok(Some(Leadership {
            holder: "op-1".into(),
            since: at(1_789_996_400),
            renewed: at(1_789_999_998),
            seconds: Some(15),
        })),
        image: Some("registry/operator:1.2.3".into()),
        kinds,
    }
}

fn of<K: Reported>(objects: Vec<Object>) -> KindFacts {
    KindFacts {
        kind: K::kind(&()).into_owned(),
        command: K::COMMAND,
        columns: K::COLUMNS,
        objects: Ok(objects),
    }
}

#[test]
fn what_needs_attention_and_the_reason_that_sums_it_up() {
    for (conditions, reason, problems) in [
        (&["Ready True Judged", "PlacementLimited False WithinLimits"][..], "Judged", 0),
        (&["Ready True Judged", "PlacementLimited True LimitReached m"], "LimitReached", 1),
        (&["Ready False Judging m", "MetricsAvailable False LowCoverage m"], "Judging", 2),
        (&["Ready True Judged", "MetricsAvailable False Unauthorized m"], "Unauthorized", 1),
        (&["Ready False Paused m", "MetricsAvailable False Unauthorized m"], "Paused", 0),
        (&["Ready True Placed", "Converged False Moving m"], "Moving", 0),
        (&["Ready True Placed", "Converged False RefreshTimeout m"], "RefreshTimeout", 1),
        (&["Ready True NotMounted m", "Converged True Converged"], "NotMounted", 1),
        (&["Ready True Planned", "Converged False WaitingForSessions m"], "WaitingForSessions", 0),
        (&["Ready True Planned", "RoutesSafe False NoRedundancy m"], "NoRedundancy", 1),
        (&["Ready Unknown Starting m"], "Starting", 1),
        (&["Ready True Serving", "Monitored False KindAbsent m"], "Serving", 0),
        (&["Ready True Serving", "Covered Unknown NoPods m"], "Serving", 0),
        (&["Ready True Serving", "Covered False NotInjected m"], "NotInjected", 1),
        (&[], "-", 1),
    ] {
        let (_, summary, found) = super::summary(&object(conditions));
        assert_eq!((summary.as_str(), found.len()), (reason, problems), "{conditions:?} {found:?}");
    }
    let old = Object { generation: Some(3), ..object(&["Ready True Judged"]) };
    let (_, _, found) = super::summary(&old);
    assert_eq!(found, ["its status is that of generation 2; the spec has generation 3"]);
    let noted = Object { notes: vec!["a note".into()], ..object(&["Ready True Judged"]) };
    assert_eq!(super::summary(&noted).2, ["a note"]);
}

#[test]
fn every_kind_is_in_the_report_with_a_figure_for_each_column() {
    fn check<K: Reported>(namespaced: bool) -> String {
        assert_eq!(K::figures(&K::Status::default()).len(), K::COLUMNS.len());
        assert_eq!(K::NAMESPACED, namespaced);
        K::kind(&()).into_owned()
    }
    let scopes: Vec<_> = KINDS.iter().map(|kind| (kind.crd)().spec.scope == "Namespaced").collect();
    let reported = [
        check::<TrafficWatch>(scopes[0]),
        check::<NetworkProber>(scopes[1]),
        check::<Swarm>(scopes[2]),
        check::<RouteReflectorSet>(scopes[3]),
    ];
    assert_eq!(reported.to_vec(), KINDS.iter().map(KindInfo::name).collect::<Vec<_>>());
}

#[test]
fn figures_are_those_of_the_status() {
    let watch: TrafficWatch = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "generation": 4},
        "spec": {"maxBandwidthPercent": "60"},
        "status": {"observedGeneration": 3, "max": "60 %",
            "summary": {"nodes": 5, "fit": 2, "unfit": 1, "unknown": 2, "suppressed": 0}}
    }))
    .unwrap();
    let read = gather::object(&watch);
    assert_eq!(json!(read.figures), json!([5, 2, 1, 2, 0, "60 %"]));
    assert_eq!((read.generation, read.observed), (Some(4), Some(3)));
    assert_eq!(read.notes, ["2 nodes have no evidence"]);
    let summary = Summary { free: 1, unassigned: 2, ready: 3, workers: 4, ..Summary::default() };
    let status = SwarmStatus { summary, ..SwarmStatus::default() };
    assert_eq!(json!(Swarm::figures(&status)), json!([0, 0, 0, 3, "3/4", 0]));
    let status = NetworkProberStatus {
        failing: 2,
        failing_reasons: vec![NotInjected { reason: "ErrImagePull".into(), count: 2 }],
        ..NetworkProberStatus::default()
    };
    assert_eq!(NetworkProber::notes(&status), ["2 agents cannot start: 2 ErrImagePull"]);
}

#[test]
fn the_screen_shows_everything_and_ends_with_what_needs_attention() {
    let good = Object { figures: vec![json!(3), json!(3)], ..object(&["Ready True Judged"]) };
    let bad = Object { name: "db".into(), ..object(&["Ready False Conflict it is taken"]) };
    let set = Object {
        namespace: None,
        name: "rrs".into(),
        figures: vec![json!("3/3"), json!("Zonal"), json!("Off"), Value::Null],
        ..object(&["Ready True Planned", "Converged True Converged"])
    };
    let unlisted = |kind: &str, why| KindFacts {
        kind: kind.into(),
        command: "x",
        columns: &[],
        objects: Err(why),
    };
    let watches = KindFacts { columns: &["nodes", "fit"], ..of::<TrafficWatch>(vec![bad, good]) };
    let facts = facts(vec![
        watches,
        unlisted("NetworkProber", Unread::NotInstalled),
        unlisted("Swarm", Unread::Forbidden("list: swarms is forbidden".into())),
        of::<RouteReflectorSet>(vec![set]),
    ]);
    let made = report(&facts);
    assert!(!made.healthy);
    let expected = "\
Operator: op-1 leads for 1h (since 2026-09-21T13:13:20Z), image registry/operator:1.2.3

TrafficWatch: 2
NAME      READY  REASON    NODES  FIT
shop/db   False  Conflict  -      -
shop/web  True   Judged    3      3

NetworkProber: the kind is not installed

Swarm: not shown: list: swarms is forbidden

RouteReflectorSet: 1
NAME  READY  REASON   REFLECTORS  TOPOLOGY  MESH  STEP
rrs   True   Planned  3/3         Zonal     Off   -

Needs attention
  TrafficWatch shop/db
    Ready=False Conflict: it is taken
    try: explain trafficwatch db -n shop
";
    assert_eq!(plain(&text(&made)), expected);
    // The color of the one that is not Ready.
    assert!(text(&made).contains(&Tone::Bad.paint("False")));
    assert!(text(&made).contains(&Tone::Good.paint("True")));
}

/// The first question on call: which node, why, since when, and for whom.
#[test]
fn the_nodes_that_are_not_fit_come_first_each_once_and_the_worst_on_top() {
    let at = |seconds: i64| Timestamp::from_second(1_790_000_000 - seconds).unwrap();
    let node = |state: &str, percent: &str, age: i64| {
        json!({"currentBandwidthPercent": percent, "currentTransmitTotal": 1, "unfit": state == "Unfit",
            "time": at(age).as_second(), "state": state, "reason": "Measured", "device": "eth0",
            "since": at(720).to_string()})
    };
    let watch = |name: &str, nodes: Value| {
        let watch: TrafficWatch = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "generation": 1},
            "spec": {"maxBandwidthPercent": "60"},
            "status": {"observedGeneration": 1, "nodes": nodes, "conditions": [
                condition("Ready True Judged")]},
        }))
        .unwrap();
        Object { figures: vec![], ..gather::object(&watch) }
    };
    let web = json!({
        "a": node("Fit", "1e+01", 5), "b": node("Suppressed", "7.02e+01", 5),
        "c": node("Unfit", "6.1e+01", 5), "d": node("Unfit", "9.04e+01", 400),
        "e": node("Unknown", "NaN", 5),
    });
    let db = json!({"b": node("Unfit", "7.02e+01", 5)});
    let kind =
        KindFacts { columns: &[], ..of::<TrafficWatch>(vec![watch("web", web), watch("db", db)]) };
    let made = report(&facts(vec![kind]));
    let shown = plain(&text(&made));
    let table = "\
Nodes that are not fit: 4
NODE  STATE    REASON    LOAD                        SINCE  TRAFFICWATCH
d     Unfit    Measured  90.4 % of eth0, 6m 40s ago  12m    shop/web
b     Unfit    Measured  70.2 % of eth0              12m    shop/db and 1 more
c     Unfit    Measured  61 % of eth0                12m    shop/web
e     Unknown  Measured  -                           12m    shop/web
";
    let second = shown.split_once("\n\n").unwrap().1;
    assert!(second.starts_with(table), "{shown}");
    let each = plain(&nodes_text(&made.nodes, made.now));
    assert!(each.contains("\nb     Suppressed  Measured  70.2 % of eth0 "), "{each}");
    let json = serde_json::to_value(&made).unwrap();
    assert_eq!(json["nodes"][1]["judged"][0]["trafficwatch"], "shop/db");
    assert_eq!(json["nodes"].as_array().unwrap().len(), 4);
}

/// Conditions carry messages of servers, and a status may hold any message.
#[test]
fn the_message_of_a_condition_stays_in_its_line_and_leaves_the_terminal_alone() {
    let message = "Ready False Conflict a\u{1b}[2Jb\nNothing needs attention\u{9b}1m";
    let made = report(&facts(vec![of::<TrafficWatch>(vec![object(&[message])])]));
    let shown = text(&made);
    let line =
        "    Ready=False Conflict: a\u{fffd}[2Jb Nothing needs attention\u{fffd}1m\n    try: ";
    assert!(shown.contains(line), "{shown:?}");
    // The two of the color of the column READY.
    let controls = shown.chars().filter(|c| c.is_control() && *c != '\n').count();
    assert_eq!(controls, 2, "{shown:?}");
}

#[test]
fn a_missing_leader_and_a_failed_request_need_attention_and_a_missing_right_does_not() {
    let unlisted = |why: Unread| KindFacts { objects: Err(why), ..of::<Swarm>(vec![]) };
    let forbidden = || Unread::Forbidden("no".into());
    let good = || of::<TrafficWatch>(vec![object(&["Ready True Judged"])]);
    let mut all = facts(vec![good(), unlisted(forbidden())]);
    assert!(report(&all).healthy);
    all.leadership = Err(forbidden());
    let made = report(&all);
    assert!(made.healthy);
    assert_eq!(made.operator.problem.as_deref(), Some("no"));
    all.leadership = Ok(None);
    let made = report(&all);
    assert!(!made.healthy);
    assert!(text(&made).starts_with("Operator: no pod leads: the Lease system/operator has no"));
    let mut expired = facts(vec![good()]);
    expired.now = Timestamp::from_second(1_790_001_000).unwrap();
    assert!(!report(&expired).healthy);
    assert!(!report(&facts(vec![good(), unlisted(Unread::Failed("timeout".into()))])).healthy);
    // Without a single list, the report is not healthy.
    assert!(!report(&facts(vec![unlisted(forbidden())])).healthy);
    assert!(!report(&facts(vec![unlisted(Unread::NotInstalled)])).healthy);
}
