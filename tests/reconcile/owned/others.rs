//! Nodes, pods and `StatefulSet`s of others: one or two fields of each, and nothing else.
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Pair, refused, stranger, without_the_guard_of_owners};
use crate::{
    bench::{Bench, run},
    network_prober::with,
};

const SLOT: &str = "route-reflectors.traffic.example.com/slot";

/// Metadata that the operator's account may not change on any foreign object.
fn metadata() -> Vec<Value> {
    [json!({"finalizers": ["example.com/held"]}), json!({"ownerReferences": stranger()})]
        .map(|metadata| json!({"metadata": metadata}))
        .to_vec()
}

#[test]
fn of_a_node_everything_else_stays_as_it_was() {
    run(async |bench| {
        without_the_guard_of_owners(&bench, &[("", "nodes")], of_a_node(&bench)).await;
    });
}

async fn of_a_node(bench: &Bench) {
    let nodes = Pair::of(bench, "/v1/Node/nodes", None).await;
    let team = json!({"key": "team", "value": "a", "effect": "NoSchedule"});
    let theirs = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"taints": [team]}});
    nodes.recreate("node-1", &theirs).await;
    nodes.until_guarded("node-1", &json!({"spec": {"unschedulable": true}})).await;
    let nothing = "may change nothing of a node";
    let labels = "may change only node labels that end in";
    let annotation = "may change only the node annotation";
    for (field, value, text) in [
        ("labels", json!({"team": null}), labels),
        ("labels", json!({"team": "b"}), labels),
        ("labels", json!({"a.example.com/unfit": "true"}), labels),
        ("labels", json!({"calico-route-reflectors": ""}), labels),
        // Not even together with a slot, which the account may write.
        ("labels", json!({"rr": "", SLOT: "0"}), labels),
        ("annotations", json!({"a": "b"}), annotation),
        ("annotations", json!({"projectcalico.org/IPv4Address": "10.0.0.9/24"}), annotation),
    ] {
        let patch = json!({"metadata": {field: value}});
        refused(nodes.patch("node-1", &patch).await, &patch, text);
    }
    for (spec, text) in [
        (json!({"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}), nothing),
        (json!({"providerID": "cloud://elsewhere"}), nothing),
        (json!({"unschedulable": true}), nothing),
        (json!({"taints": []}), "only node taints"),
        (
            json!({"taints": [with(team.clone(), &json!({"effect": "NoExecute"}))]}),
            "only node taints",
        ),
    ] {
        let patch = json!({ "spec": spec });
        refused(nodes.patch("node-1", &patch).await, &patch, text);
    }
    for patch in metadata() {
        refused(nodes.patch("node-1", &patch).await, &patch, nothing);
    }
    let key = "web.traffic.example.com/unfit";
    let label = json!({"metadata": {"labels": {key: "true"}}});
    nodes.patch("node-1", &label).await.expect("its own label");
    // Beside those that the controller of nodes may have added meanwhile: nobody renews this node.
    let ours = json!([{"op": "add", "path": "/spec/taints/-",
        "value": {"key": key, "value": "true", "effect": "NoSchedule"}}]);
    let ours = Patch::<()>::Json(serde_json::from_value(ours).expect("a patch"));
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    nodes.operator.patch("node-1", &params, &ours).await.expect("its own taint");
    for value in [Some("1"), Some("2"), None] {
        let labels = json!({"calico-route-reflector": value, SLOT: value,
            "route-reflectors.traffic.example.com/group": value});
        let id = json!({"projectcalico.org/RouteReflectorClusterID": value});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels, "annotations": id}}));
        let patched = nodes.operator.patch("node-1", &PatchParams::default(), &patch).await;
        patched.expect("a reflector's keys");
    }
    // Other users are not restricted.
    let other = Patch::Merge(json!({"metadata": {"labels": {"team": "c"}}}));
    nodes.admin.patch("node-1", &PatchParams::default(), &other).await.expect("others");
    // Existing entries of both stay, and the operator may write its own beside them.
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    nodes.recreate("node-1", &held).await;
    let none = json!({"metadata": {"finalizers": null}});
    refused(nodes.patch("node-1", &none).await, &none, nothing);
    let own = json!({"metadata": {"labels": {key: "true"}}});
    nodes.patch("node-1", &own).await.expect("its own");
    nodes.remove("node-1").await;
}

#[test]
fn of_a_pod_everything_else_stays_as_it_was() {
    run(async |bench| {
        without_the_guard_of_owners(&bench, &[("", "pods")], of_a_pod(&bench)).await;
    });
}

async fn of_a_pod(bench: &Bench) {
    let pods = Pair::of(bench, "/v1/Pod/pods", Some("default")).await;
    let pod = json!({"spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}], "nodeSelector": {"no": "where"}}});
    pods.recreate("guarded", &pod).await;
    pods.until_guarded("guarded", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    let more = [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"containers": [{"name": "c", "image": "other"}]}}),
        json!({"spec": {"activeDeadlineSeconds": 1}}),
    ];
    for patch in metadata().into_iter().chain(more) {
        refused(pods.patch("guarded", &patch).await, &patch, "may change nothing of a pod");
    }
    let other = json!({"metadata": {"annotations": {"other": "7"}}});
    refused(pods.patch("guarded", &other).await, &other, "may change only the annotation");
    let own = json!({"metadata": {"annotations": {"traffic.example.com/swarm-epoch": "7"}}});
    pods.patch("guarded", &own).await.expect("its own");
    pods.remove("guarded").await;
}

#[test]
fn of_a_stateful_set_everything_else_stays_as_it_was() {
    run(async |bench| {
        without_the_guard_of_owners(&bench, &[("apps", "statefulsets")], of_a_stateful_set(&bench))
            .await;
    });
}

async fn of_a_stateful_set(bench: &Bench) {
    let sets = Pair::of(bench, "apps/v1/StatefulSet/statefulsets", Some("default")).await;
    let set = json!({"spec": {
        "replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"app": "s"}},
        "template": {"metadata": {"labels": {"app": "s"}}, "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "config", "configMap": {"name": "m", "optional": true}},
                {"name": "secret", "secret": {"secretName": "s"}}],
        }},
    }});
    sets.recreate("guarded", &set).await;
    let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    sets.until_guarded("guarded", &json!({"spec": {"minReadySeconds": 9}})).await;
    let nothing = "may change nothing of a StatefulSet";
    let spec = [
        json!({"replicas": 9}),
        json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}),
        json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}),
        json!({"minReadySeconds": 9}),
        json!({"revisionHistoryLimit": 1}),
        json!({"ordinals": {"start": 7}}),
        json!({"template": {"metadata": {"annotations": {"a": "b"}}}}),
        json!({"template": {"metadata": {"labels": {"b": "c"}}}}),
    ]
    .map(|spec| json!({"spec": spec}));
    let pod = [
        json!({"securityContext": {"runAsUser": 0}}),
        json!({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["api.example.com"]}]}),
        json!({"nodeSelector": {"a": "b"}}),
        json!({"nodeName": "node-1"}),
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"affinity": {"nodeAffinity": {}}}),
        json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.9"]}}),
        json!({"automountServiceAccountToken": true}),
        json!({"shareProcessNamespace": true}),
        json!({"priorityClassName": "system-node-critical"}),
        json!({"runtimeClassName": "other"}),
        json!({"terminationGracePeriodSeconds": 0}),
        json!({"imagePullSecrets": [{"name": "x"}]}),
        json!({"serviceAccountName": "admin"}),
        json!({"hostNetwork": true}),
        json!({"initContainers": [{"name": "i", "image": "i"}]}),
        json!({"containers": [{"name": "c", "image": "i", "command": ["sh"]}]}),
    ]
    .map(template);
    let label = [json!({"metadata": {"labels": {"x": "y"}}})];
    for patch in metadata().into_iter().chain(label).chain(spec).chain(pod) {
        refused(sets.patch("guarded", &patch).await, &patch, nothing);
    }
    for volume in [
        json!({"name": "config", "configMap": {"name": "m", "defaultMode": 511}}),
        json!({"name": "config", "configMap": {"name": "m", "optional": false}}),
        json!({"name": "config", "configMap": {"items": [{"key": "a", "path": "b"}]}}),
        json!({"name": "config", "configMap": null, "secret": {"secretName": "admin"}}),
        json!({"name": "secret", "secret": {"secretName": "admin"}}),
        json!({"name": "secret", "secret": null, "configMap": {"name": "m"}}),
        json!({"name": "more", "configMap": {"name": "m"}}),
        json!({"name": "more", "emptyDir": {}}),
        json!({"name": "secret", "$patch": "delete"}),
    ] {
        let patch = template(json!({"volumes": [volume]}));
        refused(sets.patch("guarded", &patch).await, &patch, "only which ConfigMap a volume");
    }
    let own = template(json!({"volumes": [{"name": "config", "configMap": {"name": "m-7"}}]}));
    sets.patch("guarded", &own).await.expect("its own");
    sets.remove("guarded").await;
}
