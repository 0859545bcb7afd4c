//! `agent reload`.
use std::time::Duration;

use clap::{Args, builder::NonEmptyStringValueParser, error::ErrorKind};
use http::Uri;
use nix::sys::signal::Signal;

use super::{
    share::ShareArgs,
    values::{duration, http},
};
use crate::reload::{Config, application::Method};

/// Flags of `agent reload`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ReloadArgs {
    #[command(flatten)]
    pub(super) share: ShareArgs,

    /// Reload the application by POST to this URL; a 2xx response confirms that it runs the file.
    #[arg(long, env = "SWARM_RELOAD_URL", value_name = "URL", value_parser = http)]
    #[arg(required_unless_present = "signal", conflicts_with = "signal")]
    url: Option<Uri>,

    /// Timeout of that request.
    #[arg(long, env = "SWARM_RELOAD_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "30s", value_parser = duration)]
    timeout: Duration,

    /// Reload the application by this signal: HUP, USR1 or USR2.
    #[arg(long, env = "SWARM_RELOAD_SIGNAL", value_name = "SIGNAL", value_parser = signal)]
    #[arg(requires = "process")]
    signal: Option<Signal>,

    /// Name of the application's process, or of its executable.
    #[arg(long, env = "SWARM_RELOAD_PROCESS", value_name = "NAME")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    process: Option<String>,

    /// Time that the application needs to apply the file after a signal, which has no response.
    #[arg(long, env = "SWARM_RELOAD_SETTLE", value_name = "DURATION")]
    #[arg(default_value = "1s", value_parser = duration)]
    settle: Duration,
}

impl ReloadArgs {
    pub(super) fn config(self) -> Result<Config, clap::Error> {
        let method = match (self.url, self.signal, self.process) {
            (Some(url), None, _) => Method::Url { url, timeout: self.timeout },
            (None, Some(signal), Some(process)) => {
                Method::Signal { signal, process, settle: self.settle }
            }
            _ => {
                let what = "either --url, or --signal and --process";
                return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, what));
            }
        };
        Ok(Config { place: self.share.place(), method })
    }
}

/// Accepts only the signals by which programs read their files again; the others end them.
fn signal(text: &str) -> Result<Signal, String> {
    match text.to_ascii_uppercase().trim_start_matches("SIG") {
        "HUP" => Ok(Signal::SIGHUP),
        "USR1" => Ok(Signal::SIGUSR1),
        "USR2" => Ok(Signal::SIGUSR2),
        _ => Err("must be HUP, USR1 or USR2".into()),
    }
}
