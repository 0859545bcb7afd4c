//! `explain`: why is it so?
use anyhow::Context;
use clap::{Args, Subcommand};

use super::{
    cluster::{ClusterArgs, OperatorArgs, TextOrJson},
    output,
};
use crate::inspect::explain;

/// Flags of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Why a node is fit, unfit, unknown or suppressed, and what would change it.
    ///
    /// Reads the Node and every TrafficWatch from the API server, and the judgement of this moment
    /// from the operator's leader, through the API server. Changes nothing.
    Node(NodeArgs),
}

#[derive(Args, Clone, Debug)]
struct NodeArgs {
    /// The node.
    name: String,

    /// Only this TrafficWatch.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    watch: Option<Namespaced>,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,

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

/// Explains.
pub(super) fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let What::Node(args) = args.what;
    output::block_on(async {
        let client = args.cluster.access().reading().await?;
        let only = args.watch.as_ref().map(|w| (w.namespace.as_str(), w.name.as_str()));
        let place = args.operator.place();
        let facts = explain::gather(&client, &place, &args.name, only).await?;
        let explanation = explain::explain(&facts);
        match args.output {
            TextOrJson::Text => output::text(&explain::text(&explanation)),
            TextOrJson::Json => output::json(&explanation),
        }
    })
    .with_context(|| format!("explain node {}", args.name))
}
