//! `plan`: what would be done?
use anyhow::Context;
use clap::{Args, Subcommand};

use super::{
    cluster::{ClusterArgs, TextOrJson},
    documents, output,
};
use crate::{
    inspect::{population::Population, spec},
    manifests,
    route_reflector::{self, rehearsal},
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
    let What::RouteReflectorSet(args) = args.what;
    let text = documents::read(&args.file)?;
    let sets = spec::read_reflectors(&text).with_context(|| args.file.clone())?;
    let rehearsals = output::block_on(async {
        let client = args.cluster.access().reading().await?;
        let population = Population::of_cluster(&client).await?;
        let Population::Cluster(nodes) = population else { return Ok(vec![]) };
        let mut rehearsals = Vec::new();
        for set in &sets {
            let name = set.metadata.name.clone().unwrap_or_default();
            let rehearsal =
                route_reflector::rehearse(&client, &nodes, &args.operator_namespace, set).await;
            let rehearsal = rehearsal.map_err(|error| anyhow::anyhow!(error.to_text()));
            rehearsals.push(rehearsal.with_context(|| format!("RouteReflectorSet {name}"))?);
        }
        Ok(rehearsals)
    })?;
    match args.output {
        TextOrJson::Text => {
            let texts: Vec<_> = rehearsals.iter().map(rehearsal::text).collect();
            output::text(&texts.join("\n"))?;
        }
        TextOrJson::Json => output::json(&rehearsals)?,
    }
    let refused = rehearsals.iter().find_map(|rehearsal| {
        rehearsal.refused.as_ref().map(|why| format!("RouteReflectorSet {}: {why}", rehearsal.name))
    });
    refused.map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
}
