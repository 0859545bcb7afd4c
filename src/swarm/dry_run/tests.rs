//! Tables of the printed texts, and of what is decided.
use serde_json::{Value, json};

use super::*;
use crate::swarm::{
    file,
    handover::Share,
    inspection::Page,
    watches::{MapFacts, PodFacts, WorkloadFacts, read_pod},
};

fn swarm(spec: &Value) -> Swarm {
    let mut all = json!({"workload": {"name": "w"}, "refresh": {"strategy": "HotReload"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "u"}, "spec": all
    }))
    .unwrap()
}

fn workload(replicas: u32) -> WorkloadFacts {
    WorkloadFacts {
        name: "w".into(),
        replicas,
        mounts: vec![("config".into(), "w-config".into())],
        plain: vec!["config".into()],
        ..WorkloadFacts::default()
    }
}

fn pod(name: &str) -> PodFacts {
    read_pod(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "w", "controller": true
        }]},
        "spec": {
            "nodeName": format!("node-{name}"), "containers": [{"name": "c"}],
            "volumes": [{"name": "config", "configMap": {"name": "w-config"}}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "c", "state": {"running": {}}}]
        }
    }))
}

/// A file as the operator has written it.
fn share(epoch: u64, lists: &[(&str, &[&str], u64)]) -> MapFacts {
    let shares = lists.iter().map(|(worker, streams, version)| {
        let streams = streams.iter().map(|stream| (*stream).into()).collect();
        ((*worker).into(), Share { streams, version: *version })
    });
    let published = Published { epoch, shares: shares.collect(), ..Published::default() };
    let file::Files { config, state } = file::render(&published);
    let content = crate::swarm::file::stored::fingerprint(&config, &state);
    let data = [("config.yml".to_owned(), config), (file::STATE_KEY.to_owned(), state)];
    MapFacts {
        resource_version: "1".into(),
        managed_by: Some(crate::controller::MANAGED_BY.into()),
        owner: Some("s".into()),
        content: Some(content),
        data: Arc::new(data.into()),
        ..MapFacts::default()
    }
}

/// Three workers that have acknowledged what they have.
fn around(replicas: u32, share: Option<MapFacts>) -> Surroundings {
    let pods = (0..3).map(|n| pod(&format!("w-{n}"))).collect();
    let view =
        WorkloadView { workload: Some(workload(replicas)), share, pods, ..WorkloadView::default() };
    Surroundings { exists: true, view, ..Surroundings::default() }
}

fn acknowledged(mut around: Surroundings, epoch: u64) -> Surroundings {
    let page = Page {
        workers: (0..3)
            .map(|n| inspection::PageWorker {
                name: format!("w-{n}"),
                loaded: Some(epoch),
                ..inspection::PageWorker::default()
            })
            .collect(),
        ..Page::default()
    };
    around.reports = reports_of_page(&page);
    around
}

/// Six streams, two each.
fn settled() -> MapFacts {
    share(3, &[("w-0", &["a", "b"], 1), ("w-1", &["c", "d"], 1), ("w-2", &["e", "f"], 3)])
}

const SIX: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

async fn run(spec: Value, around: &Surroundings) -> DryRun {
    dry_run(&swarm(&spec), around).await
}

fn moves(run: &DryRun) -> Vec<(&str, &str, &str, &str)> {
    let worker = |worker: &'_ Option<String>| -> String { worker.clone().unwrap_or("-".into()) };
    let each = run.moves.iter().map(|one| {
        let text = format!("{} → {}", worker(&one.from), worker(&one.to));
        let text: &'static str = Box::leak(text.into_boxed_str());
        (one.stream.as_str(), text, one.reason, one.why.as_str())
    });
    each.collect()
}

#[tokio::test]
async fn nothing_moves_where_nothing_changes() {
    let run = run(json!({"jobs": SIX}), &acknowledged(around(3, Some(settled())), 3)).await;
    assert_eq!(moves(&run), []);
    assert_eq!((run.stay, run.at_once.writes, run.before.epoch), (6, None, Some(3)));
    assert_eq!(run.refused, None);
    assert!(run.workers.iter().all(|worker| worker.refresh == "none"), "{:?}", run.workers);
    assert_eq!(run.conditions[1].reason, "Converged", "{:?}", run.conditions);
    assert!(text(&run).contains("No stream moves; 6 stay where they are"));
}

#[tokio::test]
async fn the_first_file_gives_every_stream_a_worker() {
    let around = Surroundings { exists: false, ..around(3, None) };
    let run = run(json!({"jobs": SIX}), &around).await;
    assert_eq!(run.moves.len(), 6, "{:?}", run.moves);
    assert!(run.moves.iter().all(|one| one.reason == "added" && one.from.is_none()));
    assert_eq!((run.after.owned, run.at_once.writes, run.refused.as_deref()), (6, Some(1), None));
    assert!(run.workers.iter().all(|worker| worker.then == 2), "{:?}", run.workers);
    let text = text(&run);
    for expected in ["Swarm n/s (new): 6 streams, StatefulSet w", "what they run is unknown here"] {
        assert!(text.contains(expected), "{text}");
    }
}

/// Each reason once: (spec, replicas, streams that move).
#[tokio::test]
async fn every_move_says_why() {
    type Moved<'a> = (&'a str, &'a str, &'a str, &'a str);
    let streams = |change: &dyn Fn(&str) -> Value| {
        SIX.iter()
            .map(|id| {
                let mut one = json!({"id": id});
                one.as_object_mut().unwrap().extend(change(id).as_object().unwrap().clone());
                one
            })
            .collect::<Vec<_>>()
    };
    let pinned = streams(&|id| if id == "a" { json!({"pin": "w-2"}) } else { json!({}) });
    let absent = streams(&|id| if id == "a" { json!({"pin": "w-9"}) } else { json!({}) });
    let alone = streams(&|id| if id == "a" { json!({"dedicated": true}) } else { json!({}) });
    let cases: [(Value, u32, &[Moved]); 5] = [
        (
            json!({"jobs": ["b", "c", "d", "e", "f"]}),
            3,
            &[("a", "w-0 → -", "removed", "it is not in the spec")],
        ),
        (
            json!({"jobs": ["a", "b", "c", "d", "e", "f", "g"]}),
            3,
            &[("g", "- → w-0", "added", "nobody has it")],
        ),
        (json!({"streams": pinned}), 3, &[("a", "w-0 → w-2", "moved", "it is pinned to w-2")]),
        (
            json!({"streams": absent}),
            3,
            &[("a", "w-0 → -", "unassigned", "its pin names a worker that is not there")],
        ),
        (json!({"streams": alone}), 3, &[("b", "w-0 → w-1", "moved", "w-0 is dedicated to a")]),
    ];
    for (spec, replicas, expected) in cases {
        let run = run(spec.clone(), &acknowledged(around(replicas, Some(settled())), 3)).await;
        let found = moves(&run);
        for one in expected {
            let same = found.iter().any(|(stream, way, reason, why)| {
                // The assignment decides which of the others gets it.
                let ends = |way: &str| way.split(" → ").map(str::to_owned).collect::<Vec<_>>();
                (*stream, *reason, *why) == (one.0, one.2, one.3) && ends(way)[0] == ends(one.1)[0]
            });
            assert!(same, "{spec}: {one:?} is not in {found:?}");
        }
    }
}

#[tokio::test]
async fn workers_that_are_scaled_away_or_unfit_give_up_their_streams() {
    let mut scaled = acknowledged(around(2, Some(settled())), 3);
    let gone = run(json!({"jobs": SIX}), &scaled).await;
    let why = "w-2 is no longer a worker";
    assert!(moves(&gone).iter().all(|(_, way, reason, text)| {
        way.starts_with("w-2 → ") && *reason == "unwanted" && *text == why
    }));
    assert_eq!((gone.moves.len(), gone.after.owned, gone.after.workers), (2, 6, 2));
    scaled.view.workload = Some(workload(3));
    scaled.view.fitness = Some("web.traffic.example.com/unfit".into());
    scaled.unfit = ["node-w-2".to_owned()].into();
    let unfit = run(json!({"jobs": SIX, "fitnessRef": "web"}), &scaled).await;
    assert!(unfit.moves.iter().all(|one| one.why == "node node-w-2 of w-2 is unfit"), "{unfit:?}");
    assert_eq!((unfit.moves.len(), unfit.after.owned), (2, 6));
}

#[tokio::test]
async fn what_is_done_to_pods_at_once_is_said() {
    let spec = |strategy: &str| json!({"jobs": ["b", "c", "d", "e", "f"], "refresh": {"strategy": strategy}});
    let around = acknowledged(around(3, Some(settled())), 3);
    for (strategy, word) in [("DeletePod", "evicted"), ("HotReload", "reloaded"), ("None", "none")]
    {
        let run = run(spec(strategy), &around).await;
        let done: Vec<_> = run.workers.iter().map(|one| one.refresh).collect();
        assert_eq!(done, [word, "none", "none"], "{strategy}");
        let text = text(&run);
        let waits = "  waits for w-0: pod w-0 reports an older version\n";
        assert!(text.contains("  Revoked: version 4: ") && text.contains(waits), "{text}");
        assert_eq!(text.contains(&format!("  {word}: w-0\n")), word != "none", "{text}");
    }
}

#[tokio::test]
async fn a_silent_worker_is_waited_for_and_does_not_change_the_assignment() {
    let mut around = acknowledged(around(3, Some(settled())), 3);
    let error = "http://10.0.0.1:9090/internal/version: Connection refused";
    around.reports.insert("w-0".into(), Err(error.into()));
    let moved = json!([{"id": "a", "pin": "w-1"}, {"id": "b"}, {"id": "c"}, {"id": "d"}, {"id": "e"},
        {"id": "f"}]);
    for (strategy, word) in [("HotReload", "reloaded"), ("DeletePod", "evicted")] {
        let spec = json!({"streams": moved, "refresh": {"strategy": strategy}});
        let run = run(spec, &around).await;
        assert_eq!((run.refused.as_deref(), run.after.owned), (None, 6), "{run:?}");
        assert_eq!(run.workers[0].refresh, word, "{run:?}");
        for expected in [format!("waits for w-0: {error}"), "w-0: does not answer, and".into()] {
            assert!(text(&run).contains(&expected), "{}", text(&run));
        }
    }
}

/// The message names the conditions that the operator would set, and why nothing is done.
#[tokio::test]
async fn whatever_hinders_it_is_said() {
    let free = || acknowledged(around(3, Some(settled())), 3);
    let text_of = |run: &DryRun| (run.refused.clone().unwrap_or_default(), text(run));
    let mut none = free();
    none.view.workload = None;
    none.view.pods = vec![];
    let (refused, _) = text_of(&run(json!({"jobs": SIX}), &none).await);
    assert!(
        refused.starts_with("Ready=False WorkloadNotFound: there is no StatefulSet w"),
        "{refused}"
    );
    none.no_namespace = true;
    let (refused, _) = text_of(&run(json!({"jobs": SIX}), &none).await);
    assert_eq!(refused, "there is no namespace n");
    let mut held = free();
    held.held = Some("StatefulSet w is served by the older Swarm x".into());
    let (refused, _) = text_of(&run(json!({"jobs": SIX}), &held).await);
    assert_eq!(refused, "Ready=False Conflict: StatefulSet w is served by the older Swarm x");
    let from = json!({"streamsFrom": {"configMapKeyRef": {"name": "m"}}});
    let (refused, _) = text_of(&run(from, &free()).await);
    assert_eq!(refused, "Ready=False InvalidSpec: spec.streamsFrom: ConfigMap n/m does not exist");
    let mut foreign = free();
    foreign.view.share.as_mut().unwrap().owner = None;
    let (refused, _) = text_of(&run(json!({"jobs": SIX}), &foreign).await);
    assert!(refused.contains("kubectl annotate --overwrite -n n configmap w-config"), "{refused}");
    let mut unmounted = free();
    unmounted.view.workload.as_mut().unwrap().mounts = vec![];
    let (refused, text) = text_of(&run(json!({"jobs": SIX}), &unmounted).await);
    assert!(refused.is_empty() && text.contains("Ready=True NotMounted"), "{text}");
    let mut lost = free();
    lost.view.share = None;
    lost.reports = Reports::default();
    let supposed = run(json!({"jobs": SIX}), &lost).await;
    assert_eq!(supposed.refused, None, "{supposed:?}");
}

#[tokio::test]
async fn an_object_that_observes_or_pauses_shows_where_streams_would_go() {
    for (field, expected) in [
        (json!({"mode": "Observe"}), "spec.mode is Enforce: with Observe, none"),
        (json!({"paused": true}), "spec.paused is false"),
    ] {
        let mut spec = json!({"jobs": ["b", "c", "d", "e", "f"]});
        spec.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        let run = run(spec, &acknowledged(around(3, Some(settled())), 3)).await;
        assert_eq!((run.moves.len(), run.at_once.writes), (1, None), "{run:?}");
        assert!(text(&run).contains(expected), "{}", text(&run));
    }
}

#[tokio::test]
async fn workers_that_are_still_to_come_are_supposed_to() {
    let mut around = acknowledged(around(4, Some(settled())), 3);
    around.view.pods[2].ready = false;
    let run = run(json!({"jobs": SIX}), &around).await;
    assert_eq!((run.after.workers, run.after.owned, run.refused.as_deref()), (4, 6, None));
    let four = run.workers.iter().find(|worker| worker.name == "w-3").unwrap();
    assert_eq!(four.then, 1, "{:?}", run.workers);
    assert!(run.supposed.iter().any(|one| one == "w-2: not ready, and becomes ready"), "{run:?}");
}

#[tokio::test]
async fn pods_of_a_deployment_come_and_take_their_share() {
    let pod = |name: &str| {
        let of = Some(("ReplicaSet".into(), "w-h".into()));
        PodFacts { controller: of, template: Some("h".into()), ..pod(name) }
    };
    let (a, b) = ("w-h-aaaaa", "w-h-bbbbb");
    let lists = share(3, &[(a, &["a", "b", "c"], 3), (b, &["d", "e", "f"], 3)]);
    let mut around = around(3, Some(lists));
    around.view.pods = vec![pod(a), pod(b)];
    let spec = json!({"workload": {"kind": "Deployment", "name": "w"}, "jobs": SIX});
    let run = run(spec, &around).await;
    let new = run.workers.iter().find(|worker| worker.name == "w-h-new-3").unwrap();
    assert_eq!((new.then, run.moves.len(), run.after.owned), (2, 2, 6), "{run:?}");
    assert!(run.moves.iter().all(|one| one.why == "balance"), "{run:?}");
}

#[tokio::test]
async fn immutable_files_restart_those_whose_list_changes() {
    let mut around = acknowledged(around(3, None), 0);
    let workload = around.view.workload.as_mut().unwrap();
    workload.on_delete = true;
    workload.mounts = vec![("config".into(), "w-config-3".into())];
    around.view.share = Some(settled());
    for pod in &mut around.view.pods {
        pod.mounts = vec!["w-config-3".into()];
    }
    let spec = json!({
        "jobs": ["b", "c", "d", "e", "f"], "refresh": {"strategy": "DeletePod"},
        "configMap": {"immutable": true}
    });
    let run = run(spec, &around).await;
    assert_eq!((run.refused.as_deref(), run.after.owned), (None, 5), "{run:?}");
    let done: Vec<_> = run.workers.iter().map(|worker| worker.refresh).collect();
    assert_eq!(done, ["evicted", "none", "none"], "{run:?}");
}

#[tokio::test]
async fn autoscale_is_part_of_the_assignment() {
    let spec = json!({"jobs": SIX, "autoscale": {"maxWeightPerWorker": "1", "max": 4}});
    let run = run(spec, &acknowledged(around(3, Some(settled())), 3)).await;
    assert_eq!((run.scaled, run.after.workers, run.after.owned), (Some(4), 4, 6), "{run:?}");
    assert!(text(&run).contains("StatefulSet w scaled to 4"), "{}", text(&run));
}

/// Workers must acknowledge a first file before anything is granted.
#[tokio::test]
async fn an_unknown_history_is_said_to_stand_in_the_way() {
    let mut around = acknowledged(around(3, Some(settled())), 3);
    // Another owner's file, handed over.
    let share = around.view.share.as_mut().unwrap();
    (share.content, share.given) = (None, Some("s".into()));
    let run = run(json!({"jobs": ["a", "b", "c", "d", "e", "f", "g"]}), &around).await;
    let events = &run.at_once.events;
    assert!(events[0].starts_with("HistoryUnknown: it is unknown what workers"), "{events:?}");
    assert!(run.workers.iter().all(|worker| worker.refresh == "reloaded"), "{run:?}");
    assert_eq!((run.refused.as_deref(), run.after.owned), (None, 7));
}

/// A limit of moves makes more files, and the same balance.
#[tokio::test]
async fn moves_that_have_to_wait_are_part_of_the_assignment() {
    let lists = share(3, &[("w-0", &SIX, 3), ("w-1", &[], 0), ("w-2", &[], 0)]);
    let around = acknowledged(around(3, Some(lists)), 3);
    let run = run(json!({"jobs": SIX, "maxMoves": 1}), &around).await;
    assert!(run.workers.iter().all(|worker| worker.then == 2), "{:?}", run.workers);
    assert_eq!((run.moves.len(), run.at_once.waiting[0].streams), (4, 1), "{run:?}");
}

/// The parts of a divided file are read and written like one file.
#[tokio::test]
async fn the_lists_of_a_divided_file_are_known() {
    let spec = json!({"jobs": SIX, "configMap": {"files": 2}});
    let mut around = around(3, None);
    around.view.parts = vec![None, None];
    let first = run(spec.clone(), &around).await;
    assert_eq!((first.moves.len(), first.after.owned), (6, 6), "{first:?}");
    let (swarm, published) = (swarm(&spec), Arc::new(Published::default()));
    let mut cluster = KnownCluster::new(around.view.clone(), published, None);
    let made = pass(&cluster, &swarm, &around).await.ok().unwrap().desired.publish.unwrap();
    cluster.write(&swarm, &made).unwrap();
    around.view = cluster.view;
    let again = run(spec, &acknowledged(around, made.published.epoch)).await;
    assert_eq!((again.stay, again.at_once.writes, moves(&again)), (6, None, vec![]), "{again:?}");
}

/// Three hundred workers that are all restarted: a person waits for it.
#[tokio::test]
async fn a_large_swarm_is_planned_in_seconds() {
    let began = Instant::now();
    let workers: Vec<String> = (0..300).map(|n| format!("w-{n}")).collect();
    let ids: Vec<String> = (0..6000).map(|n| format!("stream-{n}")).collect();
    let lists: Vec<(String, Vec<&str>)> = workers
        .iter()
        .zip(ids.chunks(20))
        .map(|(worker, ids)| (worker.clone(), ids.iter().map(String::as_str).collect()))
        .collect();
    let lists: Vec<(&str, &[&str], u64)> =
        lists.iter().map(|(worker, ids)| (worker.as_str(), ids.as_slice(), 3)).collect();
    let mut around = around(300, Some(share(3, &lists)));
    around.view.pods = workers.iter().map(|worker| pod(worker)).collect();
    let spec = json!({"jobs": ids, "policy": "Stateless", "refresh": {"strategy": "DeletePod"}});
    let run = run(spec, &around).await;
    assert_eq!((run.refused.as_deref(), run.after.owned), (None, 6000), "{:?}", run.conditions);
    assert!(began.elapsed() < MAX_WAIT, "{:?}", began.elapsed());
}
