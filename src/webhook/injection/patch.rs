//! The JSON patch (RFC 6902) that adds the agent to a pod.
//!
//! Only `add` operations, computed from the received JSON: a Pod that is read into types and
//! written again loses every field that the types do not know.
//!
//! Service meshes are left alone. To keep a mesh's proxy out of the measurement, the author of the
//! pod excludes the agent's ports (`traffic.sidecar.istio.io/excludeInboundPorts` and
//! `…OutboundPorts`, `config.linkerd.io/skip-inbound-ports` and `…outbound-ports`) in the pod's
//! template. Adding these here would not do the same: on a pod they *replace* the exclusions of the
//! namespace and the mesh, so that other ports of the application change their behavior; excluding
//! an outbound port removes the encryption from all traffic of the application to that port; and
//! Istio's webhook has read them before ours is called.
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Recipe, container, skip_reason, stripped};
use crate::pods::{
    AGENT_VOLUME, DEPLOYED_ANNOTATION, HASH_ANNOTATION, INJECTED_BY_ANNOTATION, PodObject,
    REFUSED_ANNOTATION,
};

/// One operation: `add`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename = "add")]
pub struct Op {
    /// The position, as a JSON pointer.
    pub path: String,
    /// The value to add.
    pub value: Value,
}

impl Op {
    fn new(path: impl Into<String>, value: Value) -> Self {
        Self { path: path.into(), value }
    }
}

/// Returns the operations that add the agent, or restore the restart policy of one that is there;
/// none if there is a reason not to, or if the Pod has no containers.
#[must_use]
pub fn patch(pod: &PodObject, recipe: &Recipe) -> Vec<Op> {
    let bare = pod.containers().unwrap_or_default().is_empty();
    if bare || skip_reason(pod, recipe).is_some() {
        return Vec::new();
    }
    if let Some(place) = stripped(pod, recipe) {
        let path = format!("/spec/initContainers/{place}/restartPolicy");
        return vec![Op::new(path, json!("Always"))];
    }
    let ours = [
        (DEPLOYED_ANNOTATION, "true".to_owned()),
        (INJECTED_BY_ANNOTATION, recipe.prober.clone()),
        (HASH_ANNOTATION, recipe.hash()),
    ];
    let mut ops = annotations(pod, ours);
    ops.extend(volumes(pod, recipe));
    let agent = container::container(pod, recipe);
    // The first to start and the last to end, so that it measures all of the pod's life.
    ops.push(match pod.init_containers() {
        _ if !recipe.native_sidecar => Op::new("/spec/containers/-", agent),
        Some(_) => Op::new("/spec/initContainers/0", agent),
        None => Op::new("/spec/initContainers", json!([agent])),
    });
    ops
}

fn volumes(pod: &PodObject, recipe: &Recipe) -> Option<Op> {
    let volume = container::volume(recipe);
    match pod.volumes() {
        // Our volume, left behind when the container was removed: two with the same name are
        // refused.
        Some(names) if names.iter().any(|name| &**name == AGENT_VOLUME) => None,
        Some(_) => Some(Op::new("/spec/volumes/-", volume)),
        None => Some(Op::new("/spec/volumes", json!([volume]))),
    }
}

/// Returns the operations that mark a pod which would be refused with the agent.
#[must_use]
pub fn mark(pod: &PodObject, recipe: &Recipe) -> Vec<Op> {
    annotations(pod, [(REFUSED_ANNOTATION, recipe.mark())])
}

fn annotations<const N: usize>(pod: &PodObject, ours: [(&str, String); N]) -> Vec<Op> {
    const REPLACED: [&str; 2] = [HASH_ANNOTATION, REFUSED_ANNOTATION];
    if pod.metadata.annotations.is_some() {
        // Adding an existing field would replace it: only what is outdated and always ours is
        // overwritten.
        let missing = ours.into_iter().filter(|(key, value)| match pod.annotation(key) {
            Some(present) => REPLACED.contains(key) && present != value,
            None => true,
        });
        let add = |(key, value): (&str, String)| {
            Op::new(format!("/metadata/annotations/{}", escape(key)), value.into())
        };
        return missing.map(add).collect();
    }
    let all: Map<_, _> = ours.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    if pod.has_metadata {
        vec![Op::new("/metadata/annotations", all.into())]
    } else {
        vec![Op::new("/metadata", json!({"annotations": all}))]
    }
}

/// Escapes a key for a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_tilde_first() {
        assert_eq!(escape("a.b/c~d/~1"), "a.b~1c~0d~1~01");
    }

    #[test]
    fn an_operation_as_the_api_server_reads_it() {
        let op = Op::new("/a", json!(1));
        assert_eq!(
            serde_json::to_value(op).unwrap(),
            json!({"op": "add", "path": "/a", "value": 1})
        );
    }
}
