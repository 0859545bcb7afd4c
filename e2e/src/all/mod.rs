//! All four kinds on one cluster, under one operator: the network is measured, judged and reserved,
//! and what depends on it moves away from the node that fails.
//!
//! Each claim is measured by something else than the operator's own word: the counters of the
//! kernel, the API server's audit log, the workers' reports, the scheduler's events, Prometheus.
//!
//! Two things are not real here. No BGP daemon runs in this cluster, so a `RouteReflectorSet` has
//! nobody who counts its sessions: it waits between its steps ([`super::reflectors`] has real BGP).
//! And Calico itself is missing; its kinds and the annotations of its nodes are there.

mod bandwidth;
mod failing;
mod figures;
mod process;
mod rest;
mod scene;
mod stage;

use anyhow::Result;

pub use scene::calico;
use stage::Stage;

/// Plays all acts.
pub async fn play(ground: &crate::stage::Stage<'_>) -> Result<()> {
    let stage = Stage::new(ground).await?;
    scene::measured(&stage).await?;
    scene::judged(&stage).await?;
    scene::relied_on(&stage).await?;
    bandwidth::play(&stage).await?;
    failing::play(&stage).await?;
    rest::play(&stage).await
}
