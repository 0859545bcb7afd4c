//! The evidence of each measure about each node.
use super::{
    evidence::{Evaluation, Evidence, NoEvidence},
    memory::Sample,
    observed::Observed,
    settings::Settings,
};
use crate::nodes::NodeFacts;

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
    /// The time from which ages count, in Unix seconds.
    pub(super) asked: f64,
    /// True if the server warned of its answer: it may be partial.
    warned: bool,
}

impl Gathered {
    /// Reports whether it is the measurement that is in trouble, and not the node: the request
    /// failed, fewer than half of the nodes have evidence, or a node is missing in an answer that
    /// may be partial.
    pub(super) fn clock_stands(&self, node: usize) -> bool {
        self.evaluation != Evaluation::Ok
            || self.is_scarce()
            || (self.warned && self.findings[node] == Err(NoEvidence::NoSample))
    }

    /// Reports whether fewer than half of the nodes have evidence.
    pub(super) fn is_scarce(&self) -> bool {
        self.with_evidence * 2 < self.findings.len()
    }
}

/// Gathers the evidence of one measure about each node, and the result of the measurement.
///
/// A node is covered if it has a credible sample: a node with an unknown link speed is covered,
/// because the measurement cannot fix that. An answer is shared by all passes of an interval, so it
/// may be about a node that was replaced since then: of its successor it says nothing.
pub(super) fn gather(seen: &Observed, settings: &Settings, place: usize) -> Gathered {
    let now = seen.now.as_duration().as_secs_f64();
    let reading = seen.readings.as_ref().and_then(|readings| readings.get(place));
    let Some(Ok(reading)) = reading else {
        let findings = seen.nodes.iter().map(|_| Err(NoEvidence::MetricsUnavailable)).collect();
        let evaluation = Evaluation::Failed;
        return Gathered { findings, evaluation, with_evidence: 0, asked: now, warned: false };
    };
    let rules = settings.criteria[place].rules;
    let mut of_node = reading.in_turn();
    let was_there = |facts: &NodeFacts| reading.revision.is_none_or(|then| facts.since <= then);
    let evidence = |facts: &NodeFacts| {
        let numbers = of_node(&facts.name).filter(|_| was_there(facts));
        rules.evidence(numbers, settings.capacity(facts))
    };
    let mut findings: Vec<EvidenceResult> = seen.nodes.iter().map(evidence).collect();
    let asked = reading.asked.unwrap_or(now);
    let warned = !reading.warnings.is_empty();
    let covered = findings.iter().filter(|finding| is_covered(finding)).count();
    let with_evidence = findings.iter().filter(|finding| finding.is_ok()).count();
    if covered * 2 >= findings.len() {
        return Gathered { findings, evaluation: Evaluation::Ok, with_evidence, asked, warned };
    }
    for finding in &mut findings {
        if matches!(finding, Ok(_) | Err(NoEvidence::NoSample)) {
            *finding = Err(NoEvidence::LowCoverage);
        }
    }
    Gathered { findings, evaluation: Evaluation::LowCoverage, with_evidence, asked, warned }
}

/// Reports whether a node has a sample that can be believed.
pub(super) fn is_covered(finding: &EvidenceResult) -> bool {
    use NoEvidence::{InvalidCapacity, SpeedUnknown};
    matches!(finding, Ok(_) | Err(SpeedUnknown | InvalidCapacity))
}

#[cfg(test)]
mod tests;
