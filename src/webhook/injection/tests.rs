//! The behavior of a correct injector, case by case, and the bugs of the original one.
use serde_json::{Value, json};

use super::*;
use crate::pods::{AGENT_CONTAINER, AGENT_VOLUME, HASH_ANNOTATION};

mod properties;
mod reasons;
mod resources;
mod users;

pub(super) fn recipe() -> Recipe {
    let amounts = |cpu: Option<&str>, memory: &str| {
        let cpu = cpu.map(|cpu| ("cpu".to_owned(), cpu.to_owned()));
        cpu.into_iter().chain([("memory".to_owned(), memory.to_owned())]).collect()
    };
    Recipe {
        prober: "probing/mesh".into(),
        image: "registry.invalid/traffic-operator:0.1.0".into(),
        own_image: true,
        http_port: 8080,
        prometheus_port: 2112,
        delivery: Delivery::Pull { url: "https://traffic-operator-webhook.ns.svc/pinglist".into() },
        config_map: "mesh".into(),
        resources: Resources {
            requests: amounts(Some("10m"), "32Mi"),
            limits: amounts(None, "64Mi"),
        },
        pull_policy: "IfNotPresent",
        run_as_user: None,
        native_sidecar: true,
    }
}

fn read(pod: &Value) -> PodObject {
    serde_json::from_value(pod.clone()).unwrap()
}

/// The pod after the patch, applied as the API server does.
pub(super) fn inject(pod: &Value, recipe: &Recipe) -> Value {
    let ops = patch(&read(pod), recipe);
    let ops: json_patch::Patch =
        serde_json::from_value(serde_json::to_value(ops).unwrap()).unwrap();
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &ops).unwrap();
    pod
}

fn reason(pod: &Value, recipe: &Recipe) -> Option<SkipReason> {
    let reason = skip_reason(&read(pod), recipe);
    assert_eq!(reason.is_some(), patch(&read(pod), recipe).is_empty(), "{pod}");
    reason
}

pub(super) fn plain() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "n", "annotations": {"a/b": "c"}},
        "spec": {
            "containers": [{"name": "app", "image": "app", "ports": [{"containerPort": 80}]}],
            "initContainers": [{"name": "init", "image": "init"}],
            "volumes": [{"name": "data", "emptyDir": {}}]
        }
    })
}

fn with(path: &str, value: Value) -> Value {
    let mut pod = plain();
    let (parent, key) = path.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
    pod
}

fn agent(pod: &Value) -> &Value {
    let lists = [&pod["spec"]["initContainers"], &pod["spec"]["containers"]];
    let mut all = lists.into_iter().filter_map(Value::as_array).flatten();
    all.find(|c| c["name"] == AGENT_CONTAINER).unwrap()
}

#[test]
fn the_whole_container_as_it_is_written() {
    let pod = inject(&plain(), &recipe());
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let expected = json!({
        "name": "net-prober", "image": "registry.invalid/traffic-operator:0.1.0",
        "args": ["agent", "probe"], "restartPolicy": "Always",
        "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [
            {"name": "HTTP_PORT", "value": "8080"},
            {"name": "HTTP_PROMETHEUS_PORT", "value": "2112"},
            {"name": "NET_PROBER_CONFIG_FILE", "value": "/etc/netprober/config.json"},
            field("NET_PROBER_POD_NAMESPACE", "metadata.namespace"),
            field("NET_PROBER_POD_NAME", "metadata.name"),
            field("NET_PROBER_POD_IPS", "status.podIPs"),
            field("NET_PROBER_NODE", "spec.nodeName"),
            {"name": "NET_PROBER_PROBER", "value": "probing/mesh"},
            {"name": "NET_PROBER_DELIVERY", "value": "Pull"},
            {"name": "NET_PROBER_PINGLIST_URL", "value": "https://traffic-operator-webhook.ns.svc/pinglist"},
        ],
        "ports": [
            {"name": "np-ping", "containerPort": 8080, "protocol": "TCP"},
            {"name": "np-prometheus", "containerPort": 2112, "protocol": "TCP"},
        ],
        "volumeMounts": [
            {"name": "net-prober-vol", "mountPath": "/etc/netprober", "readOnly": true},
            {"name": "net-prober-vol", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
        ],
        "resources": {},
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
            "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    assert_eq!(*agent(&pod), expected);
    let annotations = json!({
        "a/b": "c", "netprober-container-deployed": "true",
        "probes.bigmikes.io/injected-by": "probing/mesh", "probes.bigmikes.io/injected-hash": recipe().hash(),
    });
    assert_eq!(pod["metadata"]["annotations"], annotations);
    // The types of the API know every field of it.
    let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod.clone()).unwrap();
    let spec = typed.spec.unwrap();
    assert_eq!(serde_json::to_value(&spec.init_containers.unwrap()[0]).unwrap(), expected);
    assert_eq!(serde_json::to_value(&spec.volumes.unwrap()[1]).unwrap(), pod["spec"]["volumes"][1]);
}

#[test]
fn idempotence_is_decided_by_the_container() {
    let once = inject(&plain(), &recipe());
    assert_eq!(reason(&once, &recipe()), Some(SkipReason::AlreadyInjected));
    assert_eq!(inject(&once, &recipe()), once);
    // Another webhook dropped every annotation in between.
    let mut edited = once;
    edited["metadata"]["annotations"] = json!({});
    assert_eq!(reason(&edited, &recipe()), Some(SkipReason::AlreadyInjected));
    // A newer recipe does not make a second agent; the hash shows that a restart is due.
    let newer = Recipe { http_port: 9090, ..recipe() };
    assert_eq!(reason(&edited, &newer), Some(SkipReason::AlreadyInjected));
}

#[test]
fn reinvoked_after_another_webhook_removed_the_container() {
    let mut stripped = inject(&plain(), &recipe());
    stripped["spec"]["initContainers"].as_array_mut().unwrap().remove(0);
    assert_eq!(reason(&stripped, &recipe()), None);
    assert_eq!(inject(&stripped, &recipe()), inject(&plain(), &recipe()));
}

/// By a webhook with old types, which writes only the fields that it knows.
#[test]
fn reinvoked_after_another_webhook_dropped_the_restart_policy() {
    let whole = inject(&plain(), &recipe());
    let mut stripped = whole.clone();
    stripped["spec"]["initContainers"][0].as_object_mut().unwrap().remove("restartPolicy");
    assert_eq!(reason(&stripped, &recipe()), None);
    assert_eq!(patch(&read(&stripped), &recipe()).len(), 1);
    assert_eq!(inject(&stripped, &recipe()), whole);
    // A first container of another webhook, and another policy.
    let mut moved = stripped.clone();
    moved["spec"]["initContainers"].as_array_mut().unwrap().insert(0, json!({"name": "x"}));
    moved["spec"]["initContainers"][1]["restartPolicy"] = json!("Never");
    assert_eq!(inject(&moved, &recipe())["spec"]["initContainers"][1], *agent(&whole));
    // Neither another prober's, nor where no server knows the policy.
    let other = Recipe { prober: "other/mesh".into(), ..recipe() };
    assert_eq!(reason(&stripped, &other), Some(SkipReason::OtherProber));
    let old = Recipe { native_sidecar: false, ..recipe() };
    assert_eq!(reason(&stripped, &old), Some(SkipReason::AlreadyInjected));
    stripped["metadata"]["annotations"] = json!({});
    assert_eq!(reason(&stripped, &recipe()), Some(SkipReason::AlreadyInjected));
}

#[test]
fn the_patch_only_adds_on_every_shape() {
    let absent = json!({"spec": {"containers": [{"name": "app"}]}});
    for metadata in [None, Some(json!(null)), Some(json!({})), Some(json!({"annotations": null}))] {
        for list in [None, Some(json!(null)), Some(json!([]))] {
            let mut pod = absent.clone();
            metadata.clone().into_iter().for_each(|value| pod["metadata"] = value);
            for key in ["initContainers", "volumes"] {
                list.clone().into_iter().for_each(|value| pod["spec"][key] = value);
            }
            for op in patch(&read(&pod), &recipe()) {
                assert_eq!(serde_json::to_value(&op).unwrap()["op"], "add");
            }
            let pod = inject(&pod, &recipe());
            assert_eq!(pod["spec"]["initContainers"][0]["name"], AGENT_CONTAINER);
            assert_eq!(pod["spec"]["volumes"][0]["name"], AGENT_VOLUME);
            assert_eq!(pod["metadata"]["annotations"].as_object().unwrap().len(), 3);
        }
    }
}

/// The kubelet gives a token with the mode 0400 to the user that all containers share, else to root.
#[test]
fn an_agent_beside_a_guarded_token_has_the_user_of_all_containers() {
    let user = |mode: i64, users: &[Option<i64>], recipe: &Recipe| {
        let mut pod = plain();
        let containers: Vec<_> = users
            .iter()
            .enumerate()
            .map(|(i, user)| json!({"name": format!("c{i}"), "securityContext": {"runAsUser": user}}))
            .collect();
        pod["spec"] = json!({"containers": containers, "volumes": [{"name": "token", "projected": {
            "defaultMode": mode, "sources": [{"serviceAccountToken": {"path": "token"}}]}}]});
        let agent = &inject(&pod, recipe)["spec"]["initContainers"][0];
        agent["securityContext"]["runAsUser"].as_i64()
    };
    let (own, named) = (recipe(), Recipe { run_as_user: Some(7), ..recipe() });
    let other = user(0o644, &[Some(1000)], &own);
    assert_ne!(other, Some(1000), "every user reads it");
    assert_eq!(user(0o400, &[Some(1000), Some(1000)], &own), Some(1000));
    assert_ne!(user(0o400, &[Some(1000), Some(2000)], &own), Some(1000));
    assert_ne!(user(0o400, &[Some(1000), None], &own), Some(1000));
    assert_ne!(user(0o400, &[Some(0)], &own), Some(0), "never root");
    assert_eq!(user(0o400, &[Some(1000)], &named), Some(7));
    let always = Recipe { pull_policy: "Always", ..recipe() };
    let pulled = inject(&plain(), &always);
    assert_eq!(pulled["spec"]["initContainers"][0]["imagePullPolicy"], "Always");
}

#[test]
fn a_pod_that_resolves_no_service_gets_no_agent_that_needs_one() {
    let pod = |policy: &str| {
        let mut pod = plain();
        pod["spec"]["dnsPolicy"] = policy.into();
        read(&pod)
    };
    let pulls = |url: &str| Recipe { delivery: Delivery::Pull { url: url.into() }, ..recipe() };
    let service = pulls("https://traffic-operator-pinglists.ns.svc:443/pinglist");
    let no_dns = Some(SkipReason::NoClusterDns);
    assert_eq!(skip_reason(&pod("Default"), &service), no_dns);
    let cluster = pulls("https://traffic-operator-pinglists.ns.svc.cluster.local/pinglist");
    assert_eq!(skip_reason(&pod("Default"), &cluster), no_dns);
    for (policy, recipe) in [
        ("ClusterFirst", service.clone()),
        // It may name a server of the cluster.
        ("None", service),
        ("Default", pulls("https://10.0.0.1:9444/pinglist")),
        ("Default", Recipe { delivery: Delivery::ConfigMap, ..recipe() }),
    ] {
        assert_eq!(skip_reason(&pod(policy), &recipe), None, "{policy}");
    }
}

#[test]
fn a_native_sidecar_where_the_server_has_them_else_an_ordinary_container() {
    let native = inject(&plain(), &recipe());
    assert_eq!(native["spec"]["initContainers"][0]["restartPolicy"], "Always");
    assert_eq!(native["spec"]["initContainers"][1]["name"], "init");
    let ordinary = inject(&plain(), &Recipe { native_sidecar: false, ..recipe() });
    assert_eq!(ordinary["spec"]["containers"][1]["name"], AGENT_CONTAINER);
    assert_eq!(ordinary["spec"]["containers"][1].get("restartPolicy"), None);
    assert_eq!(ordinary["spec"]["initContainers"], plain()["spec"]["initContainers"]);
}

#[test]
fn job_pods_end() {
    let old = Recipe { native_sidecar: false, ..recipe() };
    let job = json!([{"kind": "Job", "name": "j", "uid": "u", "controller": true}]);
    let job = with("/metadata/ownerReferences", job);
    assert_eq!(reason(&job, &old), Some(SkipReason::JobOnOldServer));
    assert_eq!(reason(&job, &recipe()), None);
    // A workflow's pod belongs to no Job but runs to completion too.
    assert_eq!(
        reason(&with("/spec/restartPolicy", json!("Never")), &old),
        Some(SkipReason::JobOnOldServer)
    );
    assert_eq!(reason(&with("/spec/restartPolicy", json!("Always")), &old), None);
}

#[test]
fn another_image_has_its_own_entry_point_and_every_variable() {
    let recipe = Recipe { own_image: false, delivery: Delivery::ConfigMap, ..recipe() };
    let pod = inject(&plain(), &recipe);
    assert_eq!((agent(&pod).get("args"), agent(&pod).get("command")), (None, None));
    assert_eq!(agent(&pod)["env"].as_array().unwrap().len(), 9);
}

#[test]
fn original_1_a_missing_config_map_keeps_no_pod_from_starting() {
    let sources = |delivery| {
        let pod = inject(&plain(), &Recipe { delivery, ..recipe() });
        let volume = &pod["spec"]["volumes"][1]["projected"];
        assert_eq!(volume["defaultMode"], 420);
        volume["sources"].clone()
    };
    let items = json!([
        {"key": "ca.crt", "path": "ca.crt"}, {"key": "config.json", "path": "config.json"},
    ]);
    let map = json!({"configMap": {"name": "mesh", "items": items, "optional": true}});
    let items = json!([{"key": "ca.crt", "path": "cluster.crt"}]);
    let root = json!({"configMap": {"name": "kube-root-ca.crt", "items": items, "optional": true}});
    assert_eq!(sources(Delivery::ConfigMap), json!([map, root]));
    let token = json!({"serviceAccountToken": {"path": "token", "audience": "traffic-operator", "expirationSeconds": 3600}});
    assert_eq!(sources(Delivery::Pull { url: "u".into() }), json!([map, root, token]));
}

#[test]
fn sidecars_readiness_is_the_pods_so_there_is_no_probe() {
    let pod = inject(&plain(), &recipe());
    for probe in ["readinessProbe", "startupProbe", "livenessProbe"] {
        assert_eq!(agent(&pod).get(probe), None);
    }
}

#[test]
fn the_monitor_finds_the_ports_of_init_containers_by_name() {
    let pod = read(&inject(&plain(), &recipe()));
    let facts = pod.agent().unwrap();
    assert_eq!((facts.ping_port, facts.prometheus_port), (8080, Some(2112)));
    assert!(facts.native && !facts.stripped);
    // Kubernetes allows no longer port names.
    assert!(
        [crate::pods::PING_PORT, crate::pods::METRICS_PORT].iter().all(|name| name.len() <= 15)
    );
}

#[test]
fn mesh_annotations_are_their_authors_alone() {
    let keys =
        ["traffic.sidecar.istio.io/excludeInboundPorts", "config.linkerd.io/skip-outbound-ports"];
    let mut pod = plain();
    for key in keys {
        pod["metadata"]["annotations"][key] = json!("3306");
    }
    let injected = inject(&pod, &recipe());
    assert!(keys.iter().all(|key| injected["metadata"]["annotations"][key] == "3306"));
    let names = inject(&plain(), &recipe());
    let names = names["metadata"]["annotations"].as_object().unwrap().keys().cloned();
    assert!(!names.into_iter().any(|key| key.contains("istio") || key.contains("linkerd")));
}

#[test]
fn the_hash_changes_with_what_a_restart_is_needed_for() {
    let hash = recipe().hash();
    assert_eq!(hash.len(), 16);
    let mut more = recipe();
    more.resources.limits.insert("cpu".into(), "1".into());
    for changed in [
        Recipe { image: "other".into(), ..recipe() },
        Recipe { http_port: 1, ..recipe() },
        Recipe { prometheus_port: 1, ..recipe() },
        Recipe { delivery: Delivery::ConfigMap, ..recipe() },
        Recipe { delivery: Delivery::Pull { url: "other".into() }, ..recipe() },
        more,
    ] {
        assert_ne!(changed.hash(), hash, "{changed:?}");
    }
    for same in
        [Recipe { native_sidecar: false, ..recipe() }, Recipe { prober: "a/b".into(), ..recipe() }]
    {
        assert_eq!(same.hash(), hash);
    }
    // The same in every version of this program: a change here restarts nothing, but reports that
    // every agent needs a restart.
    assert_eq!(hash, "756b4b8ca8296e0e");
}

#[test]
fn an_outdated_hash_is_the_one_thing_that_is_written_over() {
    let mut pod = plain();
    pod["metadata"]["annotations"][HASH_ANNOTATION] = json!("old");
    let pod = inject(&pod, &recipe());
    assert_eq!(pod["metadata"]["annotations"][HASH_ANNOTATION], recipe().hash());
}

#[test]
fn what_is_no_pod_gets_no_patch() {
    for pod in [json!({}), json!({"spec": null}), json!({"spec": {"containers": []}})] {
        assert!(patch(&read(&pod), &recipe()).is_empty());
    }
}

/// Left by a webhook that removed the container, and edited by hand since.
#[test]
fn an_annotation_that_is_there_is_not_written_over() {
    let deployed = "netprober-container-deployed";
    let mut pod = plain();
    pod["metadata"]["annotations"][deployed] = json!("by hand");
    pod["metadata"]["annotations"]["probes.bigmikes.io/injected-by"] = json!("probing/mesh");
    assert_eq!(reason(&pod, &recipe()), None);
    let injected = inject(&pod, &recipe());
    assert_eq!(injected["metadata"]["annotations"][deployed], "by hand");
}

/// The pods of a `DaemonSet` are the operator's own.
#[test]
fn a_separate_pod_has_the_same_agent_with_the_resources_that_are_asked() {
    let (alone, volume) = standalone(&recipe());
    let injected = inject(&plain(), &recipe());
    let mut expected = agent(&injected).clone();
    expected.as_object_mut().unwrap().remove("restartPolicy");
    let requests = json!({"cpu": "10m", "memory": "32Mi"});
    expected["resources"] = json!({"requests": requests, "limits": {"memory": "64Mi"}});
    assert_eq!(alone, expected);
    assert_eq!(volume, injected["spec"]["volumes"][1]);
}

#[test]
fn keys_are_escaped_tilde_first() {
    assert_eq!(escape("a.b/c~d/~1"), "a.b~1c~0d~1~01");
}

#[test]
fn an_operation_as_the_api_server_reads_it() {
    let op = Op::new("/a", json!(1));
    assert_eq!(serde_json::to_value(op).unwrap(), json!({"op": "add", "path": "/a", "value": 1}));
}
