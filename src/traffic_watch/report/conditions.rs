//! Conditions.
use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::super::{
    children::{Child, Outcome},
    evidence::{Evaluation, NoEvidence, Unit},
    judgment::Judgment,
    memory::Memory,
    observed::Observed,
    query::Question,
    reading::Measurement,
};
use super::status::is_past;
use crate::{
    controller::Verdict,
    nodes::NodeFacts,
    prometheus::{Class, QueryError, exporters::untrusted_nodes},
};

/// The reason why the desired Deployment cannot be applied, and the API server's message.
pub(in super::super) fn refused(
    child: Option<&Child>,
    memory: &Memory,
) -> Option<(&'static str, String)> {
    let applied = memory.applied.as_ref().filter(|a| Some(a.hash) == child.map(|c| c.hash))?;
    match &applied.outcome {
        Outcome::Refused { text, .. } => Some(("InvalidSpec", format!("spec.deployment: {text}"))),
        Outcome::Taken(text) => Some(("Conflict", text.clone())),
        Outcome::Accepted { .. } => None,
    }
}

/// The verdict while another client changes the Deployment again and again.
pub(in super::super) fn contested(child: Option<&Child>, seen: &Observed) -> Option<Verdict> {
    let applied = seen.memory.applied.as_ref().filter(|a| Some(a.hash) == child.map(|c| c.hash))?;
    let (_, other) = applied.contest(seen.now)?;
    let by = other.map_or_else(|| "another client".to_owned(), |other| format!("client {other}"));
    let message = format!(
        "{by} changes the Deployment again and again, and the operator restores it ever less often, at \
         least every 5 minutes; for an autoscaler, leave spec.deployment.replicas out"
    );
    Some(Verdict { type_: "Ready", status: None, reason: "Contested", message })
}

pub(in super::super) fn conditions(
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
pub(in super::super) fn lower(conditions: &mut Vec<Verdict>, why: Verdict) {
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
pub(in super::super) fn settled(
    j: &Judgment<'_>,
    mut conditions: Vec<Verdict>,
) -> (Vec<Verdict>, bool) {
    let may = is_past(j.seen.memory.reworded, j.seen.now);
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
pub(in super::super) fn problems(j: &Judgment<'_>) -> Vec<Option<String>> {
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
pub(in super::super) const SCRAPES_NEEDED: f64 = 4.0;

/// The scrapes that the window of the built-in measurement holds.
pub(in super::super) fn scrapes(j: &Judgment<'_>) -> Option<f64> {
    j.seen.readings.iter().flatten().find_map(|reading| reading.as_ref().ok()?.scrapes)
}
