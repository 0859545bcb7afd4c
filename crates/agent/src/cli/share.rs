//! The flags that locate a worker's streams in a Swarm; the variables without a prefix are the
//! original's.
use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use traffic_operator_core::{acknowledgement::KEY_FILE, placement::part};

use crate::{
    log::LogArgs,
    worker::{place::Place, status::Signer},
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
    hostname: String,

    /// Port of GET /internal/version, /internal/health, /healthz and /metrics.
    #[arg(long, env = "HTTP_PORT", value_name = "PORT", default_value_t = 9090)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    http_port: u16,

    /// UID of this pod (`metadata.uid`), for which its answers are signed [default: unknown,
    /// answers are not signed].
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pod_uid: Option<String>,

    #[command(flatten)]
    pub(super) log: LogArgs,
}

impl ShareArgs {
    pub(super) fn place(self) -> Place {
        let files = self.config_files;
        let part = (files > 1).then(|| (part::of(&self.hostname, files), files));
        let directory = match part {
            None => self.config_path.clone(),
            Some((part, _)) => self.config_path.join(format!("part-{part}")),
        };
        let uid = self.pod_uid.filter(|uid| !uid.is_empty());
        Place {
            file: directory.join(self.config_key),
            worker: self.hostname,
            part,
            port: self.http_port,
            signer: Signer { key: self.config_path.join(KEY_FILE), uid },
        }
    }
}
