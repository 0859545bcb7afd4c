//! Which kinds run.
use clap::Args;

use crate::runtime::kinds::{Choice, Kinds};

/// The kinds that an operator runs.
#[derive(Args, Clone, Debug)]
pub struct KindsArgs {
    /// The kinds that run: `TrafficWatch,Swarm` only these, `-Swarm` all but this one. May be repeated. What
    /// serves the others is not started, and their rights are not needed [default: all].
    #[arg(
        long = "kinds",
        env = "TRAFFIC_OPERATOR_KINDS",
        value_name = "KIND",
        value_delimiter = ','
    )]
    #[arg(allow_hyphen_values = true)]
    kinds: Vec<Choice>,
}

impl KindsArgs {
    /// The kinds.
    pub(super) fn kinds(&self) -> anyhow::Result<Kinds> {
        Kinds::of(&self.kinds).map_err(anyhow::Error::msg)
    }
}
