//! What each measure proves about each node.
use super::{
    evidence::{Evidence, NoEvidence},
    judgement::Observed,
    memory::Sample,
    settings::Settings,
};

/// What became of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evaluation {
    /// Nodes were judged.
    Ok,
    /// Too few nodes had data.
    LowCoverage,
    /// The request failed.
    Failed,
}

impl Evaluation {
    /// The metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LowCoverage => "low_coverage",
            Self::Failed => "failed",
        }
    }
}

/// What one measure proves about one node.
pub(super) type Finding = Result<Evidence, NoEvidence>;

/// A piece of evidence as it is remembered.
pub(super) fn sample(evidence: &Evidence, now: i64) -> Sample {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "counters are below 2^63 and age below a day; `as` saturates"
    )]
    let (total, age) = (evidence.total.unwrap_or(0.0) as i64, evidence.age.unwrap_or(0.0) as i64);
    Sample {
        value: evidence.value,
        percent: evidence.percent.unwrap_or(f64::NAN),
        total,
        time: now - age,
        device: evidence.device.clone(),
    }
}

/// What one measure proves about each node, and what became of it.
pub(super) fn gather(
    seen: &Observed,
    settings: &Settings,
    place: usize,
) -> (Vec<Finding>, Evaluation) {
    let none = |why| seen.nodes.iter().map(|_| Err(why)).collect();
    let reading = seen.readings.as_ref().and_then(|readings| readings.get(place));
    let Some(Ok(reading)) = reading else {
        return (none(NoEvidence::MetricsUnavailable), Evaluation::Failed);
    };
    let rules = settings.criteria[place].rules;
    let with_data = seen
        .nodes
        .iter()
        .filter_map(|facts| reading.get(&facts.name))
        .filter(|node| rules.has_data(node))
        .count();
    if with_data * 2 < seen.nodes.len() {
        return (none(NoEvidence::LowCoverage), Evaluation::LowCoverage);
    }
    let findings = seen
        .nodes
        .iter()
        .map(|facts| rules.evidence(reading.get(&facts.name), settings.capacity(facts)));
    (findings.collect(), Evaluation::Ok)
}
