//! The evidence of each measure about each node.
use std::time::Duration;

use super::{
    evidence::{Evaluation, Evidence, Rules},
    memory::Sample,
    observed::Observed,
    reading::{Measurement, NoEvidence},
    settings::Settings,
};
use crate::nodes::NodeFacts;

/// The farthest that the clocks of Prometheus and of this process are apart.
const CLOCKS: Duration = Duration::from_hours(1);

/// The evidence of one measure about one node.
pub(super) type EvidenceResult = Result<Evidence, NoEvidence>;

/// A piece of evidence as it is remembered.
pub(super) fn sample(evidence: &Evidence, asked: f64) -> Sample {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "counters are below 2^63 and age below a day; `as` saturates"
    )]
    let (total, time) = (
        evidence.total.get().unwrap_or_default() as i64,
        (asked - evidence.age.get().unwrap_or_default()) as i64,
    );
    Sample {
        value: evidence.value,
        percent: evidence.percent.or_nan(),
        total,
        time,
        age: evidence.age.or_nan(),
        device: evidence.device.clone(),
    }
}

/// The evidence of one measure.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    /// About each node, in the order of `seen.nodes`.
    pub(super) findings: Vec<EvidenceResult>,
    /// The result of the measurement.
    pub(super) evaluation: Evaluation,
    /// The number of nodes that have evidence.
    pub(super) with_evidence: usize,
    /// The number of nodes that have a credible sample, and of those that should.
    pub(super) covered: (usize, usize),
    /// The nodes that have no sample and need none: those that have just come, and those that take
    /// none of the pods.
    pub(super) excused: (usize, usize),
    /// The time from which ages count, in Unix seconds.
    pub(super) asked: f64,
    /// The same by the clock of Prometheus, if that can be: [`evaluated`].
    pub(super) evaluated: f64,
    /// True if the server warned of its answer: it may be partial.
    warned: bool,
}

impl Gathered {
    /// Reports whether it is the measurement that is in trouble, and not the node: the request
    /// failed, fewer than half of the nodes have evidence, or the answer is partial and says nothing
    /// or too little of a node.
    pub(super) fn clock_stands(&self, node: usize) -> bool {
        self.evaluation != Evaluation::Ok
            || self.is_scarce()
            || (self.warned
                && self.findings[node]
                    .as_ref()
                    .is_err_and(|why| why.is_absence() || *why == NoEvidence::PartialWindow))
    }

    /// Reports whether fewer than half of the nodes have evidence.
    pub(super) fn is_scarce(&self) -> bool {
        self.with_evidence * 2 < self.covered.1 || self.with_evidence == 0
    }
}

/// Gathers the evidence of one measure about each node, and the result of the measurement.
///
/// Fewer than half of the nodes with a credible sample are too few. Nodes without any sample do not
/// count if they have just come or take none of the pods (not Ready, cordoned, tainted, virtual).
///
/// A node is covered if it has a credible sample: a node with an unknown link speed is covered,
/// because the measurement cannot fix that, and so is one whose window is not full yet. An answer is shared by all passes of an interval, so it
/// may be about a node that was replaced since then: of its successor it says nothing.
pub(super) fn gather(seen: &Observed, settings: &Settings, place: usize) -> Gathered {
    let now = seen.now.as_duration().as_secs_f64();
    let reading = seen.readings.as_ref().and_then(|readings| readings.get(place));
    let Some(Ok(reading)) = reading else {
        let findings = seen.nodes.iter().map(|_| Err(NoEvidence::MetricsUnavailable)).collect();
        return Gathered {
            findings,
            evaluation: Evaluation::Failed,
            with_evidence: 0,
            covered: (0, seen.nodes.len()),
            excused: (0, 0),
            asked: now,
            evaluated: now,
            warned: false,
        };
    };
    let rules = settings.criteria[place].rules;
    let mut of_node = reading.in_turn();
    let was_there = |facts: &NodeFacts| reading.revision.is_none_or(|then| facts.since <= then);
    let evidence = |facts: &NodeFacts| {
        let numbers = of_node(&facts.name).filter(|_| was_there(facts));
        rules.evidence(numbers, settings.capacity(facts), reading.is_partial())
    };
    let mut findings: Vec<EvidenceResult> = seen.nodes.iter().map(evidence).collect();
    let covered = findings.iter().filter(|finding| is_covered(finding)).count();
    let mut excused = (0, 0);
    for (facts, finding) in seen.nodes.iter().zip(&findings) {
        if !finding.as_ref().is_err_and(|why| why.is_absence()) {
            continue;
        }
        if is_new(facts, rules, now) {
            excused.0 += 1;
        } else if !settings.room.takes(facts) || is_virtual(facts) {
            excused.1 += 1;
        }
    }
    let expected = findings.len() - excused.0 - excused.1;
    let mut evaluation = Evaluation::Ok;
    let with_evidence = findings.iter().filter(|finding| finding.is_ok()).count();
    if covered * 2 < expected || (covered == 0 && !findings.is_empty()) {
        evaluation = Evaluation::LowCoverage;
        for finding in &mut findings {
            if matches!(finding, Ok(_) | Err(NoEvidence::NoSample)) {
                *finding = Err(NoEvidence::LowCoverage);
            }
        }
    }
    let asked = reading.asked.unwrap_or(now);
    let evaluated = evaluated(reading, asked);
    let warned = !reading.warnings.is_empty();
    let covered = (covered, expected);
    Gathered { findings, evaluation, with_evidence, covered, excused, asked, evaluated, warned }
}

/// Taints of nodes that are no machines: no exporter can run there.
const VIRTUAL: [&str; 2] = ["virtual-kubelet.io/provider", "eks.amazonaws.com/compute-type"];

fn is_virtual(facts: &NodeFacts) -> bool {
    facts.taints.iter().any(|taint| VIRTUAL.contains(&&*taint.key))
}

/// Reports whether a node came so recently that its exporter may not have filled the window yet.
fn is_new(facts: &NodeFacts, rules: Rules, now: f64) -> bool {
    if rules.direction.is_none() {
        return false;
    }
    let created = facts.incarnation.created;
    let full = rules.window.saturating_add(rules.max_age).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "seconds of this age are exact")]
    let age = now - created as f64;
    created > 0 && age < full
}

/// Returns the time of the evaluation by the clock of Prometheus, which tells one scrape from the
/// next even if a request arrives late. A server whose answers have no such time (some gateways
/// send a constant) would never seem to scrape again: ages count from the request then.
fn evaluated(reading: &Measurement, asked: f64) -> f64 {
    let is_a_time = |time: &f64| (*time - asked).abs() < CLOCKS.as_secs_f64();
    reading.evaluated.filter(is_a_time).unwrap_or(asked)
}

/// Reports whether a node has a sample that can be believed.
pub(super) fn is_covered(finding: &EvidenceResult) -> bool {
    use NoEvidence::{InvalidCapacity, PartialWindow, SpeedUnknown};
    matches!(finding, Ok(_) | Err(SpeedUnknown | InvalidCapacity | PartialWindow))
}

#[cfg(test)]
mod tests;
