//! The part of the operator that a process runs.
use clap::ValueEnum;

/// The role of a process. As deployed, each has a separate account: every pod of the cluster can
/// connect to the webhook, so its account may write nothing; no pod has to connect to the
/// controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Component {
    /// Both parts.
    #[default]
    All,
    /// The controllers of all kinds, and the Lease.
    Controller,
    /// The webhook and the pinglists; it writes nothing.
    Webhook,
}

impl Component {
    /// Reports whether it takes part in the Lease and writes.
    #[must_use]
    pub fn controls(self) -> bool {
        self != Self::Webhook
    }

    /// Reports whether it answers the API server and the agents.
    #[must_use]
    pub fn answers(self) -> bool {
        self != Self::Controller
    }
}
