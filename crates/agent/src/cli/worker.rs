//! `agent worker`.
use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use clap::{Args, builder::NonEmptyStringValueParser};
use http::Uri;

use super::{
    share::ShareArgs,
    values::{duration, http},
};
use crate::worker::{Config, Kind, report::Report};

/// Flags of `agent worker`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct WorkerArgs {
    #[command(flatten)]
    pub(super) share: ShareArgs,

    /// Report for each stream that it runs, by POST to this URL, instead of running a command.
    #[arg(long, env = "SWARM_REPORT_URL", value_name = "URL", value_parser = http)]
    #[arg(conflicts_with = "command")]
    report: Option<Uri>,

    /// Interval between reports.
    #[arg(long, env = "SWARM_REPORT_INTERVAL", value_name = "DURATION")]
    #[arg(default_value = "200ms", value_parser = duration)]
    report_interval: Duration,

    /// Time for a stream's process to end after SIGTERM; then it is killed.
    #[arg(long, env = "SWARM_STOP_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = duration)]
    stop_timeout: Duration,

    /// Command to run for each stream. `{}` in an argument is replaced by the stream; `STREAM`,
    /// `SWARM_WORKER` and `SWARM_EPOCH` are in the environment.
    #[arg(last = true, value_name = "COMMAND", value_parser = NonEmptyStringValueParser::new())]
    command: Vec<String>,
}

impl WorkerArgs {
    pub(super) fn config(self) -> Config {
        let place = self.share.place();
        let kind = match self.report {
            _ if !self.command.is_empty() => Kind::Command(self.command),
            Some(url) => Kind::Report(Report {
                url,
                interval: self.report_interval,
                pod: place.signer.uid.clone().unwrap_or_else(some_id),
            }),
            None => Kind::Nothing,
        };
        Config { place, kind, stop_timeout: self.stop_timeout }
    }
}

/// A random id, different at each start.
fn some_id() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}
