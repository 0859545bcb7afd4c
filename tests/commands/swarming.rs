//! `plan swarm`, `explain stream` and `explain worker`, with a simulated API server and operator.
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{
    explaining::{ApiServer, refusal},
    program::Outcome,
};

const SWARMS: &str = "/apis/traffic.example.com/v1alpha1/namespaces/shop/swarms";
const ALL_SWARMS: &str = "/apis/traffic.example.com/v1alpha1/swarms";
const SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

fn list(kind: &str, version: &str, items: &[Value]) -> Value {
    json!({"apiVersion": version, "kind": format!("{kind}List"), "metadata": {}, "items": items})
}

fn swarm(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm",
        "metadata": {
            "name": name, "namespace": namespace, "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z"
        },
        "spec": spec,
        "status": {"epoch": 3, "workers": [
            {"name": "w-0", "streams": 2, "wanted": 3, "loaded": 3},
            {"name": "w-1", "streams": 2, "wanted": 3, "loaded": 3},
        ]},
    })
}

fn spec(jobs: &[&str]) -> Value {
    json!({"workload": {"name": "w"}, "jobs": jobs, "refresh": {"strategy": "HotReload"}})
}

/// Sets up two workers with two streams each.
fn cluster() -> ApiServer {
    let server = ApiServer::start();
    let served = swarm("shop", "s", &spec(&["a", "b", "c", "d"]));
    for path in [SWARMS, ALL_SWARMS] {
        let all = list("Swarm", "traffic.example.com/v1alpha1", std::slice::from_ref(&served));
        server.set(path, 200, all);
    }
    let set = json!({
        "metadata": {"name": "w", "namespace": "shop", "uid": "w", "generation": 1},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "w"}},
            "template": {"spec": {"containers": [], "volumes": [
                {"name": "config", "configMap": {"name": "w-config"}}
            ]}}
        },
        "status": {"observedGeneration": 1}
    });
    server.set(SETS, 200, list("StatefulSet", "apps/v1", &[set]));
    let pod = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                "labels": {"app": "w"}, "ownerReferences": [{"apiVersion": "apps/v1",
                    "kind": "StatefulSet", "name": "w", "uid": "w", "controller": true}]},
            "spec": {"nodeName": format!("node-{name}"), "containers": [{"name": "c"}],
                "volumes": [{"name": "config", "configMap": {"name": "w-config"}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "c", "state": {"running": {}}}]}
        })
    };
    server.set(PODS, 200, list("Pod", "v1", &[pod("w-0"), pod("w-1")]));
    let config = "workloads:\n  w-0:\n    jobs:\n    - a\n    - b\n    version: 3\n  w-1:\n    jobs:\n    \
                  - c\n    - d\n    version: 3\nversion: 3\n";
    // Its owner created it, and not the operator: its history is unknown.
    let map = json!({
        "metadata": {"name": "w-config", "namespace": "shop", "resourceVersion": "7",
            "annotations": {"traffic.example.com/swarm": "s"}},
        "data": {"config.yml": config}
    });
    server.set(MAPS, 200, list("ConfigMap", "v1", &[map]));
    let worker = |name: &str, jobs: &[&str]| {
        json!({"name": name, "node": format!("node-{name}"), "ready": true, "weight": 2.0, "wanted": 3,
            "loaded": 3, "jobs": jobs, "error": null, "refreshed": {"result": "evicted", "seconds": 61.5}})
    };
    let page = json!({
        "namespace": "shop", "name": "s", "version": "0.1.0", "epoch": 3,
        "streams": {"owned": 4, "releasing": 0, "free": 0, "unassigned": 0},
        "workers": [worker("w-0", &["a", "b"]), worker("w-1", &["c", "d"])],
        "duplicates": [], "loadRatio": 1.0, "releasing": [], "free": [], "unassigned": []
    });
    server.set("/swarms/shop/s", 200, page);
    server
}

/// Writes a file with a document of kind Swarm.
fn file(name: &str, namespace: Option<&str>, spec: &Value) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.swarm.json"));
    let mut object = swarm("shop", "s", spec);
    object.as_object_mut().expect("object").remove("status");
    object["metadata"] = json!({"name": "s", "namespace": namespace});
    std::fs::write(&path, object.to_string()).expect("file");
    path
}

fn plan(server: &ApiServer, name: &str, spec: &Value, more: &[&str]) -> Outcome {
    let path = file(name, Some("shop"), spec);
    let what = ["plan", "swarm", "-f", path.to_str().expect("path")];
    server.run(name, &[&what, more].concat())
}

fn expect(outcome: &Outcome, all: &[&str]) {
    for expected in all {
        let (out, err) = (&outcome.out, &outcome.err);
        let said = out.contains(expected) || err.contains(expected);
        assert!(said, "{expected} is not in\n{out}\n{err}");
    }
}

#[test]
fn a_swarm_is_planned_by_reading_only() {
    let server = cluster();
    let url = server.url.clone();
    let pinned = json!({
        "workload": {"name": "w"}, "refresh": {"strategy": "HotReload"},
        "streams": [{"id": "a"}, {"id": "b", "pin": "w-1"}, {"id": "c"}, {"id": "e"}]
    });
    let outcome = plan(&server, "planned", &pinned, &["--operator-url", &url]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect(
        &outcome,
        &[
            "Swarm shop/s: 4 streams, StatefulSet w",
            "HistoryUnknown",
            "b       w-0   w-1  moved    it is pinned to w-1",
            "d       w-1   -    removed  it is not in the spec",
            "e       -     w-0  added    nobody has it",
            "w-0     node-w-0  2    2     +1 -1   reloaded",
            "reloaded: w-0, w-1\n",
        ],
    );
    let asked = server.asked();
    assert!(asked.iter().all(|(method, _)| method == "GET"), "{asked:?}");
    assert!(!asked.iter().any(|(_, at)| at.contains("watch=")), "{asked:?}");
    let outcome = plan(&server, "planned-json", &pinned, &["--operator-url", &url, "-o", "json"]);
    let json: Value = serde_json::from_str(&outcome.out).expect("JSON");
    assert_eq!(json[0]["moves"][0]["reason"], "moved");
    assert_eq!(json[0]["stay"], 2);
    assert_eq!(json[0]["after"]["owned"], 4);
}

#[test]
fn where_no_operator_answers_the_plan_reports_it() {
    let outcome = plan(&cluster(), "unheard", &spec(&["a", "b", "c", "d"]), &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect(&outcome, &["No stream moves", "is from the status", "the operator was not asked"]);
}

#[test]
fn what_keeps_a_plan_from_being_made_is_named() {
    let server = cluster();
    let jobs = spec(&["a"]);
    let of = |name: &str, args: &[&str]| server.run(name, &[&["plan", "swarm"], args].concat());
    let missing = of("missing", &["-f", "/nonexistent.yaml"]);
    assert_eq!(missing.code, Some(1));
    expect(&missing, &["error: /nonexistent.yaml: No such file or directory"]);
    let wrong = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.swarm.yaml");
    std::fs::write(&wrong, "apiVersion: v1\nkind: Pod\n").expect("file");
    let wrong = of("wrong", &["-f", wrong.to_str().expect("path")]);
    assert_eq!(wrong.code, Some(1));
    expect(&wrong, &["there is no document of kind Swarm, but Pod"]);
    let mut misspelled = jobs.clone();
    misspelled["jobz"] = json!(["a"]);
    for (name, spec, more, expected) in [
        ("misspelled", &misspelled, &[][..], "spec.jobz: unknown field"),
        (
            "elsewhere",
            &jobs,
            &["-n", "other"],
            "metadata.namespace: \"shop\" is not that of --namespace: \"other\"",
        ),
        (
            "from",
            &json!({"workload": {"name": "w"}, "streamsFrom": {"configMapKeyRef": {"name": "w-config"}}}),
            &[],
            "Ready=False InvalidSpec: spec.streamsFrom: ConfigMap shop/w-config is the one",
        ),
    ] {
        let outcome = plan(&server, name, spec, more);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        expect(&outcome, &[expected]);
    }
    // That namespace is empty.
    server.set(SETS, 200, list("StatefulSet", "apps/v1", &[]));
    expect(&plan(&server, "unknown", &jobs, &[]), &["Swarm shop/s: there is no namespace shop"]);
    let there = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.set("/api/v1/namespaces/shop", 200, there);
    let outcome = plan(&server, "no-workload", &jobs, &[]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    expect(&outcome, &["Ready=False WorkloadNotFound: there is no StatefulSet w"]);
}

#[test]
fn the_right_that_is_missing_is_named() {
    for (i, (path, what)) in
        [(SWARMS, "swarms"), (SETS, "statefulsets"), (PODS, "pods"), (MAPS, "configmaps")]
            .into_iter()
            .enumerate()
    {
        let server = cluster();
        let message = format!("{what} is forbidden: User \"jane\" cannot list resource \"{what}\"");
        server.set(path, 403, refusal(403, "Forbidden", &message));
        let outcome = plan(&server, &format!("forbidden-{i}"), &spec(&["a"]), &[]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        expect(&outcome, &["error: Swarm shop/s: list ", &message]);
    }
    let server = cluster();
    server.set(ALL_SWARMS, 403, refusal(403, "Forbidden", "swarms is forbidden"));
    let outcome = server.explain_what("forbidden-stream", &["stream", "a"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    expect(&outcome, &["error: explain stream a: list Swarms: swarms is forbidden"]);
}

#[test]
fn streams_and_workers_are_explained_by_the_operator() {
    let server = cluster();
    let url = server.url.clone();
    let outcome = server.explain_what("stream", &["stream", "a", "--operator-url", &url]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect(
        &outcome,
        &[
            "stream \"a\" of shop/s is with w-0",
            "its worker's list last changed at version 3",
            "w-0 has acknowledged version 3: it runs this list",
            "w-0 was evicted 1m 1s ago",
            "(version 0.1.0)",
        ],
    );
    let outcome = server.explain_what("worker", &["worker", "w-1", "--operator-url", &url]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect(&outcome, &["worker w-1 of shop/s on node-w-1: ready, 2 streams", "streams      c, d"]);
    let json = ["worker", "w-1", "--operator-url", &url, "-o", "json"];
    let json = server.explain_what("worker-json", &json);
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&json["loaded"], &json["streams"]), (&json!(3), &json!(["c", "d"])));
    let served = swarm("shop", "s", &spec(&["a", "b", "c", "d"]));
    server.set(&format!("{SWARMS}/s"), 200, served);
    let of = ["swarm", "s", "-n", "shop", "--operator-url", &url];
    let outcome = server.explain_what("swarm", &of);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect(
        &outcome,
        &[
            "shop/s (StatefulSet w): 4 streams: 4 owned, 0 releasing",
            "w-0     node-w-0  True   2        2       3       3",
            "(version 0.1.0)",
        ],
    );
    let asked = server.asked();
    assert!(asked.iter().all(|(method, _)| method == "GET"), "{asked:?}");
    // Without the operator the command uses the file and the status.
    let outcome = server.explain_what("stream-alone", &["stream", "c", "-n", "shop"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect(
        &outcome,
        &["is with w-1", "acknowledged version 3", "the operator was not asked: no pod leads"],
    );
}

#[test]
fn an_id_that_several_swarms_have_is_asked_back() {
    let server = cluster();
    let other = swarm("shop", "t", &json!({"workload": {"name": "v"}, "jobs": ["a", "x"]}));
    let both = [swarm("shop", "s", &spec(&["a", "b", "c", "d"])), other];
    for path in [SWARMS, ALL_SWARMS] {
        server.set(path, 200, list("Swarm", "traffic.example.com/v1alpha1", &both));
    }
    for (name, what, expected) in [
        ("both", &["stream", "a"][..], "several Swarms have stream \"a\": shop/s, shop/t"),
        ("none", &["stream", "zzz"], "no Swarm has stream \"zzz\"; there are shop/s, shop/t"),
        ("unnamed", &["stream", "a", "--swarm", "u"], "there is no Swarm \"u\""),
        ("worker-none", &["worker", "y-0"], "no Swarm has worker \"y-0\""),
        (
            "worker-nine",
            &["worker", "w-9", "--swarm", "s"],
            "Swarm shop/s has no worker \"w-9\"; it has w-0",
        ),
    ] {
        let outcome = server.explain_what(name, what);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        expect(&outcome, &[expected]);
    }
    let outcome = server.explain_what("one", &["stream", "a", "--swarm", "s"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn a_swarm_that_you_may_not_read_does_not_hide_the_streams_of_others() {
    let server = cluster();
    let from = json!({"configMapKeyRef": {"name": "v-list"}});
    let theirs = swarm("theirs", "t", &json!({"workload": {"name": "v"}, "streamsFrom": from}));
    let both = [swarm("shop", "s", &spec(&["a", "b", "c", "d"])), theirs];
    server.set(ALL_SWARMS, 200, list("Swarm", "traffic.example.com/v1alpha1", &both));
    let message = "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\"";
    let refused = refusal(403, "Forbidden", message);
    server.set("/api/v1/namespaces/theirs/configmaps", 403, refused);
    let outcome = server.explain_what("unread", &["stream", "a"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let line = format!("in another Swarm too: theirs/t: list ConfigMaps: {message}\n");
    expect(&outcome, &["stream \"a\" of shop/s is with w-0", &line]);
    // A stream that is nowhere else may be there.
    let outcome = server.explain_what("unread-none", &["stream", "x"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    expect(&outcome, &["error: explain stream x: list ConfigMaps: ", message]);
}
