//! Summarizes the conditions of an object in one reason, and selects those that need attention.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::Object;

/// The meaning of one condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// No problem, or the author's choice.
    Fine,
    /// The operator is working on it, and it resolves by itself.
    UnderWay,
    /// A person should look.
    Attention,
}

fn weigh(condition: &Condition) -> Weight {
    let Condition { type_, status, reason, .. } = condition;
    match (type_.as_str(), status.as_str(), reason.as_str()) {
        // The only condition that is good when it is False; and reasons of a Ready condition that
        // is True, although not all that the spec requests is done.
        ("PlacementLimited", "True", _) | ("Ready", "True", "NotMounted" | "Adjusted") => {
            Weight::Attention
        }
        // True, or chosen by the author, or meaningless because there is nothing to cover.
        (_, "True", _)
        | ("PlacementLimited", _, _)
        | (_, _, "Paused")
        | ("Monitored", _, "KindAbsent" | "SwitchedOff")
        | ("Covered", "Unknown", "NoPods") => Weight::Fine,
        (
            "Converged",
            _,
            "Moving" | "Refreshing" | "AwaitingWorkers" | "InProgress" | "WaitingForSessions"
            | "WaitingForSamples" | "WaitingForZone",
        ) => Weight::UnderWay,
        _ => Weight::Attention,
    }
}

/// Returns the status of Ready, the reason that summarizes all conditions, and the conditions that
/// need attention.
pub(super) fn summary(object: &Object) -> (Option<String>, String, Vec<String>) {
    if let Some(why) = &object.unreadable {
        let problem = format!("this version cannot read it: {why}");
        return (None, "Unreadable".into(), vec![problem]);
    }
    let Object { conditions, generation, observed, notes, .. } = object;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let Some(ready) = ready else {
        let problem = "the operator has not reported about it yet".to_owned();
        return (None, "-".into(), vec![problem]);
    };
    let status = Some(ready.status.clone());
    // The other conditions are older.
    if ready.reason == "Paused" {
        return (status, ready.reason.clone(), vec![]);
    }
    let of = |weight: Weight| conditions.iter().filter(move |condition| weigh(condition) == weight);
    let worst = of(Weight::Attention).chain(of(Weight::UnderWay)).next().unwrap_or(ready);
    let reason = if weigh(ready) == Weight::Attention { ready } else { worst }.reason.clone();
    let mut problems: Vec<_> = of(Weight::Attention).map(sentence).collect();
    problems.extend(notes.iter().cloned());
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        problems.push(format!(
            "its status is that of generation {observed}; the spec has generation {generation}"
        ));
    }
    (status, reason, problems)
}

/// Returns the conditions that indicate a problem, or that the operator is working on.
pub(in crate::inspect) fn unsettled(conditions: &[Condition]) -> Vec<&Condition> {
    conditions.iter().filter(|condition| weigh(condition) != Weight::Fine).collect()
}

/// Returns one condition in a line.
pub(in crate::inspect) fn sentence(condition: &Condition) -> String {
    let Condition { type_, status, reason, message, .. } = condition;
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("{type_}={status} {reason}{message}")
}
