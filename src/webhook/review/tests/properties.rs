//! Properties of every review, from any sender, and of every pod that an API server may send.
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use proptest::{collection, prelude::*};
use serde_json::{Value, json};

use super::super::*;
use crate::{
    pods::{AGENT_CONTAINER, AGENT_VOLUME},
    webhook::injection::{Delivery, Resources},
};

/// Gives every pod this agent.
struct Always(Recipe);

impl Injector for Always {
    fn decide(&self, _: (&str, &str), _: &PodObject, _: bool) -> Decision {
        Decision::Inject(Box::new(self.0.clone()))
    }
}

fn injector(native: bool, own_image: bool, pull: bool) -> Always {
    let url = "https://traffic-operator-webhook.ns.svc/pinglist".to_owned();
    Always(Recipe {
        prober: "ns/mesh".into(),
        image: "registry.example.com/agent:1".into(),
        own_image,
        http_port: 8080,
        prometheus_port: 2112,
        delivery: if pull { Delivery::Pull { url } } else { Delivery::ConfigMap },
        config_map: "mesh".into(),
        resources: Resources::default(),
        pull_policy: "IfNotPresent",
        run_as_user: None,
        native_sidecar: native,
    })
}

fn review(uid: &str, pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid, "operation": "CREATE", "namespace": "apps",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": pod, "oldObject": null, "dryRun": false, "userInfo": {"username": "u"},
        },
    })
}

/// The pod after the answer, applied as the API server does, and the outcome.
fn admitted(pod: &Value, injector: &Always) -> (Value, Outcome) {
    let body = review("the-uid", pod).to_string();
    let answer = answer(body.as_bytes(), ("ns", "mesh"), injector).unwrap();
    let review: Value = serde_json::from_slice(&answer.body).unwrap();
    let response = &review["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("the-uid"), &json!(true)));
    let mut pod = pod.clone();
    if let Some(patch) = response.get("patch") {
        assert_eq!(response["patchType"], "JSONPatch");
        let ByteString(patch) = serde_json::from_value(patch.clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    (pod, answer.outcome)
}

/// Names of volumes, among them the agent's.
const VOLUMES: [&str; 5] = ["data", "cache", "config", "v-1", AGENT_VOLUME];
/// Names of containers, among them the agent's.
const CONTAINERS: [&str; 6] = ["app", "web", "istio-proxy", "init", "c-1", AGENT_CONTAINER];

fn volume(name: &str, kind: usize) -> Value {
    let mut volume = match kind {
        0 => json!({"emptyDir": {}}),
        1 => json!({"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}),
        2 => json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}),
        3 => json!({"secret": {"secretName": "s", "defaultMode": 256}}),
        4 => json!({"hostPath": {"path": "/var/log", "type": "Directory"}}),
        5 => json!({"persistentVolumeClaim": {"claimName": "c"}}),
        6 => json!({"csi": {"driver": "d.example.com", "volumeAttributes": {"a": "b"}}}),
        _ => json!({"projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]}}),
    };
    volume["name"] = json!(name);
    volume
}

/// The rest of a container beside its name and its mounts.
fn body() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({"image": "a"}),
        json!({"image": "a", "ports": [{"containerPort": 80, "name": "http"}]}),
        json!({"image": "a", "ports": [{"containerPort": 8080}]}),
        json!({"image": "a", "ports": [{"containerPort": 53, "protocol": "UDP"}]}),
        json!({"image": "a@sha256:0", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
        json!({"image": "a", "resources": {"requests": {"cpu": "1", "memory": "67108864"}}}),
        json!({"image": "a", "securityContext": {"runAsUser": 0, "privileged": false}}),
        json!({"image": "a", "livenessProbe": {"httpGet": {"port": "http"}}, "tty": true}),
        json!({"image": "a", "readinessProbe": {"grpc": {"port": 2112}}}),
        json!({"image": "a", "env": [{"name": "A", "value": "b"}]}),
        json!({"image": "a", "envFrom": [{"secretRef": {"name": "s"}}], "args": ["\u{1F6A6}"]}),
    ])
}

/// A container that mounts some of these volumes.
fn container(name: &str, mut body: Value, mounts: &[&str], init: bool) -> Value {
    let mounts: Vec<_> = mounts
        .iter()
        .map(|volume| json!({"name": volume, "mountPath": format!("/mnt/{volume}")}))
        .collect();
    body["name"] = json!(name);
    if !mounts.is_empty() {
        body["volumeMounts"] = json!(mounts);
    }
    if init && mounts.len() == 1 {
        body["restartPolicy"] = json!("Always");
    }
    body
}

fn annotations() -> impl Strategy<Value = Option<Value>> {
    let key = prop::sample::select(vec![
        "netprober-container-deployed",
        "probes.bigmikes.io/inject",
        "probes.bigmikes.io/injected-by",
        "probes.bigmikes.io/injected-hash",
        "kubernetes.io/config.mirror",
        "openshift.io/scc",
        "example.com/a~b",
        "example.com/c",
        "d",
    ]);
    let value = prop_oneof![
        prop::sample::select(&["true", "false", "ns/mesh", "a/b", "restricted-v2", ""][..])
            .prop_map(str::to_owned),
        ".{0,12}",
    ];
    let some = collection::btree_map(key, value, 0..3).prop_map(|all| json!(all));
    prop::option::weighted(0.7, some)
}

/// A Pod that the API server accepts, as it sends it: names are unique, and every mounted volume
/// is there.
fn pod() -> impl Strategy<Value = Value> {
    let names = |all: &'static [&'static str], most: usize| {
        prop::sample::subsequence(all.to_vec(), 0..=most)
    };
    let bodies = collection::vec((body(), 0..4_usize), 6);
    let kinds = collection::vec(0..8_usize, 5);
    let others = prop::sample::select(vec![
        json!({}),
        json!({"restartPolicy": "Never"}),
        json!({"hostNetwork": true}),
        json!({"shareProcessNamespace": true}),
        json!({"securityContext": {"runAsUser": 65_532, "fsGroup": 1}}),
        json!({"os": {"name": "windows"}}),
        json!({"resources": {"limits": {"cpu": "1"}}}),
        json!({"schedulingGates": [{"name": "g"}], "future": {"a": [1]}}),
    ]);
    let shape = (names(&VOLUMES, 5), names(&CONTAINERS, 6), 1..7_usize, any::<bool>());
    (shape, bodies, kinds, annotations(), others).prop_map(
        |((volumes, names, split, empty), bodies, kinds, annotations, others)| {
            let names = if names.is_empty() { vec!["app"] } else { names };
            let all: Vec<_> = names
                .iter()
                .zip(bodies)
                .enumerate()
                .map(|(i, (name, (body, mounts)))| {
                    let mounted = &volumes[..mounts.min(volumes.len())];
                    container(name, body, mounted, i >= split)
                })
                .collect();
            let (containers, init) = all.split_at(split.min(all.len()));
            let mut spec = others;
            spec["containers"] = json!(containers);
            if !init.is_empty() || empty {
                spec["initContainers"] = json!(init);
            }
            if !volumes.is_empty() || empty {
                let volumes = volumes.iter().zip(kinds);
                let volumes: Vec<_> = volumes.map(|(name, kind)| volume(name, kind)).collect();
                spec["volumes"] = json!(volumes);
            }
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"generateName": "p-", "labels": {"app": "a"}}, "spec": spec,
            });
            if let Some(annotations) = annotations {
                pod["metadata"]["annotations"] = annotations;
            }
            pod
        },
    )
}

/// The reasons for which an API server refuses a pod; empty if there are none.
fn complaints(pod: &Value) -> Vec<String> {
    let typed: Pod = match serde_json::from_value(pod.clone()) {
        Ok(pod) => pod,
        Err(error) => return vec![error.to_string()],
    };
    let Some(spec) = typed.spec else { return vec!["no spec".into()] };
    let mut found = vec![];
    let mut volumes = BTreeSet::new();
    for volume in spec.volumes.unwrap_or_default() {
        if !volumes.insert(volume.name.clone()) {
            found.push(format!("two volumes {}", volume.name));
        }
    }
    let mut names = BTreeSet::new();
    let init = spec.init_containers.unwrap_or_default();
    if spec.containers.is_empty() {
        found.push("no containers".into());
    }
    for Container { name, image, volume_mounts, ports, .. } in
        spec.containers.into_iter().chain(init)
    {
        if !names.insert(name.clone()) {
            found.push(format!("two containers {name}"));
        }
        if image.is_none_or(|image| image.is_empty()) {
            found.push(format!("{name} without an image"));
        }
        let mut paths = BTreeSet::new();
        for mount in volume_mounts.unwrap_or_default() {
            if !volumes.contains(&mount.name) {
                found.push(format!("{name} mounts {}, which is not there", mount.name));
            }
            if !paths.insert(mount.mount_path.clone()) {
                found.push(format!("{name} mounts two at {}", mount.mount_path));
            }
        }
        let ports: Vec<_> = ports.unwrap_or_default().into_iter().filter_map(|p| p.name).collect();
        if ports.iter().collect::<BTreeSet<_>>().len() < ports.len() {
            found.push(format!("{name} has two ports of a name"));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// An agent must not keep anybody's pod from being created.
    #[test]
    fn a_valid_pod_stays_valid_and_a_second_question_changes_nothing(
        pod in pod(), native: bool, own_image: bool, pull: bool,
    ) {
        prop_assert_eq!(complaints(&pod), Vec::<String>::new(), "the test's own pod: {}", pod);
        let injector = injector(native, own_image, pull);
        let (after, outcome) = admitted(&pod, &injector);
        prop_assert_eq!(complaints(&after), Vec::<String>::new(), "{} became {}", pod, after);
        match outcome {
            Outcome::Injected => prop_assert_ne!(&after, &pod),
            Outcome::Skipped(_) => prop_assert_eq!(&after, &pod),
            other => return Err(TestCaseError::fail(format!("{other:?} of {pod}"))),
        }
        // As the API server calls webhooks again after others have changed the pod.
        let (again, _) = admitted(&after, &injector);
        prop_assert_eq!(&again, &after);
        // Containers and volumes of the author's are as they were, in their order.
        for place in ["containers", "initContainers", "volumes"] {
            let of = |pod: &Value| {
                let all = pod["spec"][place].as_array().cloned().unwrap_or_default();
                let ours = [AGENT_CONTAINER, AGENT_VOLUME];
                let theirs = |one: &Value| ours.iter().all(|name| one["name"] != *name);
                all.into_iter().filter(theirs).collect::<Vec<_>>()
            };
            prop_assert_eq!(of(&after), of(&pod), "{}", place);
        }
    }

    /// A review without a uid cannot be answered; every other one is allowed, whatever it holds.
    #[test]
    fn no_bytes_make_it_panic_or_refuse_a_pod(
        bytes: Vec<u8>, pod in pod(), cut: prop::sample::Index, gone in 0..4_usize,
        written in "([\"{}:,0-9]|\\[|\\]|null|true|\\\\|\\PC){0,3}", uid in "[-0-9a-f]{1,36}",
    ) {
        let injector = injector(true, true, true);
        let body = review(&uid, &pod).to_string();
        let at = body.floor_char_boundary(cut.index(body.len()));
        let end = body.floor_char_boundary((at + gone).min(body.len())).max(at);
        let edited = format!("{}{written}{}", &body[..at], &body[end..]);
        for body in [&bytes[..], &body.as_bytes()[..at], edited.as_bytes()] {
            match answer(body, ("ns", "mesh"), &injector) {
                Err(unreadable) => {
                    let text = unreadable.to_string();
                    prop_assert!(text.starts_with("this is no AdmissionReview"), "{text}");
                }
                Ok(answer) => {
                    let review: Value = serde_json::from_slice(&answer.body).unwrap();
                    // A number that no parser holds may be in a field that nobody reads.
                    let Ok(asked) = serde_json::from_slice::<Value>(body) else { continue };
                    let response = &review["response"];
                    prop_assert_eq!(&response["uid"], &asked["request"]["uid"]);
                    prop_assert_eq!(&response["allowed"], &json!(true));
                    let injected = answer.outcome == Outcome::Injected;
                    prop_assert_eq!(response.get("patch").is_some(), injected);
                    if let Outcome::Failed(why) = answer.outcome {
                        prop_assert!(!why.is_empty());
                    }
                }
            }
        }
    }
}
