//! A file that the kubelet replaces at run time: checked periodically, read when it changes.
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use tokio::sync::mpsc;

/// Maximum size of a file in bytes: no `ConfigMap` is larger.
const MOST: u64 = 1 << 20;

/// The result of a check of the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// The contents changed.
    Changed(T),
    /// The last contents are still valid.
    Unchanged,
    /// The file is missing or unusable: the last contents stay in use.
    Error,
}

/// Checks the file periodically, for as long as the receiver exists. `interval` returns the time
/// until the next check.
///
/// # Errors
/// When a check panics.
pub async fn watch<T, P>(
    path: PathBuf,
    interval: impl Fn() -> Duration + Send + 'static,
    parse: P,
    to: mpsc::Sender<Found<T>>,
) -> anyhow::Result<()>
where
    T: Send + 'static,
    P: FnMut(&[u8]) -> anyhow::Result<T> + Send + 'static,
{
    let mut look = Look { path, parse, seen: Seen::Nothing, good: None };
    loop {
        // A disk that hangs must not block anything else.
        let (back, found) = tokio::task::spawn_blocking(move || {
            let found = look.again();
            (look, found)
        })
        .await
        .context("reading the configuration file")?;
        look = back;
        if let Some(found) = found
            && to.send(found).await.is_err()
        {
            return Ok(());
        }
        tokio::time::sleep(interval()).await;
    }
}

/// One file, and its state at the last check.
struct Look<P> {
    path: PathBuf,
    parse: P,
    seen: Seen,
    /// The last valid text.
    good: Option<Vec<u8>>,
}

/// Identity of the file: a `ConfigMap` volume changes by pointing a symlink to other files.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Missing,
    Good(Stamp),
    /// Its contents are not usable: only another file can be.
    Broken(Stamp),
    /// It could not be read, for example without a file descriptor: the next check reads it again.
    Unread,
}

/// The reason why there is nothing to use.
enum Unusable {
    Read(anyhow::Error),
    Contents(anyhow::Error),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl<T, P: FnMut(&[u8]) -> anyhow::Result<T>> Look<P> {
    /// Checks again; `None` when the file is still missing or broken, which is counted and logged
    /// once.
    fn again(&mut self) -> Option<Found<T>> {
        let stamp = match stamp(&self.path) {
            Ok(stamp) => stamp,
            Err(error) => return self.missing(&error),
        };
        match &self.seen {
            Seen::Good(seen) if *seen == stamp => return Some(Found::Unchanged),
            Seen::Broken(seen) if *seen == stamp => return None,
            _ => {}
        }
        let (error, seen) = match self.read() {
            Ok(found) => {
                if matches!(self.seen, Seen::Broken(_) | Seen::Missing | Seen::Unread) {
                    tracing::info!(path = %self.path.display(), "the configuration file is good");
                }
                self.seen = Seen::Good(stamp);
                return Some(found);
            }
            Err(Unusable::Contents(error)) => (error, Seen::Broken(stamp)),
            Err(Unusable::Read(_)) if self.seen == Seen::Unread => return None,
            Err(Unusable::Read(error)) => (error, Seen::Unread),
        };
        tracing::warn!(
            path = %self.path.display(), error = format!("{error:#}"),
            "the configuration file is not usable: the last good one stays"
        );
        self.seen = seen;
        Some(Found::Error)
    }

    fn missing(&mut self, error: &io::Error) -> Option<Found<T>> {
        if self.seen == Seen::Missing {
            return None;
        }
        self.seen = Seen::Missing;
        tracing::warn!(path = %self.path.display(), %error, "no configuration file (yet)");
        Some(Found::Error)
    }

    fn read(&mut self) -> Result<Found<T>, Unusable> {
        let read = |error: io::Error| Unusable::Read(error.into());
        let length = fs::metadata(&self.path).map_err(read)?.len();
        if length > MOST {
            let error = anyhow::anyhow!("{length} bytes are more than any ConfigMap has");
            return Err(Unusable::Contents(error));
        }
        let text = fs::read(&self.path).map_err(read)?;
        if self.good.as_ref() == Some(&text) {
            return Ok(Found::Unchanged);
        }
        let parsed = (self.parse)(&text).map_err(Unusable::Contents)?;
        self.good = Some(text);
        Ok(Found::Changed(parsed))
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
