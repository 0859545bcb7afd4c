//! The programs, their origins and their version flags.

use anyhow::{Context, Result};

use crate::versions;

/// One program, built from the Go module `lab/tools`.
pub(super) struct Tool {
    pub name: &'static str,
    pub package: &'static str,
    pub tags: &'static str,
    pub version: &'static str,
    version_style: VersionStyle,
    pub version_arguments: &'static [&'static str],
}

/// The way in which a program gets its version when it is linked, and how it prints it.
#[derive(Clone, Copy)]
enum VersionStyle {
    /// `Kubernetes v1.2.3`, `Client Version: v1.2.3`.
    Kubernetes,
    /// `etcd Version: 1.2.3`: compiled in.
    Etcd,
    /// `prometheus, version 1.2.3 (…)`.
    Prometheus,
    /// `CoreDNS-1.2.3`: compiled in.
    CoreDns,
    /// `helm v1.2.3`, by a template of ours.
    Helm,
    /// `bundle-validate v1.2.3`: that of its library, compiled in.
    BundleValidate,
    /// `1.2.3`, and on the next line `installed by …`.
    Actionlint,
    /// `Jsonnet commandline interpreter (Go implementation) v1.2.3`: compiled in.
    Jsonnet,
}

/// `github.com/prometheus/common/version`, which all of Prometheus' programs link.
const PROMETHEUS_VERSION: &str = "github.com/prometheus/common/version.Version";

impl Tool {
    /// Returns the output of `--version` for the pinned version, up to the character after the
    /// number.
    pub fn version_says(&self) -> String {
        let number = self.version.trim_start_matches('v');
        match self.version_style {
            VersionStyle::Kubernetes if self.name == "kubectl" => {
                format!("Client Version: v{number}\n")
            }
            VersionStyle::Kubernetes => format!("Kubernetes v{number}\n"),
            VersionStyle::Etcd => format!("etcd Version: {number}\n"),
            VersionStyle::Prometheus => format!("version {number} "),
            VersionStyle::CoreDns => format!("CoreDNS-{number}\n"),
            VersionStyle::Helm => format!("helm v{number}\n"),
            VersionStyle::BundleValidate => format!("bundle-validate v{number}\n"),
            VersionStyle::Actionlint => format!("{number}\ninstalled "),
            VersionStyle::Jsonnet => format!("(Go implementation) v{number}\n"),
        }
    }

    /// Flags for Go's linker: no symbol tables (half the size), and the version.
    pub fn linker_flags(&self) -> String {
        let number = self.version.trim_start_matches('v');
        match self.version_style {
            VersionStyle::Kubernetes => {
                let mut parts = number.split('.');
                let (major, minor) =
                    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                let x = "k8s.io/component-base/version";
                format!(
                    "-s -w -X {x}.gitVersion=v{number} -X {x}.gitMajor={major} -X {x}.gitMinor={minor}"
                )
            }
            VersionStyle::Prometheus => format!("-s -w -X {PROMETHEUS_VERSION}={number}"),
            VersionStyle::Etcd
            | VersionStyle::CoreDns
            | VersionStyle::BundleValidate
            | VersionStyle::Jsonnet => "-s -w".to_owned(),
            VersionStyle::Actionlint => {
                format!("-s -w -X github.com/rhysd/actionlint.version={number}")
            }
            // The version of Kubernetes that charts are rendered and linted for: ours.
            VersionStyle::Helm => {
                let kubernetes = versions::KUBERNETES.trim_start_matches('v');
                let mut parts = kubernetes.split('.');
                let (major, minor) =
                    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                let x = "helm.sh/helm/v3";
                let of = |package: &str| {
                    let x = format!("{x}/pkg/{package}");
                    format!("-X {x}.k8sVersionMajor={major} -X {x}.k8sVersionMinor={minor}")
                };
                format!(
                    "-s -w -X {x}/internal/version.version=v{number} {} {}",
                    of("chartutil"),
                    of("lint/rules")
                )
            }
        }
    }
}

/// Prometheus with the one discovery it needs here: all of them would triple its size and build
/// time.
const PROMETHEUS_TAGS: &str = "remove_all_sd,enable_kubernetes_sd,netgo";

const fn kubernetes(name: &'static str, package: &'static str) -> Tool {
    Tool {
        name,
        package,
        tags: "",
        version: versions::KUBERNETES,
        version_style: VersionStyle::Kubernetes,
        version_arguments: &["--version"],
    }
}

const fn prometheus(
    name: &'static str,
    package: &'static str,
    tags: &'static str,
    version: &'static str,
) -> Tool {
    Tool {
        name,
        package,
        tags,
        version,
        version_style: VersionStyle::Prometheus,
        version_arguments: &["--version"],
    }
}

/// In the order of building: what a control plane needs comes first.
static TOOLS: [Tool; 17] = [
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Tool {
        version: versions::ETCD,
        version_style: VersionStyle::Etcd,
        ..kubernetes("etcd", "go.etcd.io/etcd/server/v3")
    },
    Tool {
        version_arguments: &["version", "--client"],
        ..kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl")
    },
    kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    prometheus(
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator/cmd/operator",
        "",
        versions::PROMETHEUS_OPERATOR,
    ),
    prometheus(
        "prometheus-config-reloader",
        "github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader",
        "",
        versions::PROMETHEUS_OPERATOR,
    ),
    prometheus(
        "prometheus",
        "github.com/prometheus/prometheus/cmd/prometheus",
        PROMETHEUS_TAGS,
        versions::PROMETHEUS,
    ),
    prometheus(
        "promtool",
        "github.com/prometheus/prometheus/cmd/promtool",
        PROMETHEUS_TAGS,
        versions::PROMETHEUS,
    ),
    prometheus("node_exporter", "github.com/prometheus/node_exporter", "", versions::NODE_EXPORTER),
    Tool {
        name: "coredns",
        package: "./coredns",
        tags: "",
        version: versions::COREDNS,
        version_style: VersionStyle::CoreDns,
        version_arguments: &["-version"],
    },
    Tool {
        name: "helm",
        package: "helm.sh/helm/v3/cmd/helm",
        tags: "",
        version: versions::HELM,
        version_style: VersionStyle::Helm,
        version_arguments: &["version", "--template", "helm {{.Version}}\n"],
    },
    Tool {
        name: "bundle-validate",
        package: "./bundle",
        tags: "",
        version: versions::OPERATOR_FRAMEWORK,
        version_style: VersionStyle::BundleValidate,
        version_arguments: &["-version"],
    },
    Tool {
        name: "actionlint",
        package: "github.com/rhysd/actionlint/cmd/actionlint",
        tags: "",
        version: versions::ACTIONLINT,
        version_style: VersionStyle::Actionlint,
        version_arguments: &["-version"],
    },
    Tool {
        name: "jsonnet",
        package: "github.com/google/go-jsonnet/cmd/jsonnet",
        tags: "",
        version: versions::JSONNET,
        version_style: VersionStyle::Jsonnet,
        version_arguments: &["--version"],
    },
];

/// Returns the names of all programs.
#[must_use]
pub fn names() -> Vec<&'static str> {
    TOOLS.iter().map(|tool| tool.name).collect()
}

pub(super) fn find(name: &str) -> Result<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name).with_context(|| {
        format!("the lab knows no program {name:?}; it knows {}", names().join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_recognized_whole() {
        // v1.36.3 must not be taken for v1.36.31.
        let said = format!("Kubernetes {}1\n", versions::KUBERNETES);
        assert!(!said.contains(&find("kubelet").unwrap().version_says()));
        assert_eq!(find("prometheus").unwrap().version_says(), "version 3.13.5 ");
        assert_eq!(find("kubectl").unwrap().version_says(), "Client Version: v1.36.3\n");
        assert_eq!(find("actionlint").unwrap().version_says(), "1.7.12\ninstalled ");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = find("kubeadm").err().unwrap().to_string();
        assert!(error.contains("kubeadm") && error.contains("kube-apiserver"), "{error}");
    }
}
