//! The decision: what must be written for the cluster to be as it was judged.
use std::{sync::Arc, time::Duration};

use super::{
    children::{self, Child, Outcome},
    claims::Claim,
    judgement::{Evaluation, Judgement, Observed, Transition},
    memory::{Memory, NodeTable},
    report,
    settings::Settings,
};
use crate::{
    api::{TrafficWatch, TrafficWatchStatus, traffic_watch::Mode},
    controller::{Error, Plan, Verdict},
};

/// What has to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Node labels to write.
    pub labels: Vec<LabelWrite>,
    /// The Deployment to apply.
    pub deployment: Option<Child>,
    /// What the next pass has to know; `None` if nothing is decided, and then nothing is to look so.
    pub memory: Option<Memory>,
    /// State changes, to be counted.
    pub transitions: Vec<Transition>,
    /// What became of this tick's measurement, to be counted; `None` if it was counted already.
    pub evaluation: Option<Evaluation>,
}

/// One label of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelWrite {
    /// The node.
    pub node: Arc<str>,
    /// The label's key.
    pub key: String,
    /// Its value; `None` removes it.
    pub value: Option<bool>,
}

type TrafficWatchPlan = Plan<Desired, TrafficWatchStatus>;

pub(super) fn plan(watch: &TrafficWatch, seen: &Observed) -> Result<TrafficWatchPlan, Error> {
    let settings = Settings::of(watch)?;
    let child = children::deployment(watch)?;
    if watch.spec.paused {
        return Ok(paused(watch, settings.interval));
    }
    if let Claim::HeldBy(holder) = &seen.claim {
        let key = watch.label_key();
        return Err(Error::Conflict(format!(
            "node label {key} belongs to the older TrafficWatch {holder}; set spec.label to another prefix"
        )));
    }
    Ok(finish(Judgement::of(watch, seen, &settings), child))
}

/// A pass over a paused object: nothing is asked, nothing is written but this condition.
fn paused(watch: &TrafficWatch, period: Duration) -> TrafficWatchPlan {
    Plan {
        desired: Desired {
            labels: vec![],
            deployment: None,
            memory: None,
            transitions: vec![],
            evaluation: None,
        },
        status: watch.status.clone().unwrap_or_default(),
        conditions: vec![Verdict {
            type_: "Ready",
            status: Some(false),
            reason: "Paused",
            message: "spec.paused is true: labels and Deployment stay as they are".into(),
        }],
        notices: vec![],
        period,
    }
}

fn finish(mut judged: Judgement<'_>, child: Option<Child>) -> TrafficWatchPlan {
    let seen = judged.seen;
    let ready = is_ready(&judged);
    let enforce = judged.watch.spec.mode == Mode::Enforce;
    let labels = if enforce { label_writes(&judged) } else { vec![] };
    let child = child.filter(|_| enforce && ready);
    let conditions =
        report::conditions(&judged, ready, report::refused(child.as_ref(), &seen.memory));
    let mut notices = report::changes(&judged);
    notices.extend(report::news(judged.watch, &conditions));
    let status = report::status(&judged, ready);
    let names = seen.nodes.iter().map(|facts| Arc::clone(&facts.name));
    let memory = Memory {
        tick: Some(seen.tick),
        threshold: judged.settings.max,
        summary: judged.summary,
        last_success: match judged.evaluation {
            Evaluation::Ok => Some(seen.now),
            _ => seen.memory.last_success,
        },
        applied: seen.memory.applied.clone(),
        nodes: NodeTable::sorted(names.zip(std::mem::take(&mut judged.nodes))),
    };
    let measured = seen.reading.is_some();
    let evaluation = (measured && judged.is_new()).then_some(judged.evaluation);
    Plan {
        desired: Desired {
            labels,
            deployment: child.filter(|child| must_apply(seen, child)),
            memory: Some(memory),
            transitions: judged.changes.into_iter().filter_map(|c| c.transition).collect(),
            evaluation,
        },
        status,
        conditions,
        notices,
        period: judged.settings.interval,
    }
}

/// Every node with data was judged once, now or ever before.
fn is_ready(judged: &Judgement<'_>) -> bool {
    let was = judged.watch.status.as_ref().is_some_and(|status| status.ready);
    let with_data = || judged.nodes.iter().zip(&judged.evidence).filter(|(_, e)| e.is_ok());
    was || (with_data().next().is_some() && with_data().all(|(node, _)| node.judged.is_some()))
}

fn label_writes(judged: &Judgement<'_>) -> Vec<LabelWrite> {
    let key = judged.watch.label_key();
    let flips = judged.seen.nodes.iter().zip(&judged.nodes).filter_map(|(facts, node)| {
        let value = node.marked?;
        let wanted = if value { "true" } else { "false" };
        (facts.label.as_deref() != Some(wanted)).then(|| LabelWrite {
            node: Arc::clone(&facts.name),
            key: key.clone(),
            value: Some(value),
        })
    });
    let strays = judged.seen.stray.iter().map(|stray| LabelWrite {
        node: Arc::clone(&stray.node),
        key: stray.key.clone(),
        value: None,
    });
    flips.chain(strays).collect()
}

/// Applying what is there already costs the API server as much as a change.
fn must_apply(seen: &Observed, child: &Child) -> bool {
    let Some(applied) = seen.memory.applied.as_ref().filter(|a| a.hash == child.hash) else {
        return true;
    };
    match (&applied.outcome, &seen.deployment) {
        (Outcome::Refused(_), _) => false,
        (Outcome::Accepted { uid, generation }, Some((now_uid, now_generation))) => {
            // The store may lag behind our own apply: an older generation is no edit.
            uid != now_uid || now_generation > generation
        }
        (Outcome::Accepted { .. }, None) => true,
    }
}

#[cfg(test)]
mod tests;
