#![expect(clippy::needless_pass_by_value, reason = "JSON literals are written in place")]
use serde_json::{Value, json};

use super::*;

fn watch(name: &str, spec: Value, status: Value) -> TrafficWatch {
    let mut full = json!({"maxBandwidthPercent": "60"});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"}, "spec": full, "status": status
    }))
    .unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

fn status() -> Value {
    let node = |percent: &str, unfit: bool, state: &str| {
        json!({
            "currentBandwidthPercent": percent, "currentTransmitTotal": 5, "time": 1_790_000_690,
            "unfit": unfit, "state": state, "device": "eth0", "since": "2026-09-21T14:13:20Z",
        })
    };
    json!({
        "ready": true,
        "summary": {"nodes": 4, "fit": 1, "unfit": 2, "unknown": 0, "suppressed": 1},
        "nodes": {
            "node-1": node("9e+01", true, "Unfit"), "node-2": node("7.15e+01", false, "Suppressed"),
            "node-3": node("8e+01", true, "Unfit"), "node-4": node("1e+01", false, "Fit"),
        },
        "conditions": [],
    })
}

/// Returns the leader's view of `node-2`, requested for one node.
fn view(node: Value) -> Overview {
    let mut full = json!({
        "name": "node-2", "state": "Unfit", "reason": null, "since": "2026-09-21T14:13:20Z",
        "unfit": true, "ageSeconds": 4.2,
        "values": [{
            "measure": "bandwidth", "value": 71.5, "device": "eth0", "unfit": true, "streak": 0,
            "needed": 2, "reason": null
        }]
    });
    full.as_object_mut().unwrap().extend(node.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "leader": true, "identity": "operator-a", "version": "0.1.0", "now": "2026-09-21T14:25:24Z",
        "started": "2026-09-21T10:00:00Z",
        "watches": [{
            "namespace": "default", "name": "web", "label": "web.traffic.example.com/unfit",
            "mode": "Enforce", "intervalSeconds": 10.0,
            "summary": {"nodes": 4, "fit": 1, "unfit": 2, "unknown": 0, "suppressed": 1},
            "limit": 2, "room": 4, "lastSuccess": "2026-09-21T14:25:20Z",
            "measures": [{
                "name": "bandwidth", "unit": "percent", "max": 60.0, "recover": 54.0,
                "endpoint": "default", "query": "topk by (instance) (\n  1, x)", "problem": null
            }],
            "nodes": [full], "nodesTruncated": false, "transitions": []
        }]
    }))
    .unwrap()
}

fn facts(label: Option<&str>, watches: Vec<TrafficWatch>, live: Result<Overview, String>) -> Facts {
    let mut labels = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
    if let Some(value) = label {
        labels.insert("web.traffic.example.com/unfit".into(), value.into());
    }
    let node = Node { name: "node-2".into(), labels, taints: vec![] };
    Facts { node, watches, unreadable: vec![], live, others: None, now: at(724) }
}

fn reported(facts: &Facts) -> String {
    crate::text::plain(&text(&explain(facts), true))
}

#[test]
fn an_unfit_node_in_the_leaders_words() {
    let watches = vec![watch("web", json!({}), status())];
    let text = reported(&facts(Some("true"), watches, Ok(view(json!({})))));
    assert_eq!(
        text,
        "\
node-2 is Unfit for default/web for 12m 4s (since 2026-09-21T14:13:20Z)
  bandwidth    71.5 % on eth0, above 60 %; sample 4 s old
  next         fit again with bandwidth at or below 54 % for 2 judgments in a row
  label        web.traffic.example.com/unfit=true, as it should be
  limit        2 of 4 nodes that can take pods may be unfit; marked: node-1 (90), node-3 (80); waiting: node-2 (71.5) \
(marked nodes keep their mark while unfit; then the worst come first)
  query        bandwidth (asked of default): topk by (instance) ( 1, x)

From the leader, operator-a (version 0.1.0), just now
"
    );
}

#[test]
fn what_a_node_offers_is_shown_with_its_sum() {
    let offers = |more: Value| {
        let mut reservation = json!({
            "resource": "example.com/mbps", "unit": 1e6, "limit": 9e8, "measured": 5e8,
            "requested": 200, "foreign": 3e8, "offered": 600, "overPromised": false
        });
        reservation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let watches = vec![watch("web", json!({}), status())];
        let text =
            reported(&facts(Some("true"), watches, Ok(view(json!({"reservation": reservation})))));
        let line = text.lines().find(|line| line.starts_with("  offers ")).unwrap();
        line.trim_start_matches("  offers").trim().to_owned()
    };
    assert_eq!(
        offers(json!({})),
        "600 example.com/mbps, 200 of it requested; limit 900 Mbit/s, measured 500 Mbit/s, of \
         which 300 Mbit/s is declared by no pod"
    );
    let none = json!({"limit": null, "measured": null, "foreign": null, "offered": null});
    assert_eq!(offers(none), "no example.com/mbps yet; no evidence now: it stays as it is");
    assert!(offers(json!({"overPromised": true})).contains("than the node may carry"));
}

/// A line for each state: a different view of the leader, and the text that must follow.
#[test]
fn every_state_says_which_change_would_end_it() {
    let value = |value: Value| {
        let mut full = json!({"measure": "bandwidth", "device": "eth0", "streak": 0, "needed": 2});
        full.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        json!([full])
    };
    for (node, label, expected) in [
        (
            json!({"state": "Suppressed", "reason": "LimitReached", "unfit": false}),
            Some("false"),
            &[
                "node-2 is Suppressed for default/web for 12m 4s",
                "as many nodes are unfit as may be",
                "marked unfit as soon as a marked node becomes fit",
                "unfit=false, as it should be",
            ][..],
        ),
        (
            json!({"state": "Fit", "unfit": false, "values": value(json!({
                "value": 71.5, "unfit": false, "streak": 1
            }))}),
            Some("false"),
            &["1 of 2 judgments in a row say unfit", "unfit with bandwidth above 60 % for 2 judg"],
        ),
        (
            json!({"state": "Fit", "unfit": false, "values": value(json!({
                "value": 58, "unfit": false
            }))}),
            Some("true"),
            &["between 54 % and 60 %: stays as it is", "unfit=true, but should be \"false\""],
        ),
        (
            json!({"values": value(json!({"value": 50, "unfit": true, "streak": 1}))}),
            None,
            &[
                "at or below 54 %; unfit above 60 %",
                "1 of 2 judgments in a row say fit",
                "is not on the node, but should be \"true\"",
            ],
        ),
        (
            json!({"state": "Unknown", "reason": "SpeedUnknown", "unfit": false, "ageSeconds": null,
                "values": value(json!({"unfit": null, "reason": "SpeedUnknown"}))}),
            None,
            &[
                "node-2 is Unknown to default/web for 12m 4s",
                "SpeedUnknown, there is traffic",
                "no value; unfit above 60 %; no evidence now: SpeedUnknown",
                "kubectl annotate node NAME traffic.example.com/capacity=10G",
                "none is wanted",
            ],
        ),
        (
            json!({"state": "Unknown", "reason": "NoSample", "unfit": true, "ageSeconds": null,
                "values": value(json!({"value": 71.5, "unfit": true, "reason": "NoSample"}))}),
            Some("true"),
            &[
                "last 71.5 % on eth0; unfit above 60 %; no evidence now: NoSample",
                "as it should be",
            ],
        ),
    ] {
        let watches = vec![watch("web", json!({}), status())];
        let text = reported(&facts(label, watches, Ok(view(node))));
        for expected in expected {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }
}

#[test]
fn without_the_leader_the_status_explains_and_says_why() {
    let watches = vec![watch("web", json!({}), status())];
    let text = reported(&facts(Some("false"), watches, Err("you may not get pods/proxy".into())));
    for expected in [
        "node-2 is Suppressed for default/web for 12m 4s (since 2026-09-21T14:13:20Z)",
        "71.5 % on eth0, above 60 %; taken 2026-09-21T14:24:50Z",
        "fit again with bandwidth at or below 54 % for 2 judgments in a row\n",
        "2 of 4 nodes that can take pods may be unfit; marked: node-1 (90), node-3 (80); waiting: node-2",
        "may be ten minutes old; the leader was not asked: you may not get pods/proxy",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn who_does_not_judge_the_node_says_why() {
    let zone = json!({"nodeSelector": {
        "matchLabels": {"zone": "a"},
        "matchExpressions": [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "gpu", "operator": "Exists"},
        ]
    }});
    let conflict = json!({"ready": false, "conditions": [{
        "type": "Ready", "status": "False", "reason": "Conflict", "lastTransitionTime":
        "2026-09-21T14:13:20Z", "message": "node label x belongs to the older TrafficWatch b/w"
    }]});
    let mut truncated = status();
    truncated["nodes"] = json!({});
    truncated["nodesTruncated"] = true.into();
    for (watch, expected) in [
        (
            watch("a", zone, status()),
            "spec.nodeSelector wants zone=a; the node has no such label; \
             spec.nodeSelector wants gpu Exists; the node has no such label",
        ),
        (watch("b", json!({}), json!(null)), "has not looked at this TrafficWatch yet"),
        (
            watch("c", json!({}), conflict),
            "Ready=False Conflict: node label x belongs to the older",
        ),
        (watch("d", json!({}), truncated), "the status lists only some of the nodes"),
    ] {
        let name = name_of(&watch);
        let text = reported(&facts(None, vec![watch], Err("x".into())));
        assert!(text.starts_with("node-2 is judged by no TrafficWatch\n"), "{text}");
        assert!(text.contains(expected) && text.contains(&name), "{expected:?} is not in\n{text}");
        assert!(text.contains("the leader was not asked: x"), "{text}");
    }
    let windows = facts(None, vec![watch("w", json!({}), json!(null))], Err("x".into()));
    let windows = Facts {
        node: Node {
            labels: [("kubernetes.io/os".to_owned(), "windows".to_owned())].into(),
            ..windows.node
        },
        unreadable: vec![("default/odd".into(), "unknown variant".into())],
        ..windows
    };
    let text = reported(&windows);
    assert!(text.contains("kubernetes.io/os is \"windows\""), "{text}");
    assert!(text.contains("default/odd  its spec cannot be read: unknown variant"), "{text}");
}

#[test]
fn an_observing_watch_wants_no_label() {
    let watches = vec![watch("web", json!({"mode": "Observe"}), status())];
    let explanation = explain(&facts(None, watches, Ok(view(json!({})))));
    let label = &explanation.judged_by[0].label;
    assert_eq!((label.wanted.as_deref(), label.agrees), (None, true));
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json.pointer("/judgedBy/0/measures/0/name"), Some(&json!("bandwidth")));
    assert_eq!(json.pointer("/source/from"), Some(&json!("leader")));
}

#[test]
fn close_names_are_suggested() {
    let names = ["node-1", "node-2", "gateway"].map(String::from);
    let text = no_such_node("node2", &names);
    assert!(text.contains("did you mean node-2"), "{text}");
    assert!(!text.contains("gateway"), "{text}");
    assert_eq!(
        no_such_node("zzz", &names),
        "there is no node \"zzz\"; the cluster has 3 nodes: kubectl get nodes"
    );
}
