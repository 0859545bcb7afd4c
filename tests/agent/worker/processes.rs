//! A process for each stream: never two for one stream, and none for a stream that is reported as
//! stopped.
use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use super::stage::{SLOW, Worker, file, is_there};
use crate::stage::eventually;

#[test]
fn revoked_streams_are_gone_before_new_ones_start_and_before_the_version_is_reported() {
    let worker = Worker::running(&[], SLOW);
    worker.give(1, &["a", "b"]);
    worker.reached(1);
    let (a, b) = (worker.wait_for(&["begin", "a"]), worker.wait_for(&["begin", "b"]));
    worker.give(2, &["b", "c"]);
    // For half a second it reports the old version and the streams that still run.
    let mut during = 0;
    let said = eventually("the next version", || {
        let running = is_there(&a);
        let said = worker.version().unwrap();
        if said.version == 1 {
            if said.jobs == ["b", "a"] {
                during += 1;
            }
            return None;
        }
        assert!(!running && !is_there(&a), "{}", worker.log());
        Some(said)
    });
    assert!(during > 0, "{}", worker.log());
    assert_eq!((said.version, said.jobs), (2, vec!["b".to_owned(), "c".to_owned()]));
    worker.wait_for(&["begin", "c"]);
    let journal = worker.journal();
    let at = |word: &str, stream: &str| {
        journal.iter().position(|line| line[0] == word && line[1] == stream).unwrap()
    };
    assert!(at("end", "a") < at("begin", "c"), "{journal:?}");
    // The remaining stream was not touched, though the list as a whole has another version.
    assert_eq!((worker.count(&["begin", "b"]), worker.count(&["end", "b"])), (1, 0));
    assert!(is_there(&b));
    let page = worker.page();
    assert_eq!(page.sum("swarm_worker_starts_total", &[]), 3);
    assert_eq!(page.sum("swarm_worker_stops_total", &[]), 1);
    assert_eq!(page.sum("swarm_worker_processes", &[]), 2);
    assert_eq!(page.sum("swarm_worker_kills_total", &[]), 0);
}

#[test]
fn a_stream_knows_itself_its_worker_and_its_token() {
    let script = r#"echo "$1 $2 $STREAM $SWARM_WORKER $SWARM_EPOCH" >> "$HERE/journal"; sleep 100"#;
    let flags = ["--", "sh", "-c", script, "x", "{}", "id={}/{}"];
    let worker = Worker::start(&flags);
    worker.publish(&file(14, &[("w0", 12, &["stream:foo:new"])]));
    worker.reached(14);
    let stream = "stream:foo:new";
    let expected = [stream, "id=stream:foo:new/stream:foo:new", stream, "w0", "12"];
    eventually("the journal", || (worker.journal() == [expected]).then_some(()));
}

/// Each process checks that its predecessor is gone, with everything that it started.
const CAREFUL: &str = r#"
    for id in $(cat "$HERE/$STREAM" 2>/dev/null); do
        kill -0 $id 2>/dev/null && echo "two $STREAM $$" >> "$HERE/journal"
    done
    sh -c 'trap "" TERM; echo $$ >> "$HERE/$STREAM.new"; sleep 0.1; sleep 100' &
    echo $$ >> "$HERE/$STREAM.new"
    mv "$HERE/$STREAM.new" "$HERE/$STREAM"
    echo "begin $STREAM $SWARM_EPOCH $$" >> "$HERE/journal"
    trap 'exit 0' TERM
    wait"#;

#[test]
fn there_are_never_two_generations_of_a_stream() {
    let worker = Worker::running(&["--stop-timeout", "100ms"], CAREFUL);
    let mut version = 0;
    let mut last = 0;
    for round in 0..3 {
        let begun = ["a", "b"].map(|stream| worker.count(&["begin", stream]));
        // Given, taken and given again while it is still stopping.
        for streams in [&["a", "b"][..], &["b"], &["a"], &[], &["b", "a"]] {
            version += 1;
            worker.give(version, streams);
            eventually("the file is seen", || {
                let said = worker.version().unwrap().version;
                assert!(said >= last, "{said} after {last}");
                last = said;
                let seen = worker.page().sum("swarm_worker_file_version", &[]);
                (seen == i64::try_from(version).unwrap()).then_some(())
            });
        }
        // All ended in between, and some before they had begun.
        eventually("both begin again", || {
            let now = ["a", "b"].map(|stream| worker.count(&["begin", stream]));
            (now[0] > begun[0] && now[1] > begun[1]).then_some(())
        });
        if round == 1 {
            assert_eq!(worker.reached(version).jobs, ["b", "a"]);
            let id = worker.wait_for(&["begin", "a"]);
            let begun = worker.count(&["begin", "a"]);
            let _ = Command::new("kill").args(["-KILL", &id]).status();
            let again = || (worker.count(&["begin", "a"]) > begun).then_some(());
            eventually("it begins again", again);
        }
    }
    worker.give(version + 1, &[]);
    worker.reached(version + 1);
    assert_eq!(worker.count(&["two"]), 0, "{:?}", worker.journal());
}

#[test]
fn a_stream_that_is_given_back_while_it_ends_is_ended_and_started_again() {
    let worker = Worker::running(&[], SLOW);
    worker.give(1, &["a"]);
    let first = worker.wait_for(&["begin", "a", "1"]);
    for (version, streams) in [(2, &[][..]), (3, &["a"])] {
        worker.give(version, streams);
        let seen = i64::try_from(version).unwrap();
        let sees = |page: &crate::stage::Page| page.sum("swarm_worker_file_version", &[]) == seen;
        worker.page_with("the file is seen", sees);
    }
    assert_eq!(worker.reached(3).jobs, ["a"]);
    // Its version is reached when the new process has started, and the old one is gone before that.
    assert_eq!(worker.page().sum("swarm_worker_starts_total", &[]), 2);
    assert!(!is_there(&first));
    worker.wait_for(&["begin", "a", "3"]);
}

#[test]
fn a_process_that_is_killed_runs_again_alone_and_with_its_token() {
    let worker = Worker::running(&["--stop-timeout", "200ms"], CAREFUL);
    worker.give(5, &["a"]);
    let first = worker.wait_for(&["begin", "a", "5"]);
    // A newer file with the same stream does not change the token that it started with.
    worker.give(6, &["a"]);
    worker.reached(6);
    assert!(Command::new("kill").args(["-KILL", &first]).status().unwrap().success());
    let second =
        eventually("another", || worker.last(&["begin", "a", "5"]).filter(|id| *id != first));
    assert!(is_there(&second) && !is_there(&first));
    assert_eq!(worker.count(&["two"]), 0, "{:?}", worker.journal());
    let page = worker.page();
    assert_eq!(page.sum("swarm_worker_failures_total", &[("reason", "exit")]), 1);
    assert_eq!(worker.version().unwrap().jobs, ["a"]);
}

/// A stream has ended only when everything that it started has ended, even if its first process has
/// exited.
#[test]
fn what_does_not_end_by_itself_is_killed_before_the_version_is_reported() {
    for script in [
        // The process itself ignores the signal.
        r#"trap "" TERM; echo "child $$" >> "$HERE/journal"; while :; do sleep 0.1; done"#,
        // The process ends at once; its child does not.
        r#"sh -c 'trap "" TERM; echo "child $$" >> "$HERE/journal"; while :; do sleep 0.1; done' & wait"#,
        // The process' child has left its group and is an orphan.
        r#"(setsid sh -c 'trap "" TERM; echo "child $$" >> "$HERE/journal"; exec sleep 100' &)
           exec sleep 100"#,
    ] {
        let worker = Worker::running(&["--stop-timeout", "700ms"], script);
        worker.give(1, &["a"]);
        let child = worker.wait_for(&["child"]);
        worker.give(2, &[]);
        worker.reached(2);
        assert!(!is_there(&child), "{script}");
        let page = worker.page();
        assert_eq!(page.sum("swarm_worker_kills_total", &[]), 1, "{script}");
        assert_eq!(worker.log().matches("killed").count(), 1, "{}", worker.log());
    }
}

/// Otherwise a program that is missing in one image would stop the whole Swarm: no other worker
/// would get the streams that this worker has to give up.
#[test]
fn a_command_that_cannot_be_started_is_tried_again_and_does_not_hold_up_the_version() {
    let missing = crate::stage::Directory::new();
    let program = missing.path("program");
    let worker = Worker::start(&["--", program.to_str().unwrap()]);
    worker.give(1, &["a"]);
    assert_eq!(worker.reached(1).jobs, ["a"]);
    let failures = [("reason", "start")];
    worker.page_with("tried", |page| page.sum("swarm_worker_failures_total", &failures) >= 2);
    assert!(worker.log().contains("could not be started"), "{}", worker.log());
    let script = "#!/bin/sh\necho begin $STREAM $$ >> $HERE/journal\nsleep 100\n";
    fs::write(missing.path("new"), script).unwrap();
    fs::set_permissions(missing.path("new"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(missing.path("new"), &program).unwrap();
    worker.wait_for(&["begin", "a"]);
    worker.page_with("it runs", |page| page.sum("swarm_worker_processes", &[]) == 1);
    worker.give(2, &[]);
    assert!(worker.reached(2).jobs.is_empty());
}

/// As the first process of a container it adopts all orphans.
#[test]
fn nobody_stays_a_zombie() {
    // Its parent is gone, and we adopt it then.
    let script = r#"
        (setsid sh -c 'sleep 0.3; echo "done $(cut -d " " -f 4 /proc/$$/stat)" >> "$HERE/journal"' &)
        exec sleep 100"#;
    let worker = Worker::running(&[], script);
    worker.give(1, &["a", "b"]);
    eventually("both have ended", || (worker.count(&["done"]) == 2).then_some(()));
    let parent = worker.id().to_string();
    assert_eq!(worker.count(&["done", &parent]), 2, "{:?}", worker.journal());
    eventually("no process is left", || {
        let zombies = fs::read_dir("/proc").unwrap().filter(|entry| {
            let stat = entry.as_ref().unwrap().path().join("stat");
            let stat = fs::read_to_string(stat).unwrap_or_default();
            let after = stat.rsplit(") ").next().unwrap_or_default().to_owned();
            after.starts_with(&format!("Z {parent} "))
        });
        (zombies.count() == 0).then_some(())
    });
}

/// Loads, and works once it has read its fencing token.
const WAITS: &str = r#"
    echo "load $STREAM ${SWARM_EPOCH-none} $$" >> "$HERE/journal"
    read token
    echo "begin $STREAM $token $$" >> "$HERE/journal"
    exec sleep 1000"#;

#[test]
fn a_prepared_process_works_once_its_stream_is_the_workers_own() {
    let worker = Worker::running(&["--prepare"], WAITS);
    let give = |jobs: &str, next: &str, version: u64| {
        let entry = format!("jobs: [{jobs}], next: [{next}], version: {version}");
        worker.publish(&format!("workloads: {{w0: {{{entry}}}}}\nversion: {version}\n"));
        worker.reached(version).jobs
    };
    assert_eq!(give("a", "b, c", 3), ["a"]);
    let a = worker.wait_for(&["load", "a", "3"]);
    assert_eq!(worker.wait_for(&["begin", "a", "3"]), a);
    let [b, c] = ["b", "c"].map(|stream| worker.wait_for(&["load", stream, "none"]));
    worker.page_with("both", |page| page.sum("swarm_worker_prepared_streams", &[]) == 2);
    assert_eq!(
        (worker.version().unwrap().jobs, worker.count(&["begin", "b"])),
        (vec!["a".into()], 0)
    );
    assert_eq!(give("a, b", "", 5), ["a", "b"]);
    assert_eq!(worker.wait_for(&["begin", "b", "5"]), b, "the process that has loaded");
    eventually("c will not come", || (!is_there(&c)).then_some(()));
    // What moves away, and may come back, stops first.
    assert_eq!(give("a", "b", 6), ["a"]);
    assert!(!is_there(&b));
    eventually("it loads again", || (worker.count(&["load", "b", "none"]) == 2).then_some(()));
    assert_eq!(worker.count(&["begin", "b"]), 1);
}
