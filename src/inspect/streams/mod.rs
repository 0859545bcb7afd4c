//! `plan swarm`, `explain stream` and `explain worker`: who has which stream, who waits for whom and why.
use kube::Client;

use crate::{
    api::Swarm,
    inspect::{
        cluster::describe,
        leader::{self, Place},
        population::Population,
    },
    swarm::{
        dry_run::{self, DryRun, Known},
        inspection::Page,
    },
};

/// What the leader tells of a `Swarm`, and who that is.
pub type Live = Result<(Page, String), String>;

/// Goes the whole way on paper, from what the API server has and the leader knows.
///
/// # Errors
/// What the API server refused.
pub async fn dry_run(client: &Client, place: &Place, swarm: &mut Swarm) -> anyhow::Result<DryRun> {
    let mut around = dry_run::observe(client, swarm).await.map_err(told)?;
    if around.asks_for_nodes()
        && let Population::Cluster(nodes) = Population::of_cluster(client).await?
    {
        around.look_at(&nodes);
    }
    // Whoever is not there yet is known to nobody.
    let mut unheard = None;
    if around.exists {
        match live(client, place, swarm).await {
            Ok((page, _)) => around.known = Known::of_page(&page),
            Err(because) => unheard = Some(because),
        }
    }
    let mut run = dry_run::dry_run(swarm, &around).await;
    if let Some(because) = unheard {
        run.supposed.push(format!(
            "what workers have acknowledged is from the status, which is up to a minute old and lists a \
             hundred of them; the operator was not asked: {because}"
        ));
    }
    Ok(run)
}

/// What the leader tells of one `Swarm`.
async fn live(client: &Client, place: &Place, swarm: &Swarm) -> Live {
    let (namespace, name) = swarm.key();
    // Names in Kubernetes need no escapes.
    leader::ask::<Page>(client, place, &format!("/swarms/{namespace}/{name}")).await
}

fn told(error: crate::controller::Error) -> anyhow::Error {
    match error {
        crate::controller::Error::Kube { action, source } => {
            anyhow::anyhow!(describe(action, source))
        }
        error => anyhow::anyhow!(error.to_text()),
    }
}
