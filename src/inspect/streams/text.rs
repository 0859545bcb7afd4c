//! A stream, or a worker, as a person reads it.
use super::explain::{LastRefresh, State, StreamExplanation, WorkerExplanation};
use crate::{
    inspect::{
        lines::{advise, condition, line},
        probing::{Advice, source},
    },
    swarm::dry_run::Move,
    text::{
        Tone,
        figures::{number, span},
    },
};

/// Maximum number of streams that are named in one line.
const NAMED: usize = 10;

/// Returns one stream as text, with a line break at its end.
#[must_use]
pub fn stream_text(made: &StreamExplanation) -> String {
    let id = &made.stream;
    let worker = made.worker.as_deref().unwrap_or("-");
    let state = match made.state {
        State::Owned => Tone::Good.paint(&format!("is with {worker}")),
        State::Releasing => Tone::Notable.paint(&format!("is taken from {worker}")),
        State::Free => Tone::Notable.paint("has no worker yet, and is moving to one"),
        State::Unassigned => Tone::Bad.paint("cannot be assigned: no worker can take it"),
        State::Removed => Tone::Notable.paint("has no worker"),
    };
    let mut text = format!("stream {id:?} of {} {state}\n", made.swarm);
    let since = made.since.map_or(String::new(), |since| match made.state {
        State::Releasing => format!("; removed from its list at version {since}"),
        _ => format!("; its worker's list last changed at version {since}"),
    });
    let on_its_way = made.seconds.map_or(String::new(), |s| format!("; for {}", seconds(s)));
    line(&mut text, "file", &format!("version {}{since}{on_its_way}", made.epoch));
    line(&mut text, "because", &made.because);
    if let Some(one) = &made.moves {
        line(&mut text, "then", &moved(one));
    }
    if let Some(weight) = made.weight {
        let pin = made.pin.as_ref().map_or(String::new(), |pin| format!(", pinned to {pin}"));
        let own = if made.dedicated { ", with a worker of its own" } else { "" };
        line(&mut text, "spec", &format!("weight {weight}{pin}{own}"));
    } else {
        line(&mut text, "spec", "it is not listed");
    }
    for one in made.unread.iter().take(NAMED) {
        line(&mut text, "unread", &format!("it may be in another Swarm too: {one}"));
    }
    if let Some(more @ 1..) = made.unread.len().checked_sub(NAMED) {
        line(&mut text, "unread", &format!("{more} more Swarms: -o json lists them"));
    }
    tail(&mut text, made.refreshed.as_ref(), &made.conditions, &made.next);
    text.push_str(&source(&made.source));
    text
}

/// Returns one worker as text, with a line break at its end.
#[must_use]
pub fn worker_text(made: &WorkerExplanation) -> String {
    let node = made.node.as_ref().map_or(String::new(), |node| format!(" on {node}"));
    let ready = match made.ready {
        Some(true) => Tone::Good.paint("ready"),
        Some(false) => Tone::Bad.paint("not ready"),
        None => Tone::Notable.paint("not to have streams"),
    };
    let mut text = format!(
        "worker {} of {}{node}: {ready}, {} streams\n",
        made.worker,
        made.swarm,
        made.streams.len()
    );
    let version =
        format!("version {}; its list last changed at version {}", made.epoch, made.since);
    line(&mut text, "file", &version);
    line(&mut text, "because", &made.because);
    if !made.streams.is_empty() {
        line(&mut text, "streams", &names(&made.streams));
    }
    if let Some(weight) = made.weight {
        line(&mut text, "weight", &number(weight));
    }
    if !made.releasing.is_empty() {
        line(&mut text, "stops", &names(&made.releasing));
    }
    if !made.pinned.is_empty() {
        line(&mut text, "pinned", &names(&made.pinned));
    }
    if let Some(own) = &made.dedicated {
        line(&mut text, "dedicated", &format!("to {own}"));
    }
    for one in made.moves.iter().take(NAMED) {
        line(&mut text, "then", &format!("{:?}: {}", one.stream, moved(one)));
    }
    if made.moves.len() > NAMED {
        line(&mut text, "then", &format!("{} more: plan swarm", made.moves.len() - NAMED));
    }
    tail(&mut text, made.refreshed.as_ref(), &made.conditions, &made.next);
    text.push_str(&source(&made.source));
    text
}

fn tail(
    text: &mut String,
    refreshed: Option<&LastRefresh>,
    conditions: &[String],
    next: &[Advice],
) {
    if let Some(LastRefresh { worker, result, seconds: ago }) = refreshed {
        line(text, "refresh", &format!("{worker} was {result} {} ago", seconds(*ago)));
    }
    for sentence in conditions {
        condition(text, sentence);
    }
    advise(text, next);
}

fn moved(one: &Move) -> String {
    let way = match (&one.from, &one.to) {
        (Some(from), Some(to)) => format!("from {from} to {to}"),
        (None, Some(to)) => format!("to {to}"),
        (Some(from), None) => format!("away from {from}"),
        (None, None) => "nowhere".into(),
    };
    format!("{way}: {} ({})", one.reason, one.why)
}

fn names(all: &[String]) -> String {
    let first = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{first} and {} more", all.len() - NAMED) } else { first }
}

fn seconds(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "less than a year")]
    span(seconds as i64)
}
