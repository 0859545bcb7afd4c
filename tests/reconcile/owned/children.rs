//! The operator's objects carry its label and name their owner; the operator may write no others.
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use super::{Pair, owner, refused, stranger, without_the_guard_of_owners};
use crate::{
    authors::{self, Author, rule},
    bench::{ACCOUNT, Bench, eventually, run},
    network_prober::with,
    traffic_watch::judging,
};

const MANAGED: &str = "app.kubernetes.io/managed-by";

fn labeled(more: &Value) -> Value {
    with(json!({"metadata": {"labels": {MANAGED: "traffic-operator"}}}), more)
}

/// The marks of an object that belongs to a NetworkProber.
fn of_a_prober() -> Value {
    labeled(&json!({"metadata": {
        "labels": {"probes.bigmikes.io/owner-uid": "u"},
        "annotations": {"probes.bigmikes.io/owner": "default/guarded"},
    }}))
}

#[test]
fn deployments_without_their_trafficwatch_are_not_written() {
    run(async |bench| {
        let test = of_deployments(&bench);
        without_the_guard_of_owners(&bench, &[("apps", "deployments")], test).await;
    });
}

async fn of_deployments(bench: &Bench) {
    let all = Pair::of(bench, "apps/v1/Deployment/deployments", Some("default")).await;
    let spec = json!({"spec": judging::deployment()});
    all.recreate("guarded", &spec).await;
    all.until_guarded("guarded", &json!({"spec": {"replicas": 5}})).await;
    let owned = |by: Value| json!({"metadata": {"ownerReferences": [by]}});
    let watch = owner(bench, "TrafficWatch", "guarded").await;
    let ours = owned(watch.clone());
    let write = "may write only Deployments with its label";
    let mut dependent = watch.clone();
    dependent["controller"] = false.into();
    for marks in [
        json!({}),
        labeled(&json!({})),
        ours.clone(),
        labeled(&owned(with(watch.clone(), &json!({"name": "another"})))),
        labeled(&owned(with(watch.clone(), &json!({"kind": "Swarm"})))),
        labeled(&owned(dependent)),
        labeled(&json!({"metadata": {"ownerReferences": stranger()}})),
    ] {
        let body = with(spec.clone(), &marks);
        all.remove("guarded").await;
        refused(all.create("guarded", &body).await, &marks, write);
    }
    all.create("guarded", &with(spec.clone(), &labeled(&ours))).await.expect("its own");
    // Taking over an existing object is refused, too.
    all.recreate("guarded", &spec).await;
    let take = with(labeled(&ours), &json!({"spec": {"replicas": 5}}));
    let change = "may change only Deployments that the TrafficWatch of their name owns";
    refused(all.patch("guarded", &take).await, &take, change);
    // It may change its own; a label that another client has removed is restored.
    all.recreate("guarded", &with(spec, &ours)).await;
    all.patch("guarded", &take).await.expect("its own");
    let away = labeled(&json!({"metadata": {"ownerReferences": [
            {"$patch": "delete", "uid": watch["uid"]}]}}));
    refused(all.patch("guarded", &away).await, &away, write);
    all.remove("guarded").await;
}

/// With a stolen token: a Deployment with any service account of the system, or the users of a
/// cloud's cluster.
#[test]
fn nothing_is_written_in_namespaces_of_the_system() {
    run(async |bench| {
        let owned = |by: Value| json!({"metadata": {"ownerReferences": [by]}});
        let watch = owned(owner(&bench, "TrafficWatch", "guarded").await);
        let spec = with(json!({"spec": judging::deployment()}), &watch);
        let data = with(json!({"data": {"a": "b"}}), &of_a_prober());
        for (kind, body) in [
            ("apps/v1/Deployment/deployments", with(spec, &labeled(&json!({})))),
            ("/v1/ConfigMap/configmaps", data),
        ] {
            for namespace in ["kube-system", "kube-public"] {
                let all = Pair::of(&bench, kind, Some(namespace)).await;
                let created = all.create("guarded", &body).await;
                refused(created, &body, "in a namespace of the system");
            }
        }
    });
}

#[test]
fn configmaps_of_others_are_not_written() {
    run(async |bench| {
        let all = Pair::of(&bench, "/v1/ConfigMap/configmaps", Some("default")).await;
        let data = json!({"data": {"a": "b"}});
        all.recreate("guarded", &data).await;
        all.until_guarded("guarded", &json!({"data": {"a": "c"}})).await;
        let of_a_swarm = labeled(&json!({"metadata": {
            "labels": {"traffic.example.com/swarm-uid": "u"},
            "ownerReferences": [owner(&bench, "Swarm", "streams").await],
        }}));
        let write = "may write only ConfigMaps with its label";
        let change = "may change only ConfigMaps that a NetworkProber or a Swarm owns";
        for marks in [
            json!({}),
            labeled(&json!({})),
            labeled(&json!({"metadata": {"labels": {"probes.bigmikes.io/owner-uid": "u"}}})),
            labeled(&json!({"metadata": {"labels": {"traffic.example.com/swarm-uid": "u"}}})),
            with(of_a_swarm.clone(), &json!({"metadata": {"labels": {MANAGED: "helm"}}})),
            with(of_a_prober(), &json!({"metadata": {"labels": {MANAGED: null}}})),
        ] {
            refused(all.create("new", &with(data.clone(), &marks)).await, &marks, write);
        }
        for marks in [of_a_prober(), of_a_swarm.clone()] {
            all.create("new", &with(data.clone(), &marks)).await.expect("its own");
            let patch = with(marks.clone(), &json!({"data": {"a": "c"}}));
            refused(all.patch("guarded", &patch).await, &patch, change);
            refused(all.delete("guarded").await, &marks, change);
        }
        // Its own ConfigMap, and one that its owner has given to a Swarm.
        let given = json!({"metadata": {"annotations": {"traffic.example.com/swarm": "streams"}}});
        for (marks, then) in [
            (of_a_prober(), of_a_prober()),
            (of_a_swarm.clone(), of_a_swarm.clone()),
            (given, of_a_swarm),
        ] {
            all.recreate("guarded", &with(data.clone(), &marks)).await;
            let patch = with(then, &json!({"data": {"a": "c"}}));
            all.patch("guarded", &patch).await.unwrap_or_else(|e| panic!("{marks}: {e}"));
            all.delete("guarded").await.unwrap_or_else(|e| panic!("{marks}: {e}"));
            let away = json!({"metadata": {"labels": {MANAGED: null}}});
            refused(all.patch("guarded", &away).await, &away, write);
        }
        all.remove("guarded").await;
    });
}

fn daemon_set(owner: &Value) -> Value {
    json!({
        "metadata": {"ownerReferences": [owner]},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "i",
                    "securityContext": {"allowPrivilegeEscalation": false}}],
            }},
        },
    })
}

#[test]
fn daemon_sets_without_their_prober_or_with_rights_on_a_node_are_not_written() {
    run(async |bench| {
        let all = Pair::of(&bench, "apps/v1/DaemonSet/daemonsets", Some("default")).await;
        let owner = owner(&bench, "NetworkProber", "guarded").await;
        all.recreate("guarded", &daemon_set(&owner)).await;
        all.until_guarded("guarded", &json!({"spec": {"minReadySeconds": 5}})).await;
        let ours = with(of_a_prober(), &daemon_set(&owner));
        let take = with(of_a_prober(), &json!({"spec": {"minReadySeconds": 5}}));
        let mark = "with its label and the name of the NetworkProber";
        refused(all.patch("guarded", &take).await, &take, mark);
        refused(all.delete("guarded").await, &take, mark);
        all.remove("guarded").await;
        all.create("guarded", &ours).await.expect("its own");
        refused(all.create("guarded", &daemon_set(&owner)).await, &take, mark);
        let unowned = with(ours.clone(), &json!({"metadata": {"ownerReferences": null}}));
        refused(
            all.create("guarded", &unowned).await,
            &unowned,
            "that the NetworkProber of their name",
        );
        refused(all.create("another", &ours).await, &ours, "that the NetworkProber of their name");
        let container = |more: Value| {
            let safe = json!({"name": "c", "image": "i",
                "securityContext": {"allowPrivilegeEscalation": false}});
            json!({"containers": [with(safe, &more)]})
        };
        for pod in [
            json!({"hostNetwork": true}),
            json!({"hostPID": true}),
            json!({"hostIPC": true}),
            json!({"serviceAccountName": "admin"}),
            json!({"automountServiceAccountToken": true}),
            json!({"automountServiceAccountToken": null}),
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            json!({"initContainers": [{"name": "i", "image": "i",
                "securityContext": {"privileged": true}}]}),
            container(
                json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": null}}),
            ),
            container(json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})),
        ] {
            let body = with(ours.clone(), &json!({"spec": {"template": {"spec": pod}}}));
            refused(all.create("guarded", &body).await, &pod, "whose pods have no rights");
        }
        all.recreate("guarded", &ours).await;
        all.patch("guarded", &take).await.expect("its own");
        all.delete("guarded").await.expect("its own");
        // Additions by other clients do not keep the operator from its own fields.
        let host = json!({"spec": {"template": {"spec": {"hostNetwork": true,
            "volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}}}});
        all.recreate("guarded", &with(ours, &host)).await;
        all.patch("guarded", &take).await.expect("its own");
        let more = json!({"spec": {"template": {"spec": {
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}}});
        refused(all.patch("guarded", &more).await, &more, "whose pods have no rights");
        all.remove("guarded").await;
    });
}

#[test]
fn webhooks_of_others_are_not_written_and_its_own_see_only_creations_of_pods() {
    run(async |bench| {
        // With more rights than its role has, so that the policy stands alone.
        const NAME: &str = "operator-may-write-webhooks";
        let rules = [rule(GROUP, "mutatingwebhookconfigurations", &["create", "patch", "delete"])];
        authors::cluster_role(&bench, NAME, &rules).await;
        authors::bind_everywhere(&bench, NAME, ACCOUNT, NAME).await;
        Author::of(&bench, ACCOUNT).await.until_granted(&bench, &rules[0]).await;
        of_webhooks(&bench).await;
        let bindings = Api::<ClusterRoleBinding>::all(bench.client.clone());
        bindings.delete(NAME, &DeleteParams::default()).await.expect("delete the binding");
        bench.empty_webhooks().await;
    });
}

const GROUP: &str = "admissionregistration.k8s.io";

/// An entry of a NetworkProber, with a change.
fn webhook(change: &Value) -> Value {
    let webhook = json!({
        "name": "a.b.probes.bigmikes.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "traffic-operator-system",
            "name": "traffic-operator-webhook", "path": "/mutate/b/a"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
            "operations": ["CREATE"]}],
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In",
                "values": ["default"]}]},
    });
    with(webhook, change)
}

async fn of_webhooks(bench: &Bench) {
    let kind = format!("{GROUP}/v1/MutatingWebhookConfiguration/mutatingwebhookconfigurations");
    let all = Pair::of(bench, &kind, None).await;
    let object = "traffic-operator";
    let foreign = webhook(&json!({"name": "somebody.example.com",
        "objectSelector": {"matchLabels": {"no": "pod"}},
        "clientConfig": {"service": null, "url": "https://example.com/"}}));
    let entry = |change: Value| json!({"webhooks": [webhook(&change)]});
    all.recreate(object, &json!({"webhooks": [foreign]})).await;
    all.until_guarded(object, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    // Only this object, which the operator neither creates nor deletes.
    all.recreate("guarded", &json!({"webhooks": []})).await;
    let only = "only the MutatingWebhookConfiguration traffic-operator";
    refused(all.patch("guarded", &entry(json!({}))).await, &json!("another"), only);
    refused(all.create("new", &entry(json!({}))).await, &json!("create"), only);
    refused(all.delete(object).await, &json!("delete"), only);
    all.remove("guarded").await;
    // Only its own entries in it, and nothing of the metadata.
    let own = "only its own webhooks, whose names end in";
    for patch in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["example.com/held"]}}),
        json!({"metadata": {"ownerReferences": stranger()}}),
        json!({"webhooks": [{"name": "somebody.example.com", "$patch": "delete"}]}),
        json!({"webhooks": [{"name": "somebody.example.com", "timeoutSeconds": 1}]}),
        entry(json!({"name": "another.example.com"})),
        json!({"webhooks": null}),
    ] {
        refused(all.patch(object, &patch).await, &patch, own);
    }
    all.patch(object, &entry(json!({}))).await.expect("its own");
    let never = ["kube-node-lease", "kube-public", "kube-system", "traffic-operator-system"];
    let by_labels = json!({"namespaceSelector": {"matchExpressions": [
        {"key": "zone", "operator": "Exists"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never}]}});
    all.patch(object, &entry(by_labels)).await.expect("its own, by labels");
    let rule = |group: &str, resource: &str, operation: &str| {
        json!({"rules": [{"apiGroups": [group], "apiVersions": ["v1"],
            "resources": [resource], "operations": [operation]}]})
    };
    let namespaces = |operator: &str, values: Value| {
        json!({"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": operator, "values": values}]}})
    };
    let service = |namespace: &str, name: &str| {
        let service = json!({"namespace": namespace, "name": name});
        json!({"clientConfig": {"service": service}})
    };
    let (pods, named, own) = ("creations of pods", "that name namespaces", "its own Service");
    for (change, text) in [
        (rule("", "secrets", "CREATE"), pods),
        (rule("", "pods", "UPDATE"), pods),
        (rule("", "*", "CREATE"), pods),
        (rule("apps", "deployments", "CREATE"), pods),
        (json!({"namespaceSelector": null}), named),
        (namespaces("NotIn", json!(["default"])), named),
        (namespaces("NotIn", json!(&never[..3])), named),
        (namespaces("In", json!(["default", "kube-system"])), named),
        (namespaces("In", json!(["traffic-operator-system"])), named),
        (service("default", "traffic-operator-webhook"), own),
        (service("traffic-operator-system", "other"), own),
        (json!({"clientConfig": {"service": null, "url": "https://example.com/"}}), own),
    ] {
        refused(all.patch(object, &entry(change.clone())).await, &change, text);
    }
    // The operator may remove its own, even beside entries of others.
    all.recreate(object, &json!({"webhooks": [foreign, webhook(&json!({}))]})).await;
    let remove = json!({"webhooks": [{"name": "a.b.probes.bigmikes.io", "$patch": "delete"}]});
    all.patch(object, &remove).await.expect("its own");
}

/// The largest object that the operator writes: the cost of a policy grows with what it compares,
/// and the API server refuses a request that costs too much.
#[test]
fn the_policy_lets_a_full_object_through() {
    run(async |bench| {
        let kind = format!("{GROUP}/v1/MutatingWebhookConfiguration/mutatingwebhookconfigurations");
        let all = Pair::of(&bench, &kind, None).await;
        let authorities = "QUFB".repeat(700);
        let large = |number: usize, namespaces: usize| {
            let values: Vec<_> =
                (0..namespaces).map(|name| format!("n{number:02}{name:03x}")).collect();
            webhook(&json!({
                "name": format!("np-{number:03}.b.probes.bigmikes.io"),
                "clientConfig": {"caBundle": authorities},
                "namespaceSelector": {"matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": values}]},
            }))
        };
        let full: Vec<_> = (0..100).map(|number| large(number, 720)).collect();
        let bytes = json!(full).to_string().len();
        assert!((950_000..1_050_000).contains(&bytes), "{bytes}");
        let object = "traffic-operator";
        all.recreate(object, &json!({"webhooks": full})).await;
        all.until_guarded(object, &json!({"metadata": {"labels": {"a": "b"}}})).await;
        let one = json!({"webhooks": [large(50, 721)]});
        all.patch(object, &one).await.expect("one entry of many");
        bench.empty_webhooks().await;
    });
}

#[test]
fn of_secrets_the_account_writes_its_own_and_asks_for_no_token() {
    run(async |bench| {
        let namespace = Some("traffic-operator-system");
        let all = Pair::of(&bench, "/v1/Secret/secrets", namespace).await;
        let text = "may write only the Secret traffic-operator-webhook";
        let refusal = async || all.create("other", &json!({})).await.err();
        eventually("the policy to be in force", refusal).await;
        refused(all.create("other", &json!({})).await, &json!({}), text);
        let own = "traffic-operator-webhook";
        all.remove(own).await;
        let token = json!({"type": "kubernetes.io/service-account-token", "metadata": {
            "annotations": {"kubernetes.io/service-account.name": "default"}}});
        refused(all.create(own, &token).await, &token, text);
        let keys =
            json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "", "tls.key": ""}});
        all.create(own, &keys).await.expect("its own");
    });
}
