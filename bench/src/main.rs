//! Measures the operator and its agent. Figures of one run are comparable with each other only.
//!
//! A real API server and real objects; each module says what is prepared instead. A bench that has
//! limits fails above them.
#![expect(clippy::doc_markdown, reason = "the help is no Markdown")]
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

mod agent;
mod agents;
mod ground;
mod labels;
mod member;
mod nodes;
mod operator;
mod peer;
mod prober;
mod programs;
mod prometheus;
mod reflecting;
mod reflector;
mod scraper;
mod serving;
mod shares;
mod soak;
mod watches;

/// Measures the operator and its agent; see docs/benchmarks.md.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// TrafficWatch at 100 to 5,000 nodes, with prepared answers of Prometheus; BENCH_ROWS=5000x1.
    Operator(Operator),
    /// The operator and others side by side, with a real Prometheus; BENCH_PEER, BENCH_ROUNDS,
    /// BENCH_ROWS.
    Peer(Operator),
    /// NetworkProber at 250 to 2,000 pods; PROBER_BENCH_ROWS=500,4000.
    Prober(Operator),
    /// RouteReflectorSet at 1,000 and 5,000 nodes; BENCH_ROWS=5000xSimple.
    Reflecting(Operator),
    /// Memory and descriptors over 20,000 evaluations; SOAK_EVALUATIONS=500.
    Soak(Operator),
    /// The agent's program, memory and probes.
    Agent {
        /// The agent's program, with its arguments if it has some.
        program: String,
        /// Duration in seconds.
        #[arg(default_value_t = 60)]
        seconds: u64,
    },
    /// 100,000 streams on 1,000 workers: their lists in several ConfigMaps (with --release).
    Shares,
    /// Routes and steps of 5,000 nodes with route reflectors (with --release).
    Reflector,
}

#[derive(Args)]
struct Operator {
    /// The operator's program: what `make image` builds, unless given.
    #[arg(default_value_os_t = built())]
    program: PathBuf,
}

fn built() -> PathBuf {
    let target = format!("../target/image/{}-unknown-linux-gnu", std::env::consts::ARCH);
    Path::new(env!("CARGO_MANIFEST_DIR")).join(target).join("release/traffic-operator")
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().bench {
        Bench::Operator(operator) => operator::run(&operator.program).await,
        Bench::Peer(operator) => peer::run(&operator.program).await,
        Bench::Prober(operator) => prober::run(&operator.program).await,
        Bench::Reflecting(operator) => reflecting::run(&operator.program).await,
        Bench::Soak(operator) => soak::run(&operator.program).await,
        Bench::Agent { program, seconds } => agent::run(&program, seconds),
        Bench::Shares => shares::run(),
        Bench::Reflector => reflector::run(),
    }
}
