//! The known facts about the workers besides those of the API server: a command cannot query
//! workers.
use std::{collections::BTreeMap, sync::Arc};

use super::super::inspection::Page;
use crate::api::SwarmStatus;

/// The last report of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastReport {
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
    reports: BTreeMap<String, LastReport>,
}

impl Known {
    /// From the leader's state.
    #[must_use]
    pub fn of_page(page: &Page) -> Self {
        let report =
            |worker: &super::super::inspection::PageWorker| match (worker.loaded, &worker.error) {
                (Some(loaded), _) => LastReport::Acknowledged(loaded),
                (None, Some(error)) => LastReport::Silent(error.as_str().into()),
                (None, None) => LastReport::Unknown,
            };
        let each = page.workers.iter().map(|worker| (worker.name.clone(), report(worker)));
        Self { reports: each.collect() }
    }

    /// From the status: the first hundred of them.
    #[must_use]
    pub fn of_status(status: &SwarmStatus) -> Self {
        let each = status.workers.iter().map(|worker| {
            let loaded = worker.loaded.and_then(|loaded| u64::try_from(loaded).ok());
            let report = match loaded {
                Some(loaded) => LastReport::Acknowledged(loaded),
                None if worker.wanted > 0 => {
                    LastReport::Silent("it has acknowledged no version, by the status".into())
                }
                None => LastReport::Unknown,
            };
            (worker.name.clone(), report)
        });
        Self { reports: each.collect() }
    }

    pub(super) fn last_report(&self, worker: &str) -> &LastReport {
        self.reports.get(worker).unwrap_or(&LastReport::Unknown)
    }

    pub(super) fn silence(&self, worker: &str) -> Option<Arc<str>> {
        match self.last_report(worker) {
            LastReport::Silent(why) => Some(Arc::clone(why)),
            LastReport::Acknowledged(_) | LastReport::Unknown => None,
        }
    }
}
