//! Which part of the operator a process is.
use clap::ValueEnum;

/// What a process does. As deployed each has an account of its own: every pod of the cluster can
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
    /// Whether it takes part in the Lease and writes.
    #[must_use]
    pub fn controls(self) -> bool {
        self != Self::Webhook
    }

    /// Whether it answers the API server and the agents.
    #[must_use]
    pub fn answers(self) -> bool {
        self != Self::Controller
    }
}
