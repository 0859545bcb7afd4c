//! The reads of an observation's second phase, derived from the first.
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{Decision, Observed, PERIOD, TRY, decide};
use crate::{
    api::RouteReflectorSet,
    route_reflector::steps::{Step, Why},
};

/// The remaining reads.
#[derive(Clone, Debug)]
pub struct Questions {
    /// Reflectors that leave: their sessions are not required.
    pub leaving: BTreeSet<Arc<str>>,
    /// A node becomes a reflector: the pods that its interruption hits count.
    pub workloads: bool,
    /// Maximum age of the count of sessions.
    pub interval: Duration,
}

/// Decides once, without the gate.
#[must_use]
pub fn questions(set: &RouteReflectorSet, observed: &Observed, deleting: bool) -> Questions {
    let nothing = Questions { leaving: BTreeSet::new(), workloads: false, interval: PERIOD };
    let (Ok(settings), Ok((_, bgp))) = (&observed.settings, &observed.bgp) else {
        return nothing;
    };
    if deleting {
        return Questions { interval: TRY, ..nothing };
    }
    let Ok(Decision { target, left, .. }) = decide(set, observed, settings, bgp) else {
        return nothing;
    };
    let promotes =
        |step: &Step| matches!(step, Step::Promote { why: Why::Repair | Why::Promote, .. });
    Questions {
        leaving: target.leaving.iter().map(|leaving| Arc::clone(&leaving.node)).collect(),
        workloads: left.iter().any(promotes),
        interval: if left.is_empty() { PERIOD } else { TRY },
    }
}
