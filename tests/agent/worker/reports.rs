//! Reports to the sink: which stream ran, and when.
use std::{
    thread,
    time::{Duration, Instant, SystemTime},
};

use super::stage::{Behavior, Sink, Worker, command, file};
use crate::stage::{Directory, eventually, free_port};

fn reporting(sink: &Sink) -> Worker {
    Worker::start(&["--report", &sink.url(), "--report-interval", "50ms", "--pod-uid", "u1"])
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

#[test]
fn intervals_follow_each_other_from_start_to_end() {
    let sink = Sink::start();
    let mut worker = reporting(&sink);
    let before = now();
    worker.publish(&file(14, &[("w0", 12, &["a", "b"])]));
    worker.reached(14);
    let started = now();
    eventually("reports", || (sink.reports().len() > 5).then_some(()));
    let revoked = now();
    worker.publish(&file(15, &[("w0", 15, &["b"])]));
    worker.reached(15);
    let gone = now();
    // Two more reports about the remaining stream.
    let many = sink.reports().len();
    eventually("reports", || (sink.reports().len() > many + 2).then_some(()));
    let signaled = now();
    worker.signal("TERM");
    assert_eq!(worker.ended(), Some(0));
    let ended = now();
    assert!(sink.reports().iter().all(|report| (&*report.worker, &*report.pod) == ("w0", "u1")));
    let runs = sink.runs();
    let [(_, 12, from, to)] = runs["a"][..] else { panic!("{runs:?}") };
    assert!((before..=started).contains(&from), "{before} {from} {started}");
    assert!((revoked..=gone).contains(&to), "{revoked} {to} {gone}");
    // One tenure, though the list changed meanwhile.
    let [(_, 12, from, to)] = runs["b"][..] else { panic!("{runs:?}") };
    assert!((before..=started).contains(&from));
    assert!((signaled..=ended).contains(&to), "{signaled} {to} {ended}: the last report");
}

#[test]
fn what_ran_while_no_sink_took_reports_is_reported_later() {
    for behavior in [Behavior::Failing, Behavior::Silent] {
        let sink = Sink::start();
        let worker = reporting(&sink);
        worker.give(1, &["a", "b"]);
        eventually("reports", || (sink.reports().len() > 2).then_some(()));
        sink.behave(behavior);
        worker.give(2, &["b"]);
        // A refused report does not matter: the stream is not running.
        worker.reached(2);
        worker.give(3, &["a", "b"]);
        worker.reached(3);
        let failures = [("result", "failure")];
        worker.page_with("a failure", |page| page.sum("swarm_worker_reports_total", &failures) > 0);
        let many = sink.reports().len();
        sink.behave(Behavior::Good);
        eventually("reports", || (sink.reports().len() > many + 2).then_some(()));
        let runs = sink.runs();
        // No interval is missing: a ran twice, b all the time.
        let [(_, 1, _, to), (_, 3, from, _)] = runs["a"][..] else { panic!("{runs:?}") };
        assert!(to < from, "{runs:?}");
        let [(_, 1, ..)] = runs["b"][..] else { panic!("{runs:?}") };
        assert_eq!(worker.log().matches("a report is not taken").count(), 1, "{}", worker.log());
        assert!(worker.page().sum("swarm_worker_lost_intervals_total", &[]) == 0);
    }
}

#[test]
fn a_sink_that_is_silent_does_not_hold_up_the_end() {
    let sink = Sink::start();
    sink.behave(Behavior::Silent);
    let flags = ["--report", &sink.url(), "--stop-timeout", "500ms"];
    let mut worker = Worker::start(&flags);
    worker.give(1, &["a"]);
    worker.reached(1);
    let signaled = Instant::now();
    worker.signal("TERM");
    assert_eq!(worker.ended(), Some(0), "{}", worker.log());
    assert!(signaled.elapsed() < Duration::from_secs(3), "{:?}", signaled.elapsed());
    assert!(worker.log().contains("the last report is not taken"), "{}", worker.log());
}

/// The whole protocol, executed by the test: taken from one worker, acknowledged, given to the
/// other.
#[test]
fn a_stream_that_is_handed_over_never_runs_twice() {
    let sink = Sink::start();
    let shared = Directory::new();
    let workers = ["w0", "w1"].map(|name| {
        let port = free_port();
        let mut command = command("worker", port, &shared.path(""));
        command.args(["--hostname", name, "--report", &sink.url(), "--report-interval", "20ms"]);
        Worker::of(&mut command, port, Directory::new())
    });
    let all_reach = |version| {
        for worker in &workers {
            worker.reached(version);
        }
    };
    let mut version = 0;
    let mut publish = |streams: [&[&str]; 2]| {
        version += 1;
        let [first, second] = streams;
        let shares = [("w0", version, first), ("w1", version, second)];
        shared.publish("config.yml", &file(version, &shares));
        version
    };
    for round in 0..4 {
        let streams: [&[&str]; 2] =
            if round % 2 == 0 { [&["a", "b"], &["c"]] } else { [&["c"], &["a", "b"]] };
        let version = publish(streams);
        all_reach(version);
        thread::sleep(Duration::from_millis(60));
        let version = publish([&[], &[]]);
        all_reach(version);
    }
    eventually("everything is reported", || {
        let mut runs = sink.runs();
        (runs.len() == 3 && runs.values().all(|runs| runs.len() == 4)).then_some(())?;
        for (stream, runs) in &mut runs {
            runs.sort_by_key(|run| run.2);
            for pair in runs.windows(2) {
                assert!(pair[0].3 <= pair[1].2, "{stream} ran twice: {pair:?}");
                assert!(pair[0].1 < pair[1].1, "the token of {stream} grows: {pair:?}");
            }
        }
        Some(())
    });
}
