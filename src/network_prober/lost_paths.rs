//! The paths that agents have traced because they lost most of their probes, from Prometheus: they
//! become events.
use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use kube::ResourceExt;

use super::{
    measurement::{self, Querier, Subject, Traced},
    snapshot::Key,
};
use crate::{
    agent::pinglist::Protocol,
    api::NetworkProber,
    clock,
    controller::{Notice, key},
    prometheus::Endpoints,
    text::printable,
};

/// Time between two questions about one object: an event may be as late.
const AGAIN: Duration = Duration::from_mins(1);

/// The time for which a pass waits for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The age of a trace that is news to a new leader: its predecessor may not have asked since then.
const RECENT: Duration = Duration::from_mins(3);

/// Number of traces in one event.
const NAMED: usize = 3;

/// The last answer about each object.
pub struct LostPaths {
    endpoints: Endpoints,
    known: Mutex<HashMap<Key, Known>>,
}

struct Known {
    asked: Instant,
    /// The time of the first question, in Unix seconds: the first answer may be much later.
    since: f64,
    /// The traces of the last answer, if there was one.
    traces: Option<HashSet<String>>,
}

impl LostPaths {
    /// Creates one that has asked nothing yet.
    #[must_use]
    pub fn new(endpoints: &Endpoints) -> Self {
        Self { endpoints: endpoints.clone(), known: Mutex::default() }
    }

    /// Returns the traces that were not there the last time.
    pub async fn new_of(&self, prober: &NetworkProber) -> Vec<Traced> {
        let (key, now) = (key(prober), clock::instant());
        let is_recent = |known: &Known| now.saturating_duration_since(known.asked) < AGAIN;
        if !prober.spec.probes.contains(&Protocol::Udp)
            || self.known().get(&key).is_some_and(is_recent)
        {
            return vec![];
        }
        let namespace = prober.namespace().unwrap_or_default();
        let traced = match Querier::of_operator(&self.endpoints, &namespace) {
            Ok(querier) => {
                let subject = Subject::of(prober);
                let asked = measurement::traced(&querier, &subject);
                match tokio::time::timeout(PATIENCE, asked).await {
                    Ok(Ok(traced)) => Some(traced),
                    Ok(Err(error)) => unanswered(&error),
                    Err(elapsed) => unanswered(&elapsed),
                }
            }
            Err(why) => unanswered(&why),
        };
        let mut all = self.known();
        all.retain(|_, known| now.saturating_duration_since(known.asked) < AGAIN * 10);
        let since = clock::timestamp().as_duration().as_secs_f64();
        let known = all.entry(key).or_insert_with(|| Known { asked: now, since, traces: None });
        known.asked = now;
        let Some(traced) = traced else { return vec![] };
        let names = traced.iter().map(|traced| format!("{traced:?}")).collect();
        let before = known.traces.replace(names);
        let since = known.since;
        traced.into_iter().filter(|traced| is_news(traced, before.as_ref(), since)).collect()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether a trace was in no earlier answer. To a process that has just begun to lead, all are
/// new: those from long before its first question were the news of its predecessor.
fn is_news(traced: &Traced, before: Option<&HashSet<String>>, since: f64) -> bool {
    match before {
        Some(before) => !before.contains(&format!("{traced:?}")),
        None => since - traced.at < RECENT.as_secs_f64(),
    }
}

/// The next question asks for the same traces.
fn unanswered(why: &dyn std::fmt::Display) -> Option<Vec<Traced>> {
    tracing::debug!(%why, "lost paths are not known");
    None
}

/// One event about all of them: the first that is wrong may cut off many paths.
pub(super) fn notice(traced: &[Traced]) -> Option<Notice> {
    let each = traced.iter().take(NAMED).map(|traced| {
        let (from, to) = (&traced.from, &traced.to);
        format!("{from} → {to} ({}): {}", traced.to_ip, traced.finding())
    });
    let each: Vec<_> = each.collect();
    let more = match traced.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more: kubectl traffic explain prober"),
    };
    let note = format!("paths lose most of their probes: {}{more}", each.join("; "));
    let note = printable(&note).into_owned();
    (!each.is_empty()).then_some(Notice { warning: true, reason: "PathLost", note, node: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_news_once_and_an_old_one_is_none_to_a_new_leader() {
        let traced = Traced { at: 1000.0, ..Traced::default() };
        let known = HashSet::from([format!("{traced:?}")]);
        for (before, since, is) in [
            (None, 100.0, true),
            (None, 1100.0, true),
            (None, 1200.0, false),
            (Some(&known), 1001.0, false),
            (Some(&HashSet::new()), 5000.0, true),
        ] {
            assert_eq!(is_news(&traced, before, since), is, "{before:?} {since}");
        }
    }

    #[test]
    fn many_lost_paths_are_one_event_that_names_some() {
        let traced = |to: &str| Traced {
            from: "n1".into(),
            to: to.into(),
            to_ip: "10.0.0.9".into(),
            result: "lost".into(),
            hops: "10.1.0.1".into(),
            ..Traced::default()
        };
        assert!(notice(&[]).is_none());
        let note = notice(&[traced("n2"), traced("n\u{1b}3")]).unwrap().note;
        assert!(note.contains("n1 → n2 (10.0.0.9): packets reach 10.1.0.1"), "{note}");
        assert!(!note.contains('\u{1b}') && !note.contains("more"), "{note}");
        let many: Vec<_> = (0..20).map(|i| traced(&format!("n{i}"))).collect();
        let note = notice(&many).unwrap().note;
        assert!(note.contains("and 17 more") && note.len() < 1024, "{note}");
    }
}
