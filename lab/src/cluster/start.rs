//! The start of a cluster, step by step.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::addresses::{API_PORT, GATEWAY, MOST_NODES, SINK_PORT};
use super::state::{self, State};
use super::{
    Cluster, Monitoring, Options, cgroups, guard, network, nodes, program, require_root, sysctls,
    teardown,
};
use crate::control_plane::{self, Layout, NODE_GRACE, Ports};
use crate::credentials::Access;
use crate::images::{self, Role};
use crate::pki::Authority;
use crate::process::CommandLine;
use crate::{packages, progress, tools, workspace};

/// Describes a cluster's control plane: in a namespace of its own, the ports can be the usual ones.
pub(super) fn layout(id: &str) -> Layout {
    Layout {
        dir: state::dir(id),
        host: GATEWAY.to_owned(),
        ports: Ports {
            api: API_PORT,
            etcd: 2379,
            etcd_peer: 2380,
            controller_manager: 10257,
            scheduler: 10259,
        },
        network: Some(network::outer(id)),
        nodes: true,
        extra: Vec::new(),
    }
}

/// The programs of a cluster; monitoring adds its own.
const PROGRAMS: [&str; 8] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
    "coredns",
];

/// The programs of a monitoring stack.
const fn programs_of(monitoring: Monitoring) -> &'static [&'static str] {
    match monitoring {
        Monitoring::None => &[],
        Monitoring::Plain => &["prometheus", "node_exporter"],
        Monitoring::Operator => {
            &["prometheus", "node_exporter", "prometheus-operator", "prometheus-config-reloader"]
        }
    }
}

pub(super) async fn start(options: Options) -> Result<Cluster> {
    require_root()?;
    ensure!(
        (1..=MOST_NODES).contains(&options.nodes),
        "a cluster has 1 to {MOST_NODES} nodes, not {}",
        options.nodes
    );
    for image in &options.images {
        ensure!(
            image.is_file(),
            "no image archive {}: `make image` builds the product's",
            image.display()
        );
    }
    let monitoring = options.monitoring;
    // On a fresh machine this takes minutes: signals must be heard meanwhile.
    let mut images = tokio::task::spawn_blocking(move || {
        packages::ensure_installed()?;
        program::find()?;
        tools::ensure_all(&[&PROGRAMS, programs_of(monitoring)].concat())?;
        images::build_all(monitoring)
    })
    .await??;
    images.extend(options.images.iter().map(|path| (Role::All, path.clone())));
    teardown::teardown_leftovers(false)?;
    if options.keep {
        ensure!(state::kept().is_none(), "a cluster is up already: `lab down` takes it down");
    }

    let started = Instant::now();
    let step = |what: &str| progress(&format!("{:5.1} s  {what}", started.elapsed().as_secs_f64()));
    let cluster = prepare(&options).await?;
    let id = cluster.id();
    let client = cluster.client()?;
    let layout = layout(&id);
    let lifetime = cluster.lifetime();
    sysctls::save()?;
    network::create(&id, options.nodes)?;
    cgroups::create(&id, options.nodes)?;
    let authority = Authority::load(&layout.dir.join("pki"), control_plane::AUTHORITY)?;
    nodes::prepare(&layout, &authority, &id, options.nodes, &images)?;
    step("network, cgroups and certificates");

    for process in control_plane::start_core(&layout, lifetime)? {
        cluster.processes().insert(process.name.clone(), process);
    }
    let arguments = ["sink", "--listen", &format!("{GATEWAY}:{SINK_PORT}")];
    let sink =
        CommandLine::new(layout.dir.join("lab"), arguments).inside(layout.network.as_deref());
    cluster.run("sink", sink)?;
    // Their containerds import images while the API server comes up.
    for node in cluster.node_names() {
        cluster.start_node(&node)?;
    }
    let outside = cluster.state().server.replace("https://", "");
    cluster.relay("relay-api", &outside, &format!("{GATEWAY}:{API_PORT}")).await?;
    cluster.api_ready(&client).await?;
    step("API server ready");
    for process in [
        control_plane::start_controller_manager(&layout, NODE_GRACE, lifetime)?,
        control_plane::start_scheduler(&layout, lifetime)?,
    ] {
        cluster.processes().insert(process.name.clone(), process);
    }
    cluster.install_dns().await?;
    if monitoring != Monitoring::None {
        cluster.install_monitoring(monitoring).await?;
        step("monitoring applied");
    }
    cluster.nodes_ready(&cluster.node_names()).await?;
    for node in cluster.node_names() {
        cluster.mark(&node).await?;
    }
    step(&format!("{} nodes ready", options.nodes));
    if monitoring != Monitoring::None {
        cluster.monitoring_ready().await?;
        step("Prometheus has samples of all nodes");
    }
    Ok(cluster)
}

/// Makes the cluster's directory, keys and guard, and the value that takes everything down again
/// when dropped.
async fn prepare(options: &Options) -> Result<Cluster> {
    let id = workspace::unique();
    let layout = layout(&id);
    let dir = layout.dir.clone();
    fs::create_dir_all(dir.join("log"))?;
    let state = State {
        id: id.clone(),
        nodes: options.nodes,
        starter: std::process::id(),
        monitoring: options.monitoring,
        capacity: options.capacity.clone(),
        zones: options.zones.clone(),
        keep: false,
        server: format!("https://127.0.0.1:{}", control_plane::free_port()?),
        exposed: BTreeMap::new(),
    };
    state.save()?;
    // A copy: nodes can be restarted after the program was rebuilt.
    let lab = dir.join("lab");
    fs::copy(program::find()?, &lab).context("copying the lab program")?;
    let authority = control_plane::prepare(&layout, &[GATEWAY])?;
    let mut cluster = open(state, authority).await?;
    cluster.owned = true;
    // From here on everything is taken down again whatever happens: by dropping `cluster`, or else
    // by the guard.
    let guard = guard::start(&lab, &dir, &["guard", &id])?;
    cluster.guard = Some(guard);
    if options.keep {
        cluster.detached = true;
    }
    Ok(cluster)
}

/// Attaches to a cluster that another process started.
pub(super) async fn attach(state: State) -> Result<Cluster> {
    let authority = Authority::load(&state::dir(&state.id).join("pki"), control_plane::AUTHORITY)?;
    open(state, authority).await
}

async fn open(state: State, authority: Authority) -> Result<Cluster> {
    let dir = state::dir(&state.id);
    let access = Access::open(authority, &state.server, &dir).await?;
    Ok(Cluster {
        state: Mutex::new(state),
        dir,
        access,
        processes: Mutex::new(BTreeMap::new()),
        owned: false,
        guard: None,
        detached: false,
    })
}
