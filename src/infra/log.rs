//! Log lines.
use anyhow::Context;
use tracing_subscriber::EnvFilter;
use traffic_operator_agent::log::{LogArgs, LogFormat};

/// Starts logging to standard error.
///
/// # Errors
/// When the filter cannot be read.
pub fn init(LogArgs { log_format, log }: &LogArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(log).with_context(|| format!("--log {log:?}"))?;
    // Its warnings have the whole answer that could not be read: the keys of a Secret, for example.
    let filter = filter.add_directive("kube_client::client=error".parse()?);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log_format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
