//! Selects the workers to query: those that a stream waits for, and all once a minute.
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;

use super::{
    cluster::Cluster,
    file::{self, STATE_KEY},
    handover::{Epoch, Published},
    history::parts,
    limits,
    memory::{Memory, Report},
    watches::{PodFacts, WorkloadView},
};
use crate::api::Swarm;

/// Time between two requests to a worker that is not awaited: it may have been restarted, or not
/// run what it reported.
const VERIFY: Duration = Duration::from_mins(1);

/// The longest pause between questions to a worker that is waited for and does not answer.
const PAUSE: Duration = Duration::from_secs(5);

/// The same for one that is not waited for and has answered before. Each unanswered question takes
/// up to a second: where a policy stops all of them, passes must not consist of questions.
const MISSED: Duration = Duration::from_secs(15);

/// Questions at a time.
const CONCURRENCY: usize = 64;

/// Asks the workers that are due, and keeps their answers.
pub(super) async fn ask(
    cluster: &impl Cluster,
    view: &WorkloadView,
    published: Option<&Published>,
    memory: &mut Memory,
) {
    let now = cluster.now();
    let due = view.pods.iter().filter(|pod| {
        let report = memory.reports.get(&pod.uid);
        is_due(pod, needed(published, pod), report, now)
            || prepares(published, pod, report).is_some_and(|report| is_awaited(report, now))
    });
    let key = memory.secret.key();
    let key = key.as_ref();
    // A worker without an address cannot be asked yet.
    let questions = due
        .filter(|pod| pod.ip.is_some())
        .map(|pod| async move { (Arc::clone(&pod.uid), cluster.ask(pod, key).await) });
    let questions: Vec<_> = questions.collect();
    if questions.is_empty() {
        return;
    }
    let size = |report: &Report| report.answer.as_ref().map_or(0, |answer| answer.size());
    let mut kept: usize = memory.reports.values().map(size).sum();
    let mut answers = futures::stream::iter(questions).buffer_unordered(CONCURRENCY);
    while let Some((uid, answer)) = answers.next().await {
        let others = kept - memory.reports.get(&uid).map_or(0, size);
        let answer = answer.and_then(|answer| {
            limits::answers(others + answer.size())?;
            kept = others + answer.size();
            Ok(answer)
        });
        memory.reported(uid, answer, cluster.now());
    }
}

/// The last file, from memory where it is the same.
pub(super) fn published(
    swarm: &Swarm,
    view: &WorkloadView,
    memory: &Memory,
) -> Option<Arc<Published>> {
    if swarm.spec.config_map.files > 1 {
        return parts::published(swarm, view, memory);
    }
    if let Some(known) = &memory.published {
        return Some(Arc::clone(known));
    }
    let data = &view.share.as_ref()?.data;
    let config = data.get(&swarm.spec.config_map.key)?;
    let parsed = file::parse(config, data.get(STATE_KEY).map(String::as_str)).ok()?;
    Some(Arc::new(parsed.published))
}

/// The version that a pod is waited for with; 0: none.
fn needed(published: Option<&Published>, pod: &PodFacts) -> Epoch {
    let Some(published) = published else { return 0 };
    let share = published.shares.get(&pod.name).map_or(0, |share| share.version);
    let releasing = published.releasing.iter().filter(|((_, worker), _)| *worker == pod.name);
    let releasing = releasing.map(|(_, epoch)| *epoch).max().unwrap_or(0);
    share.max(releasing).max(published.barrier.unwrap_or(0))
}

/// Returns the report of a pod that says that it prepares streams, while it has not prepared all that
/// will come to it.
fn prepares<'a>(
    published: Option<&Published>,
    pod: &PodFacts,
    report: Option<&'a Report>,
) -> Option<&'a Report> {
    let next = published?.next.get(&pod.name)?;
    let prepared = report?.answer.as_ref()?.prepared.as_ref()?;
    let prepared: BTreeSet<_> = prepared.iter().map(String::as_str).collect();
    report.filter(|_| !pod.stopped && next.iter().any(|stream| !prepared.contains(&**stream)))
}

/// Reports whether a worker that is waited for is asked now: one that hangs would delay the others in
/// every pass.
fn is_awaited(report: &Report, now: Instant) -> bool {
    let ago = now.saturating_duration_since(report.asked);
    ago >= PAUSE.min(Duration::from_millis(500) * report.failures.saturating_sub(2))
}

fn is_due(pod: &PodFacts, needed: Epoch, report: Option<&Report>, now: Instant) -> bool {
    // A container that has not started cannot answer.
    if pod.stopped || !pod.started {
        return false;
    }
    let Some(report) = report else { return true };
    let ago = now.saturating_duration_since(report.asked);
    let waited = needed > 0 && report.loaded.is_none_or(|loaded| loaded < needed);
    let missed = report.failures > 0 && !report.is_silent();
    if waited {
        return is_awaited(report, now);
    }
    if missed {
        return ago >= MISSED.min(Duration::from_millis(500) * report.failures.saturating_sub(2));
    }
    // Of one that is not ready, only an answer shows that it runs.
    ago >= if pod.ready || report.is_silent() { VERIFY } else { PAUSE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swarm::acknowledge::Answer;

    #[test]
    fn who_is_waited_for_is_asked_at_once_and_the_rest_once_a_minute() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let pod = PodFacts {
            name: "w-0".into(),
            uid: "u".into(),
            node: Some("n".into()),
            ready: true,
            started: true,
            ..PodFacts::default()
        };
        let report = |version, failures| Report {
            asked: start,
            failures,
            failing: None,
            error: None,
            loaded: Some(version),
            answer: Some(Arc::new(Answer { version: Some(version), jobs: None, prepared: None })),
        };
        assert!(is_due(&pod, 0, None, start), "never asked");
        assert!(is_due(&pod, 7, Some(&report(6, 0)), start));
        assert!(!is_due(&pod, 7, Some(&report(7, 0)), at(59_000)));
        assert!(is_due(&pod, 7, Some(&report(7, 0)), at(60_000)));
        // A worker that does not answer is queried less and less often.
        assert!(!is_due(&pod, 7, Some(&report(6, 4)), at(900)));
        assert!(is_due(&pod, 7, Some(&report(6, 4)), at(1_000)));
        assert!(!is_due(&pod, 7, Some(&report(6, 99)), at(4_900)));
        assert!(is_due(&pod, 7, Some(&report(6, 99)), at(5_000)));
        // One that answered is expected to go on, and one that is not ready proves itself by that.
        assert!(is_due(&pod, 7, Some(&report(7, 1)), start));
        assert!(!is_due(&pod, 7, Some(&report(7, 99)), at(14_900)));
        assert!(is_due(&pod, 7, Some(&report(7, 99)), at(15_000)));
        let unready = PodFacts { ready: false, ..pod.clone() };
        assert!(!is_due(&unready, 7, Some(&report(7, 0)), at(4_900)));
        assert!(is_due(&unready, 7, Some(&report(7, 0)), at(5_000)));
        // Whether a new one answers at all is found out at once, and not asked again every moment.
        let none = |failures| Report { loaded: None, answer: None, ..report(0, failures) };
        assert!(is_due(&pod, 0, Some(&none(2)), start));
        assert!(!is_due(&pod, 0, Some(&none(3)), at(59_000)));
        assert!(!is_due(&unready, 0, Some(&none(3)), at(59_000)));
        assert!(!is_due(&PodFacts { started: false, ..pod.clone() }, 7, None, start));
        assert!(!is_due(&PodFacts { stopped: true, ..pod }, 7, None, start));
    }

    /// Workers that report anything at all must not exhaust the operator.
    #[test]
    fn the_answers_of_all_workers_together_have_a_limit() {
        let answer = |streams: usize| Answer {
            version: Some(1),
            jobs: Some(vec!["a".into(); streams]),
            prepared: None,
        };
        let size = answer(1).size();
        let most = limits::ANSWERS / size;
        assert!(most > 2 * limits::STREAMS, "each stream may have two owners during a handover");
        assert_eq!(limits::answers(answer(3).size()), Ok(()));
        assert_eq!(limits::answers(most * size), Ok(()));
        let error = limits::answers((most + 1) * size).unwrap_err();
        assert!(error.contains("more streams than the operator keeps (32 MiB)"), "{error}");
    }
}
