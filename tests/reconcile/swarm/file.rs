//! The file as a worker reads it.
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct File {
    #[serde(default)]
    pub workloads: BTreeMap<String, Entry>,
    #[serde(default)]
    pub version: u64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Entry {
    #[serde(default)]
    pub jobs: Vec<String>,
    #[serde(default)]
    pub next: Vec<String>,
    #[serde(default)]
    pub version: u64,
}

impl File {
    /// Returns `None` if it is missing or unreadable: a worker then keeps what it has.
    pub fn of(map: &ConfigMap) -> Option<Self> {
        serde_yaml::from_str(map.data.as_ref()?.get("config.yml")?).ok()
    }

    pub fn jobs(&self, worker: &str) -> &[String] {
        self.workloads.get(worker).map_or(&[], |entry| &entry.jobs)
    }

    pub fn next(&self, worker: &str) -> &[String] {
        self.workloads.get(worker).map_or(&[], |entry| &entry.next)
    }

    /// Each stream and its workers.
    pub fn owners(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut owners = BTreeMap::<_, Vec<_>>::new();
        for (worker, entry) in &self.workloads {
            for job in &entry.jobs {
                owners.entry(job.as_str()).or_default().push(worker.as_str());
            }
        }
        owners
    }
}
