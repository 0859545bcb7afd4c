//! Lists from `config.json`, which the kubelet replaces while we run.
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use tokio::{sync::mpsc, time::MissedTickBehavior};

use super::Refresh;
use crate::agent::{members, members::Identity};

/// How often the file is looked at: one `stat` is nothing, and a list that the kubelet took up to a
/// minute to bring shall not wait for more.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest file that is read: no `ConfigMap` is longer.
const MOST: u64 = 1 << 20;

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
    let mut look = Look::new(path, who, prober);
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // A disk that hangs must not hold up the probes.
        let (back, refresh) = tokio::task::spawn_blocking(move || {
            let refresh = look.again();
            (look, refresh)
        })
        .await
        .context("reading the configuration file")?;
        look = back;
        if let Some(refresh) = refresh
            && to.send(refresh).await.is_err()
        {
            return Ok(());
        }
    }
}

/// One file, as it was seen last.
struct Look {
    path: PathBuf,
    who: Identity,
    prober: String,
    seen: Seen,
    /// What the last good list was made of.
    good: Option<Vec<u8>>,
}

/// Which file it was: a `ConfigMap` volume is changed by turning a symlink to other files.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Missing,
    Good(Stamp),
    Broken(Stamp),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Look {
    fn new(path: PathBuf, who: Identity, prober: String) -> Self {
        Self { path, who, prober, seen: Seen::Nothing, good: None }
    }

    /// `None` when nothing is new about a file that is missing or broken: counted and logged once.
    fn again(&mut self) -> Option<Refresh> {
        let stamp = match stamp(&self.path) {
            Ok(stamp) => stamp,
            Err(error) => return self.missing(&error),
        };
        match &self.seen {
            Seen::Good(seen) if *seen == stamp => return Some(Refresh::Unchanged),
            Seen::Broken(seen) if *seen == stamp => return None,
            _ => {}
        }
        match self.read() {
            Ok(refresh) => {
                if matches!(self.seen, Seen::Broken(_) | Seen::Missing) {
                    tracing::info!(path = %self.path.display(), "the configuration file is good");
                }
                self.seen = Seen::Good(stamp);
                Some(refresh)
            }
            Err(error) => {
                tracing::warn!(
                    path = %self.path.display(), error = format!("{error:#}"),
                    "the configuration file is not usable: the last good one stays"
                );
                self.seen = Seen::Broken(stamp);
                Some(Refresh::Error)
            }
        }
    }

    fn missing(&mut self, error: &io::Error) -> Option<Refresh> {
        if self.seen == Seen::Missing {
            return None;
        }
        self.seen = Seen::Missing;
        tracing::warn!(path = %self.path.display(), %error, "no configuration file (yet)");
        Some(Refresh::Error)
    }

    fn read(&mut self) -> anyhow::Result<Refresh> {
        let length = fs::metadata(&self.path)?.len();
        anyhow::ensure!(length <= MOST, "{length} bytes are more than any ConfigMap has");
        let text = fs::read(&self.path)?;
        if self.good.as_ref() == Some(&text) {
            return Ok(Refresh::Unchanged);
        }
        let list = members::pinglist(&text, &self.who, &self.prober)?;
        self.good = Some(text);
        Ok(Refresh::Changed(Box::new(list)))
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = fs::metadata(path)?;
    Ok(Stamp {
        device: file.dev(),
        inode: file.ino(),
        length: file.len(),
        modified: (file.mtime(), file.mtime_nsec()),
    })
}
