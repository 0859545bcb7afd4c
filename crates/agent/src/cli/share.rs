//! The flags that locate a worker's streams in a Swarm; the variables without a prefix are the
//! original's.
use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use traffic_operator_core::{acknowledgement::KEY_FILE, placement::part};

use crate::{
    log::{self, LogFormat},
    worker::status::Signer,
};

/// Flags that `agent worker` and `agent reload` share.
#[derive(Args, Clone, Debug)]
pub(super) struct ShareArgs {
    /// Directory of the file, where the `ConfigMap` is mounted.
    #[arg(long, env = "CONFIG_PATH", value_name = "DIRECTORY", default_value = "/app/config")]
    config_path: PathBuf,

    /// Name of the file, which is the key in the `ConfigMap`.
    #[arg(long, env = "SWARM_CONFIG_KEY", value_name = "KEY", default_value = "config.yml")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    config_key: String,

    /// Number of `ConfigMap`s over which the file is divided (`configMap.files` of the Swarm).
    /// Above 1, the file is DIRECTORY/part-N/KEY, where N is the CRC-32 of this worker's name
    /// modulo this number.
    #[arg(long, env = "SWARM_CONFIG_FILES", value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=32))]
    config_files: u32,

    /// Name of this worker in the file, which is the name of the pod.
    #[arg(long, env = "HOSTNAME", value_name = "NAME", default_value = "swarm-worker-0")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(super) hostname: String,

    /// Port of GET /internal/version, /internal/health, /healthz and /metrics.
    #[arg(long, env = "HTTP_PORT", value_name = "PORT", default_value_t = 9090)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) http_port: u16,

    /// UID of this pod (`metadata.uid`), for which its answers are signed [default: unknown,
    /// answers are not signed].
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub(super) pod_uid: Option<String>,

    /// Format of log lines.
    #[arg(long, env = "TRAFFIC_OPERATOR_LOG_FORMAT", value_name = "FORMAT")]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// Level of log lines, or a filter such as `info,traffic_operator=debug`.
    #[arg(long, env = "TRAFFIC_OPERATOR_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
}

impl ShareArgs {
    pub(super) fn file(&self) -> PathBuf {
        match self.part() {
            None => self.config_path.join(&self.config_key),
            Some((part, _)) => self.config_path.join(format!("part-{part}")).join(&self.config_key),
        }
    }

    /// The index of this worker's part of a divided file, and the number of parts.
    pub(super) fn part(&self) -> Option<(u32, u32)> {
        let files = self.config_files;
        (files > 1).then(|| (part::of(&self.hostname, files), files))
    }

    pub(super) fn signer(&self) -> Signer {
        let uid = self.pod_uid.clone().filter(|uid| !uid.is_empty());
        Signer { key: self.config_path.join(KEY_FILE), uid }
    }

    pub(super) fn log(&self) -> anyhow::Result<()> {
        log::init(self.log_format, &self.log)
    }
}
