#![expect(clippy::needless_pass_by_value, reason = "JSON literals are written in place")]
use serde_json::{Value, json};

use super::{pod::PodFacts, *};
use crate::{
    network_prober::{
        measurement::{AgentFigures, NodeFigures, PathFigures, Silent, Traced},
        overview::{Overview, PeerView, PodView},
        scope::NamespaceFacts,
    },
    text::{Tone, plain},
};

fn prober(namespace: &str, spec: Value, status: Value) -> NetworkProber {
    let mut full = json!({"podSelector": {"matchLabels": {"app": "web"}}});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "mesh", "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": full, "status": status,
    }))
    .unwrap()
}

fn status() -> Value {
    json!({"selected": 6, "injected": 4, "needRestart": 1, "notInjected": [
        {"reason": "HostNetwork", "count": 1}, {"reason": "SharedProcesses", "count": 1}],
        "conditions": [{"type": "Covered", "status": "False", "reason": "NotInjected",
            "message": "two", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

fn figures() -> Measurement {
    let node = |name: &str, loss: f64| NodeFigures {
        node: name.into(),
        zone: "a".into(),
        loss: Some(loss),
        p99: Some(0.002),
        bad: loss > 0.05,
    };
    let (x, o) = (Some(0.2), Some(0.0));
    let path = |from: &str, to: &str, blame| PathFigures {
        from: from.into(),
        to: to.into(),
        loss: x,
        p99: Some(0.15),
        bad: true,
        blame,
        ..PathFigures::default()
    };
    Measurement {
        scraped: 4,
        lossy: 0.05,
        slow: 0.1,
        silent_agents: 1,
        silent: vec![Silent { namespace: "shop".into(), pod: "web-4".into(), peers: 3 }],
        measured_nodes: 3,
        nodes: vec![node("node-1", 0.0), node("node-2", 0.2), node("node-3", 0.0)],
        loss: vec![vec![None, x, o], vec![x, None, x], vec![o, x, None]],
        p99: vec![vec![None; 3]; 3],
        worst: vec![path("node-1", "node-2", Blame::To), path("node-3", "node-1", Blame::Between)],
        traces: vec![Traced {
            at: 1_767_225_600.0,
            from: "node-1".into(),
            to: "node-2".into(),
            to_ip: "10.0.0.2".into(),
            result: "lost".into(),
            hops: "10.1.0.1".into(),
            silent_hop: "2".into(),
        }],
        targets: vec![PhaseFigures {
            target: "pay".into(),
            phase: "tls".into(),
            seconds: Some(0.02),
            nodes: 3,
            bad_nodes: 2,
        }],
    }
}

fn measured(figures: Measurement) -> Measured {
    Measured { endpoint: "default".into(), problem: None, figures: Some(figures) }
}

fn facts() -> Facts {
    Facts {
        prober: prober("probing", json!({"namespaceSelector": {}}), status()),
        live: Err("it is away".into()),
        asked: Some(measured(figures())),
    }
}

#[test]
fn a_prober_in_trouble_says_what_and_what_next() {
    let colored = text(&explain(&facts()));
    for (tone, word) in [
        (Tone::Notable, "4 of 6 selected pods have an agent"),
        (Tone::Notable, "Covered=False NotInjected"),
        (Tone::Bad, "node-2"),
        (Tone::Bad, "what lies between"),
    ] {
        assert!(colored.contains(&tone.paint(word)), "{word} has no color in\n{colored}");
    }
    let text = plain(&colored);
    for expected in [
        "probing/mesh (mode Sidecar, HTTP every 10s): 4 of 6 selected pods have an agent\n",
        "  condition    Covered=False NotInjected: two\n",
        "  without      1 SharedProcesses: its containers share their processes",
        "  restart      1 pod with an agent of an earlier spec\n",
        "node-2  a     20 %  2 ms\n",
        "node-1  node-2  20 %  150 ms  node-2\n",
        "node-3  node-1  20 %  150 ms  what lies between\n",
        "shop/web-4  3\n",
        "node-1  node-2 (10.0.0.2)  10.1.0.1          packets reach 10.1.0.1, and nothing behind it answers",
        "pay     tls    20 ms  2 of 3 nodes\n",
        "  target pay fails or is slow in phase tls, from 2 of 3 nodes\n    try: docs/runbooks/",
        "  most paths of node-2 are bad\n    try: look at that node's link",
        "    try: explain pod -n shop web-4\n",
        "    try: restart them when it suits you: kubectl rollout restart\n",
        "the operator was not asked: it is away\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn what_is_missing_is_the_first_thing_to_look_at() {
    let next = |asked: Option<Measured>| {
        let facts = Facts { asked, ..facts() };
        explain(&facts)
            .next
            .first()
            .map(|advice| (advice.what.clone(), advice.next.clone()))
            .unwrap()
    };
    let (what, fix) = next(Some(measured(Measurement::default())));
    assert_eq!(what, "Prometheus scrapes none of the agents");
    assert!(fix.starts_with("kubectl -n probing get podmonitor mesh"), "{fix}");
    let scraped = Measurement { scraped: 4, ..Measurement::default() };
    let (what, fix) = next(Some(measured(scraped)));
    assert!(what.contains("no path is recorded"), "{what}");
    assert!(fix.contains("get prometheusrule mesh"), "{fix}");
    let problem = Some("refused".into());
    let broken = Measured { problem, figures: None, ..measured(Measurement::default()) };
    assert!(next(Some(broken)).0.contains("refused"));
    assert!(next(None).1.contains("--prometheus-url"));
}

#[test]
fn a_prober_without_trouble_has_nothing_next() {
    let healthy = json!({"selected": 2, "injected": 2, "conditions": []});
    let mut good = figures();
    good.scraped = 2;
    good.silent.clear();
    good.worst.clear();
    good.targets[0].bad_nodes = 0;
    good.nodes.iter_mut().for_each(|node| node.bad = false);
    let prober = prober("probing", json!({}), healthy);
    let facts = Facts { prober, asked: Some(measured(good)), ..facts() };
    assert_eq!(explain(&facts).next, []);
}

fn pod(change: impl FnOnce(&mut Value)) -> PodFacts {
    let mut pod = json!({
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "app"}]},
        "status": {"phase": "Running"}
    });
    change(&mut pod);
    PodFacts {
        pod: serde_json::from_value(pod.clone()).unwrap(),
        namespace: Ok(NamespaceFacts { name: "shop".into(), ..NamespaceFacts::default() }),
        probers: vec![prober("probing", json!({"namespaceSelector": {}}), json!({}))],
        unreadable: vec![],
        operator: "traffic-operator-system".into(),
        live: Err("it is away".into()),
        measured: None,
        agent: None,
    }
}

fn consent(facts: &mut PodFacts, allow: &str) {
    facts.namespace.as_mut().unwrap().allow = Some(allow.into());
}

type Change = fn(&mut Value);

#[test]
fn every_reason_to_have_no_agent_is_said_with_its_remedy() {
    let reason = |facts: &PodFacts| {
        let made = explain_pod(facts);
        assert_eq!(made.agent_of, None);
        let next = made.next[0].next.clone();
        (made.standpoints[0].reason.clone().unwrap_or_default(), next, plain(&pod_text(&made)))
    };
    let (word, next, text) = reason(&pod(|_| {}));
    assert_eq!(word, "NamespaceNotConsenting");
    assert_eq!(next, "kubectl annotate namespace shop probes.bigmikes.io/allow=probing/mesh");
    assert!(text.starts_with("shop/web-1 on node-1 has no agent\n"), "{text}");
    let cases: [(Change, &str); 6] = [
        (|_| {}, "CreatedBefore"),
        (|p| p["spec"]["hostNetwork"] = json!(true), "HostNetwork"),
        (|p| p["spec"]["shareProcessNamespace"] = json!(true), "SharedProcesses"),
        (|p| p["spec"]["containers"][0]["ports"] = json!([{"containerPort": 22080}]), "PortTaken"),
        (
            |p| p["metadata"]["annotations"] = json!({"probes.bigmikes.io/inject": "false"}),
            "OptedOut",
        ),
        (
            |p| p["metadata"]["annotations"] = json!({"probes.bigmikes.io/injected-by": "a/b"}),
            "OtherProber",
        ),
    ];
    for (change, expected) in cases {
        let mut facts = pod(change);
        consent(&mut facts, "probing/mesh");
        assert_eq!(reason(&facts).0, expected);
    }
}

#[test]
fn a_pod_that_nobody_selects_says_what_they_want() {
    let made = explain_pod(&pod(|p| p["metadata"]["labels"] = json!({"app": "db"})));
    assert_eq!(made.standpoints[0].because, "its podSelector wants app in (web)");
    assert_eq!(made.next[0].what, "no NetworkProber selects it");
    let mut elsewhere = pod(|_| {});
    elsewhere.probers = vec![prober("probing", json!({}), json!({}))];
    let made = explain_pod(&elsewhere);
    assert!(made.standpoints[0].because.contains("namespaceSelector"), "{made:?}");
}

/// Only the operator knows the image that the consent refers to.
#[test]
fn consent_to_another_image_is_no_consent() {
    let digest = "a1".repeat(32);
    let mut facts = pod(|_| {});
    consent(&mut facts, &format!("probing/mesh@sha256:{digest}"));
    let made = explain_pod(&facts);
    assert_eq!(made.standpoints[0].reason.as_deref(), Some("NamespaceNotConsenting"));
    let image = format!("registry.invalid/agent@sha256:{digest}");
    let spec = json!({"namespaceSelector": {}, "agentImage": image});
    facts.probers = vec![prober("probing", spec, json!({}))];
    let made = explain_pod(&facts);
    assert_eq!(made.standpoints[0].reason.as_deref(), Some("CreatedBefore"));
}

fn with_agent() -> PodFacts {
    let agent = json!({"name": "net-prober", "restartPolicy": "Always", "ports": [
        {"name": "np-ping", "containerPort": 8080}, {"name": "np-prometheus", "containerPort": 2112}]});
    let mut facts = pod(|p| {
        p["spec"]["initContainers"] = json!([agent]);
        p["metadata"]["annotations"] = json!({"probes.bigmikes.io/injected-by": "probing/mesh"});
        p["status"]["initContainerStatuses"] =
            json!([{"name": "net-prober", "state": {"running": {}}}]);
    });
    consent(&mut facts, "*");
    let peer = PeerView {
        namespace: "shop".into(),
        name: "web-2".into(),
        node: "node-2".into(),
        zone: "a".into(),
    };
    let overview = Overview {
        identity: "op-1".into(),
        version: "0.1.0".into(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        synced: true,
        probers: vec![],
    };
    let agent = AgentFigures { list_age: Some(4.0), peers: Some(1), ..AgentFigures::default() };
    let view = PodView {
        prober: Some("probing/mesh".into()),
        takes_part: true,
        peers: vec![peer],
        agent: Some(agent),
        problem: None,
    };
    facts.live = Ok((overview, view));
    facts.measured = Some(measured(figures()));
    facts
}

#[test]
fn a_bad_path_is_blamed_on_its_bad_end() {
    let made = explain_pod(&with_agent());
    let colored = pod_text(&made);
    for word in ["has an agent of probing/mesh", "yes: it probes and is probed"] {
        assert!(colored.contains(&Tone::Good.paint(word)), "{word} has no color in\n{colored}");
    }
    let text = plain(&colored);
    for expected in [
        "shop/web-1 on node-1 has an agent of probing/mesh\n",
        "  takes part   yes: it probes and is probed\n",
        "  probes       1 pod on 1 nodes: node-2 1\n",
        "  list         confirmed 4 s ago, 1 peers\n",
        "node-1  node-2  20 %  -    node-2\n",
        "to blame: node-2\n    try: explain prober -n probing mesh\n",
        "its agent is silent: it has 1 peers and has probed none of them\n",
        "From the operator, op-1 (version 0.1.0), just now\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    // The pod on the bad node itself.
    let mut on_it = with_agent();
    let mut pod = on_it.pod.clone();
    pod = {
        let mut value = json!({"metadata": {}, "spec": {"nodeName": "node-2", "containers": []}});
        value["metadata"] = serde_json::to_value(&pod.metadata).unwrap();
        serde_json::from_value(value).unwrap()
    };
    on_it.pod = pod;
    let paths = explain_pod(&on_it).paths;
    assert!(paths.iter().all(|path| path.to_blame() == "node-2"), "{paths:?}");
}

#[test]
fn an_old_list_and_an_agent_that_is_not_scraped_are_named() {
    let next = |agent: AgentFigures| {
        let mut facts = with_agent();
        facts.agent = Some(Ok(agent));
        explain_pod(&facts).next[0].what.clone()
    };
    assert_eq!(next(AgentFigures::default()), "Prometheus does not scrape its agent");
    let old = AgentFigures { list_age: Some(700.0), ..AgentFigures::default() };
    assert!(next(old).starts_with("its list was confirmed 700 s ago"));
    let mut waiting = with_agent();
    let mut status =
        json!([{"name": "net-prober", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    let value = json!({"metadata": serde_json::to_value(&waiting.pod.metadata).unwrap(),
        "spec": {"containers": [{"name": "net-prober", "ports": [{"name": "np-ping", "containerPort": 8080}]}]},
        "status": {"containerStatuses": status.take()}});
    waiting.pod = serde_json::from_value(value).unwrap();
    let made = explain_pod(&waiting);
    assert_eq!(made.next[0].what, "its agent does not run: ImagePullBackOff");
}
