//! The explanation as a person reads it.
use std::fmt::Write;

use super::{
    Explanation, Label, Limit, Measured, NodeJudgment, Others, Peer, Source,
    others::{Probed, Slot, Worker},
};
use crate::{
    api::traffic_watch::NodeState,
    inspect::{probing::measured_by, remedies},
    text::{
        Tone,
        figures::{number, span, value},
        printable,
    },
    traffic_watch::{BANDWIDTH, overview::ReservationView},
};

/// Maximum number of nodes that are named in one line.
const NAMED: usize = 10;

/// Returns the explanation as text, with a line break at its end; with the PromQL of each measure if
/// `queries` is true.
#[must_use]
pub fn text(explanation: &Explanation, queries: bool) -> String {
    let mut lines = Lines::default();
    let node = &explanation.node;
    if explanation.judged_by.is_empty() {
        lines.head(&format!("{node} is judged by no TrafficWatch"));
    }
    for verdict in &explanation.judged_by {
        lines.head(&headline(node, verdict));
        describe(&mut lines, verdict, queries);
    }
    if let Some(others) = &explanation.others {
        on_node(&mut lines, node, others);
    }
    if !explanation.taints.is_empty() {
        lines.head(&format!("Taints of {node}: {}", explanation.taints.join(", ")));
    }
    if !explanation.not_judged_by.is_empty() {
        lines.head("Not judged by");
        for absence in &explanation.not_judged_by {
            lines.line(&absence.watch, &absence.because);
        }
    }
    // Without a judgment, no values come from the leader.
    if !explanation.judged_by.is_empty() || matches!(explanation.source, Source::Status { .. }) {
        lines.head(&source(&explanation.source));
    }
    lines.0
}

pub(super) fn source(source: &Source) -> String {
    match source {
        Source::Leader { identity, version } => {
            format!("From the leader, {identity} (version {version}), just now")
        }
        Source::Status { because } => format!(
            "From the status, whose values may be ten minutes old; the leader was not asked: {because}"
        ),
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn head(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{}", printable(text));
    }

    fn line(&mut self, name: &str, text: &str) {
        let _ = writeln!(self.0, "  {:<12} {}", printable(name), printable(text));
    }
}

fn headline(node: &str, verdict: &NodeJudgment) -> String {
    let NodeJudgment { state, watch, .. } = verdict;
    let since = match (verdict.since, verdict.seconds) {
        (Some(since), Some(seconds)) => format!(" for {} (since {since:.0})", span(seconds)),
        _ => String::new(),
    };
    let reason = verdict
        .reason
        .as_deref()
        .map(|reason| format!(": {reason}, {}", remedies::meaning(reason)))
        .unwrap_or_default();
    format!("{node} is {} for {watch}{since}{reason}", Tone::of(*state).paint(state.as_str()))
        .replacen(" for ", if *state == NodeState::Unknown { " to " } else { " for " }, 1)
}

/// Adds what other objects do on the node.
fn on_node(lines: &mut Lines, node: &str, others: &Others) {
    let Others { probers, workers, slots, unread } = others;
    if !(probers.is_empty() && workers.is_empty() && slots.is_empty()) {
        lines.head(&format!("Also on {node}"));
    }
    for Probed { prober, agents, to_blame, loss, p99 } in probers {
        let blame = match to_blame {
            Some(true) => Tone::Bad.paint("to blame: most of its paths are bad"),
            Some(false) => "not to blame for bad paths".into(),
            None => "no measurement".into(),
        };
        let figures =
            if loss.or(*p99).is_some() { measured_by(*loss, *p99) } else { String::new() };
        let agents = agents.map(|agents| format!("; {agents} agents")).unwrap_or_default();
        lines.line("prober", &format!("{prober}: {blame}{figures}{agents}"));
    }
    for Worker { swarm, status } in workers {
        let loaded = match status.loaded {
            Some(loaded) if loaded >= status.wanted => {
                format!("its list is acknowledged ({loaded})")
            }
            Some(loaded) => {
                format!("version {loaded} is acknowledged, wanted is {}", status.wanted)
            }
            None => "nothing is acknowledged".into(),
        };
        let (name, streams) = (&status.name, status.streams);
        lines.line("worker", &format!("{name} of Swarm {swarm}: {streams} streams; {loaded}"));
    }
    for Slot { set, id, since, leaving } in slots {
        let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
        let leaving = leaving
            .as_ref()
            .map(|why| format!("; another node takes it over: {why}"))
            .unwrap_or_default();
        lines.line("reflector", &format!("slot {id} of RouteReflectorSet {set}{since}{leaving}"));
    }
    if !unread.is_empty() {
        lines.head("Not read");
        for why in unread {
            lines.line("-", why);
        }
    }
}

fn describe(lines: &mut Lines, verdict: &NodeJudgment, queries: bool) {
    for problem in &verdict.problems {
        lines.line("problem", problem);
    }
    for measure in &verdict.measures {
        lines.line(&measure.measure.name, &measured(measure, verdict));
    }
    lines.line("next", &next(verdict));
    lines.line("label", &label(&verdict.label, verdict.state));
    lines.line("limit", &limit(&verdict.limit));
    if let Some(view) = &verdict.reservation {
        lines.line("offers", &offers(view));
    }
    let remedy = verdict.reason.as_deref().and_then(remedies::of_evidence);
    if let Some(remedy) = remedy {
        lines.line("try", remedy);
    }
    let asked = verdict.measures.iter().filter(|m| queries && !m.measure.query.is_empty());
    for Measured { measure, .. } in asked {
        let query = measure.query.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.line("query", &format!("{} (asked of {}): {query}", measure.name, measure.endpoint));
    }
}

fn measured(m: &Measured, verdict: &NodeJudgment) -> String {
    let unit = &m.measure.unit;
    let max = value(m.measure.max, unit);
    let device = m.device.as_ref().map(|device| format!(" on {device}")).unwrap_or_default();
    let mut text = match m.value {
        None => format!("no value; unfit above {max}"),
        Some(x) if m.reason.is_some() => {
            format!("last {}{device}; unfit above {max}", value(x, unit))
        }
        Some(x) => {
            let place = if x > m.measure.max {
                format!("above {max}")
            } else if x <= m.measure.recover {
                format!("at or below {}; unfit above {max}", value(m.measure.recover, unit))
            } else {
                format!("between {} and {max}: stays as it is", value(m.measure.recover, unit))
            };
            format!("{}{device}, {place}", value(x, unit))
        }
    };
    if let Some(age) =
        verdict.sample_age_seconds.filter(|_| m.device.is_some() || m.measure.name == BANDWIDTH)
    {
        let _ = write!(text, "; sample {} s old", number(age.round()));
    }
    if let Some(taken) = verdict.taken.filter(|_| m.value.is_some()) {
        let _ = write!(text, "; taken {taken:.0}");
    }
    if let Some(reason) = &m.reason {
        let _ = write!(text, "; no evidence now: {reason}");
    }
    if let Some(problem) = &m.measure.problem {
        let _ = write!(text, "; {problem}");
    }
    if let (Some(streak @ 1..), Some(needed), Some(unfit)) = (m.streak, m.needed, m.unfit) {
        let _ = write!(
            text,
            "; {streak} of {needed} judgments in a row say {}",
            if unfit { "fit" } else { "unfit" }
        );
    }
    text
}

/// Returns the measurements that change the state.
fn next(verdict: &NodeJudgment) -> String {
    let against: Vec<_> = verdict.measures.iter().filter(|m| m.unfit.unwrap_or(true)).collect();
    let in_a_row = |m: &Measured| match m.needed {
        Some(1) => " in one judgment".to_owned(),
        Some(needed) => format!(" for {needed} judgments in a row"),
        None => String::new(),
    };
    let fit = || {
        let each = against.iter().map(|m| {
            let recover = value(m.measure.recover, &m.measure.unit);
            format!("{} at or below {recover}{}", m.measure.name, in_a_row(m))
        });
        each.collect::<Vec<_>>().join(" and ")
    };
    match verdict.state {
        NodeState::Unfit => format!("fit again with {}", fit()),
        NodeState::Suppressed => format!(
            "marked unfit as soon as a marked node becomes fit or the limit allows one more; \
             fit again with {}",
            fit()
        ),
        NodeState::Unknown => {
            "judged again as soon as there is evidence; until then its label stays".into()
        }
        NodeState::Fit => {
            let each = verdict.measures.iter().map(|m| {
                let max = value(m.measure.max, &m.measure.unit);
                format!("{} above {max}{}", m.measure.name, in_a_row(m))
            });
            format!("unfit with {}", each.collect::<Vec<_>>().join(" or "))
        }
    }
}

fn label(label: &Label, state: NodeState) -> String {
    let Label { key, value, wanted, agrees } = label;
    let there =
        value.as_ref().map_or(format!("{key} is not on the node"), |v| format!("{key}={v}"));
    match (wanted, agrees) {
        (Some(_), true) => format!("{there}, as it should be"),
        (Some(wanted), false) => format!(
            "{there}, but should be {wanted:?}: written within one interval, if the operator may patch \
             nodes (`doctor` tells)"
        ),
        (None, _) if value.is_some() && state == NodeState::Unknown => {
            format!("{there}, as it was before")
        }
        (None, _) => format!("{there}; none is wanted (mode Observe, or no verdict yet)"),
    }
}

/// Returns what a node offers to pods, and the sum that leads to it.
fn offers(view: &ReservationView) -> String {
    let bits = |x: f64| value(x, "bits_per_second");
    let resource = &view.resource;
    let mut text = match view.offered {
        Some(offered) => format!("{offered} {resource}, {} of it requested", view.requested),
        None => format!("no {resource} yet"),
    };
    match (view.limit, view.measured, view.foreign) {
        (Some(limit), Some(measured), Some(foreign)) => {
            let _ = write!(
                text,
                "; limit {}, measured {}, of which {} is declared by no pod",
                bits(limit),
                bits(measured),
                bits(foreign)
            );
        }
        _ => text.push_str("; no evidence now: it stays as it is"),
    }
    if view.over_promised {
        text.push_str("; requests and undeclared load are more than the node may carry");
    }
    text
}

fn limit(limit: &Limit) -> String {
    let Limit { nodes, limit: most, marked, waiting, truncated } = limit;
    let most = most.map_or("a limited number".to_owned(), |most| most.to_string());
    let mut text = format!(
        "{most} of {nodes} nodes that can take pods may be unfit; marked: {}",
        names(marked)
    );
    if !waiting.is_empty() {
        let _ = write!(
            text,
            "; waiting: {} (marked nodes keep their mark while unfit; then the worst come first)",
            names(waiting)
        );
    }
    if *truncated {
        text.push_str("; there are more than are listed");
    }
    text
}

fn names(peers: &[Peer]) -> String {
    if peers.is_empty() {
        return "none".into();
    }
    let mut all: Vec<_> = peers
        .iter()
        .take(NAMED)
        .map(|peer| match peer.value {
            Some(value) => format!("{} ({})", peer.node, number(value)),
            None => peer.node.clone(),
        })
        .collect();
    if peers.len() > NAMED {
        all.push(format!("{} more", peers.len() - NAMED));
    }
    all.join(", ")
}
