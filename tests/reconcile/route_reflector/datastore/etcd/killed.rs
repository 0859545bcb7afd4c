//! The operator is killed with each of its writes to etcd, and starts again. A proxy cannot stand
//! between them, because etcd speaks gRPC over TLS with certificates of both sides; but each write
//! raises the revision of the store, in which nobody else writes here.
use std::{collections::BTreeMap, time::Duration};

use lab::{calico::Group, etcd::Etcd};
use serde_json::{Value, json};

use super::{
    SECRET, Stage, connect,
    whole::{birds, nodes},
};
use crate::{
    bench::run,
    route_reflector::{
        self,
        datastore::installed,
        stage::{is_converged, two},
    },
};

/// The time between two looks at the revision: a write and the next one are further apart.
const LOOK: Duration = Duration::from_millis(2);

/// More lives than a migration and a replacement have writes.
const LIVES: usize = 60;

/// The end of a run.
#[derive(Debug)]
struct Outcome {
    writes: i64,
    kills: usize,
    /// Every object, without versions, times and UIDs.
    objects: BTreeMap<String, Value>,
}

async fn revision(store: &Stage<'_>) -> i64 {
    let found = store.raw.kv_client().get("/none", None).await.expect("get");
    found.header().expect("a header").revision()
}

/// Lives until these nodes reflect and nothing is left to do; with `kill`, each life ends with its
/// first write. Returns the number of kills.
async fn live(
    stage: &route_reflector::Stage,
    store: &Stage<'_>,
    kill: bool,
    reflectors: &[&str],
) -> usize {
    let mut kills = 0;
    let mut seen = revision(store).await;
    let start = || stage.bench.operator_with("operator-1", "15s");
    let mut operator = start();
    let is_over = async || {
        let status = stage.status("main").await;
        let there = stage.reflectors().await;
        let over = is_converged(&status)
            && status["plan"] == json!([])
            && status["mesh"] == "Off"
            && there.values().map(String::as_str).eq(reflectors.iter().copied());
        over.then_some(())
    };
    // Each life has the whole time: the first pass of a process takes seconds.
    let wait = || Box::pin(stage.wait("the end", &is_over));
    let mut end = wait();
    loop {
        tokio::select! {
            () = &mut end => return kills,
            () = tokio::time::sleep(LOOK) => {}
        }
        if kill && revision(store).await > seen {
            operator.child.kill().expect("kill");
            operator.child.wait().expect("wait");
            kills += 1;
            assert!(kills < LIVES, "no end after {LIVES} lives: {}", stage.state().await);
            // What it had sent has arrived when nothing has changed for a moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
            seen = revision(store).await;
            operator = start();
            end = wait();
        }
    }
}

/// From the mesh to two reflectors, of which one is then replaced.
fn migrated(kill: bool) -> Outcome {
    let mut outcome = None;
    let slot = &mut outcome;
    run(async move |bench| {
        installed(&bench, &[]).await;
        let etcd = Etcd::start().await.expect("etcd");
        let raw = connect(&etcd).await;
        let birds = birds(&bench.client, &raw);
        let stage = route_reflector::Stage::of(bench, Group::V1, birds);
        let store = Stage::of(&stage.bench, etcd, raw).await;
        nodes(&stage, &store).await;
        let before = revision(&store).await;
        let datastore = json!({"type": "etcd", "etcd": {"secretRef": {"name": SECRET}}});
        stage.set("main", two(json!({"mesh": "Migrate", "datastore": datastore}))).await;
        let mut kills = live(&stage, &store, kill, &["node-1", "node-2"]).await;
        stage.cordon("node-1", true).await;
        kills += live(&stage, &store, kill, &["node-3", "node-2"]).await;
        let writes = revision(&store).await - before;
        let object = |(text, _): (String, i64)| {
            let mut object: Value = serde_json::from_str(&text).expect("JSON");
            // Each creation has its own.
            let metadata = object["metadata"].as_object_mut().expect("metadata");
            metadata.retain(|field, _| !["creationTimestamp", "uid"].contains(&field.as_str()));
            object
        };
        let all = store.all().await.into_iter();
        let objects = all.map(|(key, entry)| (key, object(entry))).collect();
        stage.routes_were_kept();
        *slot = Some(Outcome { writes, kills, objects });
    });
    outcome.expect("an outcome")
}

#[test]
fn r14_killed_with_each_write_to_etcd_the_end_is_the_same_and_nothing_is_written_twice() {
    let (undisturbed, killed) = (migrated(false), migrated(true));
    eprintln!(
        "etcd: {} writes undisturbed, {} with {} kills",
        undisturbed.writes, killed.writes, killed.kills
    );
    assert_eq!(killed.objects, undisturbed.objects);
    assert!(killed.kills > 4, "{killed:?}");
    assert_eq!(killed.writes, undisturbed.writes, "each write is made once");
}
