//! The swarm, played on a real cluster and judged by what its workers report.

mod control;
mod faults;
mod file;
mod history;
mod scalings;
mod settled;
mod stage;
mod table;
pub mod verbatim;
mod verdict;

use anyhow::Result;

use crate::stage::Stage as Ground;
use stage::Stage;

/// Plays all acts, and judges the reports, even if one of the acts did not finish.
pub async fn play(ground: &Ground<'_>) -> Result<()> {
    let mut stage = Stage::new(ground).await?;
    let played = acts(&mut stage).await;
    verdict::print(&stage);
    verdict::reported(&stage);
    verdict::written(&stage)?;
    played?;
    verdict::own_metrics(&stage).await?;
    control::play(&stage).await
}

async fn acts(stage: &mut Stage<'_>) -> Result<()> {
    scalings::hot_reload(stage).await?;
    scalings::delete_pod(stage).await
}
