//! `plan swarm`, `explain stream` and `explain worker`: the owners of streams, and the reasons for
//! waiting.
use kube::Client;

use crate::{
    api::Swarm,
    inspect::{
        cluster::describe,
        leader::{self, Place},
        population::Population,
    },
    swarm::{
        dry_run::{self, DryRun},
        inspection::Page,
    },
};

mod explain;
mod gather;
mod reasons;
mod swarm;
mod text;

#[cfg(test)]
mod tests;

pub use explain::{explain_stream, explain_worker, no_such_worker};
pub use gather::{Scope, gather_stream, gather_swarm, gather_worker};
pub use swarm::{explain_swarm, text as swarm_text};
pub use text::{stream_text, worker_text};

/// The leader's state of a `Swarm` and its identity, or the reason why it is unavailable.
pub type Live = Result<(Page, String), String>;

/// The facts that an explanation uses.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The object.
    pub swarm: Swarm,
    /// What the operator does next.
    pub run: DryRun,
    /// The leader's report.
    pub live: Live,
    /// Other `Swarm`s that may have the stream too, each with the reason why it was not read.
    pub unread: Vec<String>,
}

/// Plans from the state of the API server and of the leader.
///
/// # Errors
/// When the API server refuses a request.
pub async fn dry_run(client: &Client, place: &Place, swarm: &mut Swarm) -> anyhow::Result<DryRun> {
    let (mut run, live) = dry_run_with(client, place, swarm).await?;
    // Objects that do not exist yet are unknown.
    if let (Err(because), true) = (live, run.exists) {
        run.supposed.push(format!(
            "what workers have acknowledged is from the status, which may be old and lists a \
             hundred of them; the operator was not asked: {because}"
        ));
    }
    Ok(run)
}

async fn dry_run_with(
    client: &Client,
    place: &Place,
    swarm: &mut Swarm,
) -> anyhow::Result<(DryRun, Live)> {
    let mut around = dry_run::observe(client, swarm).await.map_err(described)?;
    if around.asks_for_nodes()
        && let Population::Cluster(nodes) = Population::of_cluster(client).await?
    {
        around.look_at(&nodes);
    }
    let live = if around.exists {
        live(client, place, swarm).await
    } else {
        Err("it is not there yet".into())
    };
    if let Ok((page, _)) = &live {
        around.reports = dry_run::reports_of_page(page);
    }
    Ok((dry_run::dry_run(swarm, &around).await, live))
}

/// Reads the leader's state of one `Swarm`.
async fn live(client: &Client, place: &Place, swarm: &Swarm) -> Live {
    let (namespace, name) = swarm.key();
    // Names in Kubernetes need no escapes.
    leader::ask::<Page>(client, place, &format!("/swarms/{namespace}/{name}")).await
}

fn described(error: crate::controller::Error) -> anyhow::Error {
    match error {
        crate::controller::Error::Kube { action, source } => {
            anyhow::anyhow!(describe(action, source))
        }
        error => anyhow::anyhow!(error.to_text()),
    }
}
