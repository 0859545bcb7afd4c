//! The `PodMonitor` of a `NetworkProber` as prometheus-operator converts it into a scrape
//! configuration.
use std::net::SocketAddr;

use serde_json::{Value, json};
use traffic_operator::{
    api::NetworkProber,
    network_prober::{
        children::Family,
        settings::{Settings, Tenancy},
    },
};

/// A pod that may be scraped.
pub struct Target {
    pub address: SocketAddr,
    pub pod: String,
    /// The node on which Kubernetes runs it.
    pub node: String,
    /// The value of its annotation.
    pub injected_by: Option<String>,
}

/// A prober of this name in the namespace `shop`, with a scrape each second.
pub fn prober(name: &str) -> NetworkProber {
    serde_json::from_value(json!({
        "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
        "metadata": {"name": name, "namespace": "shop", "uid": "u"},
        "spec": {"podSelector": {"matchLabels": {"app": name}}, "monitoring": {"interval": "1s"}},
    }))
    .expect("NetworkProber")
}

/// The `spec` of its `PrometheusRule`, which is also a rule file.
pub fn rules(prober: &NetworkProber) -> Value {
    let settings = Settings::of(prober, &Tenancy::of("traffic-operator-system")).expect("a spec");
    Family { prober, settings: &settings }.prometheus_rule(None).object["spec"].clone()
}

/// The `spec` of its `PodMonitor`.
fn monitor(prober: &NetworkProber) -> Value {
    let settings = Settings::of(prober, &Tenancy::of("traffic-operator-system")).expect("a spec");
    let family = Family { prober, settings: &settings };
    family.pod_monitor(["shop"]).object["spec"].clone()
}

/// Converts the rules of a `PodMonitor` into those of Prometheus: their fields differ only in case.
fn snake(rules: &Value) -> Vec<Value> {
    let rules = rules.as_array().expect("rules").iter();
    rules
        .map(|rule| {
            let fields = rule.as_object().expect("a rule").iter().map(|(key, value)| {
                let key: String = key
                    .chars()
                    .flat_map(|c| {
                        let under = c.is_ascii_uppercase().then_some('_');
                        under.into_iter().chain([c.to_ascii_lowercase()])
                    })
                    .collect();
                (key, value.clone())
            });
            Value::Object(fields.collect())
        })
        .collect()
}

/// Builds the scrape configuration as prometheus-operator does, but with a static list of pods.
pub fn scrape(prober: &NetworkProber, pods: &[Target]) -> Value {
    let name = prober.metadata.name.as_deref().expect("a name");
    let spec = monitor(prober);
    let endpoint = &spec["podMetricsEndpoints"][0];
    let targets: Vec<_> = pods
        .iter()
        .map(|pod| {
            let mut labels = json!({
                "__meta_kubernetes_pod_node_name": pod.node,
                "namespace": "shop", "pod": pod.pod, "job": format!("shop/{name}"),
            });
            if let Some(by) = &pod.injected_by {
                labels["__meta_kubernetes_pod_annotation_probes_bigmikes_io_injected_by"] =
                    by.as_str().into();
            }
            json!({"targets": [pod.address.to_string()], "labels": labels})
        })
        .collect();
    json!({
        "job_name": format!("podMonitor/shop/{name}/0"),
        "honor_labels": endpoint["honorLabels"],
        "scrape_interval": endpoint["interval"],
        "static_configs": targets,
        "relabel_configs": snake(&endpoint["relabelings"]),
        "metric_relabel_configs": snake(&endpoint["metricRelabelings"]),
        "sample_limit": spec["sampleLimit"],
        "label_limit": spec["labelLimit"],
        "label_name_length_limit": spec["labelNameLengthLimit"],
        "label_value_length_limit": spec["labelValueLengthLimit"],
        "body_size_limit": spec["bodySizeLimit"],
    })
}
