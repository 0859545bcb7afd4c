//! The reads of an observation's second phase, derived from the first.
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{Decision, Observed, PERIOD, TRY, decide, discounted, expected};
use crate::{
    api::{RouteReflectorSet, route_reflector_set::Gate},
    route_reflector::{
        gate::Wanted,
        settings::Settings,
        steps::{Step, Why},
        topology::BgpTopology,
    },
};

/// The remaining reads.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The sessions that Prometheus counts; `None` if none is expected, or if another gate is used.
    pub sessions: Option<Arc<Wanted>>,
    /// A node becomes a reflector: the pods that its interruption hits count.
    pub workloads: bool,
    /// Maximum age of the count of sessions.
    pub interval: Duration,
}

/// Decides once, without the gate.
#[must_use]
pub fn questions(set: &RouteReflectorSet, observed: &Observed, deleting: bool) -> Questions {
    let nothing = Questions { sessions: None, workloads: false, interval: PERIOD };
    let (Ok(settings), Ok((_, bgp))) = (&observed.settings, &observed.bgp) else {
        return nothing;
    };
    if deleting {
        // On the way back to the mesh its sessions matter once no node reflects any more.
        let sessions = sessions(settings, bgp, &BTreeSet::new(), true);
        return Questions { sessions, interval: TRY, ..nothing };
    }
    let Ok(Decision { target, left, .. }) = decide(set, observed, settings, bgp) else {
        return Questions { sessions: sessions(settings, bgp, &BTreeSet::new(), false), ..nothing };
    };
    let promotes =
        |step: &Step| matches!(step, Step::Promote { why: Why::Repair | Why::Promote, .. });
    let leaving = target.leaving.iter().map(|leaving| Arc::clone(&leaving.node)).collect();
    Questions {
        sessions: sessions(settings, bgp, &leaving, false),
        workloads: left.iter().any(promotes),
        interval: if left.is_empty() { PERIOD } else { TRY },
    }
}

/// The sessions to count, as the gate expects them. A node that reflects for Calico alone, because
/// a process ended between two writes, counts like any other.
fn sessions(
    settings: &Settings,
    bgp: &BgpTopology,
    leaving: &BTreeSet<Arc<str>>,
    everybody: bool,
) -> Option<Arc<Wanted>> {
    if settings.gate != Gate::Prometheus {
        return None;
    }
    let wanted = expected(bgp, &discounted(bgp, leaving), everybody);
    (everybody || !wanted.is_empty()).then(|| Arc::new(wanted))
}
