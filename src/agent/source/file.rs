//! Lists from `config.json`, which the kubelet replaces while we run.
use std::{path::PathBuf, time::Duration};

use tokio::sync::mpsc;

use super::Refresh;
use crate::agent::{file, members, members::Identity};

/// How often the file is looked at: one `stat` is nothing, and a list that the kubelet took up to a
/// minute to bring shall not wait for more.
const INTERVAL: Duration = Duration::from_secs(1);

/// Looks at the file for as long as somebody wants to know.
///
/// # Errors
/// When a look could not be finished: a panic in it.
pub async fn watch(
    path: PathBuf,
    who: Identity,
    prober: String,
    to: mpsc::Sender<Refresh>,
) -> anyhow::Result<()> {
    let parse = move |text: &[u8]| members::pinglist(text, &who, &prober).map(Box::new);
    file::watch(path, INTERVAL, parse, to).await
}
