#![expect(clippy::needless_pass_by_value, reason = "JSON literals are written in place")]
use std::sync::LazyLock;

use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::TrafficWatch,
    manifests::Account,
    prometheus::exporters::{Links, NODE_EXPORTER},
    text::plain,
};

mod measurement;

/// Returns the text without its colors.
fn text(checks: &[Check]) -> String {
    plain(&super::text(checks))
}

/// Generating it is slow without optimization.
static DEFINITION: LazyLock<CustomResourceDefinition> = LazyLock::new(TrafficWatch::crd);
static INSTALLED: LazyLock<CustomResourceDefinition> = LazyLock::new(|| installed(|_| {}));
static RIGHTS: LazyLock<Vec<Right>> = LazyLock::new(|| rights(Account::Controller, "ns"));
static WEBHOOKS_RIGHTS: LazyLock<Vec<Right>> = LazyLock::new(|| rights(Account::Webhook, "ns"));

fn node(name: &str, address: &str, labels: Value) -> NodeObject {
    let mut all = json!({"kubernetes.io/os": "linux"});
    all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": all},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]}
    }))
    .unwrap()
}

fn watch(name: &str, spec: Value, conditions: Value) -> TrafficWatch {
    let mut full = json!({"maxBandwidthPercent": "60"});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": full, "status": {"ready": true, "nodes": {}, "conditions": conditions}
    }))
    .unwrap()
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "said",
           "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn exporter(instance: &str) -> Exporter {
    let labels = [("job", "node-exporter"), ("instance", instance)];
    Exporter(labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into())
}

fn installed(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(&*DEFINITION).unwrap();
    crd["status"] = json!({"conditions": [{"type": "Established", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "x", "message": ""}]});
    change(&mut crd);
    serde_json::from_value(crd).unwrap()
}

/// Returns the facts of two nodes and one object without problems.
fn healthy() -> Facts {
    let good = json!([
        condition("Ready", "True", "Judged"),
        condition("MetricsAvailable", "True", "Available")
    ]);
    let both = || vec![exporter("10.0.0.1:9100"), exporter("node-2")];
    Facts {
        now: Timestamp::from_second(1_790_000_000).unwrap(),
        server: Ok("v1.33.1".into()),
        definitions: vec![(DEFINITION.clone(), Ok(Some(INSTALLED.clone())))],
        subject: Subject::As("system:serviceaccount:ns:op".into()),
        rights: RIGHTS.clone().into_iter().map(|right| (right, Ok(true))).collect(),
        leadership: Ok(Some(Leadership {
            holder: "operator-a".into(),
            renewed: Timestamp::from_second(1_789_999_998).ok(),
            seconds: Some(15),
            ..Leadership::default()
        })),
        deployment: Ok(Some((2, 2))),
        webhook: Some(WebhookProcess {
            deployment: Ok(Some((2, 2))),
            rights: WEBHOOKS_RIGHTS.clone().into_iter().map(|right| (right, Ok(true))).collect(),
        }),
        namespace: "ns".into(),
        nodes: Ok(vec![
            node("node-1", "10.0.0.1", json!({"web.traffic.example.com/unfit": "false"})),
            node("node-2", "10.0.0.2", json!({})),
        ]),
        watches: Ok(Listed { read: vec![watch("web", json!({}), good)], unreadable: vec![] }),
        device_classes: Ok(vec![("nic".into(), "example.com/nic".into())]),
        probing: None,
        streams: Streams::default(),
        routes: Routes::default(),
        exporters: Exporters {
            node_exporter: NODE_EXPORTER.parse().unwrap(),
            ..Exporters::any(&["node"])
        },
        endpoints: vec![Endpoint {
            name: "default".into(),
            url: "http://p:9090".into(),
            answers: Ok(()),
            links: Links { believed: NODE_EXPORTER.parse().unwrap(), ..Links::default() },
            exporters: Ok(both()),
            down: Ok(vec![]),
            other_jobs: Ok(vec![]),
            other_exporters: vec![],
            asked: vec![Asked {
                devices: "eth.*".into(),
                window: Duration::from_mins(2),
                watches: vec!["default/web".into()],
                samples: Ok(both().into_iter().map(|exporter| (exporter, 8.0)).collect()),
                speeds: Ok(both()),
                duplicates: Ok(Duplicates::default()),
                others: Ok(vec![]),
            }],
        }],
    }
}

#[test]
fn a_healthy_cluster_passes_every_check() {
    let checks = checks(&healthy());
    assert!(checks.iter().all(|check| check.verdict == CheckResult::Ok), "{}", text(&checks));
    let text = text(&checks);
    for expected in [
        "ok    api-server  reachable, v1.33.1",
        "may do all",
        "operator-a leads, renewed 2s ago",
        "job=node-exporter instance=10.0.0.1:9100 -> node-1 (by instance)",
        "all 2 nodes have series (default/web)",
        "at least 4 samples within 2m (default/web)",
        "all 1 are Ready and measured",
        "every device has one series (default/web)",
        "15 ok, 0 to look at, 0 failed",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

type Break = fn(&mut Facts);

/// A fault, the check that finds it, and the expected text.
type Case = (&'static str, CheckResult, Break, &'static [&'static str]);

fn found(cases: &[Case]) {
    for (name, verdict, break_it, expected) in cases {
        let mut facts = healthy();
        break_it(&mut facts);
        let found: Vec<_> = checks(&facts)
            .into_iter()
            .filter(|check| check.name == *name && check.verdict == *verdict)
            .collect();
        let text = text(&found);
        for expected in *expected {
            assert!(text.contains(expected), "{name}: {expected:?} is not in\n{text}");
        }
        assert!(found.iter().all(|check| check.fix.is_some()), "{text}");
    }
}

#[test]
fn what_is_wrong_with_the_cluster_is_found_with_its_fix() {
    use CheckResult::{Fail, Warn};
    found(&[
        (
            "api-server",
            Fail,
            |f| f.server = Err("connection refused".into()),
            &["not reachable: connection refused", "--kubeconfig"],
        ),
        (
            "definition",
            Fail,
            |f| f.definitions[0].1 = Ok(None),
            &["trafficwatches.traffic.example.com is not installed", "make install"],
        ),
        (
            "definition",
            Fail,
            |f| {
                f.definitions[0].1 = Ok(Some(installed(|crd| {
                    let fields =
                        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
                    let fields = crd.pointer_mut(fields).unwrap().as_object_mut().unwrap();
                    fields.remove("recoverPercent");
                    fields.insert("future".into(), json!({"type": "string"}));
                })));
            },
            &[
                "older than this binary: it lacks spec.recoverPercent",
                "kubectl apply -f deploy/crds",
            ],
        ),
        (
            "definition",
            Warn,
            |f| {
                f.definitions[0].1 = Ok(Some(installed(|crd| {
                    let fields =
                        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
                    crd.pointer_mut(fields).unwrap()["future"] = json!({"type": "string"});
                })));
            },
            &["newer than this binary: it also has spec.future"],
        ),
        (
            "definition",
            Fail,
            |f| {
                f.definitions[0].1 =
                    Ok(Some(installed(|crd| crd["spec"]["versions"][0]["served"] = false.into())));
            },
            &["does not serve v1alpha1"],
        ),
        (
            "rights",
            Fail,
            |f| f.rights[0].1 = Ok(false),
            &["op may not create events.events.k8s.io (1 of", "make deploy with the same OVERLAY="],
        ),
        (
            "rights",
            Warn,
            |f| {
                f.subject = Subject::Caller("jane".into());
                f.rights[0].1 = Ok(false);
            },
            &["jane (you) may not", "--as system:serviceaccount:ns:traffic-operator"],
        ),
        (
            "rights",
            Fail,
            |f| f.rights[3].1 = Err("no".into()),
            &["cannot be looked at", "impersonate"],
        ),
        ("deployment", Fail, |f| f.deployment = Ok(Some((0, 0))), &["scaled to 0", "--replicas 2"]),
        ("deployment", Warn, |f| f.deployment = Ok(Some((2, 1))), &["1 of 2", "describe pods"]),
        ("deployment", Fail, |f| f.deployment = Ok(Some((2, 0))), &["0 of 2"]),
        ("deployment", Warn, |f| f.deployment = Ok(None), &["no Deployment ns/traffic-operator"]),
        ("leader", Fail, |f| f.leadership = Ok(None), &["no pod leads", "logs"]),
        (
            "leader",
            Fail,
            |f| {
                let lease = f.leadership.as_mut().unwrap().as_mut().unwrap();
                lease.renewed = Timestamp::from_second(1_789_999_900).ok();
            },
            &["run out: renewed 1m 40s ago"],
        ),
    ]);
}

#[test]
fn what_is_wrong_with_the_webhooks_process_is_found_with_its_fix() {
    use CheckResult::{Fail, Warn};
    found(&[
        (
            "rights",
            Fail,
            |f| f.webhook.as_mut().unwrap().rights[0].1 = Ok(false),
            &[
                ":traffic-operator-webhook may not list networkprobers",
                "make deploy with the same OVERLAY=",
            ],
        ),
        (
            "deployment",
            Fail,
            |f| f.webhook.as_mut().unwrap().deployment = Ok(Some((0, 0))),
            &["ns/traffic-operator-webhook is scaled to 0", "deployment traffic-operator-webhook"],
        ),
        (
            "deployment",
            Warn,
            |f| f.webhook.as_mut().unwrap().deployment = Ok(None),
            &["no Deployment ns/traffic-operator-webhook", "--component=all"],
        ),
    ]);
    // Without the permission to review others, the check is left out.
    let mut facts = healthy();
    facts.webhook.as_mut().unwrap().rights[0].1 = Err("no".into());
    assert!(!text(&checks(&facts)).contains("the webhook does"));
}

#[test]
fn what_is_wrong_with_objects_and_labels_is_found_with_its_fix() {
    use CheckResult::{Fail, Warn};
    found(&[
        (
            "watches",
            Fail,
            |f| {
                let bad = json!([condition("Ready", "False", "InvalidSpec")]);
                f.watches.as_mut().unwrap().read = vec![watch("web", json!({}), bad)];
            },
            &["default/web: Ready=False InvalidSpec: said", "correct the field"],
        ),
        (
            "watches",
            Warn,
            |f| {
                let bad = json!([condition("Ready", "False", "Paused")]);
                f.watches.as_mut().unwrap().read = vec![watch("web", json!({}), bad)];
            },
            &["spec.paused: false"],
        ),
        (
            "watches",
            Fail,
            |f| f.watches.as_mut().unwrap().unreadable = vec![("a/b".into(), "bad".into())],
            &["a/b: its spec cannot be read: bad"],
        ),
        (
            "watches",
            Fail,
            |f| f.watches.as_mut().unwrap().read[0].status = None,
            &["has not looked at it"],
        ),
        (
            "reservation",
            Fail,
            |f| {
                let offer = json!({"reservation": {"resource": "example.com/nic"}});
                f.watches.as_mut().unwrap().read[0] = watch("web", offer, json!([]));
            },
            &["DeviceClass nic has the extendedResourceName example.com/nic", "default/web"],
        ),
        (
            "labels",
            Fail,
            |f| {
                let good = json!([condition("Ready", "True", "Judged")]);
                let other = watch("x", json!({"label": "web"}), good);
                f.watches.as_mut().unwrap().read.push(other);
            },
            &[
                "default/x claims web.traffic.example.com/unfit, which belongs to the older default/web",
            ],
        ),
        (
            "labels",
            Warn,
            |f| {
                let old =
                    node("node-9", "10.0.0.9", json!({"old.traffic.example.com/unfit": "true"}));
                f.nodes.as_mut().unwrap().push(old);
            },
            &[
                "old.traffic.example.com/unfit is on 1 nodes (node-9)",
                "--all old.traffic.example.com/unfit-",
            ],
        ),
    ]);
}

#[test]
fn what_is_wrong_with_swarms_and_sets_is_found_with_its_fix() {
    use CheckResult::{Fail, Warn};
    found(&[
        (
            "swarms",
            Fail,
            |f| {
                let bad = json!([
                    condition("Ready", "False", "WorkerNotReady"),
                    condition("Converged", "False", "WorkerNotReady")
                ]);
                f.streams = streams(json!({}), bad, json!(7));
            },
            &["n/s: Ready=False WorkerNotReady: said", "SwarmOrphanStream.md#diagnosis"],
        ),
        (
            "swarms",
            Warn,
            |f| f.streams = streams(json!({}), placed(), Value::Null),
            &[
                "n/s: 1 of 1 workers have acknowledged no list at port 9090, path /internal/version: w-0",
                "set spec.refresh.port: no container of StatefulSet w declares 9090, but 8080",
            ],
        ),
        (
            "swarms",
            Warn,
            |f| {
                let port = json!({"refresh": {"port": 8080}});
                f.streams = streams(port, placed(), Value::Null);
            },
            &["admit port 8080 in the operator's NetworkPolicy, which admits 9090"],
        ),
        (
            "routes",
            Fail,
            |f| f.routes = routes(json!([condition("Ready", "False", "NoCandidates")])),
            &["r: Ready=False NoCandidates: said", "compare spec.candidates with"],
        ),
        ("routes", Fail, |f| f.routes = routes(json!([])), &["r has no status"]),
        (
            "routes",
            Fail,
            |f| f.routes = gated(0, &[]),
            &["has no series of bird_exporter", "spec.transition.gate: NodeStatus"],
        ),
        (
            "routes",
            Fail,
            |f| f.routes = gated(0, &["bird"]),
            &["another job (bird)", "--bird-exporter-selector 'job=\"bird\"'"],
        ),
    ]);
}

fn placed() -> Value {
    json!([condition("Ready", "True", "Placed"), condition("Converged", "True", "Converged")])
}

/// A `Swarm` of one worker, whose container declares port 8080.
fn streams(spec: Value, conditions: Value, loaded: Value) -> Streams {
    let mut all = json!({"workload": {"name": "w"}, "jobs": ["a"]});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let swarm = serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "n"}, "spec": all,
        "status": {
            "conditions": conditions, "summary": {"streams": 1, "workers": 1, "ready": 1},
            "workers": [{"name": "w-0", "streams": 1, "wanted": 7, "loaded": loaded}],
        },
    }));
    Streams { swarms: served(swarm.unwrap()), ports: [("n/s".to_owned(), vec![8080])].into() }
}

fn routes(conditions: Value) -> Routes {
    let set = json!({
        "metadata": {"name": "r"}, "spec": {}, "status": {"conditions": conditions},
    });
    Routes { sets: served(serde_json::from_value(set).unwrap()), ..Routes::default() }
}

/// A set whose gate finds these series.
fn gated(accepted: usize, other_jobs: &[&str]) -> Routes {
    let other_jobs = other_jobs.iter().map(|job| (*job).to_owned()).collect();
    let found = BirdExporters { accepted, other_jobs };
    let mut routes = routes(json!([condition("Ready", "True", "Planned")]));
    routes.exporters.insert("default".into(), Ok(found));
    routes
}

fn served<K>(object: K) -> Served<K> {
    Served { objects: Some(Ok(Listed { read: vec![object], unreadable: vec![] })) }
}

#[test]
fn objects_that_do_what_they_are_for_are_ok() {
    let mut facts = healthy();
    facts.routes = gated(3, &[]);
    let moving =
        json!([condition("Ready", "True", "Placed"), condition("Converged", "False", "Moving")]);
    for conditions in [moving, placed()] {
        facts.streams = streams(json!({}), conditions, json!(7));
        let text = text(&checks(&facts));
        assert!(text.contains("ok    swarms      n/s: 1 streams on 1 workers, 1 ready"), "{text}");
    }
    let text = text(&checks(&facts));
    assert!(text.contains("ok    routes      r: 0 of 0 reflectors"), "{text}");
    assert!(text.contains("ok    routes      r: Prometheus default has series of 3"), "{text}");
    // No step of one that retires waits for sessions.
    facts.routes = gated(0, &[]);
    let Some(Ok(listed)) = &mut facts.routes.sets.objects else { panic!("listed") };
    listed.read[0].spec.mesh = crate::api::route_reflector_set::Mesh::Retire;
    let text = self::text(&checks(&facts));
    assert!(text.contains("are ready, topology none, mesh: Retire"), "{text}");
    assert!(!text.contains("bird_exporter"), "{text}");
}
