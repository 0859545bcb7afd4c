//! The format of the file of endpoints.
use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

use anyhow::{Context, anyhow, ensure};
use serde::{Deserialize, Deserializer, de::Visitor};

use super::EndpointConfig;

/// Maximum size of the file in bytes: a `ConfigMap` holds one mebibyte.
const MAX_FILE: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with `endpoints`")]
struct File {
    endpoints: BTreeMap<String, Endpoint>,
}

/// One endpoint, as written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a map with `url`")]
pub(super) struct Endpoint {
    pub url: Text,
    pub timeout: Option<Text>,
    pub bearer_token_file: Option<Text>,
    pub basic_auth: Option<BasicAuth>,
    pub tls: Option<Tls>,
    #[serde(default)]
    pub headers: BTreeMap<String, Text>,
    #[serde(default)]
    pub header_files: BTreeMap<String, Text>,
    #[serde(default)]
    pub parameters: BTreeMap<String, Text>,
    pub allowed_namespaces: Option<Vec<Text>>,
    pub exporter: Option<Text>,
    pub selector: Option<Text>,
}

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a map with `username` and `passwordFile`"
)]
pub(super) struct BasicAuth {
    pub username: Text,
    pub password_file: Text,
}

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a map with `caFile`, `certFile` and so on"
)]
pub(super) struct Tls {
    pub ca_file: Option<Text>,
    pub cert_file: Option<Text>,
    pub key_file: Option<Text>,
    pub server_name: Option<Text>,
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// A text; `5` and `false` are refused with a hint to quote them, because the sent value might
/// differ from the written one.
pub(super) struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Quoted;
        impl Visitor<'_> for Quoted {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text (put it in quotes)")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
        }
        // Not `deserialize_string`, with which the parser accepts every scalar as text.
        deserializer.deserialize_any(Quoted)
    }
}

/// Reads and checks the file.
pub(super) fn read(
    path: &Path,
    timeout: Duration,
) -> anyhow::Result<BTreeMap<String, EndpointConfig>> {
    let text = std::fs::read_to_string(path).context("--prometheus-config cannot be read")?;
    ensure!(text.len() <= MAX_FILE, "is larger than {} MiB", MAX_FILE >> 20);
    parse(&text, timeout)
}

pub(super) fn parse(
    text: &str,
    timeout: Duration,
) -> anyhow::Result<BTreeMap<String, EndpointConfig>> {
    // First as a generic value: if two entries have the same key, a map would silently keep the
    // last.
    let _: serde_yaml::Value = serde_yaml::from_str(text).map_err(without_values)?;
    let file: File = serde_yaml::from_str(text).map_err(without_values)?;
    file.endpoints
        .into_iter()
        .map(|(name, endpoint)| {
            let checked = endpoint
                .check(name.clone(), timeout)
                .with_context(|| format!("endpoint {name}"))?;
            Ok((name, checked))
        })
        .collect()
}

/// Returns the parser's message without the unexpected value, which may be a password in the wrong
/// place.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn without_values(error: serde_yaml::Error) -> anyhow::Error {
    let text = error.to_string();
    let (Some(kind), Some(expected)) = (text.find("invalid "), text.rfind(", expected ")) else {
        return anyhow!(text);
    };
    let value = text[kind..expected].find(['"', '`']).map_or(expected, |quote| kind + quote);
    anyhow!("{}{}", text[..value].trim_end(), &text[expected..])
}
