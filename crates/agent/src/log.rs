//! Log lines.
use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::{
    Layer, filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

/// The format of log lines.
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
    let targets: Targets = filter.parse().with_context(|| format!("--log {filter:?}"))?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).with_filter(targets).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(targets).boxed(),
    };
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}
