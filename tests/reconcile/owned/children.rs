//! What the operator owns carries its label and names its owner; what does not is not its to write.
use serde_json::{Value, json};

use super::{Pair, owner, refused, stranger, without_the_guard_of_owners};
use crate::{
    bench::{Bench, eventually, run},
    judging,
    probing::with,
};

const MANAGED: &str = "app.kubernetes.io/managed-by";

fn labelled(more: &Value) -> Value {
    with(json!({"metadata": {"labels": {MANAGED: "traffic-operator"}}}), more)
}

/// The marks of what belongs to a NetworkProber.
fn of_a_prober() -> Value {
    labelled(&json!({"metadata": {
        "labels": {"probes.bigmikes.io/owner-uid": "u"},
        "annotations": {"probes.bigmikes.io/owner": "default/guarded"},
    }}))
}

#[test]
fn s08_deployments_without_their_trafficwatch_are_not_written() {
    run(async |bench| {
        let test = of_deployments(&bench);
        without_the_guard_of_owners(&bench, &[("apps", "deployments")], test).await;
    });
}

async fn of_deployments(bench: &Bench) {
    let all = Pair::of(bench, "apps/v1/Deployment/deployments", Some("default")).await;
    let spec = json!({"spec": judging::deployment()});
    all.given("guarded", &spec).await;
    all.guarded("guarded", &json!({"spec": {"replicas": 5}})).await;
    let owned = |by: Value| json!({"metadata": {"ownerReferences": [by]}});
    let watch = owner(bench, "TrafficWatch", "guarded").await;
    let ours = owned(watch.clone());
    let write = "may write only Deployments with its label";
    let mut dependent = watch.clone();
    dependent["controller"] = false.into();
    for marks in [
        json!({}),
        labelled(&json!({})),
        ours.clone(),
        labelled(&owned(with(watch.clone(), &json!({"name": "another"})))),
        labelled(&owned(with(watch.clone(), &json!({"kind": "Swarm"})))),
        labelled(&owned(dependent)),
        labelled(&json!({"metadata": {"ownerReferences": stranger()}})),
    ] {
        let body = with(spec.clone(), &marks);
        all.gone("guarded").await;
        refused(all.create("guarded", &body).await, &marks, write);
    }
    all.create("guarded", &with(spec.clone(), &labelled(&ours))).await.expect("its own");
    // Nor by taking over what is there.
    all.given("guarded", &spec).await;
    let take = with(labelled(&ours), &json!({"spec": {"replicas": 5}}));
    let change = "may change only Deployments that the TrafficWatch of their name owns";
    refused(all.patch("guarded", &take).await, &take, change);
    // Its own it changes; a label that somebody removed is put back.
    all.given("guarded", &with(spec, &ours)).await;
    all.patch("guarded", &take).await.expect("its own");
    let away = labelled(&json!({"metadata": {"ownerReferences": [
            {"$patch": "delete", "uid": watch["uid"]}]}}));
    refused(all.patch("guarded", &away).await, &away, write);
    all.gone("guarded").await;
}

#[test]
fn s08_configmaps_of_others_are_not_written() {
    run(async |bench| {
        let all = Pair::of(&bench, "/v1/ConfigMap/configmaps", Some("default")).await;
        let data = json!({"data": {"a": "b"}});
        all.given("guarded", &data).await;
        all.guarded("guarded", &json!({"data": {"a": "c"}})).await;
        let of_a_swarm = labelled(&json!({"metadata": {
            "labels": {"traffic.example.com/swarm-uid": "u"},
            "ownerReferences": [owner(&bench, "Swarm", "streams").await],
        }}));
        let write = "may write only ConfigMaps with its label";
        let change = "may change only ConfigMaps that a NetworkProber or a Swarm owns";
        for marks in [
            json!({}),
            labelled(&json!({})),
            labelled(&json!({"metadata": {"labels": {"probes.bigmikes.io/owner-uid": "u"}}})),
            labelled(&json!({"metadata": {"labels": {"traffic.example.com/swarm-uid": "u"}}})),
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
        // Its own, and one that its owner has given to a Swarm.
        let given = json!({"metadata": {"annotations": {"traffic.example.com/swarm": "streams"}}});
        for (marks, then) in [
            (of_a_prober(), of_a_prober()),
            (of_a_swarm.clone(), of_a_swarm.clone()),
            (given, of_a_swarm),
        ] {
            all.given("guarded", &with(data.clone(), &marks)).await;
            let patch = with(then, &json!({"data": {"a": "c"}}));
            all.patch("guarded", &patch).await.unwrap_or_else(|e| panic!("{marks}: {e}"));
            all.delete("guarded").await.unwrap_or_else(|e| panic!("{marks}: {e}"));
            let away = json!({"metadata": {"labels": {MANAGED: null}}});
            refused(all.patch("guarded", &away).await, &away, write);
        }
        all.gone("guarded").await;
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
fn s08_daemon_sets_without_their_prober_or_with_rights_on_a_node_are_not_written() {
    run(async |bench| {
        let all = Pair::of(&bench, "apps/v1/DaemonSet/daemonsets", Some("default")).await;
        let owner = owner(&bench, "NetworkProber", "guarded").await;
        all.given("guarded", &daemon_set(&owner)).await;
        all.guarded("guarded", &json!({"spec": {"minReadySeconds": 5}})).await;
        let ours = with(of_a_prober(), &daemon_set(&owner));
        let take = with(of_a_prober(), &json!({"spec": {"minReadySeconds": 5}}));
        let mark = "with its label and the name of the NetworkProber";
        refused(all.patch("guarded", &take).await, &take, mark);
        refused(all.delete("guarded").await, &take, mark);
        all.gone("guarded").await;
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
        all.given("guarded", &ours).await;
        all.patch("guarded", &take).await.expect("its own");
        all.delete("guarded").await.expect("its own");
        // What somebody else has added does not keep the operator from its own.
        let host = json!({"spec": {"template": {"spec": {"hostNetwork": true,
            "volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}}}});
        all.given("guarded", &with(ours, &host)).await;
        all.patch("guarded", &take).await.expect("its own");
        let more = json!({"spec": {"template": {"spec": {
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}}});
        refused(all.patch("guarded", &more).await, &more, "whose pods have no rights");
        all.gone("guarded").await;
    });
}

#[test]
fn s08_webhooks_of_others_are_not_written_and_its_own_see_only_creations_of_pods() {
    run(async |bench| {
        let kind = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration/\
            mutatingwebhookconfigurations";
        let all = Pair::of(&bench, kind, None).await;
        all.given("guarded", &json!({"webhooks": []})).await;
        all.guarded("guarded", &json!({"metadata": {"labels": {"a": "b"}}})).await;
        let mark = "with its label and the name of the NetworkProber";
        refused(all.patch("guarded", &of_a_prober()).await, &of_a_prober(), mark);
        refused(all.delete("guarded").await, &json!({}), mark);
        let webhook = |change: Value| {
            let webhook = json!({
                "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "traffic-operator-system",
                    "name": "traffic-operator-webhook", "path": "/mutate/a/b"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                    "operations": ["CREATE"]}],
                "namespaceSelector": {"matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In",
                        "values": ["default"]}]},
            });
            with(of_a_prober(), &json!({"webhooks": [with(webhook, &change)]}))
        };
        all.create("new", &webhook(json!({}))).await.expect("its own");
        let never = ["kube-node-lease", "kube-public", "kube-system", "traffic-operator-system"];
        let by_labels = json!({"namespaceSelector": {"matchExpressions": [
            {"key": "zone", "operator": "Exists"},
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never}]}});
        all.create("by-labels", &webhook(by_labels)).await.expect("its own, by labels");
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
            refused(all.create("new", &webhook(change.clone())).await, &change, text);
        }
        all.gone("guarded").await;
    });
}

#[test]
fn s08_of_secrets_the_account_writes_its_own_and_asks_for_no_token() {
    run(async |bench| {
        let namespace = Some("traffic-operator-system");
        let all = Pair::of(&bench, "/v1/Secret/secrets", namespace).await;
        let text = "may write only the Secret traffic-operator-webhook";
        let refusal = async || all.create("other", &json!({})).await.err();
        eventually("the policy to be in force", refusal).await;
        refused(all.create("other", &json!({})).await, &json!({}), text);
        let own = "traffic-operator-webhook";
        all.gone(own).await;
        let token = json!({"type": "kubernetes.io/service-account-token", "metadata": {
            "annotations": {"kubernetes.io/service-account.name": "default"}}});
        refused(all.create(own, &token).await, &token, text);
        let keys =
            json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "", "tls.key": ""}});
        all.create(own, &keys).await.expect("its own");
    });
}
