//! Start and end of a worker.
use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use super::stage::{SLOW, Worker, command, is_there};
use crate::stage::{Directory, eventually, free_port};

#[test]
fn on_a_signal_it_stops_its_streams_first() {
    for signal in ["TERM", "INT"] {
        let mut worker = Worker::running(&[], SLOW);
        worker.give(1, &["a", "b"]);
        let ids = [worker.wait_for(&["begin", "a"]), worker.wait_for(&["begin", "b"])];
        worker.signal(signal);
        // It still answers, and reports what still runs.
        let said = eventually("it answers", || worker.version());
        assert_eq!(said.version, 1);
        assert_eq!(worker.ended(), Some(0), "{}", worker.log());
        assert!(!ids.iter().any(|id| is_there(id)), "{signal}");
        assert_eq!(worker.count(&["end"]), 2, "{:?}", worker.journal());
    }
}

#[test]
fn it_ends_in_time_whatever_its_streams_do() {
    let script = r#"trap "" TERM; echo "begin $$" >> "$HERE/journal"; while :; do sleep 1; done"#;
    let mut worker = Worker::running(&["--stop-timeout", "500ms"], script);
    worker.give(1, &["a", "b"]);
    eventually("they run", || (worker.count(&["begin"]) == 2).then_some(()));
    // One of them is being stopped already.
    worker.give(2, &["b"]);
    worker.page_with("the file", |page| page.sum("swarm_worker_file_version", &[]) == 2);
    let signaled = Instant::now();
    worker.signal("TERM");
    assert_eq!(worker.ended(), Some(0), "{}", worker.log());
    assert!(signaled.elapsed() < Duration::from_secs(3), "{:?}", signaled.elapsed());
    assert!(worker.journal().iter().all(|line| !is_there(&line[1])));
}

#[test]
fn without_streams_it_ends_at_once() {
    let mut worker = Worker::start(&["--stop-timeout", "1h"]);
    worker.signal("TERM");
    assert_eq!(worker.ended(), Some(0));
}

#[test]
fn bad_flags_are_named() {
    let run = |flags: &[&str], variables: &[(&str, &str)]| {
        let directory = Directory::new();
        let mut command = command("worker", free_port(), &directory.path(""));
        let output = command
            .args(flags)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (flags, variables, named) in [
        (&["--report", "sink"][..], &[][..], "--report"),
        (&["--report", "https://sink"], &[], "http://"),
        (&["--report", "http://sink", "--", "true"], &[], "--report"),
        (&["--", ""], &[], "COMMAND"),
        (&["true"], &[], "true"),
        (&["--stop-timeout", "0s"], &[], "--stop-timeout"),
        (&["--report-interval", "0s"], &[], "--report-interval"),
        (&["--http-port", "0"], &[], "--http-port"),
        (&[], &[("HOSTNAME", "")], "--hostname"),
        (&[], &[("SWARM_CONFIG_KEY", "")], "--config-key"),
        (&[], &[("SWARM_REPORT_URL", "ftp://sink")], "--report"),
    ] {
        let (code, error) = run(flags, variables);
        assert_eq!(code, Some(2), "{flags:?}: {error}");
        assert!(error.contains(named), "{flags:?}: {error}");
    }
    let worker = Worker::start(&[]);
    let (code, error) = run(&["--http-port", &worker.port.to_string()], &[]);
    assert_eq!(code, Some(1));
    assert!(error.contains("HTTP_PORT: cannot listen on TCP port"), "{error}");
}
