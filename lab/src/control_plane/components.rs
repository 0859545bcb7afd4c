//! The command lines of the four components, from one description of where they run. No IO.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::CommandLine;

/// Services get their addresses from this range; the first one is the API server's own.
pub(crate) const SERVICE_CIDR: &str = "10.79.0.0/16";
/// The `ClusterIP` of the Service `kubernetes`.
pub(crate) const SERVICE_API: &str = "10.79.0.1";

/// The log of all requests, in the directory of a control plane.
pub(crate) const AUDIT_LOG: &str = "audit.log";
/// Signs all certificates but one.
pub(crate) const AUTHORITY: &str = "lab-ca";
/// Signs the certificate with which the API server calls API servers behind it.
pub(crate) const FRONT_PROXY_AUTHORITY: &str = "lab-front-proxy-ca";

/// What runs where no kubelet does: each of the others watches objects that nobody makes there.
const CONTROLLERS: &str = "\
    clusterrole-aggregation-controller,daemonset-controller,deployment-controller,\
    disruption-controller,endpointslice-controller,garbage-collector-controller,\
    namespace-controller,node-lifecycle-controller,pod-garbage-collector-controller,\
    replicaset-controller,resourcequota-controller,root-ca-certificate-publisher-controller,\
    serviceaccount-controller,serviceaccount-token-controller,statefulset-controller,\
    taint-eviction-controller,validatingadmissionpolicy-status-controller";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub api: u16,
    pub etcd: u16,
    pub etcd_peer: u16,
    pub controller_manager: u16,
    pub scheduler: u16,
}

/// The location and the settings of one control plane.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Holds `pki/`, `kubeconfig/`, `etcd/`, `log/` and the audit log.
    pub dir: PathBuf,
    /// The address the API server listens on.
    pub host: String,
    pub ports: Ports,
    /// The network namespace, if it is not the caller's.
    pub network: Option<String>,
    /// True if there will be nodes: they need the API server among the endpoints of Service
    /// `kubernetes`.
    pub nodes: bool,
    /// Further arguments of the API server.
    pub extra: Vec<String>,
}

impl Layout {
    /// Returns the URL of the API server for processes in the same network namespace.
    pub fn server(&self) -> String {
        format!("https://{}:{}", self.host, self.ports.api)
    }

    pub fn audit_log(&self) -> PathBuf {
        self.dir.join(AUDIT_LOG)
    }

    fn pki(&self, file: &str) -> String {
        self.dir.join("pki").join(file).to_string_lossy().into_owned()
    }

    fn command(&self, program: PathBuf, arguments: Vec<String>) -> CommandLine {
        // Less processor time, for more memory: a run is short, and shares two processors with
        // what it tests. Above the limit, garbage is collected as often as needed.
        CommandLine::new(program, arguments)
            .inside(self.network.as_deref())
            .env("GOGC", "300")
            .env("GOMEMLIMIT", "2GiB")
    }

    pub fn etcd(&self, program: PathBuf) -> CommandLine {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        self.command(program, etcd("lab", &self.dir, &client, &peer))
    }

    /// kube-apiserver: RBAC and Node authorization, client certificates and service account tokens.
    pub fn apiserver(&self, program: PathBuf) -> CommandLine {
        let host = &self.host;
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            format!("--bind-address={host}"),
            format!("--advertise-address={host}"),
            format!("--secure-port={}", self.ports.api),
            format!("--tls-cert-file={}", self.pki("apiserver.crt")),
            format!("--tls-private-key-file={}", self.pki("apiserver.key")),
            format!("--client-ca-file={}", self.pki(&format!("{AUTHORITY}.crt"))),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            format!("--service-account-key-file={}", self.pki("service-account.pub")),
            format!("--service-account-signing-key-file={}", self.pki("service-account.key")),
            format!("--kubelet-client-certificate={}", self.pki("kubelet-client.crt")),
            format!("--kubelet-client-key={}", self.pki("kubelet-client.key")),
            format!("--kubelet-certificate-authority={}", self.pki(&format!("{AUTHORITY}.crt"))),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--requestheader-client-ca-file={}",
                self.pki(&format!("{FRONT_PROXY_AUTHORITY}.crt"))
            ),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", self.pki("front-proxy-client.crt")),
            format!("--proxy-client-key-file={}", self.pki("front-proxy-client.key")),
            // No kube-proxy runs beside the API server: it finds the pods behind a webhook's
            // Service itself.
            "--enable-aggregator-routing=true".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_CIDR}"),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
            format!("--audit-policy-file={}", self.dir.join("audit-policy.yaml").display()),
            format!("--audit-log-path={}", self.audit_log().display()),
            // Never rotated: readers see one file.
            "--audit-log-maxsize=10000".to_owned(),
            "--v=1".to_owned(),
        ];
        if !self.nodes {
            // An API server refuses to announce a loopback address as an endpoint.
            arguments.push("--endpoint-reconciler-type=none".to_owned());
        }
        arguments.extend(self.extra.iter().cloned());
        self.command(program, arguments)
    }

    /// kube-controller-manager, with client limits for thousands of objects and quick notice of
    /// dead nodes.
    pub fn controller_manager(&self, program: PathBuf, node_grace: Duration) -> CommandLine {
        let mut arguments = self.client("kube-controller-manager", self.ports.controller_manager);
        arguments.extend([
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", self.pki("service-account.key")),
            format!("--root-ca-file={}", self.pki(&format!("{AUTHORITY}.crt"))),
            format!("--cluster-signing-cert-file={}", self.pki(&format!("{AUTHORITY}.crt"))),
            format!("--cluster-signing-key-file={}", self.pki(&format!("{AUTHORITY}.key"))),
            "--allocate-node-cidrs=false".to_owned(),
            format!("--node-monitor-grace-period={}s", node_grace.as_secs()),
            "--node-monitor-period=1s".to_owned(),
        ]);
        if !self.nodes {
            arguments.push(format!("--controllers={CONTROLLERS}"));
        }
        self.command(program, arguments)
    }

    pub fn scheduler(&self, program: PathBuf) -> CommandLine {
        self.command(program, self.client("kube-scheduler", self.ports.scheduler))
    }

    fn client(&self, name: &str, port: u16) -> Vec<String> {
        let kubeconfig = self.dir.join("kubeconfig").join(format!("system-{name}.conf"));
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            // One of each: an election would only delay the start.
            "--leader-elect=false".to_owned(),
            // The default of 20 requests a second makes a thousand pods take a minute.
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
            "--profiling=false".to_owned(),
            "--v=1".to_owned(),
        ]
    }
}

/// The arguments of an etcd: one member, no fsync, since nothing here outlives the machine.
pub(crate) fn etcd(name: &str, dir: &Path, client: &str, peer: &str) -> Vec<String> {
    vec![
        format!("--name={name}"),
        format!("--data-dir={}", dir.join("etcd").display()),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={name}={peer}"),
    ]
}
