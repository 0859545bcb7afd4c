//! The commands of the `lab` program and their flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::impair;

/// The test ground of traffic-operator: real control planes and clusters, without Docker.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Find or build every program, and install the packages nodes are made of.
    Tools {
        /// Print where each program is.
        #[arg(long)]
        print: bool,
        /// Only these programs, and no packages.
        names: Vec<String>,
    },
    /// Start a control plane without nodes, print its kubeconfig and wait for Ctrl-C.
    ControlPlane,
    /// Start a Prometheus with a made-up history of three nodes, print its URL and wait for Ctrl-C.
    History {
        /// The directory for its files; it must exist.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Start a cluster with Prometheus and the operator, and leave it running.
    Up {
        /// Link capacity to write on the nodes (bits per second, as 1G).
        #[arg(long)]
        capacity: Option<String>,
        /// Further image archives to import on every node.
        #[arg(long = "image", value_name = "FILE")]
        images: Vec<PathBuf>,
        /// Leave the operator out.
        #[arg(long)]
        bare: bool,
    },
    /// Take down the cluster, and whatever killed runs have left behind.
    Down,
    /// Show what is running or left over on this machine.
    Status,
    /// Print shell variables for the cluster that is up.
    Env,
    /// Send traffic from a node to a sink outside of all nodes.
    Traffic {
        /// The node, as node-2.
        node: String,
        /// Bits per second, as 400M or 1G.
        rate: String,
        /// For how long.
        seconds: u64,
    },
    /// Make the link of a node slow and lossy for its pods.
    Impair {
        /// The node, as node-2.
        node: String,
        /// For how long.
        seconds: u64,
        /// Share of the packets that are lost in each direction.
        #[arg(long, default_value = "0%")]
        loss: String,
        /// Delay added to each round trip.
        #[arg(long, default_value = "0ms")]
        delay: String,
        /// Longer packets are lost, in bytes with the IP header.
        #[arg(long)]
        longest: Option<usize>,
    },
    /// Run kubectl on the cluster that is up.
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Arguments of kubectl.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Relay connections into a network namespace.
    #[command(hide = true)]
    Relay {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        network: String,
        #[arg(long)]
        target: String,
    },
    /// Discard everything that is received.
    #[command(hide = true)]
    Sink {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Delay and drop packets of a node's pods.
    #[command(hide = true)]
    ImpairLine(impair::Config),
    /// Be the first process of a node.
    #[command(hide = true)]
    NodeInit { config: PathBuf },
    /// Take a cluster down when standard input ends.
    #[command(hide = true)]
    Guard { id: String },
    /// Take a BGP ground down when standard input ends.
    #[command(hide = true)]
    BgpGuard { id: String },
}
