//! The behaviour of a good injector, row by row, and the mistakes of the original one.
use serde_json::{Value, json};

use super::*;
use crate::pods::{AGENT_CONTAINER, AGENT_VOLUME, HASH_ANNOTATION, Qos};

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

/// The agent of an injected pod.
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
fn original_16_job_pods_end() {
    let old = Recipe { native_sidecar: false, ..recipe() };
    let job = json!([{"kind": "Job", "name": "j", "uid": "u", "controller": true}]);
    let job = with("/metadata/ownerReferences", job);
    assert_eq!(reason(&job, &old), Some(SkipReason::JobOnOldServer));
    assert_eq!(reason(&job, &recipe()), None);
    // A workflow's pod is nobody's Job and ends all the same.
    assert_eq!(
        reason(&with("/spec/restartPolicy", json!("Never")), &old),
        Some(SkipReason::JobOnOldServer)
    );
    assert_eq!(reason(&with("/spec/restartPolicy", json!("Always")), &old), None);
}

#[test]
fn every_reason_to_leave_a_pod_alone() {
    let container = |spec: Value| with("/spec/containers", json!([{"name": "app"}, spec]));
    for (pod, expected) in [
        (with("/spec/hostNetwork", json!(true)), SkipReason::HostNetwork),
        (with("/spec/os", json!({"name": "windows"})), SkipReason::Windows),
        (with("/spec/nodeSelector", json!({"kubernetes.io/os": "windows"})), SkipReason::Windows),
        (
            with("/metadata/annotations/kubernetes.io~1config.mirror", json!("x")),
            SkipReason::MirrorPod,
        ),
        (
            container(json!({"name": "a", "ports": [{"containerPort": 8080}]})),
            SkipReason::PortTaken,
        ),
        (
            container(json!({"name": "a", "ports": [{"containerPort": 2112}]})),
            SkipReason::PortTaken,
        ),
        (container(json!({"name": "net-prober", "image": "the author's"})), SkipReason::NameTaken),
        (
            with("/spec/volumes", json!([{"name": "net-prober-vol", "emptyDir": {}}])),
            SkipReason::NameTaken,
        ),
        (
            with("/metadata/annotations/probes.bigmikes.io~1injected-by", json!("a/b")),
            SkipReason::OtherProber,
        ),
    ] {
        assert_eq!(reason(&pod, &recipe()), Some(expected), "{pod}");
    }
    assert_eq!(reason(&plain(), &recipe()), None);
}

#[test]
fn opting_out_by_annotation() {
    let deployed = "/metadata/annotations/netprober-container-deployed";
    let inject = "/metadata/annotations/probes.bigmikes.io~1inject";
    for (path, value, out) in [
        (deployed, "true", true),
        (deployed, "false", true),
        (deployed, "", true),
        (inject, "false", true),
        (inject, "False", true),
        (inject, "true", false),
        (inject, "", false),
    ] {
        let expected = out.then_some(SkipReason::OptedOut);
        assert_eq!(reason(&with(path, json!(value)), &recipe()), expected, "{path} {value}");
    }
}

#[test]
fn qos_is_kept() {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    let guaranteed = json!({"requests": both, "limits": both});
    let init = |resources: &Value| json!([{"name": "init", "resources": resources}]);
    let main = |resources: &Value| json!([{"name": "app", "resources": resources}]);
    let burstable = json!({"requests": {"cpu": "1m"}});
    for (resources, class, expected) in [
        (&json!({}), Qos::BestEffort, json!({})),
        (
            &burstable,
            Qos::Burstable,
            json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}),
        ),
        (
            &guaranteed,
            Qos::Guaranteed,
            json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}}),
        ),
    ] {
        let mut pod = plain();
        pod["spec"]["containers"] = main(resources);
        pod["spec"]["initContainers"] = init(resources);
        assert_eq!(read(&pod).qos(), class);
        for recipe in [recipe(), Recipe { native_sidecar: false, ..recipe() }] {
            let injected = inject(&pod, &recipe);
            assert_eq!(read(&injected).qos(), class);
            assert_eq!(agent(&injected)["resources"], expected);
        }
        pod["spec"]["resources"] = json!({"limits": both});
        assert_eq!(agent(&inject(&pod, &recipe()))["resources"], json!({}));
    }
}

/// A quota refuses a pod with one container that does not say what it counts.
#[test]
fn n09_an_agent_states_what_all_containers_of_its_pod_state() {
    let none = Recipe { resources: Resources::default(), ..recipe() };
    let both = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let requests = json!({"requests": both("1m", "1Mi")});
    let limits = json!({"requests": both("1m", "1Mi"), "limits": both("1", "1Gi")});
    let cpu = json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "1"}});
    let written = |requests: Value, limits: Value| json!({"requests": requests, "limits": limits});
    for (first, second, recipe, expected) in [
        (&requests, &requests, &none, json!({"requests": both("10m", "16Mi")})),
        (&limits, &limits, &none, json!({"limits": both("100m", "64Mi")})),
        (&limits, &requests, &none, json!({"requests": both("10m", "16Mi")})),
        (&limits, &cpu, &none, json!({"limits": {"cpu": "100m"}})),
        // What the author has written stays.
        (&limits, &limits, &recipe(), written(both("10m", "32Mi"), both("100m", "64Mi"))),
        (&requests, &requests, &recipe(), written(both("10m", "32Mi"), json!({"memory": "64Mi"}))),
    ] {
        let mut pod = plain();
        pod["spec"]["containers"][0]["resources"] = first.clone();
        pod["spec"]["initContainers"][0]["resources"] = second.clone();
        let injected = inject(&pod, recipe);
        assert_eq!(agent(&injected)["resources"], expected, "{first} {second}");
        assert_eq!((read(&pod).qos(), read(&injected).qos()), (Qos::Burstable, Qos::Burstable));
    }
    // A request above the usual limit is the limit.
    let mut large = none.clone();
    large.resources.requests.insert("cpu".into(), "1".into());
    let mut pod = plain();
    pod["spec"]["containers"][0]["resources"] = cpu.clone();
    pod["spec"]["initContainers"][0]["resources"] = cpu;
    assert_eq!(agent(&inject(&pod, &large))["resources"]["limits"]["cpu"], "1");
}

#[test]
fn a_guaranteed_agent_has_what_was_asked_if_that_is_more() {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    let pod = json!({"spec": {"containers": [{"name": "a", "resources": {"limits": both}}]}});
    let mut recipe = recipe();
    recipe.resources.requests.insert("cpu".into(), "200m".into());
    recipe.resources.limits.insert("memory".into(), "128Mi".into());
    recipe.resources.limits.insert("ephemeral-storage".into(), "1Gi".into());
    let resources = agent(&inject(&pod, &recipe))["resources"].clone();
    assert_eq!(
        resources["limits"],
        json!({"cpu": "200m", "memory": "128Mi", "ephemeral-storage": "1Gi"})
    );
    assert_eq!(resources["requests"], json!({"cpu": "200m", "memory": "128Mi"}));
}

#[test]
fn the_user_is_named_where_nothing_else_makes_it_a_number_that_is_not_root() {
    let user = |pod: &Value, own_image| {
        let recipe = Recipe { own_image, ..recipe() };
        let context = agent(&inject(pod, &recipe))["securityContext"].clone();
        assert_eq!(context["runAsNonRoot"], true);
        (context["runAsUser"].as_i64(), context["runAsGroup"].as_i64())
    };
    let of = |user: i64| with("/spec/securityContext", json!({"runAsUser": user}));
    let nonroot = (Some(65532), Some(65532));
    assert_eq!((user(&plain(), true), user(&plain(), false)), ((None, None), nonroot));
    assert_eq!((user(&of(0), true), user(&of(0), false)), (nonroot, nonroot));
}

fn in_namespace(mut pod: Value, namespace: &str) -> Value {
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// Through `/proc` a process of the same user reads what the application reads, its token too.
#[test]
fn s11_nobody_else_s_agent_comes_where_processes_are_shared() {
    for field in ["/spec/shareProcessNamespace", "/spec/hostPID"] {
        let shared = with(field, json!(true));
        for (namespace, expected) in [
            ("n", Some(SkipReason::SharedProcesses)),
            // An object in an unknown namespace counts as foreign.
            ("", Some(SkipReason::SharedProcesses)),
            // Who may write a NetworkProber here puts nothing into anybody else's pods.
            ("probing", None),
        ] {
            let pod = in_namespace(shared.clone(), namespace);
            assert_eq!(reason(&pod, &recipe()), expected, "{field} {namespace:?}");
        }
        assert_eq!(reason(&with(field, json!(false)), &recipe()), None);
        assert_eq!(reason(&with(field, json!(null)), &recipe()), None);
    }
}

#[test]
fn s11_the_agent_is_a_user_of_its_own() {
    let user = |pod: &Value, own_image| {
        let context =
            agent(&inject(pod, &Recipe { own_image, ..recipe() }))["securityContext"].clone();
        assert_eq!(context["runAsNonRoot"], true);
        assert_eq!(context["runAsUser"], context["runAsGroup"]);
        context["runAsUser"].as_i64()
    };
    let both = |pod: &Value| (user(pod, true), user(pod, false));
    let of = |user: i64| with("/spec/securityContext", json!({"runAsUser": user}));
    assert_eq!(both(&of(1000)), (Some(65532), Some(65532)));
    assert_eq!(both(&of(65532)), (Some(65533), Some(65533)));
    // A container's own user is not the pod's.
    let container = |users: &[i64]| {
        let containers = users.iter().enumerate().map(
            |(i, user)| json!({"name": format!("c{i}"), "securityContext": {"runAsUser": user}}),
        );
        with("/spec/containers", containers.collect())
    };
    assert_eq!(both(&container(&[1000])), (None, Some(65532)));
    assert_eq!(both(&container(&[65532])), (Some(65533), Some(65533)));
    assert_eq!(both(&container(&[65533, 65532])), (Some(65534), Some(65534)));
}

/// `OpenShift` refuses users that are not of the range of the namespace, and assigns one to every
/// container that names none.
#[test]
fn s11_where_the_cluster_assigns_users_none_is_named() {
    let user = |constraint: &str, mut pod: Value, own_image| {
        pod["metadata"]["annotations"]["openshift.io/scc"] = json!(constraint);
        let recipe = Recipe { own_image, ..recipe() };
        agent(&inject(&pod, &recipe))["securityContext"]["runAsUser"].as_i64()
    };
    let of = |user: i64| with("/spec/securityContext", json!({"runAsUser": user}));
    for constraint in ["restricted", "restricted-v2", "one-of-their-own"] {
        assert_eq!(user(constraint, of(1_000_680_000), true), None);
        assert_eq!(user(constraint, of(1_000_680_000), false), None);
        assert_eq!(user(constraint, plain(), false), None);
    }
    // Those let every user in, and assign none.
    for constraint in ["anyuid", "hostmount-anyuid", "nonroot", "nonroot-v2", "privileged"] {
        assert_eq!(user(constraint, of(1000), true), Some(65532));
        assert_eq!(user(constraint, plain(), false), Some(65532));
        assert_eq!(user(constraint, of(0), true), Some(65532));
    }
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
    let map = json!({"configMap": {"name": "mesh", "optional": true}});
    assert_eq!(sources(Delivery::ConfigMap), json!([map]));
    let token = json!({"serviceAccountToken": {"path": "token", "audience": "traffic-operator", "expirationSeconds": 3600}});
    assert_eq!(sources(Delivery::Pull { url: "u".into() }), json!([map, token]));
}

#[test]
fn original_15_the_second_prober_leaves_the_first_ones_pod_alone() {
    let other = Recipe { prober: "other/mesh".into(), ..recipe() };
    let first = inject(&plain(), &other);
    assert_eq!(reason(&first, &recipe()), Some(SkipReason::OtherProber));
    assert_eq!(inject(&first, &recipe()), first);
}

#[test]
fn the_original_operators_agent_is_an_agent() {
    let mut pod = plain();
    pod["metadata"]["annotations"]["netprober-container-deployed"] = json!("true");
    let theirs = json!({"name": "net-prober", "image": "bigmikes/kube-net-prober", "ports": [
        {"name": "np-ping", "containerPort": 9090}, {"name": "np-prometheus", "containerPort": 1222}]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(theirs);
    assert_eq!(reason(&pod, &recipe()), Some(SkipReason::AlreadyInjected));
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
    // Longer names are no port names to Kubernetes.
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
    // every agent is due.
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

#[test]
fn every_word_is_there_once() {
    let words: std::collections::BTreeSet<_> = SkipReason::ALL.iter().map(|r| r.as_str()).collect();
    assert_eq!(words.len(), SkipReason::ALL.len());
    assert!(words.iter().all(|word| word.chars().all(char::is_alphanumeric)));
}

#[test]
fn huge_pages_are_dropped_with_what_they_need() {
    let mut recipe = recipe();
    for (name, amount) in [("hugepages-2Mi", "2Mi"), ("ephemeral-storage", "1Gi")] {
        recipe.resources.limits.insert(name.into(), amount.into());
    }
    let resources = agent(&inject(&plain(), &recipe))["resources"].clone();
    assert_eq!(resources, json!({"limits": {"ephemeral-storage": "1Gi"}}));
}
