//! Files as stored in the API server.
use std::sync::Arc;

use super::{Published, STATE_KEY};
use crate::{
    api::Swarm,
    placement::hash,
    swarm::{
        handover::Epoch,
        watches::{MapFacts, WorkloadView},
    },
};

/// The fingerprint of the written content, to detect foreign edits.
#[must_use]
pub fn fingerprint(config: &str, state: &str) -> String {
    format!("{:016x}", hash::combine(hash::of(config), hash::of(state)))
}

/// A part as it was read: its `ConfigMap` need not be read again until that changes.
#[derive(Clone, Debug)]
pub struct Part {
    /// Of the `ConfigMap`.
    uid: String,
    resource_version: String,
    /// It is as we wrote it.
    pub intact: bool,
    /// Its contents, if they can be read.
    pub published: Option<Arc<Published>>,
}

impl Part {
    fn read(map: &MapFacts, key: &str, known: Option<&Self>) -> Self {
        let same =
            |known: &&Self| known.uid == map.uid && known.resource_version == map.resource_version;
        if let Some(known) = known.filter(same) {
            return known.clone();
        }
        let text = |key: &str| map.data.get(key).map(String::as_str);
        let (config, state) = (text(key).unwrap_or_default(), text(STATE_KEY));
        let content = fingerprint(config, state.unwrap_or_default());
        let read = super::parse(config, state).ok();
        Self {
            uid: map.uid.clone(),
            resource_version: map.resource_version.clone(),
            intact: map.content.as_deref() == Some(&*content) && read.is_some(),
            published: read.map(|parsed| Arc::new(parsed.published)),
        }
    }

    /// The version that it is of; 0: it cannot be read.
    #[must_use]
    pub fn version(&self) -> Epoch {
        self.published.as_ref().map_or(0, |published| published.epoch)
    }
}

/// The parts as they are stored now.
#[must_use]
pub fn read(swarm: &Swarm, view: &WorkloadView, known: &[Option<Part>]) -> Vec<Option<Part>> {
    let key = &swarm.spec.config_map.key;
    let each = view.parts.iter().enumerate();
    each.map(|(i, map)| {
        let known = known.get(i).and_then(Option::as_ref);
        map.as_ref().map(|map| Part::read(map, key, known))
    })
    .collect()
}
