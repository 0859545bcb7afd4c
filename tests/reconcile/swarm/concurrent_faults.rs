//! Many changes and faults at once.
use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use traffic_operator::manifests;

use super::{
    Stage,
    proxy::{Kill, Proxy},
    sample, streams,
};
use crate::bench::{eventually, run};

fn hot(jobs: &[String]) -> serde_json::Value {
    json!({"jobs": jobs, "refresh": {"strategy": "HotReload"}})
}

/// Bug 6: a second scaling during the first one's pause restarted the same pod twice.
#[test]
fn a_workload_that_is_scaled_again_while_streams_move_ends_where_it_was_scaled_to() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.puppet.control(|c| c.stop = Duration::from_millis(50));
        let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
        stage.stateful_set("haste", 2, parallel).await;
        stage.swarm("haste", hot(&sample())).await;
        stage.settled("haste", 2, &sample()).await;
        for workers in [5, 3, 6, 1, 4] {
            let before = stage.file("haste").await.map_or(0, |file| file.version);
            stage.scale("haste", workers).await;
            // In the middle of the handover: something was published, and not all of it is done.
            // Where the previous scaling has not come far, nothing may have to move.
            let begun = async || {
                let file = stage.file("haste").await?;
                let owners = file.owners().into_values().flatten().collect::<BTreeSet<_>>().len();
                (file.version > before || owners == workers as usize).then_some(())
            };
            eventually("the next file", begun).await;
        }
        stage.settled("haste", 4, &sample()).await;
    });
}

/// Twenty changes, each with a fault; the same ones in every run.
#[test]
fn nothing_runs_twice_whatever_goes_wrong() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let proxy = Proxy::start(&stage.bench).await;
        let mut operator = proxy.operator(&stage.bench).await;
        stage.puppet.control(|c| c.stop = Duration::from_millis(30));
        let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
        stage.stateful_set("wild", 3, parallel).await;
        stage.swarm("wild", hot(&streams(20))).await;
        stage.settled("wild", 3, &streams(20)).await;
        // A linear congruential generator: any will do, and it gives the same numbers everywhere.
        let mut seed = 42_u32;
        let mut random = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % n
        };
        let mut highest = 0;
        let (mut workers, mut jobs) = (3, 20);
        for _ in 0..20 {
            let pod = format!("wild-{}", random(workers.max(1)));
            match random(6) {
                0 => {
                    let _ = stage.pods().delete(&pod, &DeleteParams::default()).await;
                }
                1 => {
                    if let Some(uid) = stage.puppet.uid(&pod) {
                        stage.puppet.control(|c| c.crash.insert(uid));
                    }
                }
                2 => stage.puppet.control(|c| {
                    c.mute.insert(pod);
                }),
                3 => stage.puppet.control(|c| {
                    c.held.insert(pod);
                }),
                4 => proxy.kill(Some(Kill::After(1 + random(4) as usize))),
                _ => proxy.kill(Some(Kill::Before(1 + random(4) as usize))),
            }
            if random(3) == 0 {
                jobs = 15 + random(10) as usize;
                stage.change("wild", json!({"jobs": streams(jobs)})).await;
            } else {
                workers = 1 + random(5);
                stage.scale("wild", workers).await;
            }
            if random(2) == 0 {
                stage.puppet.control(|c| {
                    c.mute.clear();
                    c.held.clear();
                });
            }
            tokio::time::sleep(Duration::from_millis(u64::from(random(400)))).await;
            if proxy.killed() {
                drop(operator);
                operator = proxy.operator(&stage.bench).await;
            }
            let version = stage.file("wild").await.map_or(0, |file| file.version);
            assert!(version >= highest, "{version} after {highest}");
            highest = version;
            stage.puppet.assert_no_overlap();
        }
        proxy.kill(None);
        if proxy.killed() {
            drop(operator);
            operator = proxy.operator(&stage.bench).await;
        }
        stage.puppet.control(|c| {
            c.mute.clear();
            c.held.clear();
        });
        stage.settled("wild", workers as usize, &streams(jobs)).await;
        drop(operator);
    });
}

/// Bugs 2, 3 and 11: a write that failed was logged and forgotten, and a forbidden one looked like
/// a missing object.
#[test]
fn a_file_that_may_not_be_written_is_reported_tried_again_and_written_when_it_may() {
    run(async |bench| {
        let (stage, operator, before) = Stage::running(bench, "deny", 2, hot(&sample())).await;
        let roles = Api::<ClusterRole>::all(stage.bench.client.clone());
        let mut granted = roles.list(&ListParams::default()).await.expect("roles").items;
        granted.retain(|role| manifests::is_operators(&role.name_any()));
        let mut denied = granted.clone();
        for rule in denied.iter_mut().flat_map(|role| role.rules.iter_mut()).flatten() {
            if rule.resources.as_ref().is_some_and(|r| r.contains(&"configmaps".to_owned())) {
                rule.verbs.retain(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
            }
        }
        let replace = async |wanted: &[ClusterRole]| {
            for role in wanted {
                let name = role.name_any();
                let now = roles.get(&name).await.expect("role");
                let mut role = role.clone();
                role.metadata.resource_version = now.metadata.resource_version;
                roles.replace(&name, &PostParams::default(), &role).await.expect("replace");
            }
        };
        replace(&denied).await;
        stage.scale("deny", 3).await;
        let text = stage.condition("deny", "Ready", "Unknown", "Forbidden").await;
        assert!(text.contains("ConfigMap"), "{text}");
        assert_eq!(stage.file("deny").await.unwrap(), before);
        let failed = ["reason=\"Forbidden\"", "controller=\"swarm\""];
        assert!(operator.metric("traffic_operator_reconcile_errors_total", &failed).await >= 1.0);
        replace(&granted).await;
        stage.settled("deny", 3, &sample()).await;
        stage.condition("deny", "Ready", "True", "Placed").await;
    });
}

#[test]
fn a_stateless_policy_ends_where_it_began() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("pure", 2, json!({})).await;
        let spec = crate::network_prober::with(hot(&sample()), &json!({"policy": "Stateless"}));
        stage.swarm("pure", spec).await;
        let before = stage.settled("pure", 2, &sample()).await;
        stage.scale("pure", 3).await;
        stage.settled("pure", 3, &sample()).await;
        stage.scale("pure", 2).await;
        let after = stage.settled("pure", 2, &sample()).await;
        assert_eq!(after.owners(), before.owners());
    });
}

/// A handover consists of some files and some counts: a write for each, and no other.
#[test]
fn a_handover_writes_the_status_as_often_as_it_has_something_to_tell() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let proxy = Proxy::start(&stage.bench).await;
        let _operator = proxy.operator(&stage.bench).await;
        stage.stateful_set("thrift", 2, json!({})).await;
        stage.swarm("thrift", hot(&sample())).await;
        stage.settled("thrift", 2, &sample()).await;
        // One worker stays away for a while: there is nothing to report meanwhile.
        stage.puppet.control(|c| c.held.insert("thrift-0".into()));
        proxy.kill(None);
        stage.scale("thrift", 3).await;
        stage.until("thrift", &[("/summary/ready", json!(3))]).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        stage.puppet.control(|c| c.held.clear());
        stage.settled("thrift", 3, &sample()).await;
        let writes = proxy.writes();
        let status = writes.iter().filter(|w| w.contains("/status")).count();
        let files = writes.iter().filter(|w| w.contains("/configmaps")).count();
        assert!((1..=12).contains(&status), "{status}: {writes:#?}");
        assert!((1..=6).contains(&files), "{files}: {writes:#?}");
    });
}
