//! The current decisions, from the memories of all `TrafficWatch`es.
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{
    memory::{
        Entry, Facts, HISTORY_SECONDS, MeasureState, Memories, Memory, NodeMemory, Transition,
    },
    overview::{
        Filter, MeasureView, NodeView, ReservationView, TransitionView, ValueView, WatchView,
    },
    settings::Criterion,
};
use crate::{api::traffic_watch::Consecutive, prometheus::Exporters};

impl MeasureView {
    /// One measure, as queried from these exporters.
    pub(crate) fn of(criterion: &Criterion, exporters: &Exporters) -> Self {
        Self {
            name: criterion.name.to_string(),
            unit: criterion.rules.unit.as_str().into(),
            max: criterion.max,
            recover: criterion.recover,
            endpoint: criterion.request.endpoint.to_string(),
            query: criterion.request.promql(exporters),
            problem: None,
        }
    }
}

/// The requested objects, by namespace and name; [`Filter::MAX_LIMIT`] nodes in total.
pub fn watches(memories: &Memories, filter: &Filter, exporters: &Exporters) -> Vec<WatchView> {
    // An object that was only counted (its first pass failed) decides nothing.
    let decides = |entry: &Entry| entry.memory.tick.is_some() || entry.facts.paused;
    let chosen = memories.each(|(namespace, name), entry| {
        (filter.admits_watch(namespace, name) && decides(entry)).then(|| {
            let history: Vec<_> = entry.history.iter().rev().cloned().collect();
            (Arc::clone(&entry.memory), entry.facts.clone(), history)
        })
    });
    let mut room = Filter::MAX_LIMIT;
    // No lock is held here: every pass waits for it.
    let views = chosen.map(|((namespace, name), (memory, facts, history))| {
        let limit = filter.limit.min(room);
        let known = Known { memory: &memory, facts: &facts, history: &history };
        let view = watch(namespace, name, known, filter, limit, exporters);
        room -= view.nodes.len();
        view
    });
    views.collect()
}

/// The known facts about one object.
struct Known<'a> {
    memory: &'a Memory,
    facts: &'a Facts,
    /// The youngest first.
    history: &'a [Transition],
}

fn watch(
    namespace: String,
    name: String,
    Known { memory, facts, history }: Known<'_>,
    filter: &Filter,
    limit: usize,
    exporters: &Exporters,
) -> WatchView {
    let measures = memory.criteria.iter().enumerate().map(|(place, criterion)| MeasureView {
        problem: memory.problems.get(place).cloned().flatten(),
        ..MeasureView::of(criterion, exporters)
    });
    let mut nodes: Vec<_> =
        memory.nodes.iter().filter(|(node, _)| filter.admits_node(node)).collect();
    // They are sorted by name, and this sort is stable.
    nodes.sort_by_key(|(_, node)| node.state);
    let nodes_truncated = nodes.len() > limit;
    nodes.truncate(limit);
    let old = Timestamp::now().as_second() - HISTORY_SECONDS;
    let reported = |t: &&Transition| t.at >= old && filter.admits_node(&t.node);
    WatchView {
        namespace,
        name,
        label: facts.label.clone(),
        mode: facts.mode,
        paused: facts.paused,
        interval_seconds: facts.interval.as_secs_f64(),
        summary: memory.summary,
        limit: u32::try_from(memory.limit).unwrap_or(u32::MAX),
        room: u32::try_from(memory.room).unwrap_or(u32::MAX),
        last_success: memory.last_success,
        measures: measures.collect(),
        nodes: nodes
            .into_iter()
            .map(|(name, node)| NodeView {
                reservation: reservation_view(memory, name),
                ..node_view(name, node, &memory.criteria, facts.consecutive)
            })
            .collect(),
        nodes_truncated,
        transitions: history.iter().filter(reported).filter_map(transition).collect(),
    }
}

pub(super) fn node_view(
    name: &Arc<str>,
    node: &NodeMemory,
    criteria: &[Criterion],
    consecutive: Consecutive,
) -> NodeView {
    let values = node.sides().zip(criteria);
    let by = values
        .clone()
        .filter(|(side, _)| criteria.len() > 1 && side.judged == Some(true))
        .map(|(_, criterion)| &*criterion.name)
        .collect::<Vec<_>>();
    NodeView {
        name: name.to_string(),
        state: node.state,
        reason: match node.reason {
            Some(reason) => Some(reason.as_str().into()),
            None => (!by.is_empty()).then(|| by.join(",")),
        },
        since: node.since,
        unfit: node.marked == Some(true),
        age_seconds: node.age(),
        values: values.map(|(side, criterion)| value_view(side, criterion, consecutive)).collect(),
        reservation: None,
    }
}

/// The offer of a node to pods, if the object has nodes offer anything.
pub(super) fn reservation_view(memory: &Memory, node: &str) -> Option<ReservationView> {
    let memory = memory.reservation.as_ref()?;
    let figures = memory.get(node)?;
    Some(ReservationView {
        resource: memory.resource.to_string(),
        unit: memory.unit,
        limit: figures.limit,
        measured: figures.measured,
        requested: figures.requested,
        foreign: memory.foreign(figures),
        offered: figures.amount,
        over_promised: figures.over,
    })
}

fn value_view(side: &MeasureState, criterion: &Criterion, consecutive: Consecutive) -> ValueView {
    // The streak is for the other side.
    let to_unfit = side.judged != Some(true);
    ValueView {
        measure: criterion.name.to_string(),
        value: side.last.as_ref().map(|sample| sample.value),
        device: side.last.as_ref().and_then(|s| s.device.as_ref().map(ToString::to_string)),
        unfit: side.judged,
        streak: side.against.count,
        needed: if to_unfit { consecutive.unfit } else { consecutive.fit },
        reason: side.missing.map(|why| why.reason().to_owned()),
    }
}

fn transition(transition: &Transition) -> Option<TransitionView> {
    Some(TransitionView {
        at: Timestamp::from_second(transition.at).ok()?,
        node: transition.node.to_string(),
        from: transition.from,
        to: transition.to,
        reason: transition.reason.to_string(),
    })
}
