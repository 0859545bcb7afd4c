//! The file.
use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::handover::{Epoch, Published, Share};

#[derive(Deserialize, Serialize)]
struct File {
    #[serde(default)]
    workloads: Option<BTreeMap<String, Option<Entry>>>,
    #[serde(default)]
    version: i64,
}

#[derive(Default, Deserialize, Serialize)]
struct Entry {
    #[serde(default)]
    jobs: Option<Vec<String>>,
    #[serde(default)]
    version: i64,
}

#[derive(Default, Deserialize, Serialize)]
struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    barrier: Option<Epoch>,
    #[serde(default)]
    releasing: Vec<Release>,
}

#[derive(Deserialize, Serialize)]
struct Release {
    stream: String,
    worker: String,
    epoch: Epoch,
}

/// Reads.
///
/// # Errors
/// Why not.
pub fn parse(config: &str, record: &str) -> Result<Published, String> {
    let mut published = Published::default();
    if !config.trim().is_empty() {
        let file: File = serde_yaml::from_str(config).map_err(|e| e.to_string())?;
        published.epoch = u64::try_from(file.version).unwrap_or(0);
        for (name, entry) in file.workloads.unwrap_or_default() {
            let entry = entry.unwrap_or_default();
            let streams =
                entry.jobs.unwrap_or_default().iter().map(|j| j.as_str().into()).collect();
            let version = u64::try_from(entry.version).unwrap_or(0);
            published.shares.insert(name.into(), Share { streams, version });
        }
    }
    if !record.trim().is_empty() {
        let record: Record = serde_yaml::from_str(record).map_err(|e| e.to_string())?;
        published.barrier = record.barrier;
        for r in record.releasing {
            published.releasing.insert((r.stream.into(), r.worker.into()), r.epoch);
        }
    }
    Ok(published)
}

fn int(e: Epoch) -> i64 {
    i64::try_from(e).unwrap_or(i64::MAX)
}

/// Writes.
#[must_use]
pub fn render(published: &Published) -> String {
    let workloads = published.shares.iter().map(|(name, share)| {
        let jobs = share.streams.iter().map(|s: &Arc<str>| s.to_string()).collect();
        (name.to_string(), Some(Entry { jobs: Some(jobs), version: int(share.version) }))
    });
    let file = File { workloads: Some(workloads.collect()), version: int(published.epoch) };
    serde_yaml::to_string(&file).unwrap_or_default()
}

/// Writes the record.
#[must_use]
pub fn render_record(published: &Published) -> String {
    let releasing = published.releasing.iter().map(|((stream, worker), epoch)| Release {
        stream: stream.to_string(),
        worker: worker.to_string(),
        epoch: *epoch,
    });
    let record = Record { barrier: published.barrier, releasing: releasing.collect() };
    serde_yaml::to_string(&record).unwrap_or_default()
}
