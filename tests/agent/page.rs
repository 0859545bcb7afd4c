//! `docs/reference/worker.md` is accurate: its flags, its metrics, and its worker of a dozen lines.
use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    process::Command,
};

use crate::{
    reload::sidecar,
    stage::{Directory, eventually, free_port, get},
    worker::stage::{SLOW, Worker, file, is_there},
};

const PAGE: &str = include_str!("../../docs/reference/worker.md");

#[test]
fn it_names_every_flag_every_variable_and_every_metric() {
    let cli = <traffic_operator::cli::Cli as clap::CommandFactory>::command();
    let agent = cli.find_subcommand("agent").unwrap();
    for command in ["worker", "reload"] {
        let flags = agent.find_subcommand(command).unwrap().get_arguments();
        for flag in flags.filter(|flag| flag.get_id() != "help" && !flag.is_positional()) {
            let variable = flag.get_env().expect("a variable").to_str().unwrap();
            assert!(flag.get_help().is_some(), "{variable} has no help");
            assert!(PAGE.contains(&format!("`{variable}`")), "{variable}");
            assert!(PAGE.contains(&format!("`--{}`", flag.get_long().unwrap())), "{variable}");
        }
    }
    let worker = Worker::start(&[]);
    let sidecar = sidecar(&["--url", "http://127.0.0.1:1"]);
    let pages = [worker.page().text, sidecar.page().text].concat();
    for name in traffic_operator::agent::worker::metrics::NAMES {
        assert!(PAGE.contains(&format!("| `{name}` |")), "{name}");
        let exported = |line: &str| line.split(['{', ' ']).next() == Some(name);
        assert!(pages.lines().any(exported), "{name}");
    }
    for line in pages.lines().filter(|line| line.starts_with("swarm_worker_")) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(traffic_operator::agent::worker::metrics::NAMES.contains(&name), "{name}");
    }
}

/// Returns the text of the page between ```` ```sh ```` and the end of that block.
fn script() -> &'static str {
    let (_, rest) = PAGE.split_once("```sh\n#!/bin/sh\n").expect("a script");
    rest.split_once("```").expect("its end").0
}

/// Starts the script of the page, which uses only programs in the busybox image.
fn shell_worker(directory: &Directory, port: u16) -> Option<Command> {
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| {
        let applets = Command::new(path).arg("--list").output();
        applets
            .is_ok_and(|list| String::from_utf8_lossy(&list.stdout).lines().any(|a| a == "httpd"))
    }) else {
        lab::left_out("the worker that is a shell script: there is no busybox with httpd");
        return None;
    };
    let bin = directory.path("bin");
    fs::create_dir(&bin).unwrap();
    let list = Command::new(busybox).arg("--list").output().unwrap();
    for applet in String::from_utf8(list.stdout).unwrap().lines() {
        symlink(busybox, bin.join(applet)).unwrap();
    }
    fs::write(directory.path("worker.sh"), script()).unwrap();
    let mut command = Command::new(bin.join("sh"));
    command
        .arg(directory.path("worker.sh"))
        .args(["sh", "-c", SLOW])
        .env_clear()
        .env("PATH", &bin)
        .env("TMPDIR", directory.path(""))
        .env("HERE", directory.path(""))
        .env("HOSTNAME", "w0")
        .env("CONFIG_PATH", directory.path(""))
        .env("HTTP_PORT", port.to_string())
        // A process group of its own, as in a container, where it is alone.
        .process_group(0);
    Some(command)
}

/// Names with blanks, and names that the operator quotes.
#[test]
fn its_shell_worker_reads_names_in_quotes_and_with_blanks() {
    let (directory, port) = (Directory::new(), free_port());
    let Some(mut command) = shell_worker(&directory, port) else { return };
    let entry = |names: &[&str], version| file(version, &[("w0", version, names)]);
    let names = ["cam 1", "'on'", "it's", "'12:30'", "'''a'''", r"a\b"];
    directory.publish("config.yml", &entry(&names, 3));
    let mut worker = Worker::spawn(&mut command, port, directory);
    let said = eventually("the version", || worker.version());
    let reported = ["cam 1", "on", "it's", "12:30", "'a'", r"a\b"].map(str::to_owned);
    assert_eq!((said.jobs, said.version), (reported.to_vec(), 3));
    let camera = worker.wait_for(&["begin", "cam", "1", "3"]);
    let switch = worker.wait_for(&["begin", "on", "3"]);
    worker.wait_for(&["begin", "'a'", "3"]);
    worker.publish(&entry(&["'on'", "cam 2"], 4));
    let said = eventually("the next version", || worker.version().filter(|said| said.version > 3));
    assert_eq!(said.jobs, ["on", "cam 2"]);
    assert!(!is_there(&camera) && is_there(&switch));
    worker.wait_for(&["begin", "cam", "2", "4"]);
    worker.signal("TERM");
    assert_eq!(worker.ended(), Some(0));
}

#[test]
fn its_shell_worker_obeys() {
    let (directory, port) = (Directory::new(), free_port());
    let Some(mut command) = shell_worker(&directory, port) else { return };
    let text = file(14, &[("w0", 12, &["a", "stream:b"]), ("w1", 14, &["c"])]);
    // It does not know what will come, and does not run it.
    let entry = "    version: 12\n";
    directory.publish("config.yml", &text.replace(entry, &format!("    next: [\"d\"]\n{entry}")));
    let mut worker = Worker::spawn(&mut command, port, directory);
    let said = eventually("the version", || worker.version());
    assert_eq!((said.jobs, said.version), (vec!["a".to_owned(), "stream:b".to_owned()], 14));
    let (a, b) =
        (worker.wait_for(&["begin", "a", "12"]), worker.wait_for(&["begin", "stream:b", "12"]));
    worker.publish(&file(15, &[("w0", 15, &["stream:b", "c"]), ("w1", 14, &["d"])]));
    let said = eventually("the next version", || {
        let running = is_there(&a);
        let said = worker.version()?;
        assert!(said.version == 14 || !running, "{said:?}");
        (said.version > 14).then_some(said)
    });
    assert_eq!((said.jobs, said.version), (vec!["stream:b".to_owned(), "c".to_owned()], 15));
    assert!(is_there(&b));
    worker.wait_for(&["begin", "c", "15"]);
    assert_eq!(worker.count(&["begin", "stream:b"]), 1);
    // An older version, and then a file without an entry.
    worker.publish(&file(13, &[("w0", 13, &["a"])]));
    eventually("it is read", || {
        let entries = fs::read_dir(worker.directory().path("")).unwrap();
        let mut copies = entries.map(|entry| entry.unwrap().path().join("file"));
        copies.find(|copy| fs::read_to_string(copy).is_ok_and(|text| text.ends_with(" 13\n")))
    });
    worker.publish(&file(16, &[("w1", 16, &["a"])]));
    let said = eventually("the last version", || worker.version().filter(|said| said.version > 15));
    assert_eq!((said.jobs.len(), said.version, worker.count(&["begin", "a", "13"])), (0, 16, 0));
    assert!(!is_there(&b));
    worker.publish(&file(17, &[("w0", 17, &["a"])]));
    let a = worker.wait_for(&["begin", "a", "17"]);
    worker.signal("TERM");
    assert_eq!(worker.ended(), Some(0));
    eventually("it is gone", || (!is_there(&a) && get(port, "/", "").is_none()).then_some(()));
}
