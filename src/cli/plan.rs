//! `plan`: prints what the operator would do, without doing it.
use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use kube::Resource;
use serde::Serialize;

use super::{
    cluster::{ClusterArgs, OperatorArgs, POD_NAMESPACE},
    documents,
    flags::{PrometheusArgs, SeriesArgs},
    judge::{self, NodeArgs},
    output::TextFormat,
    progress,
};
use crate::{
    api::{NetworkProber, RouteReflectorSet, Swarm, TrafficWatch},
    inspect::{
        cluster::Access,
        evaluate::{self, Evaluation},
        leader::Place,
        population::Population,
        probing,
        progress::Progress,
        spec::{self, Home},
        streams,
    },
    manifests,
    network_prober::dry_run as prober_dry_run,
    route_reflector::{self, dry_run as reflector_dry_run},
    swarm::dry_run,
};

/// Flags of `plan`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PlanArgs {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    all: FileArgs,
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
struct FileArgs {
    /// YAML or JSON file with documents of any of the four kinds; `-` reads standard input.
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    file: Option<String>,

    /// Namespace of documents without one [default: the namespace of the kubeconfig's context].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = super::explain::name)]
    namespace: Option<String>,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    prometheus: PrometheusArgs,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
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

/// What the objects of a file would do, by kind.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plans {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    traffic_watches: Vec<Evaluation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    network_probers: Vec<prober_dry_run::DryRun>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    swarms: Vec<dry_run::DryRun>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    route_reflector_sets: Vec<reflector_dry_run::DryRun>,
}

impl Plans {
    fn text(&self) -> String {
        let watches = self.traffic_watches.iter().map(evaluate::text);
        let probers = self.network_probers.iter().map(prober_dry_run::text);
        let swarms = self.swarms.iter().map(dry_run::text);
        let sets = self.route_reflector_sets.iter().map(reflector_dry_run::text);
        watches.chain(probers).chain(swarms).chain(sets).collect::<Vec<_>>().join("\n")
    }

    /// Why one of them would do nothing.
    fn refused(&self) -> Option<String> {
        let of = |kind: String, namespace: &str, name: &str, why: &Option<String>| {
            let why = why.as_ref()?;
            let separator = if namespace.is_empty() { "" } else { "/" };
            Some(format!("{kind} {namespace}{separator}{name}: {why}"))
        };
        let watches = self.traffic_watches.iter().filter_map(Evaluation::failure);
        let mut watches = watches.map(|why| format!("no measurement: {why}"));
        let mut probers = self.network_probers.iter().filter_map(|run| {
            of(NetworkProber::kind(&()).into(), &run.namespace, &run.name, &run.refused)
        });
        let mut swarms = self
            .swarms
            .iter()
            .filter_map(|run| of(Swarm::kind(&()).into(), &run.namespace, &run.name, &run.refused));
        let mut sets = self
            .route_reflector_sets
            .iter()
            .filter_map(|run| of(RouteReflectorSet::kind(&()).into(), "", &run.name, &run.refused));
        watches.next().or_else(|| probers.next()).or_else(|| swarms.next()).or_else(|| sets.next())
    }
}

/// Prints the plan.
pub(super) fn run(args: PlanArgs) -> anyhow::Result<()> {
    let progress = Progress::default();
    let (output, plans) = match args.what {
        None => (args.all.output, progress::block_on(&progress, all(&args.all, &progress))?),
        Some(What::RouteReflectorSet(args)) => {
            let text = documents::read(&args.file)?;
            let runs =
                reflectors((&args.file, &text), &args.cluster, &args.operator_namespace, &progress);
            let runs = progress::block_on(&progress, runs)?;
            args.output.print(&runs, |runs| {
                runs.iter().map(reflector_dry_run::text).collect::<Vec<_>>().join("\n")
            })?;
            return done(&Plans { route_reflector_sets: runs, ..Plans::default() });
        }
        Some(What::Swarm(args)) => {
            let text = documents::read(&args.file)?;
            let (access, place) = (args.cluster.access(), args.operator.place());
            let runs = progress::block_on(&progress, async {
                let namespace = access.namespace(args.namespace.as_deref()).await?;
                let home = Home { namespace: &namespace, only: args.namespace.is_some() };
                let read = spec::read_swarms(&text, home).with_context(|| args.file.clone())?;
                swarms(read, &access, &place, &progress).await
            })?;
            args.output.print(&runs, |runs| {
                runs.iter().map(dry_run::text).collect::<Vec<_>>().join("\n")
            })?;
            return done(&Plans { swarms: runs, ..Plans::default() });
        }
    };
    output.print(&plans, Plans::text)?;
    done(&plans)
}

fn done(plans: &Plans) -> anyhow::Result<()> {
    plans.refused().map_or(Ok(()), |why| Err(anyhow!(why)))
}

/// Plans every document of the file, whatever its kind.
async fn all(args: &FileArgs, progress: &Progress) -> anyhow::Result<Plans> {
    let name = args.file.as_deref().context("--file")?;
    let text = documents::read(name)?;
    let kinds = spec::kinds(&text).with_context(|| name.to_owned())?;
    let has = |kind: &str| kinds.iter().any(|one| one == kind);
    let access = args.cluster.access();
    let place = args.operator.place();
    let namespace = access.namespace(args.namespace.as_deref()).await?;
    let home = Home { namespace: &namespace, only: args.namespace.is_some() };
    let mut plans = Plans::default();
    if has(&TrafficWatch::kind(&())) {
        let watches = spec::read(&text, home).with_context(|| name.to_owned())?;
        let nodes = NodeArgs::of_cluster(args.cluster.clone());
        plans.traffic_watches =
            judge::judged(&watches, &nodes, &args.prometheus, &args.series, progress).await?;
    }
    if has(&NetworkProber::kind(&())) {
        let probers = spec::read_probers(&text, home).with_context(|| name.to_owned())?;
        progress.enter("reading namespaces, nodes and pods");
        let client = access.reading().await?;
        plans.network_probers = probing::plan(&client, &place.namespace, probers).await?;
    }
    if has(&Swarm::kind(&())) {
        let swarms = spec::read_swarms(&text, home).with_context(|| name.to_owned())?;
        plans.swarms = self::swarms(swarms, &access, &place, progress).await?;
    }
    if has(&RouteReflectorSet::kind(&())) {
        let file = (name, &*text);
        plans.route_reflector_sets =
            reflectors(file, &args.cluster, &place.namespace, progress).await?;
    }
    Ok(plans)
}

async fn swarms(
    swarms: Vec<Swarm>,
    access: &Access,
    place: &Place,
    progress: &Progress,
) -> anyhow::Result<Vec<dry_run::DryRun>> {
    let client = access.reading().await?;
    let mut runs = Vec::new();
    let all = swarms.len();
    for (done, mut swarm) in swarms.into_iter().enumerate() {
        let (namespace, name) = swarm.key();
        progress.enter(format!("{namespace}/{name}: {} of {all} Swarms", done + 1));
        let run = streams::dry_run(&client, place, &mut swarm).await;
        runs.push(run.with_context(|| format!("Swarm {namespace}/{name}"))?);
    }
    Ok(runs)
}

async fn reflectors(
    (file, text): (&str, &str),
    cluster: &ClusterArgs,
    operator_namespace: &str,
    progress: &Progress,
) -> anyhow::Result<Vec<reflector_dry_run::DryRun>> {
    let sets = spec::read_reflectors(text).with_context(|| file.to_owned())?;
    progress.enter("reading the nodes");
    let client = cluster.access().reading().await?;
    let population = Population::of_cluster(&client).await?;
    let Population::Cluster(nodes) = population else { return Ok(vec![]) };
    let mut runs = Vec::new();
    for (done, set) in sets.iter().enumerate() {
        let name = set.metadata.name.clone().unwrap_or_default();
        progress.enter(format!("{name}: {} of {} RouteReflectorSets", done + 1, sets.len()));
        let run = route_reflector::simulate(&client, &nodes, operator_namespace, set).await;
        let run = run.map_err(|error| anyhow!(error.to_text()));
        runs.push(run.with_context(|| format!("RouteReflectorSet {name}"))?);
    }
    Ok(runs)
}
