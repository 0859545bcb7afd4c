//! Agents that cannot start, and where for now no further pod gets one.
//!
//! A pod waits for its agent before its application starts, so one agent too many is a pod too few.
//! Only the kubelets' reports about pods of the same namespace count: forged annotations in a
//! namespace pause only that namespace, and a registry that is gone pauses each separately.
use std::collections::BTreeMap;

use crate::{
    pods::{AgentFacts, SOUND_SECONDS},
    webhook::injection::SkipReason,
};

/// Reasons that the kubelet reports for a container that is still starting.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Seconds after which an agent counts as waiting: an image that was refused by chance has been
/// tried four times by then (after 10, 20, 40 and 80 s).
pub const LONG_SECONDS: i64 = 2 * 60;

/// Number of waiting agents that pauses their namespace, even if others run in it: one or two may
/// share a node with a full disk. Fewer do where no agent runs at all, which is all of a small
/// namespace.
pub const MANY: usize = 3;

/// A container that ended so often, each time soon, has been given 150 s of pauses by its kubelet.
pub const CRASHES: u32 = 4;

/// Maximum number of different reasons to report: kubelets know about ten.
const REASONS: usize = 8;

/// Longer words are not a kubelet's.
const LONGEST_REASON: usize = 40;

/// Why an agent does not run, and whether for long; `None` if it runs, or is on its way.
pub fn failure<'a>(agent: &AgentFacts<'a>, now: i64) -> Option<(&'a str, bool)> {
    if let Some(reason) = agent.waiting {
        let since = agent.since.unwrap_or(now);
        let long = agent.crashes >= CRASHES || now.saturating_sub(since) >= LONG_SECONDS;
        return (!STARTING.contains(&reason)).then_some((reason, long));
    }
    // It runs for the moment, as it did each time.
    let soon = agent.since.is_some_and(|since| now.saturating_sub(since) < SOUND_SECONDS);
    let again = agent.running && agent.crashes >= CRASHES && soon;
    again.then_some(("CrashLoopBackOff", true))
}

/// The agents of the present spec in one namespace.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    runs: usize,
    fails: usize,
    long: usize,
    why: String,
    /// When the pods without an agent were created that show no trace of the webhook.
    pub bare: Vec<i64>,
}

impl Tally {
    /// Adds an agent of the present spec.
    pub fn take(&mut self, agent: &AgentFacts<'_>, failure: Option<(&str, bool)>) {
        let Some((why, long)) = failure else {
            self.runs += usize::from(agent.running);
            return;
        };
        self.fail(why, long);
    }

    /// Adds a pod that waits for the end of its agent of the present spec: no time helps.
    pub fn strip(&mut self) {
        self.fail(SkipReason::Stripped.as_str(), true);
    }

    fn fail(&mut self, why: &str, long: bool) {
        self.fails += 1;
        self.long += usize::from(long);
        if self.why.is_empty() || *self.why > *why {
            self.why = short(why);
        }
    }

    /// Returns the reason why no further pod of the namespace gets an agent, if there is one.
    pub fn pause(&self) -> Option<&str> {
        let paused = self.long >= MANY || (self.fails > 0 && self.runs == 0);
        paused.then_some(&self.why)
    }
}

/// Counts a reason among others, whose number is limited.
pub fn count(reasons: &mut BTreeMap<String, usize>, why: &str) {
    let mut reason = short(why);
    if !reasons.contains_key(&reason) && reasons.len() >= REASONS {
        "Other".clone_into(&mut reason);
    }
    *reasons.entry(reason).or_default() += 1;
}

fn short(reason: &str) -> String {
    reason.chars().take(LONGEST_REASON).collect()
}
