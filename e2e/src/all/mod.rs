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

use std::time::Instant;

use anyhow::Result;

use lab::checks::Check;
use lab::cluster::Cluster;
use stage::Stage;

/// Plays all acts; each adds its checks.
pub async fn play(cluster: &Cluster, started: Instant, checks: &mut Vec<Check>) -> Result<()> {
    let stage = Stage::new(cluster, started).await?;
    scene::set(&stage).await?;
    scene::measured(&stage, checks).await?;
    scene::judged(&stage, checks).await?;
    scene::relied_on(&stage, checks).await?;
    bandwidth::play(&stage, checks).await?;
    failing::play(&stage, checks).await?;
    rest::play(&stage, checks).await
}
