//! Nodes: starting them, breaking them, giving them images.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::addresses::{API_PORT, DNS, GATEWAY, PODS, node_address, node_name, pod_cidr};
use super::state::State;
use super::{Cluster, cgroups, network, teardown};
use crate::images::{self, Role};
use crate::node::{CONTAINERD_SOCKET, NodeConfig, Programs};
use crate::pki::{Authority, Identity, write_secret};
use crate::process::CommandLine;
use crate::wait::until;
use crate::{control_plane, kubeconfig, packages, tools};

/// Three nodes take 10 s on an idle machine with two cores.
const READY_LIMIT: Duration = Duration::from_mins(3);

/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Writes the keys, kubeconfigs and settings of all nodes.
pub(super) fn prepare(
    layout: &control_plane::Layout,
    authority: &Authority,
    id: &str,
    nodes: usize,
    images: &[(Role, std::path::PathBuf)],
) -> Result<()> {
    let pki = layout.dir.join("pki");
    let kubeconfigs = layout.dir.join("kubeconfig");
    let write = |file: &str, user: &str, pair: &crate::pki::Pair| {
        let text = kubeconfig::render(&layout.server(), authority.certificate(), user, pair);
        write_secret(&kubeconfigs.join(file), &text)
    };
    let proxy = authority.issue(&Identity::user("system:kube-proxy", &[]))?;
    write("kube-proxy.conf", "system:kube-proxy", &proxy)?;
    let program =
        |name: &str| packages::find(name).with_context(|| format!("{name} is not installed"));
    for number in 1..=nodes {
        let (name, address) = (node_name(number), node_address(number));
        let pair = authority.issue(&Identity::kubelet(&name, &address))?;
        pair.write(&pki, &name)?;
        write(&format!("{name}.conf"), &format!("system:node:{name}"), &pair)?;
        let wanted = |role: Role| role == Role::All || number == 1;
        let config = NodeConfig {
            address,
            pod_cidr: pod_cidr(number),
            cluster_cidr: PODS.to_owned(),
            dns: DNS.to_owned(),
            api: format!("{GATEWAY}:{API_PORT}"),
            dir: layout.dir.join("nodes").join(&name),
            logs: layout.dir.join("log"),
            authority: pki.join(format!("{}.crt", control_plane::AUTHORITY)),
            certificate: pki.join(format!("{name}.crt")),
            key: pki.join(format!("{name}.key")),
            kubelet_kubeconfig: kubeconfigs.join(format!("{name}.conf")),
            proxy_kubeconfig: kubeconfigs.join("kube-proxy.conf"),
            cgroup_root: cgroups::node_root(id, number),
            sandbox_image: images::pause_reference(),
            images: images
                .iter()
                .filter(|(role, _)| wanted(*role))
                .map(|(_, path)| path.clone())
                .collect(),
            programs: Programs {
                containerd: program("containerd")?,
                ctr: program("ctr")?,
                kubelet: tools::ensure("kubelet")?,
                kube_proxy: tools::ensure("kube-proxy")?,
            },
            name,
        };
        fs::create_dir_all(&config.dir)?;
        fs::write(config.dir.join("node.json"), serde_json::to_vec_pretty(&config)?)?;
    }
    Ok(())
}

impl Cluster {
    /// Switches a node off, as a power cut would: every process in it dies at once.
    pub fn kill_node(&self, node: &str) -> Result<()> {
        self.number_of(node)?;
        self.end_process(node)
    }

    /// Reports whether a node is switched on.
    pub fn node_runs(&self, node: &str) -> bool {
        let recorded = teardown::recorded(&self.dir.join(format!("{node}.pid")));
        recorded.is_some_and(|pid| crate::process::is_marked(pid, &self.dir))
    }

    /// Switches a node on; its disk is as it was.
    pub fn start_node(&self, node: &str) -> Result<()> {
        let number = self.number_of(node)?;
        ensure!(!self.node_runs(node), "{node} runs already");
        let id = self.id();
        cgroups::clear_node(&id, number);
        let config = self.dir.join("nodes").join(node).join("node.json");
        let lab = self.dir.join("lab");
        let own = "--mount --uts --ipc --pid --fork --kill-child --propagation slave --";
        let (lab, config) = (lab.to_string_lossy(), config.to_string_lossy());
        let arguments = own.split(' ').chain([&*lab, "node-init", &*config]);
        let command =
            CommandLine::new("unshare", arguments).inside(Some(&network::node(&id, number)));
        self.run(node, command)
    }

    /// Pulls a node's network cable.
    pub fn cut(&self, node: &str) -> Result<()> {
        network::set_link(&self.id(), self.number_of(node)?, false)
    }

    /// Plugs a node's network cable in again.
    pub fn join(&self, node: &str) -> Result<()> {
        network::set_link(&self.id(), self.number_of(node)?, true)
    }

    /// Gives a second name to an image that every node has.
    pub fn tag_image(&self, image: &str, name: &str) -> Result<()> {
        let address = ["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io"];
        let arguments = [&address[..], &["images", "tag", "--force", image, name]].concat();
        for node in self.node_names() {
            self.in_node(&node, "ctr", &arguments)?;
        }
        Ok(())
    }

    /// Runs a program inside a node (all its namespaces) and returns what it prints.
    pub fn in_node(&self, node: &str, program: &str, arguments: &[&str]) -> Result<String> {
        self.number_of(node)?;
        let holder = teardown::recorded(&self.dir.join(format!("{node}.pid")))
            .with_context(|| format!("{node} does not run"))?;
        let init = child_of(holder).with_context(|| format!("{node} does not run"))?.to_string();
        let mut all =
            vec!["--target", &init, "--mount", "--net", "--uts", "--ipc", "--pid", "--", program];
        all.extend(arguments);
        crate::process::output("nsenter", &all)
    }

    /// Waits until nodes are Ready.
    pub async fn nodes_ready(&self, names: &[String]) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client()?);
        for name in names {
            until(&format!("{name} Ready"), READY_LIMIT, || async {
                self.check()?;
                Ok(match nodes.get_opt(name).await {
                    Ok(Some(node)) if is_ready(&node) => None,
                    Ok(Some(node)) => Some(ready_message(&node)),
                    Ok(None) => Some("not registered".to_owned()),
                    Err(error) => Some(error.to_string()),
                })
            })
            .await
            .map_err(|error| {
                let log = |component: &str| self.dir.join(format!("log/{name}{component}.log"));
                let (init, kubelet) =
                    (crate::process::tail(&log("")), crate::process::tail(&log("-kubelet")));
                anyhow::anyhow!("{error:#}{init}{kubelet}")
            })?;
        }
        Ok(())
    }

    /// Labels a node as a worker of its zone and writes its capacity: what those who register nodes
    /// write.
    ///
    /// # Errors
    ///
    /// If there is no such node.
    pub async fn mark(&self, node: &str) -> Result<()> {
        let number = self.number_of(node)?;
        let State { capacity, zones, .. } = self.state().clone();
        // Without zones the label is null, which in a merge patch is absence.
        let zone = zones.iter().cycle().nth(number - 1);
        let patch = json!({"metadata": {
            "labels": {"node-role.kubernetes.io/worker": "", ZONE: zone},
            "annotations": {"traffic.example.com/capacity": capacity},
        }});
        let nodes: Api<Node> = Api::all(self.client()?);
        nodes
            .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("labeling {node}"))?;
        Ok(())
    }
}

/// Returns the first child of a process.
fn child_of(parent: u32) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?;
    let pids =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // State and parent follow the name, which ends with the last parenthesis.
        let parent_of = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent_of == Some(parent)
    })
}

fn is_ready(node: &Node) -> bool {
    conditions(node).any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn ready_message(node: &Node) -> String {
    let message = conditions(node)
        .find(|condition| condition.type_ == "Ready")
        .and_then(|c| c.message.clone());
    message.unwrap_or_else(|| "no condition Ready".to_owned())
}

fn conditions(node: &Node) -> impl Iterator<Item = &k8s_openapi::api::core::v1::NodeCondition> {
    node.status.iter().flat_map(|status| status.conditions.iter().flatten())
}
