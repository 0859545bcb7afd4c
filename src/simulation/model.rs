//! The end of a simulation: what the labels are once nothing has gone wrong for a while.
use std::{collections::BTreeMap, time::Duration};

use super::{
    scene::{Scene, WatchScene, at_least, at_most, marks},
    world::State,
};

/// Judges the labels by the present loads alone.
pub fn settled(state: &mut State, now: Duration) {
    let mut wrong = Vec::new();
    let scene = Scene::of(&state.store);
    let labels: BTreeMap<_, _> =
        state.store.all("nodes").map(|(key, node)| (key.name.clone(), marks(node))).collect();
    for (node, marks) in &labels {
        for (key, value) in marks {
            let holder = scene.holder(key);
            let judged = holder.is_some_and(|watch| scene.selected(watch).any(|name| name == node));
            // An empty selection freezes its labels.
            let frozen = holder.is_some_and(|watch| scene.selected(watch).next().is_none());
            if !judged && !frozen && state.oracle.owns(node, key) {
                wrong.push(format!("{node} has {key}: {value}, which is no object's"));
            }
        }
    }
    // The ceiling is shared: an object can be limited by the marks of another.
    let unfit = |name: &str| labels[name].values().any(|value| value == "true");
    let open: Vec<_> = scene.nodes.iter().filter(|(_, node)| node.open).collect();
    let used = open.iter().filter(|(name, _)| unfit(name)).count();
    let all = scene.nodes.keys().filter(|name| unfit(name)).count();
    let is_full = used >= at_most(&"50%".into(), open.len())
        || all >= at_most(&"50%".into(), scene.nodes.len());
    let holders = scene.watches.values().filter(|watch| scene.holder(&watch.key) == Some(watch));
    for watch in holders {
        wrong.extend(wrong_labels(state, &scene, watch, &labels, is_full));
    }
    for wrong in wrong {
        state.oracle.violate(now, format!("at the end: {wrong}"));
    }
}

fn wrong_labels(
    state: &State,
    scene: &Scene,
    watch: &WatchScene,
    labels: &BTreeMap<String, BTreeMap<String, String>>,
    is_full: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let nodes: Vec<_> = scene.selected(watch).collect();
    let hot = |node: &str| state.loads.load(node) > watch.max;
    let cold = |node: &str| state.loads.load(node) <= watch.recover;
    let marked = |node: &str| labels[node].get(&watch.key).map(|value| value == "true");
    for node in &nodes {
        match marked(node) {
            None => wrong.push(format!("{node} has no label {}", watch.key)),
            Some(true) if cold(node) => wrong.push(format!("{node} is marked, and not loaded")),
            _ => {}
        }
    }
    let room: Vec<_> = nodes.iter().filter(|node| scene.nodes[**node].open).collect();
    let unmarked = room.iter().filter(|node| marked(node) != Some(true)).count();
    let floor = at_least(&watch.min_fit, room.len()).min(room.len());
    if unmarked < floor {
        wrong.push(format!("{}: {unmarked} of {} unmarked", watch.key, room.len()));
    }
    // Each loaded node is marked as long as there is a place.
    for (scope, open) in [(&room.iter().map(|n| **n).collect::<Vec<_>>(), true), (&nodes, false)] {
        let places = at_most(&watch.max_unfit, scope.len());
        let floor = at_least(&watch.min_fit, scope.len());
        let most = places.min(scope.len().saturating_sub(floor));
        let marks = scope.iter().filter(|node| marked(node) == Some(true)).count();
        let waits = scope
            .iter()
            .any(|node| scene.nodes[*node].open == open && hot(node) && marked(node) != Some(true));
        if waits && marks < most && !is_full {
            wrong.push(format!("{}: {marks} marked, {most} allowed, and one waits", watch.key));
        }
    }
    wrong
}

/// Judges a time in which nothing happened: there are no writes but the lease's, and one refresh of
/// each status a minute.
pub fn silent(state: &mut State, before: usize, idle: Duration, now: Duration) {
    let minutes = idle.as_secs() / 60 + 1;
    let mut refreshes = BTreeMap::<String, u64>::new();
    let mut wrong = Vec::new();
    for line in &state.writes[before..] {
        let mut words = line.split(' ').skip(2);
        let (verb, plural, name) = (words.next(), words.next(), words.next());
        match (verb, plural) {
            (_, Some("leases")) => {}
            (Some("Edit(Apply)"), Some("trafficwatches")) => {
                *refreshes.entry(name.unwrap().to_owned()).or_default() += 1;
            }
            _ => wrong.push(format!("a write without a reason: {line}")),
        }
    }
    let many = refreshes.into_iter().filter(|(_, count)| *count > minutes);
    wrong.extend(many.map(|(name, count)| format!("{count} refreshes of {name}")));
    for wrong in wrong {
        state.oracle.violate(now, format!("while nothing happens: {wrong}"));
    }
}
