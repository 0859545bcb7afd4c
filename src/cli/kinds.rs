//! The flag that selects kinds.
use clap::Args;

use crate::runtime::kinds::{Choice, Kinds};

/// The kinds that an operator runs.
#[derive(Args, Clone, Debug)]
pub struct KindsArgs {
    /// Kinds to run: `TrafficWatch,Swarm` runs only these, `-Swarm` runs all but this one. May be
    /// repeated. Controllers of other kinds do not start, and their permissions are not required
    /// [default: all].
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
    /// The selected kinds.
    pub(super) fn kinds(&self) -> anyhow::Result<Kinds> {
        Kinds::of(&self.kinds).map_err(anyhow::Error::msg)
    }
}
