//! `explain`: shows the reasons for the current state.
use anyhow::Context;
use clap::{Args, Subcommand};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::Client;

use super::{
    cluster::{ClusterArgs, OperatorArgs},
    complete,
    flags::PrometheusArgs,
    output::{ColorArgs, Document, TextFormat},
    progress,
};
use crate::{
    api::{NetworkProber, RouteReflectorSet, Swarm, TrafficWatch},
    inspect::{
        cluster, explain,
        leader::Place,
        probing,
        progress::Progress,
        reflectors, status,
        streams::{self, Scope},
    },
    metrics::Metrics,
    prometheus::{self, Endpoints},
};

/// Flags of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Explain why a node is fit, unfit, unknown or suppressed, and which measurement changes that.
    ///
    /// Reads the Node and every TrafficWatch from the API server, and the current judgment from
    /// the operator's leader, through the API server. Changes nothing.
    Node(NodeArgs),

    /// Show what each TrafficWatch says of each node, the worst first: state, reason, load, since
    /// when.
    ///
    /// Reads the status of every TrafficWatch from the API server. Changes nothing.
    Nodes(NodesArgs),

    /// Show which nodes a TrafficWatch judges, their states with the reasons, its thresholds and
    /// limit, and what to do about its conditions.
    ///
    /// Reads the object from the API server, and the current judgment from the operator's leader.
    /// Changes nothing.
    #[command(name = "trafficwatch", visible_aliases = ["traffic-watch", "tw"])]
    #[command(mut_arg("name", |name| name.add(complete::names::<TrafficWatch>(true))))]
    TrafficWatch(WatchArgs),

    /// Show which pods of a NetworkProber have an agent, why others have none, which paths are bad,
    /// and which nodes cause it.
    ///
    /// Reads the object from the API server, and pods, lists and measurements from the operator.
    /// Changes nothing.
    #[command(visible_aliases = ["networkprober", "network-prober", "np"])]
    #[command(mut_arg("name", |name| name.add(complete::names::<NetworkProber>(true))))]
    Prober(ProbingArgs),

    /// Explain why a pod has no agent, or show the peers of its agent and the reasons for bad
    /// paths.
    ///
    /// Reads the Pod, its Namespace and every NetworkProber from the API server, and its list and
    /// measurements from the operator. Changes nothing.
    #[command(mut_arg("name", |name| name.add(complete::names::<Pod>(true))))]
    Pod(ProbingArgs),

    /// Show the workers of a Swarm with their lists and versions, which streams move next, and
    /// which have no worker.
    ///
    /// Reads the same sources as `explain stream`. Changes nothing.
    #[command(visible_alias = "sw")]
    #[command(mut_arg("name", |name| name.add(complete::names::<Swarm>(true))))]
    Swarm(ObjectArgs),

    /// Show which worker of a Swarm has a stream and since which version, whether the worker has
    /// confirmed that it runs the stream, and what the stream waits for.
    ///
    /// Reads the Swarms, the workload, its pods and the lists from the API server, and the
    /// acknowledgements of workers from the operator's leader. Changes nothing.
    Stream(StreamArgs),

    /// Show the streams of a worker of a Swarm, those that it must still stop, and whether it has
    /// confirmed that it runs its list.
    ///
    /// Reads the same sources as `explain stream`. Changes nothing.
    Worker(WorkerArgs),

    /// Show the reflectors of a RouteReflectorSet with their slots, the groups of clients, the
    /// steps that are left, and what they wait for.
    ///
    /// Reads the object from the API server. Changes nothing.
    #[command(name = "routereflectorset", visible_aliases = ["route-reflector-set", "rrs"])]
    #[command(mut_arg("name", |name| name.add(complete::names::<RouteReflectorSet>(false))))]
    RouteReflectorSet(ReflectorArgs),
}

#[derive(Args, Clone, Debug)]
struct ObjectArgs {
    /// Name of the object.
    #[arg(value_parser = name)]
    name: String,

    /// Namespace of the object [default: the namespace of the kubeconfig's context].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name)]
    namespace: Option<String>,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl ObjectArgs {
    /// The client, the operator's place, and the object's namespace.
    async fn reach(&self) -> anyhow::Result<(Client, Place, String)> {
        let access = self.cluster.access();
        let namespace = access.namespace(self.namespace.as_deref()).await?;
        Ok((access.reading().await?, self.operator.place(), namespace))
    }
}

#[derive(Args, Clone, Debug)]
struct WatchArgs {
    #[command(flatten)]
    object: ObjectArgs,

    /// Also print the PromQL of each measure.
    #[arg(long)]
    query: bool,
}

#[derive(Args, Clone, Debug)]
struct ReflectorArgs {
    /// Name of the object.
    #[arg(value_parser = name)]
    name: String,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Args, Clone, Debug)]
struct StreamArgs {
    /// Id of the stream.
    id: String,

    #[command(flatten)]
    of: OfSwarm,
}

#[derive(Args, Clone, Debug)]
struct WorkerArgs {
    /// Name of the worker, which is the name of its pod.
    #[arg(value_parser = name)]
    name: String,

    #[command(flatten)]
    of: OfSwarm,
}

#[derive(Args, Clone, Debug)]
struct OfSwarm {
    /// Search only the Swarms of this namespace [default: all namespaces].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name)]
    namespace: Option<String>,

    /// Search only the Swarm with this name.
    #[arg(long, value_name = "NAME", value_parser = name)]
    swarm: Option<String>,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl OfSwarm {
    fn scope(&self) -> Scope<'_> {
        Scope { namespace: self.namespace.as_deref(), swarm: self.swarm.as_deref() }
    }
}

#[derive(Args, Clone, Debug)]
struct ProbingArgs {
    #[command(flatten)]
    object: ObjectArgs,

    /// The endpoints, of which `default` replaces the operator as the source of measurements, if
    /// one is given.
    #[command(flatten)]
    prometheus: PrometheusArgs,
}

impl ProbingArgs {
    /// The Prometheus that this command queries directly, if one was given.
    fn asked(&self) -> anyhow::Result<probing::Asked> {
        let PrometheusArgs { prometheus_url, prometheus_config, .. } = &self.prometheus;
        if prometheus_url.is_none() && prometheus_config.is_none() {
            return Ok(None);
        }
        let endpoints = Endpoints::new(&self.prometheus.endpoints()?, Metrics::new())?;
        Ok(endpoints.get(prometheus::DEFAULT).cloned())
    }
}

/// Accepts a valid Kubernetes name; any other text would change the path of a request.
pub(super) fn name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if text.is_empty() || text.len() > 253 || !text.chars().all(allowed) {
        return Err("must be a name: lower-case letters, digits, '-' and '.'".into());
    }
    Ok(text.to_owned())
}

#[derive(Args, Clone, Debug)]
struct NodeArgs {
    /// Name of the node.
    #[arg(add = complete::nodes())]
    name: String,

    /// Show only this TrafficWatch.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    watch: Option<Namespaced>,

    /// Also print the PromQL of each measure.
    #[arg(long)]
    query: bool,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

#[derive(Args, Clone, Debug)]
struct NodesArgs {
    /// Only what the TrafficWatches of this namespace say [default: all namespaces].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name)]
    namespace: Option<String>,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Debug)]
struct Namespaced {
    namespace: String,
    name: String,
}

fn namespaced(text: &str) -> Result<Namespaced, String> {
    match text.split_once('/') {
        Some((namespace, name)) if ![namespace, name].iter().any(|part| part.is_empty()) => {
            Ok(Namespaced { namespace: namespace.into(), name: name.into() })
        }
        _ => Err("must be NAMESPACE/NAME, e.g. default/web".into()),
    }
}

/// Prints the explanation.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let (kind, name, color) = args.what.subject();
    color.choose();
    let subject = format!("{kind} {name}").trim_end().to_owned();
    let progress = Progress::default();
    progress.enter(format!("{subject}: asking the API server and the operator"));
    let explained = progress::block_on(&progress, args.what.explain());
    // Only now is the line of the progress gone.
    explained.and_then(|explained| explained.write()).with_context(|| format!("explain {subject}"))
}

impl What {
    /// Returns the subject's kind and name, and the choice of colors.
    fn subject(&self) -> (&'static str, String, ColorArgs) {
        let (kind, name, color) = match self {
            Self::Node(args) => ("node", &args.name, args.color),
            Self::Nodes(args) => return ("nodes", String::new(), args.color),
            Self::TrafficWatch(args) => ("trafficwatch", &args.object.name, args.object.color),
            Self::Prober(args) => ("prober", &args.object.name, args.object.color),
            Self::Pod(args) => ("pod", &args.object.name, args.object.color),
            Self::Swarm(args) => ("swarm", &args.name, args.color),
            Self::Stream(args) => ("stream", &args.id, args.of.color),
            Self::Worker(args) => ("worker", &args.name, args.of.color),
            Self::RouteReflectorSet(args) => ("routereflectorset", &args.name, args.color),
        };
        (kind, name.clone(), color)
    }

    async fn explain(&self) -> anyhow::Result<Document> {
        match self {
            Self::Node(args) => node(args).await,
            Self::Nodes(args) => nodes(args).await,
            Self::TrafficWatch(args) => traffic_watch(args).await,
            Self::Prober(args) => prober(args).await,
            Self::Pod(args) => pod(args).await,
            Self::Swarm(args) => swarm(args).await,
            Self::Stream(StreamArgs { id, of }) => stream(id, of).await,
            Self::Worker(WorkerArgs { name, of }) => worker(name, of).await,
            Self::RouteReflectorSet(args) => reflector_set(args).await,
        }
    }
}

async fn nodes(args: &NodesArgs) -> anyhow::Result<Document> {
    let client = args.cluster.access().reading().await?;
    let nodes = status::gather_nodes(&client, args.namespace.as_deref()).await?;
    let now = Timestamp::now();
    args.output.format(&nodes, |nodes| match nodes.as_slice() {
        [] => "no TrafficWatch has judged a node\n".into(),
        nodes => status::nodes_text(nodes, now),
    })
}

async fn traffic_watch(args: &WatchArgs) -> anyhow::Result<Document> {
    let WatchArgs { object, query } = args;
    let (client, place, namespace) = object.reach().await?;
    let facts = explain::gather_watch(&client, &place, (&namespace, &object.name)).await?;
    let explained = explain::explain_watch(&facts);
    object.output.format(&explained, |made| explain::watch_text(made, *query))
}

async fn swarm(args: &ObjectArgs) -> anyhow::Result<Document> {
    let (client, place, namespace) = args.reach().await?;
    let facts = streams::gather_swarm(&client, &place, (&namespace, &args.name)).await?;
    args.output.format(&streams::explain_swarm(&facts), streams::swarm_text)
}

async fn reflector_set(args: &ReflectorArgs) -> anyhow::Result<Document> {
    let client = args.cluster.access().reading().await?;
    let set = cluster::read(&client, "get RouteReflectorSet", None, &args.name).await?;
    let now = Timestamp::now();
    args.output.format(&reflectors::explain(&set), |explanation| reflectors::text(explanation, now))
}

async fn stream(id: &str, of: &OfSwarm) -> anyhow::Result<Document> {
    let (client, place) = (of.cluster.access().reading().await?, of.operator.place());
    let facts = streams::gather_stream(&client, &place, of.scope(), id).await?;
    of.output.format(&streams::explain_stream(&facts, id), streams::stream_text)
}

async fn worker(name: &str, of: &OfSwarm) -> anyhow::Result<Document> {
    let (client, place) = (of.cluster.access().reading().await?, of.operator.place());
    let facts = streams::gather_worker(&client, &place, of.scope(), name).await?;
    let explanation = streams::explain_worker(&facts, name)
        .ok_or_else(|| anyhow::anyhow!(streams::no_such_worker(&facts, name)))?;
    of.output.format(&explanation, streams::worker_text)
}

async fn prober(args: &ProbingArgs) -> anyhow::Result<Document> {
    let (client, place, namespace) = args.object.reach().await?;
    let of = (namespace.as_str(), args.object.name.as_str());
    let facts = probing::gather(&client, &place, of, &args.asked()?).await?;
    args.object.output.format(&probing::explain(&facts), probing::text)
}

async fn pod(args: &ProbingArgs) -> anyhow::Result<Document> {
    let (client, place, namespace) = args.object.reach().await?;
    let of = (namespace.as_str(), args.object.name.as_str());
    let facts = probing::gather_pod(&client, &place, of, &args.asked()?).await?;
    args.object.output.format(&probing::explain_pod(&facts), probing::pod_text)
}

async fn node(args: &NodeArgs) -> anyhow::Result<Document> {
    let (client, place) = (args.cluster.access().reading().await?, args.operator.place());
    let only = args.watch.as_ref().map(|w| (w.namespace.as_str(), w.name.as_str()));
    let facts = explain::gather(&client, &place, &args.name, only).await?;
    args.output.format(&explain::explain(&facts), |made| explain::text(made, args.query))
}
