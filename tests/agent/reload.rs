//! The sidecar that reloads an application and reports which file the application has loaded.
use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    stage::{Directory, eventually, free_port},
    worker::stage::{Behavior, Said, Sink, Worker, command, file},
};

/// Starts a sidecar for a worker named `w0`.
pub fn sidecar(flags: &[&str]) -> Worker {
    let (port, directory) = (free_port(), Directory::new());
    let mut command = command("reload", port, &directory.path(""));
    Worker::of(command.env("HOSTNAME", "w0").args(flags), port, directory)
}

fn reloads(sidecar: &Worker, result: &str) -> i64 {
    sidecar.page().sum("swarm_worker_reloads_total", &[("result", result)])
}

fn said(sidecar: &Worker) -> (u64, Vec<String>) {
    let Said { version, jobs, .. } = sidecar.version().unwrap();
    (version, jobs)
}

#[test]
fn an_application_is_reloaded_by_url_when_its_own_list_changed_and_only_then() {
    let application = Sink::start();
    let sidecar = sidecar(&["--url", &application.url()]);
    assert_eq!(said(&sidecar), (0, vec![]));
    // The application may have read an older file than the sidecar did.
    sidecar.publish(&file(3, &[("w0", 3, &["a", "b"])]));
    assert_eq!(sidecar.reached(3).jobs, ["a", "b"]);
    assert_eq!(application.requests(), 1);
    // A change of another worker's list, and of the order of ours: no change of what we run.
    sidecar.publish(&file(4, &[("w0", 3, &["a", "b"]), ("w1", 4, &["c"])]));
    sidecar.reached(4);
    sidecar.publish(&file(5, &[("w0", 3, &["b", "a"])]));
    sidecar.reached(5);
    assert_eq!((application.requests(), reloads(&sidecar, "success")), (1, 1));
    sidecar.publish(&file(6, &[("w1", 6, &["a", "b"])]));
    assert!(sidecar.reached(6).jobs.is_empty());
    assert_eq!(application.requests(), 2);
    // A version never goes backwards.
    sidecar.publish(&file(5, &[("w0", 5, &["a"])]));
    let stale = [("result", "stale")];
    sidecar.page_with("it is seen", |page| page.sum("swarm_worker_file_looks_total", &stale) == 1);
    assert_eq!((said(&sidecar), application.requests()), ((6, vec![]), 2));
}

#[test]
fn a_reload_that_failed_is_tried_again_and_not_acknowledged() {
    let application = Sink::start();
    let sidecar = sidecar(&["--url", &application.url(), "--timeout", "300ms"]);
    sidecar.give(1, &["a"]);
    sidecar.reached(1);
    for (version, behavior) in [(2, Behavior::Failing), (4, Behavior::Silent)] {
        application.behave(behavior);
        let failures = reloads(&sidecar, "failure");
        sidecar.give(version, &["b"]);
        let again = || (reloads(&sidecar, "failure") >= failures + 2).then_some(());
        eventually("it is tried again", again);
        assert_eq!(said(&sidecar), (version - 1, vec!["a".to_owned()]));
        // It ran this list before, but it is unknown whether it has taken the other one.
        sidecar.give(version + 1, &["a"]);
        let seen = i64::try_from(version).unwrap() + 1;
        let sees = |page: &crate::stage::Page| page.sum("swarm_worker_file_version", &[]) == seen;
        sidecar.page_with("the file is seen", sees);
        assert_eq!(said(&sidecar).0, version - 1);
        let good = reloads(&sidecar, "success");
        application.behave(Behavior::Good);
        assert_eq!(sidecar.reached(version + 1).jobs, ["a"]);
        assert_eq!(reloads(&sidecar, "success"), good + 1);
    }
    assert!(sidecar.log().contains("HTTP 503"), "{}", sidecar.log());
}

#[test]
fn on_a_signal_it_ends_without_waiting_for_the_application() {
    let application = Sink::start();
    application.behave(Behavior::Silent);
    let mut sidecar = sidecar(&["--url", &application.url()]);
    sidecar.give(1, &["a"]);
    eventually("it reloads", || (application.requests() == 1).then_some(()));
    sidecar.signal("TERM");
    let signaled = Instant::now();
    assert_eq!(sidecar.ended(), Some(0));
    assert!(signaled.elapsed() < Duration::from_secs(5), "{:?}", signaled.elapsed());
}

/// An application with a name of its own, in a directory.
struct Application(Child);

impl Application {
    /// Starts it with a script that runs until it is killed; `$HERE` is the directory.
    fn start(directory: &Directory, name: &str, script: &str) -> Self {
        let (new, path) = (directory.path("new"), directory.path(name));
        fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, &path).unwrap();
        let mut command = Command::new(path);
        // A process group of its own, so that nothing outlives the test.
        command.env("HERE", directory.path("")).stdin(Stdio::null()).process_group(0);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

#[test]
fn an_application_is_reloaded_by_signal() {
    // Longer than the 15 characters that the kernel keeps.
    let name = format!("application-on-{}", free_port());
    // Not SIGHUP: processes started under nohup ignore it.
    let sidecar = sidecar(&["--signal", "usr1", "--process", &name, "--settle", "400ms"]);
    sidecar.give(1, &["a"]);
    eventually("it is not there", || (reloads(&sidecar, "failure") > 0).then_some(()));
    assert_eq!(said(&sidecar), (0, vec![]));
    assert!(sidecar.log().contains(&format!("no process {name}")), "{}", sidecar.log());
    // The signal ends an application that does not handle it: no acknowledgement.
    let script = r#"echo "start $$" >> "$HERE/journal"; while :; do sleep 0.05; done"#;
    let mut deaf = Application::start(sidecar.directory(), &name, script);
    let ended = eventually("it is ended", || deaf.0.try_wait().unwrap());
    assert!(!ended.success());
    let seen = format!("process {}, ended", deaf.0.id());
    eventually("that is seen", || sidecar.log().contains(&seen).then_some(()));
    assert_eq!(said(&sidecar), (0, vec![]));
    drop(deaf);
}

#[test]
fn a_signal_is_acknowledged_after_a_while_and_given_to_the_parent_alone() {
    let name = format!("app-{}", free_port());
    let sidecar = sidecar(&["--signal", "SIGUSR1", "--process", &name]);
    let script = r#"
        trap 'echo "told ${1:-parent}" >> "$HERE/journal"' USR1
        if [ -z "$1" ]; then
            "$0" child &
        fi
        echo "start ${1:-parent}" >> "$HERE/journal"
        while :; do sleep 0.05; done"#;
    let _application = Application::start(sidecar.directory(), &name, script);
    sidecar.wait_for(&["start", "parent"]);
    sidecar.wait_for(&["start", "child"]);
    sidecar.give(1, &["a"]);
    sidecar.wait_for(&["told", "parent"]);
    let signaled = Instant::now();
    assert_eq!(said(&sidecar), (0, vec![]));
    assert_eq!(sidecar.reached(1).jobs, ["a"]);
    // A second, part of which has passed already.
    assert!(signaled.elapsed() > Duration::from_millis(300), "{:?}", signaled.elapsed());
    assert!(sidecar.log().contains("nobody answers a signal"), "{}", sidecar.log());
    // As the operator writes it: the list is that of version 1.
    sidecar.publish(&file(2, &[("w0", 1, &["a"])]));
    sidecar.reached(2);
    sidecar.give(3, &["b"]);
    sidecar.reached(3);
    assert_eq!((sidecar.count(&["told", "parent"]), sidecar.count(&["told", "child"])), (2, 0));
}

#[test]
fn bad_flags_are_named() {
    for (flags, named) in [
        (&[][..], "--url"),
        (&["--url", "app"], "--url"),
        (&["--url", "https://app"], "http://"),
        (&["--url", "http://app", "--signal", "HUP", "--process", "app"], "--signal"),
        (&["--signal", "HUP"], "--process"),
        (&["--signal", "KILL", "--process", "app"], "must be HUP, USR1 or USR2"),
        (&["--signal", "HUP", "--process", ""], "--process"),
        (&["--url", "http://app", "--timeout", "0s"], "--timeout"),
        (&["--url", "http://app", "--settle", "soon"], "--settle"),
    ] {
        let mut command = command("reload", free_port(), &Directory::new().path(""));
        let output = command.args(flags).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {error}");
        assert!(error.contains(named), "{flags:?}: {error}");
    }
}
