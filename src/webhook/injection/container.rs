//! The agent's container and volume.
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Delivery, Recipe, Resources};
use crate::{
    api::parse_quantity,
    pods::{
        AGENT_CONTAINER, AGENT_VOLUME, CONSTRAINT_ANNOTATION, Compute, METRICS_PORT, PING_PORT,
        PodObject, Qos,
    },
};

/// Mount path of the volume, as in the original.
const MOUNT: &str = "/etc/netprober";

/// The keys of the agents' `ConfigMap`. No others are mounted: the author of a `NetworkProber`
/// chooses its name, and a map of that name in the pod's namespace may be another owner's.
const FILES: [&str; 2] = ["ca.crt", "config.json"];

/// Path at which the API server mounts the token of a pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The user `nonroot` of our own image and of the distroless ones.
const NONROOT: i64 = 65532;

/// The constraints of `OpenShift` that admit any user, or any except root, and assign none. All
/// others, including those that an administrator created, may restrict a pod's users.
const ANY_USER: [&str; 5] = ["anyuid", "hostmount-anyuid", "nonroot", "nonroot-v2", "privileged"];

/// Lifetime of the token that proves the pod's identity to the operator, in seconds: an hour. The
/// kubelet renews it after four fifths, and the API server allows no less than ten minutes.
const TOKEN_SECONDS: u32 = 3600;

/// Audience of the token: no other server accepts it.
const TOKEN_AUDIENCE: &str = "traffic-operator";

/// The processor time an agent of a Guaranteed pod has when the recipe names no limit. Such a pod
/// must have one, and an agent that is throttled measures its own throttling: 50 ms of each second
/// are some ten times the need of 16 peers at a period of 10 s.
const GUARANTEED_CPU: &str = "50m";

/// The same for memory: the agent is one static program with a small heap.
const GUARANTEED_MEMORY: &str = "64Mi";

/// The processor time an agent may use where all of the pod's containers have a limit, which a
/// quota may require: 10 ms in each tenth of a second, enough for a scrape of 2,000 series.
const LIMITED_CPU: &str = "100m";

/// Requests of an agent if all of the pod's containers have requests but the recipe has none: the
/// defaults of the spec.
const REQUESTED_CPU: &str = "10m";

/// The same for memory.
const REQUESTED_MEMORY: &str = "16Mi";

/// Readable by every user, written in decimal as the original does: 0644.
const MODE: u32 = 420;

/// Builds the agent's container for a pod.
pub(super) fn container(pod: &PodObject, recipe: &Recipe) -> Value {
    let mut container = json!({
        "name": AGENT_CONTAINER,
        "image": recipe.image,
        "imagePullPolicy": recipe.pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": environment(recipe),
        // No readiness probe: a sidecar's readiness is its pod's.
        "ports": [
            {"name": PING_PORT, "containerPort": recipe.http_port, "protocol": "TCP"},
            {"name": METRICS_PORT, "containerPort": recipe.prometheus_port, "protocol": "TCP"},
        ],
        "volumeMounts": [
            {"name": AGENT_VOLUME, "mountPath": MOUNT, "readOnly": true},
            // At a path with a mount, the API server mounts no token of the pod's account: the
            // agent does not need it, and the webhook is not called a second time because of it.
            {"name": AGENT_VOLUME, "mountPath": ACCOUNT, "readOnly": true},
        ],
        "resources": written(resources(pod, &recipe.resources)),
        "securityContext": security_context(pod, recipe),
    });
    if recipe.own_image {
        container["args"] = json!(["agent", "probe"]);
    }
    if recipe.native_sidecar {
        container["restartPolicy"] = json!("Always");
    }
    container
}

/// Returns the container and its volume for a separate pod: with the configured resources, and not
/// as an init container.
pub(super) fn standalone(recipe: &Recipe) -> (Value, Value) {
    let mut container = container(&PodObject::default(), recipe);
    let Resources { requests, limits } = &recipe.resources;
    container["resources"] = json!({"requests": requests, "limits": limits});
    if let Some(container) = container.as_object_mut() {
        container.remove("restartPolicy");
    }
    (container, volume(recipe))
}

/// Returns the security context that the Pod Security Standard "restricted" requires of a
/// container.
///
fn security_context(pod: &PodObject, recipe: &Recipe) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    if let Some(user) = user(pod, recipe) {
        context["runAsUser"] = json!(user);
        context["runAsGroup"] = json!(user);
    }
    context
}

/// Returns the user to set, if one must be set.
///
/// The kubelet does not start a container that must not run as root if its user is root or not a
/// number; a native sidecar that does not start keeps the whole pod from starting. Also, a process
/// of the application's user could signal and trace the agent and shares its limits. So the user is
/// set if it would otherwise be the pod's, or if the image is not ours; our own image has a numeric
/// user, which the kubelet reads from it.
///
/// If the cluster assigns users by namespace (`OpenShift`), a fixed one would be refused, and with
/// it the pod. The constraint that admits the pod is in an annotation before webhooks are called,
/// and is applied again after them: the agent gets the namespace's user, like every container.
///
/// A token that only its owner may read belongs to the user that all containers share: with another
/// one among them, the kubelet gives it to root, and the application cannot read it.
fn user(pod: &PodObject, recipe: &Recipe) -> Option<i64> {
    if recipe.run_as_user.is_some() {
        return recipe.run_as_user;
    }
    let constraint = pod.annotation(CONSTRAINT_ANNOTATION);
    let assigned = constraint.is_some_and(|name| !ANY_USER.contains(&name));
    let used: Vec<_> = pod
        .run_as_user()
        .into_iter()
        .chain(pod.all_containers().filter_map(|c| c.run_as_user))
        .collect();
    if let Some(shared) = pod.shared_user().filter(|user| pod.guards_token() && *user != 0) {
        return (!assigned).then_some(shared);
    }
    let named = match pod.run_as_user() {
        Some(0) => true,
        Some(_) => !assigned,
        None => !assigned && (!recipe.own_image || used.contains(&NONROOT)),
    };
    named.then(|| (NONROOT..).take(used.len() + 1).find(|user| !used.contains(user))).flatten()
}

fn environment(recipe: &Recipe) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let mut all = vec![
        json!({"name": "HTTP_PORT", "value": recipe.http_port.to_string()}),
        json!({"name": "HTTP_PROMETHEUS_PORT", "value": recipe.prometheus_port.to_string()}),
        json!({"name": "NET_PROBER_CONFIG_FILE", "value": format!("{MOUNT}/config.json")}),
        field("NET_PROBER_POD_NAMESPACE", "metadata.namespace"),
        field("NET_PROBER_POD_NAME", "metadata.name"),
        field("NET_PROBER_POD_IPS", "status.podIPs"),
        field("NET_PROBER_NODE", "spec.nodeName"),
        json!({"name": "NET_PROBER_PROBER", "value": recipe.prober}),
        json!({"name": "NET_PROBER_DELIVERY", "value": recipe.delivery.as_str()}),
    ];
    if let Delivery::Pull { url } = &recipe.delivery {
        all.push(json!({"name": "NET_PROBER_PINGLIST_URL", "value": url}));
    }
    Value::Array(all)
}

/// The volume. Nothing in it can keep the pod from starting: the map is optional, and so is each of
/// its keys; and a token is issued for every pod.
pub(super) fn volume(recipe: &Recipe) -> Value {
    let items = FILES.map(|file| json!({"key": file, "path": file}));
    let mut sources = vec![json!({"configMap": {
        "name": recipe.config_map, "items": items, "optional": true
    }})];
    if matches!(recipe.delivery, Delivery::Pull { .. }) {
        sources.push(json!({"serviceAccountToken": {
            "path": "token", "audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS
        }}));
    }
    json!({"name": AGENT_VOLUME, "projected": {"defaultMode": MODE, "sources": sources}})
}

/// Returns the agent's resources, which keep the pod's quality-of-service class, and meet every
/// quota that its containers meet.
pub(super) fn resources(pod: &PodObject, asked: &Resources) -> Resources {
    let mut given = asked.clone();
    match pod.qos() {
        // The pod's resources include the agent; the sum of the containers must not exceed them.
        _ if pod.has_pod_resources() => given.drop_computing(),
        Qos::BestEffort => given.drop_computing(),
        Qos::Burstable => given.complete(pod),
        Qos::Guaranteed => {
            for (name, least) in [("cpu", GUARANTEED_CPU), ("memory", GUARANTEED_MEMORY)] {
                let amount = guaranteed(asked, name, least);
                given.requests.insert(name.into(), amount.clone());
                given.limits.insert(name.into(), amount);
            }
        }
    }
    given
}

fn written(resources: Resources) -> Value {
    let mut object = Map::new();
    for (key, amounts) in [("requests", resources.requests), ("limits", resources.limits)] {
        if !amounts.is_empty() {
            object.insert(key.into(), json!(amounts));
        }
    }
    Value::Object(object)
}

/// Returns the amount used as both request and limit: the configured limit, otherwise the larger of
/// the request and `least`.
fn guaranteed(asked: &Resources, name: &str, least: &str) -> String {
    let of = |amounts: &BTreeMap<String, String>| {
        amounts.get(name).filter(|text| size(text) > 0.0).cloned()
    };
    of(&asked.limits)
        .or_else(|| of(&asked.requests).filter(|text| size(text) > size(least)))
        .unwrap_or_else(|| least.into())
}

fn size(text: &str) -> f64 {
    parse_quantity(text).unwrap_or_default()
}

impl Resources {
    /// Adds the resources that all of the pod's containers have. A quota on requests or limits
    /// refuses a pod with a container that has none; under such a quota, all of the pod's
    /// containers have them, because the pod would be refused otherwise.
    fn complete(&mut self, pod: &PodObject) {
        for (what, request, limit) in [
            (Compute::Cpu, REQUESTED_CPU, LIMITED_CPU),
            (Compute::Memory, REQUESTED_MEMORY, GUARANTEED_MEMORY),
        ] {
            let name = what.as_str();
            if pod.all_state(what, true) && !self.limits.contains_key(name) {
                let request = self.requests.get(name).filter(|text| size(text) > size(limit));
                self.limits.insert(name.into(), request.map_or(limit, |text| text).to_owned());
            }
            // For a resource with only a limit, the API server adds an equal request.
            let stated = self.requests.contains_key(name) || self.limits.contains_key(name);
            if pod.all_state(what, false) && !stated {
                self.requests.insert(name.into(), request.into());
            }
        }
    }

    /// Drops the resources that decide the class, and huge pages, which are not allowed without
    /// them.
    fn drop_computing(&mut self) {
        let keep =
            |name: &String| !matches!(&**name, "cpu" | "memory") && !name.starts_with("hugepages-");
        self.requests.retain(|name, _| keep(name));
        self.limits.retain(|name, _| keep(name));
    }
}
