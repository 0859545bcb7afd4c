//! Log lines.
use anyhow::Context;
use tracing_subscriber::EnvFilter;
pub use traffic_operator_agent::log::LogFormat;

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
