//! The known facts about the workers besides those of the API server: a command cannot query
//! workers.
use std::{collections::BTreeMap, sync::Arc};

use super::super::inspection::Page;
use crate::api::SwarmStatus;

/// The last report of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Voice {
    /// It has acknowledged this version; 0: it answers, and runs no file.
    Acknowledged(u64),
    /// It answers nothing, for this reason.
    Silent(Arc<str>),
    /// There is no report.
    Unknown,
}

/// The last reports of all workers, by name.
#[derive(Clone, Debug, Default)]
pub struct Known {
    voices: BTreeMap<String, Voice>,
}

impl Known {
    /// From the leader's state.
    #[must_use]
    pub fn of_page(page: &Page) -> Self {
        let voice =
            |worker: &super::super::inspection::PageWorker| match (worker.loaded, &worker.error) {
                (Some(loaded), _) => Voice::Acknowledged(loaded),
                (None, Some(error)) => Voice::Silent(error.as_str().into()),
                (None, None) => Voice::Unknown,
            };
        let each = page.workers.iter().map(|worker| (worker.name.clone(), voice(worker)));
        Self { voices: each.collect() }
    }

    /// From the status: the first hundred of them.
    #[must_use]
    pub fn of_status(status: &SwarmStatus) -> Self {
        let each = status.workers.iter().map(|worker| {
            let loaded = worker.loaded.and_then(|loaded| u64::try_from(loaded).ok());
            let voice = match loaded {
                Some(loaded) => Voice::Acknowledged(loaded),
                None if worker.wanted > 0 => {
                    Voice::Silent("it has acknowledged no version, by the status".into())
                }
                None => Voice::Unknown,
            };
            (worker.name.clone(), voice)
        });
        Self { voices: each.collect() }
    }

    pub(super) fn voice(&self, worker: &str) -> &Voice {
        self.voices.get(worker).unwrap_or(&Voice::Unknown)
    }

    pub(super) fn silence(&self, worker: &str) -> Option<Arc<str>> {
        match self.voice(worker) {
            Voice::Silent(why) => Some(Arc::clone(why)),
            Voice::Acknowledged(_) | Voice::Unknown => None,
        }
    }
}
