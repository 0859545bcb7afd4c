//! `version`: of this program, of the operator, and of the cluster.
use clap::Args;

use super::{
    cluster::{ClusterArgs, LeaseArgs},
    output::{self, TextFormat},
};
use crate::inspect::{
    cluster::describe,
    status::{self, Unread},
};

/// Flags of `version`.
#[derive(Args, Clone, Debug)]
pub struct VersionArgs {
    /// Print only the version of this program, without a request to the cluster.
    #[arg(long)]
    client: bool,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    lease: LeaseArgs,
}

/// The versions; none of what was not asked.
#[derive(Debug, Default, serde::Serialize)]
struct Versions {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<String>,
}

/// Prints the versions.
pub(super) fn run(args: &VersionArgs) -> anyhow::Result<()> {
    let mut versions = Versions { client: env!("CARGO_PKG_VERSION"), ..Versions::default() };
    if !args.client {
        output::block_on(async {
            let client = args.cluster.access().reading().await?;
            let (leader, image) = status::gather_operator(&client, args.lease.key()).await;
            versions.operator = Some(match (leader, image) {
                (Ok(Some(leader)), Some(image)) => format!("{image} ({} leads)", leader.holder),
                (Ok(Some(leader)), None) => {
                    format!("unknown: pod {} cannot be read", leader.holder)
                }
                (Ok(None), _) => "no replica leads".into(),
                (Err(Unread::NotInstalled), _) => "not installed".into(),
                (Err(Unread::Forbidden(why) | Unread::Failed(why)), _) => format!("unknown: {why}"),
            });
            let server = client.apiserver_version().await;
            versions.kubernetes = Some(match server {
                Ok(server) => server.git_version,
                Err(error) => format!("unknown: {}", describe("get version", error)),
            });
            anyhow::Ok(())
        })?;
    }
    args.output.print(&versions, |Versions { client, operator, kubernetes }| {
        let asked = [("operator", operator), ("Kubernetes", kubernetes)];
        let lines = asked.iter().filter_map(|(name, version)| {
            version.as_ref().map(|version| format!("{name:<12}{version}\n"))
        });
        format!("{:<12}{client}\n", "client") + &lines.collect::<String>()
    })
}
