//! Every file that the operator has published, in order.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::timeout;

use super::file::File;
use lab::wait::{Task, lock};

/// Follows a `ConfigMap`, even before it exists, until dropped.
#[derive(Debug)]
pub(super) struct History {
    files: Arc<Mutex<Vec<File>>>,
    /// The number of files.
    counts: watch::Receiver<usize>,
    _follower: Task,
}

impl History {
    pub fn follow(client: Client, namespace: &str, name: &str) -> Self {
        let files = Arc::<Mutex<Vec<File>>>::default();
        let (counter, counts) = watch::channel(0);
        let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let kept = Arc::clone(&files);
        let follower = Task::spawn(async move {
            let mut maps = pin!(watcher(maps, config).default_backoff().applied_objects());
            loop {
                match maps.try_next().await {
                    Ok(Some(map)) => match File::read(&map) {
                        Ok(Some(file)) => {
                            let mut files = lock(&kept);
                            // A write of something else, such as a label, leaves the file as it is.
                            if files.last() != Some(&file) {
                                files.push(file);
                            }
                            counter.send_replace(files.len());
                        }
                        Ok(None) => {}
                        Err(error) => lab::progress(&format!("a file: {error:#}")),
                    },
                    Ok(None) => return,
                    // The watch continues by itself.
                    Err(error) => lab::progress(&format!("following the file: {error}")),
                }
            }
        });
        Self { files, counts, _follower: follower }
    }

    /// The file that is published now.
    pub fn last(&self) -> Option<File> {
        lock(&self.files).last().cloned()
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        lock(&self.files).len()
    }

    /// Returns the last of the first `length` files, which is the state before, and all later ones.
    pub fn since(&self, length: usize) -> Vec<File> {
        lock(&self.files).iter().skip(length.saturating_sub(1)).cloned().collect()
    }

    /// Waits until there are this many files.
    pub async fn reaches(&self, length: usize, limit: Duration) -> Result<()> {
        let mut counts = self.counts.clone();
        let reached = timeout(limit, counts.wait_for(|files| *files >= length)).await;
        reached
            .with_context(|| format!("{} files, not {length}, after {limit:?}", self.len()))?
            .context("nobody follows the file any more")?;
        Ok(())
    }
}
