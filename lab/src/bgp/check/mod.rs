//! Does the ground see losses? Topologies and changes whose losses are known, measured.
//!
//! A ground that sees none where there are some is worth nothing when it sees none where there must
//! be none.

pub mod paths;
mod scenarios;
mod stage;
pub(crate) mod states;

use std::time::Instant;

use anyhow::Result;

use crate::checks::{Check, conclude};
use stage::Stage;

/// Nodes, in three zones: those of the figures that are known.
const NODES: u8 = 18;

/// Measures all scenarios whose name contains one of `wanted`, or all; says PASS or FAIL.
pub async fn run(wanted: &[String]) -> Result<bool> {
    let started = Instant::now();
    let mut stage = Stage::new(NODES).await?;
    if let Err(error) = scenarios::play(&mut stage, wanted).await {
        stage.checks.push(Check::new(
            "all scenarios ran to their end",
            false,
            format!("{error:#}"),
        ));
    }
    Ok(conclude(&stage.end()?, started))
}
