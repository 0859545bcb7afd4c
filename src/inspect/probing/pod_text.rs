//! A pod explained, as a person reads it.
use super::{
    PodExplanation,
    pod::Standpoint,
    pods,
    text::{paths, source},
};
use crate::{
    inspect::lines,
    text::{figures::number, style::Tone},
};

/// Maximum number of nodes of peers that are named.
const NODES: usize = 8;

/// Returns the explanation as text, with a line break at its end.
#[must_use]
pub fn text(made: &PodExplanation) -> String {
    let node = made.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let selected = made.standpoints.iter().any(|one| one.selects);
    let agent = match &made.agent_of {
        Some(prober) => Tone::Good.paint(&format!("has an agent of {prober}")),
        None if selected => Tone::Bad.paint("has no agent"),
        None => Tone::Notable.paint("has no agent"),
    };
    let mut text = format!("{}{node} {agent}\n", made.pod);
    let mut line = |name: &str, value: &str| lines::line(&mut text, name, value);
    for one in made.standpoints.iter().filter(|one| one.selects) {
        line(&one.prober, &why(one));
    }
    if let Some(takes_part) = made.takes_part {
        let reported = if takes_part {
            Tone::Good.paint("yes: it probes and is probed")
        } else {
            Tone::Notable.paint("not yet")
        };
        line("takes part", &reported);
    }
    if !made.peers.is_empty() {
        let all: usize = made.peers.values().map(Vec::len).sum();
        let nodes = made.peers.iter().take(NODES);
        let mut nodes: Vec<_> =
            nodes.map(|(node, pods)| format!("{node} {}", pods.len())).collect();
        if made.peers.len() > NODES {
            nodes.push(format!("{} more", made.peers.len() - NODES));
        }
        let value = format!("{} on {} nodes: {}", pods(all), made.peers.len(), nodes.join(", "));
        line("probes", &value);
    }
    if let Some(agent) = &made.agent {
        if let Some(age) = agent.list_age {
            let peers = agent.peers.map(|peers| format!(", {peers} peers")).unwrap_or_default();
            line("list", &format!("confirmed {} s ago{peers}", number(age.round())));
        }
        for probes in &agent.probes {
            let reason = if probes.reason.is_empty() { &probes.result } else { &probes.reason };
            let count = number(probes.count.round());
            line("results", &format!("{} {reason}: {count} in five minutes", probes.protocol));
        }
        for (reason, count) in &agent.skipped {
            line("not sent", &format!("{reason}: {}", number(count.round())));
        }
    }
    let others: Vec<_> = made.standpoints.iter().filter(|one| !one.selects).collect();
    if !others.is_empty() {
        text.push_str("\nNot selected by\n");
        for one in others {
            lines::line(&mut text, &one.prober, &one.because);
        }
    }
    if !made.paths.is_empty() {
        text.push_str("\nPaths of its node, the worst first, over five minutes\n");
        text.push_str(&paths(made.paths.iter()));
    }
    lines::advise(&mut text, &made.next);
    text.push_str(&source(&made.source));
    text
}

fn why(one: &Standpoint) -> String {
    match &one.reason {
        Some(reason) => format!("{reason}: {}", one.because),
        None => one.because.clone(),
    }
}
