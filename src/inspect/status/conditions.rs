//! The meaning of a condition: the ones that need attention, and each in a line.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The meaning of one condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// No problem, or the author's choice.
    Fine,
    /// The operator is working on it, and it resolves by itself.
    UnderWay,
    /// A person should look.
    Attention,
}

pub(super) fn weigh(condition: &Condition) -> Weight {
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
            | "WaitingForSamples" | "WaitingForZone" | "WaitingForRoutes",
        ) => Weight::UnderWay,
        _ => Weight::Attention,
    }
}

/// Returns the conditions that indicate a problem, or that the operator is working on.
pub(in crate::inspect) fn unsettled(conditions: &[Condition]) -> Vec<&Condition> {
    conditions.iter().filter(|condition| weigh(condition) != Weight::Fine).collect()
}

/// Returns the conditions that a person should look at.
pub(in crate::inspect) fn troubling(conditions: &[Condition]) -> Vec<&Condition> {
    conditions.iter().filter(|condition| weigh(condition) == Weight::Attention).collect()
}

/// Returns one condition in a line.
pub(in crate::inspect) fn sentence(condition: &Condition) -> String {
    let Condition { type_, status, reason, message, .. } = condition;
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("{type_}={status} {reason}{message}")
}
