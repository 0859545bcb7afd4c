//! Answers signed by real processes, and the operator's verdict on them.
use std::{fs, net::IpAddr, process::Command};

use serde::Deserialize;
use traffic_operator::{
    acknowledgement::{Grant, KEY_FILE, Key, Question, Statement, new_key},
    swarm::acknowledge::{Answer, Asked, WorkerClient},
};

use super::stage::{Sink, Worker, command};
use crate::stage::{Directory, eventually, free_port, get};

#[derive(Debug, Deserialize)]
struct Said {
    jobs: Vec<String>,
    prepared: Option<Vec<String>>,
    version: u64,
    worker: String,
    uid: Option<String>,
    nonce: Option<String>,
    mac: Option<String>,
}

/// Starts a worker or sidecar named `w0` in a pod with this UID.
fn start(subcommand: &str, flags: &[&str], uid: &str, key: Option<&str>) -> Worker {
    let (port, directory) = (free_port(), Directory::new());
    if let Some(key) = key {
        fs::write(directory.path(KEY_FILE), key).unwrap();
    }
    let mut command: Command = command(subcommand, port, &directory.path(""));
    command.env("HOSTNAME", "w0").env("POD_UID", uid).args(flags);
    Worker::of(&mut command, port, directory)
}

fn ask(worker: &Worker, uid: &str, nonce: &str) -> Said {
    let question = Question { uid: uid.into(), nonce: nonce.into() };
    let path = format!("/internal/version?{}", question.query());
    let (head, body) = get(worker.port, &path, "").expect("an answer");
    assert!(head.contains(" 200 "), "{head}");
    serde_json::from_str(&body).expect("JSON")
}

fn operator(worker: &Worker, uid: &str, key: &str) -> Result<Answer, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = Key::read(key);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let asked = Asked { worker: "w0", uid, key: key.as_ref() };
        let local = IpAddr::from([127, 0, 0, 1]);
        WorkerClient::new().unwrap().ask(asked, local, worker.port, "/internal/version").await
    })
}

#[test]
fn a_worker_signs_for_its_own_pod_and_for_no_other() {
    let key = new_key().unwrap();
    let worker = start("worker", &[], "pod-2", Some(&key));
    worker.give(3, &["a", "b"]);
    worker.reached(3);
    let said = ask(&worker, "pod-2", "n-1");
    let question = Question { uid: "pod-2".into(), nonce: "n-1".into() };
    assert_eq!((said.uid.as_deref(), said.nonce.as_deref()), (Some("pod-2"), Some("n-1")));
    let (jobs, version) = (&said.jobs, said.version);
    let statement = Statement { question: &question, worker: &said.worker, version, jobs };
    assert!(statement.is_signed(&Key::read(&key).unwrap(), said.mac.as_deref().unwrap()));
    // It signs nothing for the former pod of this name, and reports its own UID.
    let said = ask(&worker, "pod-1", "n-1");
    assert_eq!((said.uid.as_deref(), said.nonce, said.mac), (Some("pod-2"), None, None));
    let answer =
        Answer { version: Some(3), jobs: Some(vec!["a".into(), "b".into()]), prepared: None };
    assert_eq!(operator(&worker, "pod-2", &key), Ok(answer.clone()));
    let error = operator(&worker, "pod-1", &key).unwrap_err();
    assert!(error.ends_with("the answer is of another pod of that name"), "{error}");
    // The kubelet delivers another key.
    let newer = new_key().unwrap();
    let error = operator(&worker, "pod-2", &newer).unwrap_err();
    assert!(error.contains("another key than acknowledge.key"), "{error}");
    fs::write(worker.directory().path(KEY_FILE), &newer).unwrap();
    assert_eq!(operator(&worker, "pod-2", &newer), Ok(answer));
    // A client that requests no signature gets the same answer as before.
    let (_, body) = get(worker.port, "/internal/version", "").unwrap();
    assert_eq!(body, r#"{"jobs":["a","b"],"version":3,"worker":"w0"}"#);
}

#[test]
fn a_worker_without_a_key_or_a_uid_signs_nothing() {
    let key = new_key().unwrap();
    for (uid, standing) in [("pod-2", None), ("", Some(&*key)), ("pod-2", Some("rubbish"))] {
        let worker = start("worker", &[], uid, standing);
        let said = ask(&worker, "pod-2", "n-1");
        assert_eq!((said.nonce, said.mac), (None, None), "{uid:?} {standing:?}");
        let error = operator(&worker, "pod-2", &key).unwrap_err();
        assert!(error.contains("the answer is not signed: "), "{error}");
    }
}

/// The operator's word on a file that the kubelet has not delivered yet.
#[test]
fn a_prepared_stream_starts_at_the_operators_word() {
    let (text, sink) = (new_key().unwrap(), Sink::start());
    let url = sink.url();
    let flags =
        ["--report", &url, "--report-interval", "20ms", "--prepare", "--load-time", "200ms"];
    let worker = start("worker", &flags, "pod-2", Some(&text));
    let key = Key::read(&text).unwrap();
    let grant = |uid: &str, version: u64, job: &str| {
        let (uid, worker_name) = (uid.to_owned(), "w0".to_owned());
        let grant = Grant { uid, worker: worker_name, version, jobs: vec![job.to_owned()] };
        ask(&worker, "pod-2", &format!("n&{}", grant.query(&key).unwrap()))
    };
    let says = |what: &str, jobs: &[&str], prepared: &[&str]| {
        eventually(what, || {
            let said = ask(&worker, "pod-2", "n");
            (said.jobs == jobs && said.prepared? == prepared).then_some(())
        });
    };
    let file = |jobs: &str, next: &str, epoch: u64, version: u64| {
        let entry = format!("jobs: [{jobs}], next: [{next}], version: {epoch}");
        worker.publish(&format!("workloads: {{w0: {{{entry}}}}}\nversion: {version}\n"));
        worker.reached(version);
    };
    file("a", "b, c", 3, 4);
    says("prepared", &["a"], &["b", "c"]);
    // For an earlier pod, of a file that it has passed, and of a stream that will not come.
    for (uid, version, job) in [("pod-1", 6, "b"), ("pod-2", 4, "b"), ("pod-2", 6, "x")] {
        grant(uid, version, job);
    }
    grant("pod-2", 6, "c");
    says("c runs", &["a", "c"], &["b"]);
    assert_eq!(worker.version().unwrap().version, 4, "it acknowledges only what it has read");
    // An older file than that of the grant arrives late; then that file.
    file("a", "b, c", 3, 5);
    says("c runs on", &["a", "c"], &["b"]);
    file("a, c", "b", 6, 6);
    says("c is listed", &["a", "c"], &["b"]);
    // What a newer file takes back stops.
    grant("pod-2", 9, "b");
    says("b runs", &["a", "c", "b"], &[]);
    file("a, c", "", 6, 7);
    says("b has stopped", &["a", "c"], &[]);
    eventually("reports", || (sink.runs().len() == 3).then_some(()));
    let runs = sink.runs();
    assert!(matches!(runs["c"][..], [(_, 6, ..)]), "one tenure: {runs:?}");
    assert!(matches!(runs["b"][..], [(_, 9, ..)]), "{runs:?}");
}

#[test]
fn the_sidecar_signs_as_the_worker_does() {
    let (key, application) = (new_key().unwrap(), Sink::start());
    let sidecar = start("reload", &["--url", &application.url()], "pod-7", Some(&key));
    sidecar.give(5, &["a"]);
    sidecar.reached(5);
    let answer = Answer { version: Some(5), jobs: Some(vec!["a".into()]), prepared: None };
    assert_eq!(operator(&sidecar, "pod-7", &key), Ok(answer));
    assert!(operator(&sidecar, "pod-8", &key).is_err());
}
