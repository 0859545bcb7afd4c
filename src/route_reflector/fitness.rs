//! The fitness of nodes, as the `TrafficWatch` in `candidates.fitnessRef` marks it.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Client, ResourceExt};

use super::plan::Fitness;
use crate::{
    api::{Mode, RouteReflectorSet, TrafficWatch},
    controller::Error,
    infra::Api,
    nodes::NodeStore,
};

/// Reads the fitness; `None` if the spec names no `TrafficWatch`.
///
/// # Errors
/// The error of the read.
pub(super) async fn read(
    client: &Client,
    nodes: &NodeStore,
    set: &RouteReflectorSet,
) -> Result<Option<Fitness>, Error> {
    let Some(of) = &set.spec.candidates.fitness_ref else { return Ok(None) };
    let api = Api::<TrafficWatch>::namespaced(client.clone(), &of.namespace);
    let watch = api.get_opt(&of.name).await.map_err(Error::kube("get TrafficWatch"))?;
    let Some(watch) = watch else {
        let frozen = Some(format!("there is no TrafficWatch {}/{}", of.namespace, of.name));
        return Ok(Some(Fitness { frozen, ..Fitness::default() }));
    };
    let frozen = frozen(&watch);
    let frozen = frozen.map(|why| format!("TrafficWatch {}/{} {why}", of.namespace, of.name));
    let unfit = nodes.carriers_of(&watch.label_key(), "true");
    Ok(Some(Fitness { unfit: unfit.into_iter().collect(), frozen }))
}

/// Reads the fitness for a pass. A read that fails only means that no reflector is replaced for
/// being unfit: dead ones are, and the mesh is restored, without any `TrafficWatch`.
pub(super) async fn read_or_freeze(
    client: &Client,
    nodes: &NodeStore,
    set: &RouteReflectorSet,
) -> Option<Fitness> {
    let error = match read(client, nodes, set).await {
        Ok(fitness) => return fitness,
        Err(error) => error,
    };
    let of = set.spec.candidates.fitness_ref.as_ref()?;
    tracing::warn!(
        set = set.name_any(),
        namespace = of.namespace,
        watch = of.name,
        reason = error.reason(),
        error = error.to_text(),
        "TrafficWatch not read, no reflector is replaced for being unfit"
    );
    // The condition Ready has this text. That of the server may differ each time, which would be a
    // write each time.
    let (namespace, name, reason) = (&of.namespace, &of.name, error.reason());
    let frozen = Some(format!("TrafficWatch {namespace}/{name} cannot be read ({reason})"));
    Some(Fitness { frozen, ..Fitness::default() })
}

/// Returns why the marks of a `TrafficWatch` are not acted on: without judgments the last ones stay
/// on the nodes, and so does the condition about their measurements.
fn frozen(watch: &TrafficWatch) -> Option<&'static str> {
    let condition = |type_: &str| -> Option<&Condition> {
        let mut all = watch.status.iter().flat_map(|status| &status.conditions);
        all.find(|condition| condition.type_ == type_)
    };
    if watch.spec.paused {
        return Some("is paused");
    }
    if watch.spec.mode == Mode::Observe {
        return Some("is in mode Observe, and marks no node");
    }
    // With this text the API server refuses its Deployment, and nodes are still judged.
    let is_invalid = |ready: &Condition| {
        ready.reason == "InvalidSpec" && !ready.message.starts_with("spec.deployment: ")
    };
    if condition("Ready").is_some_and(is_invalid) {
        return Some("has an invalid spec");
    }
    let is_measured = condition("MetricsAvailable").is_some_and(|found| found.status == "True");
    (!is_measured).then_some("has no measurement")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn watch(spec: &Value, conditions: &[[&str; 4]]) -> TrafficWatch {
        let mut all = json!({"maxBandwidthPercent": "60"});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let conditions: Vec<_> = conditions
            .iter()
            .map(|[type_, status, reason, message]| {
                json!({
                    "type": type_, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"namespace": "n", "name": "w"}, "spec": all,
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// The marks of the last judgment, and the condition about its measurements, stay for ever.
    #[test]
    fn marks_count_only_while_nodes_are_judged() {
        let available = ["MetricsAvailable", "True", "Available", ""];
        let ready = ["Ready", "True", "Judged", ""];
        let judging = ["Ready", "False", "Judging", ""];
        let invalid = ["Ready", "False", "InvalidSpec", "spec.prometheus: no endpoint"];
        let selector = ["Ready", "False", "InvalidSpec", "spec.deployment.selector: is empty"];
        let refused = ["Ready", "False", "InvalidSpec", "spec.deployment: quota"];
        let unavailable = ["MetricsAvailable", "False", "PrometheusTimeout", ""];
        let unknown = ["MetricsAvailable", "Unknown", "NoNodes", ""];
        let observes = Some("is in mode Observe, and marks no node");
        let no_measurement = Some("has no measurement");
        for (spec, conditions, expected) in [
            (json!({}), vec![ready, available], None),
            (json!({}), vec![judging, available], None),
            (json!({"paused": true}), vec![ready, available], Some("is paused")),
            (json!({"mode": "Observe"}), vec![ready, available], observes),
            (json!({}), vec![invalid, available], Some("has an invalid spec")),
            (json!({}), vec![selector, available], Some("has an invalid spec")),
            (json!({}), vec![refused, available], None),
            (json!({}), vec![ready, unavailable], no_measurement),
            (json!({}), vec![ready, unknown], no_measurement),
            (json!({}), vec![ready], no_measurement),
            (json!({}), vec![], no_measurement),
        ] {
            let found = frozen(&watch(&spec, &conditions));
            assert_eq!(found, expected, "{spec} {conditions:?}");
        }
    }
}
