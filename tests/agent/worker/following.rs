//! The file: versions that a worker follows, and versions that it ignores.
use super::stage::{Worker, file};
use crate::stage::{Page, eventually, get};

fn checks(page: &Page, result: &str) -> i64 {
    page.sum("swarm_worker_file_looks_total", &[("result", result)])
}

#[test]
fn the_originals_file_is_followed_and_its_pages_are_there() {
    let worker = Worker::start(&[]);
    let said = worker.version().unwrap();
    assert_eq!((said.jobs, said.version, said.worker.as_str()), (vec![], 0, "w0"));
    worker.publish(&file(
        14,
        &[("w0", 12, &["stream:xxrtve1", "stream:cars:new"]), ("w1", 14, &["stream:foo:new"])],
    ));
    let said = worker.reached(14);
    assert_eq!(said.jobs, ["stream:xxrtve1", "stream:cars:new"]);
    let page = worker.page();
    assert_eq!(page.sum("swarm_worker_loaded_version", &[]), 14);
    assert_eq!(page.sum("swarm_worker_streams", &[]), 2);
    let (headers, health) = get(worker.port, "/internal/health", "").unwrap();
    assert!(headers.contains("content-type: application/json"), "{headers}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(health, format!(r#"{{"version":"{version}","date":""}}"#));
    assert_eq!(get(worker.port, "/healthz", "").unwrap().1, "ok\n");
    assert!(get(worker.port, "/other", "").unwrap().0.starts_with("http/1.1 404"));
}

/// A missing entry is an empty share, which the worker follows; the original's worker could not.
#[test]
fn without_an_entry_the_share_is_empty() {
    let worker = Worker::start(&[]);
    worker.publish(&file(1, &[("w0", 1, &["a", "b"])]));
    assert_eq!(worker.reached(1).jobs, ["a", "b"]);
    for (version, text) in [
        (2, file(2, &[("w1", 2, &["a", "b"])])),
        (4, "workloads: {w0: null}\nversion: 4\n".to_owned()),
        (6, "workloads: null\nversion: 6\n".to_owned()),
    ] {
        worker.publish(&text);
        assert!(worker.reached(version).jobs.is_empty(), "{text}");
        worker.publish(&file(version + 1, &[("w0", version + 1, &["b"])]));
        assert_eq!(worker.reached(version + 1).jobs, ["b"]);
    }
}

#[test]
fn nothing_goes_backwards() {
    let worker = Worker::start(&[]);
    let stale = |more: i64| worker.page_with("it is seen", |page| checks(page, "stale") >= more);
    worker.give(7, &["a"]);
    worker.reached(7);
    worker.give(6, &["b"]);
    stale(1);
    // The same version with other streams: no writer that increments versions produces that.
    worker.give(7, &["a", "b"]);
    stale(2);
    // A file without a version, such as an empty one.
    worker.publish("");
    stale(3);
    let said = worker.version().unwrap();
    assert_eq!((said.jobs, said.version), (vec!["a".to_owned()], 7));
    assert_eq!(worker.log().matches("version is not higher").count(), 3, "{}", worker.log());
    worker.give(8, &["b"]);
    assert_eq!(worker.reached(8).jobs, ["b"]);
}

/// The original compared each file with the first that it had read.
#[test]
fn each_file_is_compared_with_the_one_before() {
    let worker = Worker::running(&[], super::stage::SLOW);
    for (version, streams) in [(1, &["a", "b"][..]), (2, &["b", "c"]), (3, &["a", "c"])] {
        worker.give(version, streams);
        assert_eq!(worker.reached(version).jobs, streams);
    }
    for (stream, begun) in [("a", 2), ("b", 1), ("c", 1)] {
        eventually("begun", || (worker.count(&["begin", stream]) == begun).then_some(()));
    }
}

#[test]
fn a_broken_or_missing_file_changes_nothing_and_is_reported_once() {
    let worker = Worker::start(&[]);
    worker.page_with("no file", |page| checks(page, "error") == 1);
    let good = file(3, &[("w0", 3, &["a"])]);
    worker.publish(&good);
    worker.reached(3);
    worker.publish("workloads: {w0: {jobs: [a, b\nversion: 4");
    worker.page_with("a broken file", |page| checks(page, "error") == 2);
    std::fs::remove_file(worker.directory().path("config.yml")).unwrap();
    worker.page_with("no file again", |page| checks(page, "error") == 3);
    let said = worker.version().unwrap();
    assert_eq!((said.jobs, said.version), (vec!["a".to_owned()], 3));
    worker.publish(&good);
    let unchanged = checks(&worker.page(), "unchanged");
    worker.page_with("the same again", |page| checks(page, "unchanged") > unchanged + 1);
    assert_eq!(checks(&worker.page(), "error"), 3);
    worker.give(4, &["b"]);
    assert_eq!(worker.reached(4).jobs, ["b"]);
    assert_eq!(worker.log().matches("is not usable").count(), 1, "{}", worker.log());
}
