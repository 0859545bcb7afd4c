//! These start real control planes.

use std::time::Instant;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, PostParams};

use super::*;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "data": {"a": "b"}}))
        .unwrap()
}

#[tokio::test]
async fn it_serves_and_the_audit_log_shows_who_wrote_what() {
    let started = Instant::now();
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    eprintln!("control plane up in {:.1} s", started.elapsed().as_secs_f64());
    let begin = Timestamp::now();

    let user = "system:serviceaccount:traffic-operator-system:traffic-operator";
    let config = plane
        .config_for(user, &["system:serviceaccounts", "system:serviceaccounts:x"])
        .await
        .unwrap();
    let stranger: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let error = stranger.create(&PostParams::default(), &config_map("no")).await.unwrap_err();
    assert!(error.to_string().contains(user), "RBAC must name the user: {error}");

    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client().unwrap());
    maps.create(&PostParams::default(), &config_map("yes")).await.unwrap();
    let events = crate::wait::until(
        "both writes in the audit log",
        std::time::Duration::from_secs(5),
        || async {
            let events = plane.audit_since(begin)?;
            let writes: Vec<_> = events
                .into_iter()
                .filter(|e| e.is_write() && e.resource == "configmaps" && e.namespace == "default")
                .collect();
            let both = writes.iter().any(|e| e.code == 201 && e.name == "yes")
                && writes.iter().any(|e| e.user == user);
            Ok(if both {
                crate::wait::Look::Done(writes)
            } else {
                crate::wait::Look::NotYet(format!("{writes:?}"))
            })
        },
    )
    .await
    .unwrap();
    assert!(events.iter().any(|e| e.user == user && e.code == 403), "{events:?}");

    let dir = plane.layout.dir.clone();
    let pids: Vec<u32> = plane.processes.iter().filter_map(Process::pid).collect();
    assert_eq!(pids.len(), 4);
    plane.stop().await.unwrap();
    assert!(!dir.exists());
    assert!(pids.into_iter().all(|pid| !crate::process::is_alive(pid)));
}

#[tokio::test]
async fn parts_can_be_broken_and_mended() {
    let options = Options { controller_manager: false, scheduler: false, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(plane.client().unwrap());
    namespaces.list(&ListParams::default()).await.unwrap();

    plane.kill("kube-apiserver").unwrap();
    assert!(namespaces.list(&ListParams::default()).await.is_err());
    plane.restart("kube-apiserver").await.unwrap();
    assert!(!namespaces.list(&ListParams::default()).await.unwrap().items.is_empty());

    plane.pause("kube-apiserver").unwrap();
    let all = ListParams::default();
    let hanging =
        tokio::time::timeout(std::time::Duration::from_millis(500), namespaces.list(&all));
    assert!(hanging.await.is_err(), "a stopped server answers nothing");
    plane.resume("kube-apiserver").unwrap();
    namespaces.list(&ListParams::default()).await.unwrap();

    let error = plane.kill("kube-scheduler").unwrap_err().to_string();
    assert!(error.contains("only etcd, kube-apiserver"), "{error}");
}

#[tokio::test]
async fn a_component_that_cannot_start_is_named_with_its_log() {
    let options =
        Options { apiserver_arguments: vec!["--no-such-flag".to_owned()], ..Options::default() };
    let error = format!("{:#}", ControlPlane::start(options).await.unwrap_err());
    assert!(error.contains("kube-apiserver ended") && error.contains("no-such-flag"), "{error}");
}
