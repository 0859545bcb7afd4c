//! `plan`: what would be done?
use anyhow::Context;
use clap::{Args, Subcommand};

use super::{
    cluster::{ClusterArgs, OperatorArgs, TextOrJson},
    documents, output,
};
use crate::{
    inspect::{population::Population, spec, streams},
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
    /// Which nodes would reflect routes, every step there, and what each would cost.
    ///
    /// Reads nodes, pods and Calico's objects from the API server (or Calico's etcd) and walks the
    /// whole way on paper: who would lose whose routes, now, at each step and with any one reflector
    /// down; how many paths tables would hold. Changes nothing. Ends with 1 if the way is
    /// refused.
    RouteReflectorSet(ReflectorArgs),

    /// Which streams would move from which worker to which and why, whose pods would be restarted, and
    /// which streams would have no worker.
    ///
    /// Reads the Swarm, its workload, its pods and the lists from the API server, and what workers
    /// acknowledged from the operator's leader, and goes the whole way on paper by the operator's own
    /// code. Changes nothing. Ends with 1 if the operator would not come to Ready.
    Swarm(SwarmArgs),
}

#[derive(Args, Clone, Debug)]
struct SwarmArgs {
    /// YAML or JSON file with one or more Swarm documents; `-` is standard input.
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,

    /// The namespace of documents that name none [default: that of the kubeconfig's context].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = super::explain::name)]
    namespace: Option<String>,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

#[derive(Args, Clone, Debug)]
struct ReflectorArgs {
    /// YAML or JSON file with one or more RouteReflectorSet documents; `-` is standard input.
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,

    /// The operator's namespace, where the Secret of datastore.etcd is.
    #[arg(long, value_name = "NAMESPACE", default_value = manifests::NAMESPACE)]
    operator_namespace: String,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Plans.
pub(super) fn run(args: PlanArgs) -> anyhow::Result<()> {
    match args.what {
        What::RouteReflectorSet(args) => reflectors(&args),
        What::Swarm(args) => swarms(&args),
    }
}

fn swarms(args: &SwarmArgs) -> anyhow::Result<()> {
    let text = documents::read(&args.file)?;
    let runs = output::block_on(async {
        let access = args.cluster.access();
        let namespace = access.namespace(args.namespace.as_deref()).await?;
        let swarms = spec::read_swarms(&text, &namespace, args.namespace.is_some());
        let swarms = swarms.with_context(|| args.file.clone())?;
        let (client, place) = (access.reading().await?, args.operator.place());
        let mut runs = Vec::new();
        for mut swarm in swarms {
            let (namespace, name) = swarm.key();
            let run = streams::dry_run(&client, &place, &mut swarm).await;
            runs.push(run.with_context(|| format!("Swarm {namespace}/{name}"))?);
        }
        anyhow::Ok(runs)
    })?;
    match args.output {
        TextOrJson::Text => {
            let texts: Vec<_> = runs.iter().map(dry_run::text).collect();
            output::text(&texts.join("\n"))?;
        }
        TextOrJson::Json => output::json(&runs)?,
    }
    let refused = runs.iter().find_map(|run| {
        let why = run.refused.as_ref()?;
        Some(anyhow::anyhow!("Swarm {}/{}: {why}", run.namespace, run.name))
    });
    refused.map_or(Ok(()), Err)
}

fn reflectors(args: &ReflectorArgs) -> anyhow::Result<()> {
    let text = documents::read(&args.file)?;
    let sets = spec::read_reflectors(&text).with_context(|| args.file.clone())?;
    let runs = output::block_on(async {
        let client = args.cluster.access().reading().await?;
        let population = Population::of_cluster(&client).await?;
        let Population::Cluster(nodes) = population else { return Ok(vec![]) };
        let mut runs = Vec::new();
        for set in &sets {
            let name = set.metadata.name.clone().unwrap_or_default();
            let run =
                route_reflector::simulate(&client, &nodes, &args.operator_namespace, set).await;
            let run = run.map_err(|error| anyhow::anyhow!(error.to_text()));
            runs.push(run.with_context(|| format!("RouteReflectorSet {name}"))?);
        }
        Ok(runs)
    })?;
    match args.output {
        TextOrJson::Text => {
            let texts: Vec<_> = runs.iter().map(reflector_dry_run::text).collect();
            output::text(&texts.join("\n"))?;
        }
        TextOrJson::Json => output::json(&runs)?,
    }
    let refused = runs.iter().find_map(|run| {
        run.refused.as_ref().map(|why| format!("RouteReflectorSet {}: {why}", run.name))
    });
    refused.map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
}
