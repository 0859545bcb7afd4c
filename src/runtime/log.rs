//! Log lines.
use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to standard error.
///
/// # Errors
/// When the filter cannot be read.
pub fn init(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter:?}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
