//! `explain`: shows the reasons for the current state.
use anyhow::Context;
use clap::{Args, Subcommand};
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use super::{
    cluster::{ClusterArgs, OperatorArgs},
    output::{self, ColorArgs, TextFormat},
    prometheus::PrometheusArgs,
};
use crate::{
    inspect::{
        cluster, explain,
        leader::Place,
        probing, reflectors,
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

    /// Show which nodes a TrafficWatch judges, their states with the reasons, its thresholds and
    /// limit, and what to do about its conditions.
    ///
    /// Reads the object from the API server, and the current judgment from the operator's leader.
    /// Changes nothing.
    #[command(name = "trafficwatch", visible_aliases = ["traffic-watch", "tw"])]
    TrafficWatch(ColoredArgs),

    /// Show which pods of a NetworkProber have an agent, why others have none, which paths are bad,
    /// and which nodes cause it.
    ///
    /// Reads the object from the API server, and pods, lists and measurements from the operator.
    /// Changes nothing.
    #[command(visible_aliases = ["networkprober", "network-prober", "np"])]
    Prober(ProbingArgs),

    /// Explain why a pod has no agent, or show the peers of its agent and the reasons for bad
    /// paths.
    ///
    /// Reads the Pod, its Namespace and every NetworkProber from the API server, and its list and
    /// measurements from the operator. Changes nothing.
    Pod(ProbingArgs),

    /// Show the workers of a Swarm with their lists and versions, which streams move next, and
    /// which have no worker.
    ///
    /// Reads the same sources as `explain stream`. Changes nothing.
    #[command(visible_alias = "sw")]
    Swarm(ColoredArgs),

    /// Show which worker of a Swarm has a stream, since which version, whether it is known to run
    /// it, and what the stream waits for.
    ///
    /// Reads the Swarms, the workload, its pods and the lists from the API server, and the
    /// acknowledgements of workers from the operator's leader. Changes nothing.
    Stream(StreamArgs),

    /// Show the streams of a worker of a Swarm, those that it still has to stop, and whether it is
    /// known to run its list.
    ///
    /// Reads the same sources as `explain stream`. Changes nothing.
    Worker(WorkerArgs),

    /// Show the reflectors of a RouteReflectorSet with their slots, the groups of clients, the
    /// steps that are left, and what they wait for.
    ///
    /// Reads the object from the API server. Changes nothing.
    #[command(name = "routereflectorset", visible_aliases = ["route-reflector-set", "rrs"])]
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
struct ColoredArgs {
    #[command(flatten)]
    object: ObjectArgs,

    #[command(flatten)]
    color: ColorArgs,
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
    name: String,

    /// Show only this TrafficWatch.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    watch: Option<Namespaced>,

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
pub(super) fn run(args: ExplainArgs) -> anyhow::Result<()> {
    match args.what {
        What::Node(args) => explained("node", &args.name, node(&args)),
        What::TrafficWatch(args) => {
            explained("trafficwatch", &args.object.name, traffic_watch(&args))
        }
        What::Prober(args) => explained("prober", &args.object.name, prober(&args)),
        What::Pod(args) => explained("pod", &args.object.name, pod(&args)),
        What::Swarm(args) => explained("swarm", &args.object.name, swarm(&args)),
        What::Stream(StreamArgs { id, of }) => explained("stream", &id, stream(&id, &of)),
        What::Worker(WorkerArgs { name, of }) => explained("worker", &name, worker(&name, &of)),
        What::RouteReflectorSet(args) => {
            explained("routereflectorset", &args.name, reflector_set(&args))
        }
    }
}

fn explained(
    kind: &str,
    name: &str,
    command: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    output::block_on(command).with_context(|| format!("explain {kind} {name}"))
}

async fn traffic_watch(ColoredArgs { object, color }: &ColoredArgs) -> anyhow::Result<()> {
    color.choose();
    let (client, place, namespace) = object.reach().await?;
    let facts = explain::gather_watch(&client, &place, (&namespace, &object.name)).await?;
    object.output.print(&explain::explain_watch(&facts), explain::watch_text)
}

async fn swarm(ColoredArgs { object, color }: &ColoredArgs) -> anyhow::Result<()> {
    color.choose();
    let (client, place, namespace) = object.reach().await?;
    let facts = streams::gather_swarm(&client, &place, (&namespace, &object.name)).await?;
    object.output.print(&streams::explain_swarm(&facts), streams::swarm_text)
}

async fn reflector_set(args: &ReflectorArgs) -> anyhow::Result<()> {
    let client = args.cluster.access().reading().await?;
    let set = cluster::read(&client, "get RouteReflectorSet", None, &args.name).await?;
    let now = Timestamp::now();
    args.output.print(&reflectors::explain(&set), |explanation| reflectors::text(explanation, now))
}

async fn stream(id: &str, of: &OfSwarm) -> anyhow::Result<()> {
    let (client, place) = (of.cluster.access().reading().await?, of.operator.place());
    let facts = streams::gather_stream(&client, &place, of.scope(), id).await?;
    of.output.print(&streams::explain_stream(&facts, id), streams::stream_text)
}

async fn worker(name: &str, of: &OfSwarm) -> anyhow::Result<()> {
    let (client, place) = (of.cluster.access().reading().await?, of.operator.place());
    let facts = streams::gather_worker(&client, &place, of.scope(), name).await?;
    let explanation = streams::explain_worker(&facts, name)
        .ok_or_else(|| anyhow::anyhow!(streams::no_such_worker(&facts, name)))?;
    of.output.print(&explanation, streams::worker_text)
}

async fn prober(args: &ProbingArgs) -> anyhow::Result<()> {
    let (client, place, namespace) = args.object.reach().await?;
    let of = (namespace.as_str(), args.object.name.as_str());
    let facts = probing::gather(&client, &place, of, &args.asked()?).await?;
    args.object.output.print(&probing::explain(&facts), probing::text)
}

async fn pod(args: &ProbingArgs) -> anyhow::Result<()> {
    let (client, place, namespace) = args.object.reach().await?;
    let of = (namespace.as_str(), args.object.name.as_str());
    let facts = probing::gather_pod(&client, &place, of, &args.asked()?).await?;
    args.object.output.print(&probing::explain_pod(&facts), probing::pod_text)
}

async fn node(args: &NodeArgs) -> anyhow::Result<()> {
    args.color.choose();
    let (client, place) = (args.cluster.access().reading().await?, args.operator.place());
    let only = args.watch.as_ref().map(|w| (w.namespace.as_str(), w.name.as_str()));
    let facts = explain::gather(&client, &place, &args.name, only).await?;
    args.output.print(&explain::explain(&facts), explain::text)
}
