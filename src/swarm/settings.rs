//! A spec, read and checked.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::ResourceExt;
use serde::Deserialize;

use super::{
    limits::{self, List, Named},
    watches::MapFacts,
};
use crate::{
    api::{
        Swarm, parse_quantity,
        swarm::{Handover, Policy, Strategy, Stream, WorkloadKind},
    },
    controller::Error,
    prometheus::shortened,
};

/// Maximum size of a `ConfigMap` in bytes, including keys: the API server's limit.
pub const LARGEST_MAP: usize = limits::LARGEST_TEXT;

/// Maximum length of an error in a list, in bytes.
const LONGEST_ERROR: usize = 500;

/// A spec with parsed streams.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The workload's kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub workload: String,
    /// The streams in the order of the list; their ids differ.
    pub streams: Vec<Stream>,
    /// The placement policy.
    pub policy: Policy,
    /// True if a stream must stop before another worker gets it.
    pub exclusive: bool,
    /// The way in which workers load their list.
    pub strategy: Strategy,
    /// The number of workers that may be unavailable.
    pub max_unavailable: usize,
    /// The time after which a worker counts as stuck.
    pub timeout: Duration,
    /// Capacity of a worker.
    pub max_per_worker: Option<usize>,
    /// Moves at once.
    pub max_moves: Option<usize>,
    /// True if files are also written as immutable `ConfigMap`s.
    pub immutable: bool,
    /// Measured weights.
    pub weights: Option<Weights>,
    /// Autoscaling.
    pub autoscale: Option<Autoscale>,
}

/// Measured weights.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The period.
    pub interval: Duration,
    /// Maximum weight of the heaviest worker, as a multiple of the mean.
    pub rebalance_above: f64,
    /// For how long.
    pub for_: Duration,
}

/// Autoscaling.
#[derive(Clone, Debug)]
pub struct Autoscale {
    /// One worker's weight.
    pub per_worker: f64,
    /// Never fewer.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// For how long nothing is changed again.
    pub cooldown: Duration,
}

impl Settings {
    /// Reads a spec and the `ConfigMap` it may name.
    ///
    /// # Errors
    /// The path of the invalid field, and its error.
    pub fn of(swarm: &Swarm, source: Option<&MapFacts>) -> Result<Self, Error> {
        let spec = &swarm.spec;
        let weights = match &spec.weights {
            None => None,
            Some(weights) => {
                let above = parse_quantity(&weights.rebalance_above.0)
                    .map_err(|error| invalid("weights.rebalanceAbove", error))?;
                Some(Weights {
                    interval: weights.interval.into(),
                    rebalance_above: above,
                    for_: weights.for_.into(),
                })
            }
        };
        let autoscale = match &spec.autoscale {
            None => None,
            Some(autoscale) => {
                let per_worker = parse_quantity(&autoscale.max_weight_per_worker.0)
                    .map_err(|error| invalid("autoscale.maxWeightPerWorker", error))?;
                if per_worker <= 0.0 {
                    return Err(invalid("autoscale.maxWeightPerWorker", "must be greater than 0"));
                }
                Some(Autoscale {
                    per_worker,
                    min: autoscale.min,
                    max: autoscale.max,
                    cooldown: autoscale.cooldown.into(),
                })
            }
        };
        if spec.config_map.immutable && spec.config_map.files > 1 {
            return Err(invalid(
                "configMap.files",
                "must be 1 with immutable: an immutable file is in one ConfigMap",
            ));
        }
        let count = |number: Option<u32>| number.and_then(|number| usize::try_from(number).ok());
        Ok(Self {
            kind: spec.workload.kind,
            workload: spec.workload.name.clone(),
            streams: streams(swarm, source)?,
            policy: spec.policy,
            exclusive: spec.handover == Handover::Exclusive,
            strategy: swarm.strategy(),
            max_unavailable: count(Some(spec.refresh.max_unavailable)).unwrap_or(1),
            timeout: spec.refresh.timeout.into(),
            max_per_worker: count(spec.max_streams_per_worker),
            max_moves: count(spec.max_moves),
            immutable: spec.config_map.immutable,
            weights,
            autoscale,
        })
    }
}

fn invalid(path: &str, text: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("spec.{path}: {text}"))
}

fn plain(id: &str) -> Stream {
    Stream { id: id.to_owned(), weight: 1, pin: None, dedicated: false }
}

/// The list of a spec, whichever of its three forms it has.
fn streams(swarm: &Swarm, source: Option<&MapFacts>) -> Result<Vec<Stream>, Error> {
    let spec = &swarm.spec;
    let (path, streams) = match (&spec.jobs, &spec.streams, &spec.streams_from) {
        (Some(jobs), None, None) => {
            ("spec.jobs".to_owned(), jobs.iter().map(|id| plain(id)).collect::<Vec<_>>())
        }
        (None, Some(streams), None) => ("spec.streams".to_owned(), streams.clone()),
        (None, None, Some(from)) => {
            let (name, key) = (&from.config_map_key_ref.name, &from.config_map_key_ref.key);
            let namespace = swarm.namespace().unwrap_or_default();
            let path = format!("spec.streamsFrom: ConfigMap {namespace}/{name}");
            if *name == swarm.config_map() || swarm.parts().contains(name) {
                let text = "is the one to which the lists of streams are written; name another";
                return Err(Error::Invalid(format!("{path} {text}")));
            }
            let Some(source) = source else {
                return Err(Error::Invalid(format!("{path} does not exist")));
            };
            let Some(text) = source.data.get(key) else {
                return Err(Error::Invalid(format!("{path} has no key {key:?}")));
            };
            let path = format!("{path}, key {key:?}");
            let streams =
                from_text(text).map_err(|error| Error::Invalid(format!("{path}: {error}")))?;
            check(spec.policy, spec.workload.kind, &streams)
                .map_err(|text| Error::Invalid(format!("{path}: {text}")))?;
            (path, streams)
        }
        _ => {
            let text = "spec: exactly one of jobs, streams and streamsFrom is needed";
            return Err(Error::Invalid(text.into()));
        }
    };
    limits::streams(streams.len()).map_err(|text| Error::Invalid(format!("{path} {text}")))?;
    if streams.is_empty() {
        // An empty list is more likely a mistake than intended: no worker loses its streams.
        let text = format!("{path}: no stream is listed; workers keep what they have");
        return Err(Error::Invalid(text));
    }
    let mut seen = BTreeMap::<&str, usize>::new();
    for stream in &streams {
        *seen.entry(&stream.id).or_default() += 1;
    }
    if let Some((id, count)) = seen.iter().find(|(_, count)| **count > 1) {
        let text =
            format!("{path}: {id:?} is listed {count} times; each stream may appear only once");
        return Err(Error::Invalid(text));
    }
    Ok(streams)
}

/// The file of `streamsFrom`: the original's `jobs:` or our `streams:`.
#[derive(Deserialize)]
#[serde(expecting = "YAML with jobs or streams, such as \"jobs: [a, b]\"")]
struct File {
    #[serde(default)]
    jobs: Option<List<String>>,
    #[serde(default)]
    streams: Option<List<Stream>>,
}

impl Named for String {
    fn room(&self) -> usize {
        limits::room(self)
    }

    fn check(&self) -> Result<(), String> {
        limits::name("an id", self)
    }
}

impl Named for Stream {
    fn room(&self) -> usize {
        limits::room(&self.id) + self.pin.as_deref().map_or(0, limits::room)
    }

    fn check(&self) -> Result<(), String> {
        limits::name("an id", &self.id)?;
        limits::name("a pin", self.pin.as_deref().unwrap_or_default())
    }
}

fn from_text(text: &str) -> Result<Vec<Stream>, String> {
    limits::text(text)?;
    // It repeats the value that is wrong, whatever its length.
    let wrong = |error: serde_yaml::Error| shortened(error.to_string(), LONGEST_ERROR);
    // Editors on Windows begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file: File = serde_yaml::from_str(text).map_err(wrong)?;
    match (file.jobs, file.streams) {
        (Some(jobs), None) => Ok(jobs.0.iter().map(|id| plain(id)).collect()),
        (None, Some(streams)) => Ok(streams.0),
        (Some(_), Some(_)) => Err("has both jobs and streams; one of them is needed".into()),
        (None, None) => Err("has neither jobs nor streams; one of them is needed".into()),
    }
}

/// Checks the rules of the schema for `spec.streams`, for lists in other places.
fn check(policy: Policy, kind: WorkloadKind, streams: &[Stream]) -> Result<(), String> {
    for stream in streams {
        let of = |text: &str| Err(format!("{:?}: {text}", stream.id));
        if stream.id.is_empty() || stream.id.chars().count() > limits::ID {
            return of("an id has 1 to 253 characters");
        }
        if stream.weight == 0 || stream.weight > 1_000_000 {
            return of("weight must be from 1 to 1000000");
        }
        if kind == WorkloadKind::Deployment && stream.pin.is_some() {
            return of("pin needs a StatefulSet: the names of a Deployment's pods do not last");
        }
        if policy != Policy::Sticky && stream.weight != 1 {
            return of("weight needs policy Sticky");
        }
        if policy == Policy::Contiguous && (stream.pin.is_some() || stream.dedicated) {
            return of("pin and dedicated need policy Sticky or Stateless");
        }
    }
    Ok(())
}

/// The ids, shared by everything that names a stream.
#[must_use]
pub fn ids(streams: &[Stream]) -> Vec<Arc<str>> {
    streams.iter().map(|stream| stream.id.as_str().into()).collect()
}

#[cfg(test)]
mod tests;
