//! `plan`: prints what the operator would do, without doing it.
use anyhow::Context;
use clap::{Args, Subcommand};

use super::{
    cluster::{ClusterArgs, OperatorArgs, POD_NAMESPACE},
    documents,
    output::TextFormat,
    progress,
};
use crate::{
    inspect::{population::Population, progress::Progress, spec, streams},
    manifests,
    route_reflector::{self, dry_run as reflector_dry_run},
    swarm::dry_run,
};

/// Flags of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Print the nodes that will reflect routes, every step on the way, and the cost of each.
    ///
    /// Reads nodes, pods and Calico's objects from the API server (or Calico's etcd) and simulates
    /// all steps: which nodes lose which routes, now, at each step and with any single reflector
    /// down, and how many paths the routing tables hold. Changes nothing. Exits with 1 if a step is
    /// refused.
    RouteReflectorSet(ReflectorArgs),

    /// Print which streams will move between workers and why, which streams will have no worker, and
    /// what the operator does at once.
    ///
    /// Reads the Swarm, its workload, its pods and the lists from the API server, and the
    /// acknowledgements of workers from the operator's leader, and decides the final worker of each
    /// stream and the first pass with the operator's own code. Changes nothing. Exits with 1 if
    /// nothing is decided or a stream finds no worker.
    Swarm(SwarmArgs),
}

#[derive(Args, Clone, Debug)]
struct SwarmArgs {
    /// YAML or JSON file with one or more Swarm documents; `-` reads standard input.
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,

    /// Namespace of documents without one [default: the namespace of the kubeconfig's context].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = super::explain::name)]
    namespace: Option<String>,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

#[derive(Args, Clone, Debug)]
struct ReflectorArgs {
    /// YAML or JSON file with one or more RouteReflectorSet documents; `-` reads standard input.
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    /// Namespace of the operator, which contains the Secret of datastore.etcd.
    #[arg(long, env = POD_NAMESPACE, value_name = "NAMESPACE")]
    #[arg(default_value = manifests::NAMESPACE)]
    operator_namespace: String,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Prints the plan.
pub(super) fn run(args: PlanArgs) -> anyhow::Result<()> {
    match args.what {
        What::RouteReflectorSet(args) => reflectors(&args),
        What::Swarm(args) => swarms(&args),
    }
}

fn swarms(args: &SwarmArgs) -> anyhow::Result<()> {
    let text = documents::read(&args.file)?;
    let progress = Progress::default();
    let runs = progress::block_on(&progress, async {
        let access = args.cluster.access();
        let namespace = access.namespace(args.namespace.as_deref()).await?;
        let swarms = spec::read_swarms(&text, &namespace, args.namespace.is_some());
        let swarms = swarms.with_context(|| args.file.clone())?;
        let (client, place) = (access.reading().await?, args.operator.place());
        let mut runs = Vec::new();
        let all = swarms.len();
        for (done, mut swarm) in swarms.into_iter().enumerate() {
            let (namespace, name) = swarm.key();
            progress.enter(format!("{namespace}/{name}: {} of {all} Swarms", done + 1));
            let run = streams::dry_run(&client, &place, &mut swarm).await;
            runs.push(run.with_context(|| format!("Swarm {namespace}/{name}"))?);
        }
        anyhow::Ok(runs)
    })?;
    args.output
        .print(&runs, |runs| runs.iter().map(dry_run::text).collect::<Vec<_>>().join("\n"))?;
    let refused = runs.iter().find_map(|run| {
        let why = run.refused.as_ref()?;
        Some(anyhow::anyhow!("Swarm {}/{}: {why}", run.namespace, run.name))
    });
    refused.map_or(Ok(()), Err)
}

fn reflectors(args: &ReflectorArgs) -> anyhow::Result<()> {
    let text = documents::read(&args.file)?;
    let sets = spec::read_reflectors(&text).with_context(|| args.file.clone())?;
    let progress = Progress::default();
    let runs = progress::block_on(&progress, async {
        progress.enter("reading the nodes");
        let client = args.cluster.access().reading().await?;
        let population = Population::of_cluster(&client).await?;
        let Population::Cluster(nodes) = population else { return Ok(vec![]) };
        let mut runs = Vec::new();
        for (done, set) in sets.iter().enumerate() {
            let name = set.metadata.name.clone().unwrap_or_default();
            progress.enter(format!("{name}: {} of {} RouteReflectorSets", done + 1, sets.len()));
            let run =
                route_reflector::simulate(&client, &nodes, &args.operator_namespace, set).await;
            let run = run.map_err(|error| anyhow::anyhow!(error.to_text()));
            runs.push(run.with_context(|| format!("RouteReflectorSet {name}"))?);
        }
        Ok(runs)
    })?;
    args.output.print(&runs, |runs| {
        runs.iter().map(reflector_dry_run::text).collect::<Vec<_>>().join("\n")
    })?;
    let refused = runs.iter().find_map(|run| {
        run.refused.as_ref().map(|why| format!("RouteReflectorSet {}: {why}", run.name))
    });
    refused.map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
}
