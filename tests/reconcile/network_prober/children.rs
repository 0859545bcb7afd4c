//! The objects that a NetworkProber owns, and the lifecycle of its certificates.
use k8s_openapi::{
    api::apps::v1::DaemonSet,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::json;

use super::{selector, served, with};
use crate::bench::{Bench, eventually, run};

fn monitoring(bench: &Bench, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("monitoring.coreos.com", "v1", kind);
    Api::namespaced_with(bench.client.clone(), "default", &ApiResource::from_gvk(&kind))
}

/// Installs prometheus-operator's definitions, as far as we use them.
async fn install_monitoring(bench: &Bench, with_histograms: bool) {
    let definitions = Api::<CustomResourceDefinition>::all(bench.client.clone());
    for (kind, plural) in [("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules")] {
        let mut spec = json!({
            "selector": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "namespaceSelector": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "podMetricsEndpoints": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "groups": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "sampleLimit": {"type": "integer"}, "labelLimit": {"type": "integer"},
            "labelNameLengthLimit": {"type": "integer"}, "labelValueLengthLimit": {"type": "integer"},
        });
        if with_histograms {
            spec["scrapeClassicHistograms"] = json!({"type": "boolean"});
            spec["bodySizeLimit"] = json!({"type": "string"});
        }
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}}],
            },
        });
        let name = format!("{plural}.monitoring.coreos.com");
        let params = PatchParams::apply("test").force();
        definitions.patch(&name, &params, &Patch::Apply(definition)).await.expect("definition");
        let served = async || {
            let list = monitoring(bench, kind).list(&kube::api::ListParams::default()).await;
            list.ok().map(drop)
        };
        eventually("the definition to be served", served).await;
    }
}

async fn uninstall_monitoring(bench: &Bench) {
    let definitions = Api::<CustomResourceDefinition>::all(bench.client.clone());
    for plural in ["podmonitors", "prometheusrules"] {
        let name = format!("{plural}.monitoring.coreos.com");
        // It may be missing.
        let _ = definitions.delete(&name, &DeleteParams::default()).await;
        let gone = async || definitions.get_opt(&name).await.ok()?.is_none().then_some(());
        eventually("the definition to go", gone).await;
    }
}

#[test]
fn prometheus_is_configured_by_objects_that_are_owned() {
    run(async |bench| {
        install_monitoring(&bench, true).await;
        let _operator = bench.ready_operator().await;
        let spec = json!({"monitoring": {"interval": "15s", "labels": {"release": "prometheus"}}});
        bench.prober("np", with(selector(), &spec)).await;
        bench.until_condition("np", "Monitored", "True", "Applied").await;
        let monitor = monitoring(&bench, "PodMonitor").get("np").await.expect("PodMonitor");
        assert_eq!(monitor.labels()["release"], "prometheus");
        assert_eq!(monitor.owner_references()[0].kind, "NetworkProber");
        let spec = &monitor.data["spec"];
        assert_eq!(spec["selector"], json!({"matchLabels": {"app": "net-prober"}}));
        assert_eq!(spec["namespaceSelector"]["matchNames"], json!(["default"]));
        assert_eq!(spec["podMetricsEndpoints"][0]["port"], "np-prometheus");
        assert_eq!(spec["podMetricsEndpoints"][0]["interval"], "15s");
        assert_eq!(spec["scrapeClassicHistograms"], true);
        assert_eq!((&spec["sampleLimit"], &spec["bodySizeLimit"]), (&json!(20_000), &json!("8MB")));
        let rule = monitoring(&bench, "PrometheusRule").get("np").await.expect("PrometheusRule");
        let text = rule.data["spec"].to_string();
        assert!(
            text.contains("netprober:node_loss:ratio1m") && text.contains("default/np"),
            "{text}"
        );
        // A change by another client is reverted in the next pass.
        let spoil = Patch::Merge(json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}}));
        monitoring(&bench, "PodMonitor")
            .patch("np", &PatchParams::default(), &spoil)
            .await
            .expect("patch");
        bench.pod("default", "a", json!({})).await;
        let back = async || {
            let monitor = monitoring(&bench, "PodMonitor").get("np").await.ok()?;
            (monitor.data["spec"]["selector"]["matchLabels"]["app"] == "net-prober").then_some(())
        };
        eventually("the selector to come back", back).await;
        bench.change("np", json!({"monitoring": {"podMonitor": false}})).await;
        let gone = async || {
            monitoring(&bench, "PodMonitor").get_opt("np").await.ok()?.is_none().then_some(())
        };
        eventually("the PodMonitor to go", gone).await;
        let off = json!({"monitoring": {"podMonitor": false, "prometheusRule": false}});
        bench.change("np", off).await;
        let gone = async || {
            let rules = monitoring(&bench, "PrometheusRule");
            rules.get_opt("np").await.ok()?.is_none().then_some(())
        };
        eventually("the PrometheusRule to go", gone).await;
        uninstall_monitoring(&bench).await;
    });
}

/// An older prometheus-operator does not know all fields: the known ones are written all the same.
#[test]
fn an_older_definition_gets_what_it_knows() {
    run(async |bench| {
        install_monitoring(&bench, false).await;
        let _operator = bench.ready_operator().await;
        bench.prober("np", selector()).await;
        bench.until_condition("np", "Monitored", "True", "Applied").await;
        let there = async || monitoring(&bench, "PodMonitor").get_opt("np").await.ok().flatten();
        let monitor = eventually("the PodMonitor", there).await;
        assert!(monitor.data["spec"].get("scrapeClassicHistograms").is_none());
        assert!(monitor.data["spec"].get("bodySizeLimit").is_none());
        assert_eq!(monitor.data["spec"]["sampleLimit"], 20_000);
        bench.until_condition("np", "Ready", "True", "Serving").await;
        uninstall_monitoring(&bench).await;
    });
}

#[test]
fn in_mode_daemon_set_nodes_have_agents_and_pods_none() {
    served(async |bench, _operator| {
        let spec = json!({"mode": "DaemonSet", "podSelector": {"matchLabels": {"app": "agents"}}});
        bench.prober("np", spec).await;
        let sets: Api<DaemonSet> = Api::namespaced(bench.client.clone(), "default");
        let set =
            eventually("the DaemonSet", async || sets.get_opt("np").await.ok().flatten()).await;
        let template =
            serde_json::to_value(&set.spec.as_ref().expect("spec").template).expect("template");
        assert_eq!(template["metadata"]["labels"]["app"], "agents");
        // The selector is immutable, so it excludes everything that the author may change.
        let own =
            set.spec.as_ref().map(|spec| spec.selector.match_labels.clone().unwrap_or_default());
        assert_eq!(
            own.iter().flatten().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
            ["probes.bigmikes.io/owner-uid"]
        );
        let change = json!({"podSelector": {"matchLabels": {"app": null, "team": "b"}}});
        bench.change("np", change).await;
        let follows = async || {
            let set = sets.get("np").await.ok()?;
            let labels = set.spec?.template.metadata?.labels?;
            (labels.get("team")? == "b" && !labels.contains_key("app")).then_some(())
        };
        eventually("the labels of the agents to follow", follows).await;
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["agent", "probe"]));
        assert_eq!(container["image"], crate::bench::AGENT_IMAGE);
        assert_eq!(container["resources"]["requests"], json!({"cpu": "10m", "memory": "16Mi"}));
        assert_eq!(template["spec"]["tolerations"], json!([{"operator": "Exists"}]));
        assert!(bench.entry("default", "np").await.is_none());
        let ready = bench.until_condition("np", "Ready", "True", "Serving").await;
        assert!(ready.starts_with("nodes have an agent"), "{ready}");
        // Back to sidecars: the DaemonSet is deleted, and the webhook is created.
        bench.change("np", json!({"mode": "Sidecar"})).await;
        let changed = async || {
            let set = sets.get_opt("np").await.ok()?;
            let webhook = bench.entry("default", "np").await;
            (set.is_none() && webhook.is_some()).then_some(())
        };
        eventually("the webhook in place of the DaemonSet", changed).await;
    });
}

/// Without a change there is no write.
#[test]
fn a_quiet_cluster_costs_no_write() {
    served(async |bench, operator| {
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        bench.pod("default", "a", json!({})).await;
        bench.runs("default", "a", "10.1.0.1").await;
        bench.until_prober("np", &[("/injected", json!(1)), ("/pods", json!(["a"]))]).await;
        // The definitions of prometheus-operator are missing, and all else is served.
        bench.until_condition("np", "Monitored", "False", "KindAbsent").await;
        bench.until_condition("np", "Ready", "True", "Serving").await;
        let passes =
            async || operator.metric("traffic_operator_reconcile_total", &["networkprober"]).await;
        // Our own last write triggers one more pass.
        let settled = async || {
            let (before, since) = (passes().await, Timestamp::now());
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
            ((passes().await - before).abs() < 0.5 && bench.writes_since(since).await.is_empty())
                .then_some(())
        };
        eventually("a quiet moment", settled).await;
        let (since, before) = (Timestamp::now(), passes().await);
        // A pass runs once a period; an edit triggers one at once.
        let touch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
        bench.probers("default").patch("np", &PatchParams::default(), &touch).await.expect("touch");
        eventually("another pass", async || (passes().await > before).then_some(())).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.is_empty(), "{writes:?}");
    });
}
