//! Every version the lab pins, in one place.
//!
//! The Go modules below `lab/tools` repeat them (Go needs them there); a test compares them.

/// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl.
pub const KUBERNETES: &str = "v1.36.3";
/// The etcd release that this Kubernetes release requires in its own `go.mod`.
pub const ETCD: &str = "v3.6.8";
/// Prometheus, by the name of its releases and image tags.
pub const PROMETHEUS: &str = "v3.13.5";
/// The same Prometheus as a Go module: its modules carry `v0.3xy.z` for release `3.xy.z`.
pub const PROMETHEUS_MODULE: &str = "v0.313.5";
/// prometheus-operator and its config reloader.
pub const PROMETHEUS_OPERATOR: &str = "v0.93.0";
pub const NODE_EXPORTER: &str = "v1.12.1";
/// OpenTelemetry's collector, of the receiver and the exporters in `lab/tools/others/otelcol`.
pub const COLLECTOR: &str = "v0.165.0";
/// Karpenter, of which the lab runs the provider of simulated nodes.
pub const KARPENTER: &str = "v1.14.1";
/// A single node of `VictoriaMetrics`.
pub const VICTORIA_METRICS: &str = "v1.151.0";
pub const THANOS: &str = "v0.42.2";
pub const CORTEX: &str = "v1.21.1";
pub const COREDNS: &str = "v1.15.0";
/// Helm, which renders the chart in the tests.
pub const HELM: &str = "v3.22.0";
/// The library of operator-sdk that checks bundles.
pub const OPERATOR_FRAMEWORK: &str = "v0.30.0";
/// The linter of workflow files.
pub const ACTIONLINT: &str = "v1.7.12";
/// Jsonnet, in Go, which renders the mixin.
pub const JSONNET: &str = "v0.21.0";
/// The tag under which Debian's static busybox is offered; the samples ask for it.
pub const BUSYBOX: &str = "1.35";
/// The pause container: the tag that this Kubernetes release names.
pub const PAUSE: &str = "3.10.1";

#[cfg(test)]
mod tests {
    use super::*;

    fn go_mod() -> String {
        let read = |file: &str| {
            let path = crate::workspace::root().join("lab/tools").join(file);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        ["go.mod", "others/go.mod", "karpenter/go.mod", "thanos/go.mod", "cortex/go.mod"]
            .map(read)
            .concat()
    }

    #[test]
    fn the_go_module_requires_the_pinned_versions() {
        let text = go_mod();
        let pins = [
            ("k8s.io/kubernetes", KUBERNETES),
            ("go.etcd.io/etcd/server/v3", ETCD),
            ("github.com/prometheus/prometheus", PROMETHEUS_MODULE),
            ("github.com/prometheus-operator/prometheus-operator", PROMETHEUS_OPERATOR),
            ("github.com/prometheus/node_exporter", NODE_EXPORTER),
            ("go.opentelemetry.io/collector/otelcol", COLLECTOR),
            ("sigs.k8s.io/karpenter", KARPENTER),
            ("github.com/VictoriaMetrics/VictoriaMetrics", VICTORIA_METRICS),
            ("github.com/thanos-io/thanos", THANOS),
            ("github.com/cortexproject/cortex", CORTEX),
            ("github.com/coredns/coredns", COREDNS),
            ("helm.sh/helm/v3", HELM),
            ("github.com/operator-framework/api", OPERATOR_FRAMEWORK),
            ("github.com/rhysd/actionlint", ACTIONLINT),
            ("github.com/google/go-jsonnet", JSONNET),
        ];
        for (module, version) in pins {
            let pinned = format!("{module} {version}");
            let line = |line: &str| {
                line.trim().trim_start_matches("require ").trim_end_matches(" // indirect")
                    == pinned
            };
            assert!(text.lines().any(line), "lab/tools/go.mod does not require {pinned}");
        }
    }

    #[test]
    fn libraries_of_kubernetes_and_etcd_are_of_the_pinned_releases() {
        let text = go_mod();
        let of_kubernetes = KUBERNETES.replacen("v1.", "v0.", 1);
        for (prefix, version) in [("k8s.io/", &*of_kubernetes), ("go.etcd.io/etcd/", ETCD)] {
            let of_it = |line: &&str| line.starts_with(&format!("replace {prefix}"));
            let replaced: Vec<_> = text.lines().filter(of_it).collect();
            assert!(replaced.len() >= 3, "{prefix}: {replaced:?}");
            for line in replaced {
                assert!(line.ends_with(&format!(" {version}")), "{line}, not {version}");
            }
        }
    }
}
