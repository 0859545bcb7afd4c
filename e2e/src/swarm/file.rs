//! The file that the operator publishes, and what changes in a series of them. No IO.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

/// The key that workers read, as the original named it.
const SHARES: &str = "config.yml";
/// The key in which the operator keeps the streams that workers must still release.
const HANDOVER: &str = "handover.yml";

/// The shares of all workers, at one epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct File {
    pub epoch: u64,
    pub shares: BTreeMap<String, Share>,
    pub releasing: Vec<Releasing>,
}

/// The share of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Share {
    pub jobs: Vec<String>,
    /// The epoch at which the list changed last.
    pub version: u64,
}

/// A stream that a worker must stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Releasing {
    pub stream: String,
    pub worker: String,
}

impl File {
    /// Reads a `ConfigMap`; one without the file is not published yet.
    pub fn read(map: &ConfigMap) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Shares {
            #[serde(default)]
            workloads: BTreeMap<String, Share>,
            version: u64,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Handover {
            releasing: Vec<Told>,
        }
        #[derive(Deserialize)]
        struct Told {
            worker: String,
            streams: Vec<String>,
        }
        let key = |key: &str| map.data.as_ref().and_then(|data| data.get(key));
        let Some(text) = key(SHARES) else { return Ok(None) };
        let shares: Shares =
            serde_yaml::from_str(text).with_context(|| format!("{SHARES}:\n{text}"))?;
        let handover: Option<Handover> = match key(HANDOVER) {
            Some(text) => {
                serde_yaml::from_str(text).with_context(|| format!("{HANDOVER}:\n{text}"))?
            }
            None => None,
        };
        let releasing = handover.unwrap_or_default().releasing.into_iter().flat_map(|due| {
            let worker = due.worker;
            due.streams.into_iter().map(move |stream| Releasing { stream, worker: worker.clone() })
        });
        let (epoch, shares) = (shares.version, shares.workloads);
        let releasing = releasing.collect();
        Ok(Some(Self { epoch, shares, releasing }))
    }

    /// The worker that has a stream; the last one if there are several.
    pub fn owners(&self) -> BTreeMap<&str, &str> {
        let all = self.shares.iter();
        all.flat_map(|(worker, share)| {
            share.jobs.iter().map(|stream| (stream.as_str(), worker.as_str()))
        })
        .collect()
    }

    /// Returns the number of streams of each worker.
    pub fn sizes(&self) -> BTreeMap<&str, usize> {
        self.shares.iter().map(|(worker, share)| (worker.as_str(), share.jobs.len())).collect()
    }

    pub fn streams_of(&self, worker: &str) -> BTreeSet<&str> {
        let share = self.shares.get(worker);
        share.into_iter().flat_map(|share| share.jobs.iter().map(String::as_str)).collect()
    }

    /// Reports whether every share has as many streams as any other, or one more or less.
    pub fn is_even(&self) -> bool {
        let sizes = self.sizes();
        let (least, most) = (sizes.values().min(), sizes.values().max());
        least.zip(most).is_none_or(|(least, most)| most - least <= 1)
    }
}

/// The workers whose list has changed in a series of files.
pub(super) fn changed(files: &[File]) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for pair in files.windows(2) {
        let workers: BTreeSet<&String> = pair.iter().flat_map(|file| file.shares.keys()).collect();
        for worker in workers {
            if pair[0].streams_of(worker) != pair[1].streams_of(worker) {
                changed.insert(worker.clone());
            }
        }
    }
    changed
}

/// The fewest streams that can move between workers that both files have: what is above a worker's
/// part of an even share must go, the fuller keep the larger part.
pub(super) fn fewest_moves(before: &File, after: &File) -> usize {
    let workers = after.shares.len();
    if workers == 0 {
        return 0;
    }
    let streams: usize = after.sizes().values().sum();
    let mut sizes: Vec<usize> = before
        .sizes()
        .into_iter()
        .filter(|(worker, _)| after.shares.contains_key(*worker))
        .map(|(_, size)| size)
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let part = |place: usize| streams / workers + usize::from(place < streams % workers);
    sizes.iter().enumerate().map(|(place, size)| size.saturating_sub(part(place))).sum()
}

/// Counts the streams that have moved between two workers that are in both files.
pub(super) fn moves(before: &File, after: &File) -> usize {
    let owners = after.owners();
    let moved = |(stream, worker): &(&str, &str)| {
        after.shares.contains_key(*worker) && owners.get(stream).is_some_and(|now| now != worker)
    };
    before.owners().into_iter().filter(moved).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares as (worker, streams, version), each stream a letter.
    fn file(epoch: u64, shares: &[(&str, &str, u64)], releasing: &[(&str, &str)]) -> File {
        let share = |(worker, jobs, version): &(&str, &str, u64)| {
            let jobs = jobs.chars().map(String::from).collect();
            ((*worker).to_owned(), Share { jobs, version: *version })
        };
        let left = |(stream, worker): &(&str, &str)| Releasing {
            stream: (*stream).to_owned(),
            worker: (*worker).to_owned(),
        };
        File {
            epoch,
            shares: shares.iter().map(share).collect(),
            releasing: releasing.iter().map(left).collect(),
        }
    }

    #[test]
    fn a_stream_that_moves_changes_two_lists() {
        let files = [
            file(1, &[("w0", "ab", 1), ("w1", "", 1)], &[]),
            file(2, &[("w0", "a", 2), ("w1", "", 1)], &[("b", "w0")]),
            file(3, &[("w0", "a", 2), ("w1", "b", 3)], &[]),
        ];
        assert_eq!(changed(&files), ["w0".to_owned(), "w1".to_owned()].into());
        assert_eq!((moves(&files[0], &files[2]), fewest_moves(&files[0], &files[2])), (1, 1));
    }

    #[test]
    fn the_fewest_moves_are_what_is_above_an_even_share() {
        let sized = |sizes: &[usize]| {
            let mut letters = ('A'..='Z').chain('a'..='z');
            let shares = sizes.iter().enumerate().map(|(place, size)| {
                let jobs = letters.by_ref().take(*size).map(String::from).collect();
                (format!("w{place}"), Share { jobs, version: 1 })
            });
            File { epoch: 1, shares: shares.collect(), ..File::default() }
        };
        for (before, after, fewest) in [
            (&[14, 13][..], &[9, 9, 9][..], 9),
            (&[9, 9, 9], &[14, 13], 0),
            (&[9, 9, 9], &[3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2], 18),
            (&[7, 7, 7, 6], &[7, 7, 7, 6], 0),
            (&[9, 9, 9], &[], 0),
            (&[], &[14, 13], 0),
        ] {
            assert_eq!(fewest_moves(&sized(before), &sized(after)), fewest, "{before:?} {after:?}");
        }
        assert!(sized(&[14, 13]).is_even() && sized(&[]).is_even() && !sized(&[9, 11]).is_even());
    }
}
