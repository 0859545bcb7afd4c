//! The messages to the owner: status, conditions, events.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    children::{Child, Outcome},
    conflict::former_key,
    evidence::{Evaluation, Unit},
    judgment::{Change, Judgment},
    memory::{Memory, NodeMemory, Reason, Sample, Transition},
    observed::Observed,
    query::Question,
    reading::{Measurement, NoEvidence},
    settings::Criterion,
};
use crate::{
    api::{
        TrafficWatchStatus,
        go::format_exponent,
        traffic_watch::{CriterionStatus, Mode, NodeState, NodeStatus, UnknownAction},
    },
    controller::{Notice, Verdict},
    nodes::NodeFacts,
    prometheus::{Class, QueryError, exporters::untrusted_nodes},
};

/// The reason why the desired Deployment cannot be applied, and the API server's message.
pub(super) fn refused(child: Option<&Child>, memory: &Memory) -> Option<(&'static str, String)> {
    let applied = memory.applied.as_ref().filter(|a| Some(a.hash) == child.map(|c| c.hash))?;
    match &applied.outcome {
        Outcome::Refused { text, .. } => Some(("InvalidSpec", format!("spec.deployment: {text}"))),
        Outcome::Taken(text) => Some(("Conflict", text.clone())),
        Outcome::Accepted { .. } => None,
    }
}

/// The verdict while another client changes the Deployment again and again.
pub(super) fn contested(child: Option<&Child>, seen: &Observed) -> Option<Verdict> {
    let applied = seen.memory.applied.as_ref().filter(|a| Some(a.hash) == child.map(|c| c.hash))?;
    let (_, other) = applied.contest(seen.now)?;
    let by = other.map_or_else(|| "another client".to_owned(), |other| format!("client {other}"));
    let message = format!(
        "{by} changes the Deployment again and again, and the operator restores it ever less often, at \
         least every 5 minutes; for an autoscaler, leave spec.deployment.replicas out"
    );
    Some(Verdict { type_: "Ready", status: None, reason: "Contested", message })
}

pub(super) fn conditions(
    j: &Judgment<'_>,
    ready: bool,
    blind_since: Option<Timestamp>,
    refused: Option<(&'static str, String)>,
) -> Vec<Verdict> {
    let verdict = |type_, status, reason, message: String| Verdict {
        type_,
        status: Some(status),
        reason,
        message,
    };
    let consecutive = j.settings.consecutive;
    let metrics = metrics_available(j);
    // Why there is no evidence now, of any node or by one of the measures.
    let cause = if metrics.status == Some(false) {
        Some((metrics.reason, metrics.message.clone()))
    } else {
        j.without_evidence().map(|text| ("NoEvidence", text))
    };
    let max_age = Duration::from(j.watch.spec.max_sample_age);
    let is_blind =
        blind_since.is_some_and(|since| j.seen.now.duration_since(since).unsigned_abs() >= max_age);
    let ready = if j.seen.nodes.is_empty() {
        let message = "no node matches spec.nodeSelector; labels stay as they are";
        verdict("Ready", false, "NoNodes", message.into())
    } else if let Some((reason, text)) = refused {
        verdict("Ready", false, reason, text)
    } else if let Some(text) = refused_query(j) {
        verdict("Ready", false, "InvalidSpec", text)
    } else if let Some((reason, text)) = cause.clone().filter(|_| ready && is_blind) {
        let message = format!(
            "no evidence for more than {} s; marks stay as they are: {text}",
            max_age.as_secs()
        );
        Verdict { type_: "Ready", status: None, reason, message }
    } else if ready {
        verdict("Ready", true, "Judged", "every node with data has been judged".into())
    } else if let Some((reason, text)) = cause.clone() {
        verdict("Ready", false, reason, text)
    } else {
        let message = format!(
            "waiting until every node with data has been judged fit {} or unfit {} times in a row",
            consecutive.fit, consecutive.unfit
        );
        verdict("Ready", false, "Judging", message)
    };
    let limited = if j.summary.suppressed > 0 && !j.above_ceiling.is_empty() {
        let message = if j.seen.headroom.owed.is_some() {
            "nodes above the threshold keep the label \"false\": this namespace has its share of the \
             nodes that the operator's flag --max-unfit allows to mark, and other namespaces wait for \
             a place"
        } else {
            "nodes above the threshold keep the label \"false\": all TrafficWatches together mark as \
             many nodes as the operator's flag --max-unfit allows"
        };
        verdict("PlacementLimited", true, "OperatorLimitReached", message.into())
    } else if j.summary.suppressed > 0 {
        let message = format!(
            "more nodes are above the threshold than may be marked unfit (at most {} of {} that can \
             take pods, by spec.maxUnfit and spec.minFit); the least loaded of them keep the label \
             \"false\"",
            j.limit, j.room
        );
        verdict("PlacementLimited", true, "LimitReached", message)
    } else if let Some((reason, message)) =
        cause.filter(|_| j.summary.nodes > 0 && j.summary.unknown == j.summary.nodes)
    {
        Verdict { type_: "PlacementLimited", status: None, reason, message }
    } else {
        verdict("PlacementLimited", false, "WithinLimits", String::new())
    };
    vec![ready, metrics, limited]
}

/// Replaces a condition that is true by what keeps it from being true; one that is false stays.
pub(super) fn lower(conditions: &mut Vec<Verdict>, why: Verdict) {
    conditions.retain(|condition| condition.type_ != why.type_ || condition.status != Some(true));
    if conditions.iter().all(|condition| condition.type_ != why.type_) {
        conditions.insert(0, why);
    }
}

fn metrics_available(j: &Judgment<'_>) -> Verdict {
    let verdict =
        |status, reason, message| Verdict { type_: "MetricsAvailable", status, reason, message };
    let Some(readings) = &j.seen.readings else {
        return verdict(None, "NoNodes", "there is no node to query".into());
    };
    let mut notes = Vec::new();
    let mut trouble = None;
    for (place, reading) in readings.iter().enumerate() {
        let prefix = prefix(j, place);
        let reading = match reading {
            Ok(reading) => reading,
            Err(error) => {
                trouble = trouble.or(Some(error.class.reason()));
                notes.push(format!("{prefix}{}", error.message));
                continue;
            }
        };
        if j.gathered[place].evaluation == Evaluation::LowCoverage {
            let (reason, note) = low_coverage(j, place, reading);
            trouble = trouble.or(Some(reason));
            notes.push(format!("{prefix}{note}"));
        } else if j.gathered[place].is_scarce() {
            let (some, all) = (j.gathered[place].with_evidence, j.gathered[place].covered.1);
            notes.push(format!(
                "{prefix}{some} of {all} nodes have evidence, fewer than half: the clock of \
                 spec.onUnknown stands still"
            ));
        }
        if is_ratio(j, place) {
            notes.push(format!(
                "{prefix}every value of spec.query is at most 1: if it is a ratio, multiply it by 100, \
                 because spec.maxBandwidthPercent is a percentage"
            ));
        }
        let (unmapped, named) = &reading.unmapped;
        if *unmapped > 0 {
            notes.push(format!(
                "{prefix}{unmapped} exporters belong to no known node ({}): see --node-label",
                named.join(", ")
            ));
        }
        if let Some(warning) = reading.warnings.first() {
            notes.push(format!("{prefix}Prometheus warns: {warning}"));
        }
        if reading.scrapes.is_some_and(|scrapes| scrapes < SCRAPES_NEEDED) {
            notes.push("spec.window holds fewer than four scrapes".into());
        }
    }
    if j.seen.insecure {
        notes.push("the certificate of the endpoint is not verified (insecureSkipVerify)".into());
    }
    if j.settings.has_own_queries() {
        notes.push("the age of the samples of custom queries is unknown".into());
    }
    verdict(Some(trouble.is_none()), trouble.unwrap_or("Available"), notes.join("; "))
}

/// The server's refusal of a query of the author's, with the field that has it.
fn refused_query(j: &Judgment<'_>) -> Option<String> {
    let readings = j.seen.readings.as_ref()?.iter().zip(&j.settings.criteria);
    readings.into_iter().find_map(|(reading, criterion)| {
        let error = reading.as_ref().err().filter(|error| error.class == Class::QueryInvalid)?;
        let Question::Own(_) = criterion.request.question else { return None };
        let further = &j.watch.spec.criteria;
        let field = further.iter().position(|one| one.name == *criterion.name);
        let path = field.map_or("spec.query".into(), |i| format!("spec.criteria[{i}].query"));
        Some(format!("{path}: {}", error.message))
    })
}

/// Reports whether the values of a query look like a ratio although they are compared with a
/// percentage.
fn is_ratio(j: &Judgment<'_>, place: usize) -> bool {
    let criterion = &j.settings.criteria[place];
    if criterion.rules.unit != Unit::Percent || criterion.rules.direction.is_some() {
        return false;
    }
    let values = || j.gathered[place].findings.iter().flatten().map(|evidence| evidence.value);
    criterion.max > 1.0 && values().any(|value| value > 0.0) && values().all(|value| value <= 1.0)
}

/// Names the measure of a note, if there are several.
fn prefix(j: &Judgment<'_>, place: usize) -> String {
    match &*j.settings.criteria {
        [_] => String::new(),
        criteria => format!("{}: ", criteria[place].name),
    }
}

fn low_coverage(j: &Judgment<'_>, place: usize, reading: &Measurement) -> (&'static str, String) {
    let criterion = &j.settings.criteria[place];
    let nodes = &j.seen.nodes;
    let measure = &j.gathered[place];
    let data = |n: &&NodeFacts| reading.get(&n.name).is_some_and(|r| criterion.rules.has_data(r));
    let data = nodes.iter().filter(data).count();
    let reason = if data == 0 { "NoSamples" } else { "LowCoverage" };
    let unusable = |why| measure.findings.iter().filter(|f| **f == Err(why)).count();
    let (stale, invalid) = (unusable(NoEvidence::StaleSample), unusable(NoEvidence::InvalidSample));
    let hint = match criterion.request.question {
        _ if stale > invalid => {
            "are exporters scraped at least once in spec.maxSampleAge, and are the clocks right?"
        }
        _ if invalid > 0 => "does each node have one series of numbers, and no duplicates?",
        Question::BuiltIn { .. } if !reading.other_jobs.is_empty() => {
            return (reason, untrusted(&reading.other_jobs, nodes.len()));
        }
        Question::BuiltIn { .. } => {
            "is the exporter of this endpoint scraped, and does spec.devices match its devices?"
        }
        Question::Own(_) => "does the query give one element per node, with a label that names it?",
    };
    let (down, strange) = (unusable(NoEvidence::ExporterDown), unusable(NoEvidence::NoDevice));
    let mut sorts = vec![];
    for (count, sort) in [
        (stale, "stale"),
        (invalid, "invalid"),
        (down, "whose exporter is down"),
        (strange, "without a device that matches spec.devices"),
        (measure.excused.0, "too new to count"),
        (measure.excused.1, "that take none of the pods and do not count"),
    ] {
        if count > 0 {
            sorts.push(format!("{count} {sort}"));
        }
    }
    let (usable, all) = measure.covered;
    let mut figures = format!("{usable} of {all} nodes have data");
    if !sorts.is_empty() {
        figures = format!("{usable} of {all} nodes have usable data ({})", sorts.join(", "));
    }
    (reason, format!("{figures}, at least half are needed: {hint}"))
}

/// No series is accepted, although these jobs have some.
fn untrusted(jobs: &[String], all: usize) -> String {
    let why = untrusted_nodes(jobs);
    format!("0 of {all} nodes have data, at least half are needed: {why}")
}

/// The conditions, with the texts they have already where only those differ and one changed within
/// the last minute; and whether one does now.
///
/// Texts carry messages of servers, and some contain another time or figure at each request: each
/// would be a write.
pub(super) fn settled(j: &Judgment<'_>, mut conditions: Vec<Verdict>) -> (Vec<Verdict>, bool) {
    let may = is_past(REWORDING, j.seen.memory.reworded, j.seen.now);
    let mut reworded = false;
    let reported = j.watch.status.iter().flat_map(|status| &status.conditions);
    for old in reported.filter(|old| old.observed_generation == j.watch.metadata.generation) {
        let same = |new: &&mut Verdict| {
            let status = new.status.map_or("Unknown", |yes| if yes { "True" } else { "False" });
            (new.type_, new.reason, status) == (&*old.type_, &*old.reason, &*old.status)
        };
        let Some(new) = conditions.iter_mut().find(same) else { continue };
        if new.message == old.message {
            continue;
        }
        if may {
            reworded = true;
        } else {
            new.message.clone_from(&old.message);
        }
    }
    (conditions, reworded)
}

/// Why each measure has no answer now.
pub(super) fn problems(j: &Judgment<'_>) -> Vec<Option<String>> {
    let Some(readings) = &j.seen.readings else { return vec![] };
    let problem = |(place, reading): (usize, &Result<Arc<Measurement>, QueryError>)| match reading {
        Err(error) => Some(format!("{}: {}", error.class.reason(), error.message)),
        Ok(reading) if j.gathered[place].evaluation == Evaluation::LowCoverage => {
            let (reason, note) = low_coverage(j, place, reading);
            Some(format!("{reason}: {note}"))
        }
        Ok(_) => None,
    };
    readings.iter().enumerate().map(problem).collect()
}

/// With fewer scrapes, the sample before the window is often too old for it.
pub(super) const SCRAPES_NEEDED: f64 = 4.0;

/// The scrapes that the window of the built-in measurement holds.
pub(super) fn scrapes(j: &Judgment<'_>) -> Option<f64> {
    j.seen.readings.iter().flatten().find_map(|reading| reading.as_ref().ok()?.scrapes)
}

/// Maximum number of nodes in a status: 21 kB; the summary counts them all.
const MAX_LISTED: usize = 100;

/// Seconds between two updates of the values in a status while no state changes. They are metrics;
/// the status is for looking.
const REFRESH: u64 = 600;
/// Seconds between two updates of texts alone.
const REWORDING: u64 = 60;

pub(super) fn status(
    j: &Judgment<'_>,
    ready: bool,
    refresh: bool,
    evaluated: bool,
) -> TrafficWatchStatus {
    let old = j.watch.status.clone().unwrap_or_default();
    // Texts for a hundred nodes are only made where they are written.
    let stay = !refresh && same_states(&old.nodes, j);
    let (nodes, last_evaluation_time) = if stay {
        (old.nodes, old.last_evaluation_time)
    } else {
        let nodes = listed(j).map(|i| (j.seen.nodes[i].name.to_string(), node_status(j, i)));
        let now = if evaluated { whole_seconds(j.seen.now) } else { None };
        (nodes.collect(), now.or(old.last_evaluation_time))
    };
    TrafficWatchStatus {
        ready,
        nodes,
        nodes_truncated: j.nodes.len() > MAX_LISTED,
        summary: Some(j.summary),
        max: Some(j.settings.max_text()),
        // Observe puts none on nodes.
        label: match j.watch.spec.mode {
            Mode::Enforce => Some(label(j)),
            Mode::Observe => old.label,
        },
        reservation: old.reservation,
        last_evaluation_time,
        observed_generation: old.observed_generation,
        conditions: old.conditions,
    }
}

/// Returns the key to publish. A former one stays until no node has it: it is recorded nowhere else.
fn label(j: &Judgment<'_>) -> String {
    let has = |key: &&str| j.seen.strays.iter().any(|stray| *stray.key == **key);
    // An empty selection freezes, and finds no strays.
    let stays = |key: &&str| j.seen.nodes.is_empty() || has(key);
    former_key(j.watch).filter(stays).map_or_else(|| j.watch.label_key(), str::to_owned)
}

/// Reports whether the status must be refreshed though no state changed.
pub(super) fn is_due(seen: &Observed) -> bool {
    is_past(REFRESH, seen.memory.refreshed, seen.now)
}

/// Reports whether something last happened these seconds ago, so that it may happen again.
fn is_past(seconds: u64, at: Option<Timestamp>, now: Timestamp) -> bool {
    at.is_none_or(|at| now.duration_since(at).unsigned_abs().as_secs() >= seconds)
}

/// The nodes that the status lists: those that need attention first, then by name.
fn listed<'a>(j: &'a Judgment<'_>) -> impl Iterator<Item = usize> + 'a {
    let by_state = NodeState::ALL
        .into_iter()
        .flat_map(move |state| (0..j.nodes.len()).filter(move |&i| j.nodes[i].state == state));
    by_state.take(MAX_LISTED)
}

/// Reports whether a status lists the same nodes in the same states.
fn same_states(old: &BTreeMap<String, NodeStatus>, j: &Judgment<'_>) -> bool {
    let mut count = 0;
    let same = listed(j).all(|i| {
        count += 1;
        old.get(&*j.seen.nodes[i].name).is_some_and(|old| is_in_state(old, j, i))
    });
    same && count == old.len()
}

/// Reports whether the status of a node shows its present state; its values may be older.
fn is_in_state(old: &NodeStatus, j: &Judgment<'_>, i: usize) -> bool {
    let node = &j.nodes[i];
    let verdicts = old.criteria.iter().map(|c| (c.name.as_str(), c.unfit));
    let criteria = j.settings.criteria.iter().map(|criterion| &*criterion.name);
    let verdicts_now = criteria.zip(node.sides().map(|side| side.judged));
    (old.unfit, old.state, &old.since)
        == (node.marked == Some(true), Some(node.state), &since(node))
        && old.reason == reason(j, i)
        && if lists_criteria(j) { verdicts.eq(verdicts_now) } else { old.criteria.is_empty() }
}

/// The time since which a node is in its state.
fn since(node: &NodeMemory) -> Option<Time> {
    whole_seconds(node.since)
}

/// A time as the API server keeps it.
fn whole_seconds(time: Timestamp) -> Option<Time> {
    Timestamp::from_second(time.as_second()).ok().map(Time)
}

/// The reason of a state; of an unfit node with several measures, those that decide it.
fn reason(j: &Judgment<'_>, i: usize) -> Option<String> {
    match (j.nodes[i].reason, j.nodes[i].state) {
        (None, NodeState::Unfit) if j.settings.criteria.len() > 1 => {
            let by: Vec<_> = j.unfit_by(i).map(|(_, criterion)| &*criterion.name).collect();
            Some(by.join(","))
        }
        (reason, _) => reason.map(|why| why.as_str().to_owned()),
    }
}

/// Reports whether the status lists each measure: of the percentage alone it has the other fields.
fn lists_criteria(j: &Judgment<'_>) -> bool {
    let [criterion] = &*j.settings.criteria else { return true };
    !(criterion.is_bandwidth() && criterion.rules.unit == Unit::Percent)
}

fn node_status(j: &Judgment<'_>, i: usize) -> NodeStatus {
    let node = &j.nodes[i];
    let criteria = &j.settings.criteria;
    let main = criteria.first().filter(|c| c.is_bandwidth());
    let last = node.sides().next().and_then(|side| side.last.as_ref());
    let bandwidth = last.filter(|_| main.is_some());
    NodeStatus {
        current_bandwidth_percent: format_exponent(bandwidth.map_or(f64::NAN, |l| l.percent)),
        current_transmit_total: bandwidth.map_or(0, |l| l.total),
        time: last.map_or(0, |l| l.time),
        unfit: node.marked == Some(true),
        state: Some(node.state),
        reason: reason(j, i),
        device: last.and_then(|l| l.device.as_ref().map(ToString::to_string)),
        since: since(node),
        unknown_seconds: node.unknown_ms / 1000,
        criteria: if lists_criteria(j) { criterion_statuses(j, node) } else { vec![] },
    }
}

fn criterion_statuses(j: &Judgment<'_>, node: &NodeMemory) -> Vec<CriterionStatus> {
    let sides = node.sides().zip(&j.settings.criteria);
    sides
        .map(|(side, criterion)| CriterionStatus {
            name: criterion.name.to_string(),
            value: side.last.as_ref().map(|sample| format_exponent(sample.value)),
            unfit: side.judged,
            reason: side.missing.map(|why| why.reason().to_owned()),
        })
        .collect()
}

/// Maximum number of nodes that get a separate event when many change in one judgment: more would
/// not be read, and each is a write.
const EVENTS_OF_A_KIND: usize = 10;

/// The events of the nodes that changed: one per node, and for those beyond the first few of a kind
/// one for all.
pub(super) fn changes(j: &Judgment<'_>) -> Vec<Notice> {
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
pub(super) struct FewNotices {
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
    pub(super) fn into_notices(self) -> Vec<Notice> {
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
pub(super) fn window_too_short(j: &Judgment<'_>, judgments: u32) -> Option<Notice> {
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
pub(super) fn news(j: &Judgment<'_>, conditions: &[Verdict]) -> Vec<Notice> {
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

/// A value for a person.
fn written(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Percent => format!("{} %", short(value)),
        Unit::BitsPerSecond => bits_per_second(value),
        Unit::Own if value == 0.0 || (1e-3..1e6).contains(&value.abs()) => short(value),
        Unit::Own => format_exponent(value),
    }
}

fn bits_per_second(bits: f64) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) =
        prefixes.into_iter().find(|(scale, _)| bits >= *scale).unwrap_or((1.0, ""));
    format!("{} {prefix}bit/s", short(bits / scale))
}

/// A number for a person: up to three decimals, none that are zero.
fn short(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_their_unit() {
        for (unit, value, text) in [
            (Unit::Percent, 60.0, "60 %"),
            (Unit::Percent, 80.123_456, "80.123 %"),
            (Unit::BitsPerSecond, 812e6, "812 Mbit/s"),
            (Unit::BitsPerSecond, 2.5e9, "2.5 Gbit/s"),
            (Unit::BitsPerSecond, 0.0, "0 bit/s"),
            (Unit::Own, 0.02, "0.02"),
            (Unit::Own, 0.000_02, "2e-05"),
            (Unit::Own, 0.0, "0"),
        ] {
            assert_eq!(written(unit, value), text);
        }
    }
}
