//! Events.
use std::collections::BTreeMap;

use super::{
    super::{
        evidence::{Evaluation, Unit},
        judgment::{Change, Judgment},
        memory::{Reason, Sample, Transition},
        settings::Criterion,
    },
    numbers::{short, written},
    scrapes,
};
use crate::{
    api::traffic_watch::{Mode, NodeState, UnknownAction},
    controller::{Notice, Verdict},
};

/// Maximum number of nodes that get a separate event when many change in one judgment: more would
/// not be read, and each is a write.
const EVENTS_OF_A_KIND: usize = 10;

/// The events of the nodes that changed: one per node, and for those beyond the first few of a kind
/// one for all.
pub(in super::super) fn changes(j: &Judgment<'_>) -> Vec<Notice> {
    let of = |change: &Change| {
        let expired = change.expired.then(|| expired(j, change.node));
        // The event above explains a flip without a measurement, and that below one by the limit.
        let state = j.nodes[change.node].state;
        let is_measured =
            |unfit| if unfit { state != NodeState::Unknown } else { state == NodeState::Fit };
        let flipped = change.flip.filter(|unfit| !change.expired && is_measured(*unfit));
        let flipped = flipped.and_then(|unfit| flip(j, change.node, unfit));
        let transition = change.transition.as_ref();
        let entered =
            transition.and_then(|t| entered(j, change.node, t, change.flip == Some(false)));
        [expired, flipped, entered]
    };
    let mut by_reason: BTreeMap<&str, FewNotices> = BTreeMap::new();
    for notice in j.changes.iter().flat_map(of).flatten() {
        by_reason.entry(notice.reason).or_default().add(notice);
    }
    by_reason.into_values().flat_map(FewNotices::into_notices).collect()
}

/// The events of one reason: the first few, and how many more there are. When half of the nodes
/// change at once, no more than these are in memory.
#[derive(Default)]
pub(in super::super) struct FewNotices {
    first: Vec<Notice>,
    more: usize,
}

impl FewNotices {
    fn add(&mut self, notice: Notice) {
        if self.first.len() < EVENTS_OF_A_KIND {
            self.first.push(notice);
        } else {
            self.more += 1;
        }
    }

    /// Returns the first few, and one event for all others.
    pub(in super::super) fn into_notices(self) -> Vec<Notice> {
        let Self { first: mut notices, more } = self;
        if more > 0 {
            let Notice { warning, reason, .. } = notices[0];
            let note = format!("{more} more nodes at the same time: see the metrics");
            notices.push(Notice { warning, reason, note, node: None });
        }
        notices
    }
}

impl FromIterator<Notice> for FewNotices {
    fn from_iter<I: IntoIterator<Item = Notice>>(notices: I) -> Self {
        let mut few = Self::default();
        notices.into_iter().for_each(|notice| few.add(notice));
        few
    }
}

fn flip(j: &Judgment<'_>, node: usize, unfit: bool) -> Option<Notice> {
    let name = &j.seen.nodes[node].name;
    let note = if unfit {
        let (place, criterion) = j.unfit_by(node).next()?;
        let sample = j.nodes[node].sides().nth(place)?.last.as_ref()?;
        // It was above it, and there was no place for its mark until now.
        let above = if sample.value > criterion.max {
            format!("above {}", criterion.max_text)
        } else {
            let recover = written(criterion.rules.unit, criterion.recover);
            format!("not yet at or below {recover}, and may be marked now")
        };
        format!("node {name} {}, {above}", measured(criterion, sample))
    } else if let [criterion] = &*j.settings.criteria {
        let sample = j.nodes[node].sides().next()?.last.as_ref()?;
        let recover = written(criterion.rules.unit, criterion.recover);
        format!("node {name} {}, at or below {recover}", measured(criterion, sample))
    } else {
        format!("node {name}: every measure is back at or below its recovery threshold")
    };
    let observe = match j.watch.spec.mode {
        Mode::Enforce => "",
        Mode::Observe => " (not labeled: mode is Observe)",
    };
    Some(Notice {
        warning: unfit,
        reason: if unfit { "NodeUnfit" } else { "NodeFit" },
        note: format!("{note}{observe}"),
        node: Some(name.to_string()),
    })
}

/// Describes the measurement of a node by one measure.
fn measured(criterion: &Criterion, sample: &Sample) -> String {
    let device = sample.device.as_ref().map(|d| format!(" on {d}")).unwrap_or_default();
    let value = written(criterion.rules.unit, sample.value);
    match criterion.rules.unit {
        Unit::Percent => format!("uses {value} of its link capacity{device}"),
        Unit::BitsPerSecond => format!("uses {value}{device}"),
        Unit::Own => format!("has {} {value}{device}", criterion.name),
    }
}

/// Returns the event of a node that was without evidence for as long as the spec allows.
fn expired(j: &Judgment<'_>, node: usize) -> Notice {
    let name = &j.seen.nodes[node].name;
    let (after, action) = j.settings.on_unknown;
    let done = match (action, j.nodes[node].marked) {
        (UnknownAction::Fit, _) => "it is marked fit",
        (UnknownAction::Unfit, Some(true)) => "it is marked unfit",
        (UnknownAction::Unfit, _) => "it is not marked unfit, because too many nodes are",
        (UnknownAction::RemoveLabel, _) => "its label is removed",
        (UnknownAction::Hold, _) => "its label stays as it is",
    };
    let why = j.nodes[node].reason.map_or("NoSample", Reason::as_str);
    let after = humantime::format_duration(std::time::Duration::from_millis(after.into()));
    Notice {
        warning: true,
        reason: "NodeUnknownExpired",
        note: format!(
            "node {name}: {why} for {after}, and spec.onUnknown.action is {action:?}: {done}"
        ),
        node: Some(name.to_string()),
    }
}

/// Returns the event of a node that is no longer judged. When all nodes are without evidence, one
/// event about the measurement covers all.
fn entered(
    j: &Judgment<'_>,
    node: usize,
    transition: &Transition,
    loses_mark: bool,
) -> Option<Notice> {
    let facts = &j.seen.nodes[node];
    let (reason, note) = match transition.to {
        NodeState::Unknown if j.evaluation() == Evaluation::Ok => {
            let why = &transition.reason;
            ("NodeUnknown", format!("node {}: {why}; its label stays as it is", facts.name))
        }
        NodeState::Suppressed => {
            let mark = if loses_mark { "; it loses its mark" } else { "" };
            let name = &facts.name;
            let note = format!("node {name} is above the threshold, but too many nodes are unfit");
            ("NodeSuppressed", note + mark)
        }
        _ => return None,
    };
    Some(Notice { warning: true, reason, note, node: Some(facts.name.to_string()) })
}

/// The event of a window that is too short, once it has been so for two windows: after its own
/// start Prometheus has no more than this either.
pub(in super::super) fn window_too_short(j: &Judgment<'_>, judgments: u32) -> Option<Notice> {
    let window = j.settings.window?;
    let long = |judgments: u32| j.settings.interval * judgments >= window * 2;
    let now = long(judgments) && !long(j.seen.memory.short_window);
    let scrapes = scrapes(j)?;
    now.then(|| Notice {
        warning: true,
        reason: "WindowTooShort",
        note: format!(
            "spec.window of {} holds {} scrapes of the node exporter, and four are needed: with fewer, \
             many judgments have no evidence; set spec.window to at least four scrape intervals",
            humantime::format_duration(window),
            short(scrapes)
        ),
        node: None,
    })
}

/// Events of conditions that changed.
pub(in super::super) fn news(j: &Judgment<'_>, conditions: &[Verdict]) -> Vec<Notice> {
    let old = |type_: &str| {
        let status = j.watch.status.as_ref()?;
        let condition = status.conditions.iter().find(|c| c.type_ == type_)?;
        Some(condition.status == "True")
    };
    let notice = |warning, reason, note: &str| {
        Some(Notice { warning, reason, note: note.to_owned(), node: None })
    };
    let contested = |reason: &str| {
        let status = j.watch.status.as_ref();
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.reason == reason)
    };
    let one = |new: &Verdict| match (new.type_, old(new.type_), new.status) {
        _ if new.reason == "Contested" && !contested(new.reason) => {
            notice(true, "Contested", &new.message)
        }
        ("MetricsAvailable", None | Some(true), Some(false)) => {
            // With several measures, those that have an answer go on.
            let stays = match &*j.settings.criteria {
                [_] => "labels stay as they are",
                _ => "a measure without an answer changes no label",
            };
            let note = format!("{}: {}; {stays}", new.reason, new.message);
            notice(true, "MetricsUnavailable", &note)
        }
        ("MetricsAvailable", Some(false), Some(true)) => {
            notice(false, "MetricsRestored", "Prometheus answers again, and nodes are judged")
        }
        ("PlacementLimited", None | Some(false), Some(true)) => {
            notice(true, "PlacementLimited", &new.message)
        }
        ("PlacementLimited", Some(true), Some(false)) => notice(
            false,
            "PlacementUnlimited",
            "every node above the threshold can be marked again",
        ),
        _ => None,
    };
    conditions.iter().filter_map(one).collect()
}
