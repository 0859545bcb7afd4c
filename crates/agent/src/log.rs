//! Log lines.
use anyhow::Context;
use clap::{Args, ValueEnum};
use tracing_subscriber::{
    Layer, filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

/// The flags about log lines.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Format of log lines.
    #[arg(long, env = "TRAFFIC_OPERATOR_LOG_FORMAT", value_name = "FORMAT")]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Level of log lines, or a filter such as `info,traffic_operator=debug`.
    #[arg(long, env = "TRAFFIC_OPERATOR_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
}

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
pub fn init(LogArgs { log_format, log }: &LogArgs) -> anyhow::Result<()> {
    let targets: Targets = log.parse().with_context(|| format!("--log {log:?}"))?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match log_format {
        LogFormat::Text => lines.with_ansi(false).with_filter(targets).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(targets).boxed(),
    };
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}
