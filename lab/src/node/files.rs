//! The configuration files of a node's components. No IO.

use serde_json::json;

use super::{CONTAINERD_SOCKET, NodeConfig};

/// containerd: version 2 of the file's format serves containerd 1.6 and 2.
pub(super) fn containerd(config: &NodeConfig) -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# "opt" would write to /opt, which is not the node's own; the others look for devices that no node here has.
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{}"
  # Root in a virtual machine or container often may not lower this; runc would fail every sandbox.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "/var/lib/lab/cni"
"#,
        config.sandbox_image
    )
}

/// Directory in which Debian installs the CNI plugins.
pub(crate) const CNI_PROGRAMS: &str = "/usr/lib/cni";

/// The pod network: a bridge per node, addresses from the node's own range, no masquerading (all
/// are routed).
pub(super) fn cni(config: &NodeConfig) -> String {
    let value = json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": config.pod_cidr}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    format!("{value:#}\n")
}

/// The kubelet: frequent heartbeats, so that a dead node is noticed in seconds; no eviction because
/// of a full disk; and changed `ConfigMap`s reach pods within seconds (Prometheus reads its
/// configuration and rules from some).
pub(super) fn kubelet(config: &NodeConfig) -> String {
    let value = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": config.address,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": config.authority},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": config.certificate,
        "tlsPrivateKeyFile": config.key,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": config.cgroup_root,
        // Machines with version 1 are refused by default since 1.35.
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDomain": "cluster.local",
        "clusterDNS": [config.dns],
        "resolvConf": "/var/lib/lab/resolv.conf",
        "evictionHard": {
            "memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
        },
        // Images come from archives: one that is collected does not come back.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "2s",
        // How often mounted ConfigMaps and Secrets are brought up to date; elsewhere every minute.
        "syncFrequency": "5s",
    });
    format!("{value:#}\n")
}

/// kube-proxy by nftables; it leaves the machine-wide settings of connection tracking alone.
pub(super) fn kube_proxy(config: &NodeConfig) -> String {
    let value = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": config.proxy_kubeconfig},
        "hostnameOverride": config.name,
        // Traffic from elsewhere is masqueraded, so that answers find their way back.
        "clusterCIDR": config.cluster_cidr,
        "oomScoreAdj": 0,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        // A Service's address should work as soon as its pods do.
        "nftables": {"minSyncPeriod": "100ms"},
    });
    format!("{value:#}\n")
}
