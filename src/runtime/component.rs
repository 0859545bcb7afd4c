//! The part of the operator that a process runs.
use clap::ValueEnum;

/// The role of a process. As deployed each has an account of its own: every pod of the cluster can
/// talk to the webhook, so that its account may write nothing; nobody has to talk to the
/// controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Component {
    /// Both of the others.
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
