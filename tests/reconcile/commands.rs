//! The user's commands, against a real API server and the operator's own process.
use std::path::PathBuf;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    bench::{ACCOUNT, Bench},
    traffic_watch::judging::with_three_nodes,
};

pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a command as a user of the cluster.
pub async fn command(bench: &Bench, (user, group): (&str, &str), args: &[&str]) -> Outcome {
    let groups = [group, "system:authenticated"];
    let kubeconfig: PathBuf = bench.plane().kubeconfig_for(user, &groups).expect("kubeconfig");
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_traffic-operator"))
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Outcome { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

const ADMIN: (&str, &str) = ("admin", "system:masters");
const NOBODY: (&str, &str) = ("jane", "developers");

fn check<'a>(checks: &'a Value, name: &str) -> &'a Value {
    let all = checks["checks"].as_array().expect("checks");
    all.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {checks}"))
}

#[test]
fn the_doctor_finds_a_healthy_operator_healthy_and_says_what_is_missing_to_others() {
    with_three_nodes(async |bench| {
        bench.watch("web", json!({})).await;
        let operator = bench.operator();
        bench.condition("web", "Ready", "True", "Judged").await;
        let url = bench.prometheus.url.clone();
        let base = ["doctor", "-o", "json", "--prometheus-url", &url];

        let as_operator = [&base[..], &["--as", ACCOUNT]].concat();
        let outcome = command(&bench, ADMIN, &as_operator).await;
        let checks: Value = serde_json::from_str(&outcome.out).expect(&outcome.err);
        assert_eq!(outcome.code, Some(0), "{checks:#}");
        for name in
            ["api-server", "definition", "rights", "leader", "prometheus", "exporters", "nodes"]
        {
            assert_eq!(check(&checks, name)["verdict"], "ok", "{checks:#}");
        }
        let message = check(&checks, "leader")["message"].as_str().unwrap();
        assert!(message.starts_with("operator-1 leads"), "{message}");

        // An orphaned label, and an object that lost its claim.
        let label = json!({"metadata": {"labels": {"old.traffic.example.com/unfit": "true"}}});
        bench.nodes().patch("node-1", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
        bench.watch("second", json!({"label": "web"})).await;
        bench.condition("second", "Ready", "False", "Conflict").await;
        // A class of devices with the name of a resource that nodes offer.
        let resource = "traffic.example.com/egress-mbps";
        bench.watch("offers", json!({"reservation": {"resource": resource}})).await;
        bench.device_class(resource).await;
        let outcome = command(&bench, ADMIN, &["doctor", "--prometheus-url", &url]).await;
        assert_eq!(outcome.code, Some(1), "{}", outcome.out);
        for expected in [
            "default/second claims web.traffic.example.com/unfit, which belongs to the older default/web",
            "old.traffic.example.com/unfit is on 1 nodes (node-1)",
            "admin (you) may do all",
            "has the extendedResourceName traffic.example.com/egress-mbps",
        ] {
            assert!(outcome.out.contains(expected), "{expected} is not in\n{}", outcome.out);
        }

        let outcome = command(&bench, NOBODY, &["doctor", "--prometheus-url", &url]).await;
        assert!(outcome.out.contains("WARN  rights      jane (you) may not"), "{}", outcome.out);
        assert!(outcome.out.contains("cannot be listed"), "{}", outcome.out);
        drop(operator);
    });
}

#[test]
fn evaluate_reads_labels_and_capacities_of_the_cluster_and_changes_nothing() {
    with_three_nodes(async |bench| {
        let zone = json!({"metadata": {
            "labels": {"zone": "a"}, "annotations": {"traffic.example.com/capacity": "10k"}
        }});
        bench.nodes().patch("node-2", &PatchParams::default(), &Patch::Merge(zone)).await.unwrap();
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("zone.json");
        let spec = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": "zone"},
            "spec": {"maxBandwidthPercent": "60", "nodeSelector": {"matchLabels": {"zone": "a"}}}
        });
        std::fs::write(&path, spec.to_string()).unwrap();
        let since = k8s_openapi::jiff::Timestamp::now();
        let (file, url) = (path.to_str().unwrap(), bench.prometheus.url.clone());
        let args = ["evaluate", "-f", file, "--cluster", "--prometheus-url", &url];
        let outcome = command(&bench, ADMIN, &args).await;
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
        // 1000 bytes per second of 10 kbit/s.
        assert!(outcome.out.contains("bandwidth  80 %   60 %"), "{}", outcome.out);
        assert!(
            !outcome.out.contains("node-1") && !outcome.out.contains("warning"),
            "{}",
            outcome.out
        );
        let writes = bench.requests_since(since).await;
        assert!(!writes.iter().any(|e| e.is_write() && e.user == "admin"), "{writes:?}");
    });
}
