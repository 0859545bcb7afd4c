//! Lists from `config.json`, which the kubelet replaces at run time.
use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use tokio::sync::mpsc;

use super::Refresh;
use crate::{
    file::{self, Found},
    members::{Identity, Members},
    schedule::Clock,
};

/// Time between two checks of the file: one `stat` costs nothing, and a list that the kubelet took
/// up to a minute to deliver should not wait longer.
const INTERVAL: Duration = Duration::from_secs(1);

/// Checks the file for as long as the receiver exists.
///
/// # Errors
/// When a check panics.
pub async fn watch(
    path: PathBuf,
    who: Identity,
    prober: String,
    to: mpsc::Sender<Refresh>,
) -> anyhow::Result<()> {
    let parse = move |text: &[u8]| Members::read(text, &who, &prober).map(Box::new);
    let (looks, mut found) = mpsc::channel(1);
    let mut lists = Lists { clock: Clock::new(), kept: None };
    let follow = async {
        while let Some(found) = found.recv().await {
            // Parsing thousands of members takes longer than a probe may wait.
            let refresh;
            (lists, refresh) = tokio::task::spawn_blocking(move || {
                let refresh = lists.refresh(found);
                (lists, refresh)
            })
            .await
            .context("the list of the configuration file")?;
            if to.send(refresh).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        looked = file::watch(path, || INTERVAL, parse, looks) => looked,
        followed = follow => followed,
    }
}

/// The list of the last good file.
struct Lists {
    clock: Clock,
    /// The contents of the file and the current turn; kept only if peers take turns.
    kept: Option<(u64, Box<Members>)>,
}

impl Lists {
    /// Returns the new list after a change of the file, or at the next turn of the same file.
    fn refresh(&mut self, found: Found<Box<Members>>) -> Refresh {
        let now = self.clock.now();
        let members = match (found, self.kept.take()) {
            (Found::Changed(members), _) => members,
            (Found::Unchanged, Some((turn, members))) if turn != members.turn(now) => members,
            (Found::Unchanged, kept) => {
                self.kept = kept;
                return Refresh::Unchanged;
            }
            (Found::Error, kept) => {
                self.kept = kept;
                return Refresh::Error;
            }
        };
        let (list, rotates) = members.pinglist(now);
        self.kept = rotates.then(|| (members.turn(now), members));
        Refresh::Changed(Box::new(list))
    }
}
