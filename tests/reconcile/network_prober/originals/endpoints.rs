//! Defects in the endpoints that the file lists.
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::{
    super::{agent, with},
    original,
};
use crate::bench::{eventually, run};

/// 2: one pod without an address kept every other from starting, for ever.
#[test]
fn a_pending_pod_blocks_nobody_in_any_order() {
    run(async |bench| {
        let _operator = bench.ready_operator().await;
        bench.pod("default", "pending-before", json!({})).await;
        bench.prober("np", original()).await;
        // The file exists before any pod has an address, and is optional even so.
        bench.until_listed("default", "np", &[]).await;
        bench.intercepted("default").await;
        let pod = bench.pod("default", "pending-after", json!({})).await;
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).expect("volumes");
        let ours = volumes.iter().find(|volume| volume.name == "net-prober-vol").expect("volume");
        for source in ours.projected.as_ref().and_then(|p| p.sources.as_ref()).expect("sources") {
            let map = source.config_map.as_ref().expect("nothing else is mounted");
            assert_eq!(map.optional, Some(true));
        }
        bench.pod("default", "a", json!({})).await;
        bench.runs("default", "a", "10.1.0.1").await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
        let expected = [("/selected", json!(3)), ("/injected", json!(2))];
        bench.until_prober("np", &expected).await;
    });
}

/// 6: two pods of the same name in two namespaces were one endpoint.
#[test]
fn two_pods_of_one_name_are_two_endpoints() {
    run(async |bench| {
        let _operator = bench.ready_operator().await;
        let consent = json!({"annotations": {"probes.bigmikes.io/allow": "default/np"}});
        bench.namespace("elsewhere", consent).await;
        bench.prober("np", with(original(), &json!({"namespaceSelector": {}}))).await;
        for (namespace, ip) in [("default", "10.1.0.1"), ("elsewhere", "10.1.0.2")] {
            bench.intercepted(namespace).await;
            bench.pod(namespace, "twin", json!({})).await;
            bench.runs(namespace, "twin", ip).await;
        }
        // In each namespace, because a pod can mount only objects of its own.
        for namespace in ["default", "elsewhere"] {
            let listed = ["elsewhere/twin 10.1.0.2:9090", "twin 10.1.0.1:9090"];
            bench.until_listed(namespace, "np", &listed).await;
        }
    });
}

/// 7: finished, unready and terminating pods stayed endpoints; 8: so did pods whose labels changed.
#[test]
fn who_does_not_take_part_any_more_is_not_probed() {
    run(async |bench| {
        let _operator = bench.ready_operator().await;
        bench.prober("np", original()).await;
        bench.intercepted("default").await;
        for (i, name) in
            ["finished", "stays", "terminating", "unlabeled", "unready"].iter().enumerate()
        {
            let spec = json!({"metadata": {"finalizers": (*name == "terminating").then_some(["test.example.com/hold"])}});
            bench.pod("default", name, spec).await;
            bench.runs("default", name, &format!("10.1.0.{i}")).await;
        }
        let all = [
            "finished 10.1.0.0:9090",
            "stays 10.1.0.1:9090",
            "terminating 10.1.0.2:9090",
            "unlabeled 10.1.0.3:9090",
            "unready 10.1.0.4:9090",
        ];
        bench.until_listed("default", "np", &all).await;
        bench.set_pod_status("default", "finished", json!({"phase": "Succeeded"})).await;
        bench
            .set_pod_status(
                "default",
                "unready",
                json!({"conditions": [{"type": "Ready", "status": "False"}]}),
            )
            .await;
        bench
            .pods("default")
            .delete("terminating", &DeleteParams::default())
            .await
            .expect("delete");
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
        bench
            .pods("default")
            .patch("unlabeled", &PatchParams::default(), &patch)
            .await
            .expect("patch");
        // A pod that is not Ready takes part: its agent runs.
        let left = ["stays 10.1.0.1:9090", "unready 10.1.0.4:9090"];
        bench.until_listed("default", "np", &left).await;
        // Finished and terminating pods are no longer selected.
        bench.until_prober("np", &[("/selected", json!(2)), ("/injected", json!(2))]).await;
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        bench
            .pods("default")
            .patch("terminating", &PatchParams::default(), &free)
            .await
            .expect("patch");
    });
}

/// 13: the list named a new port while every agent still listened on the old one.
#[test]
fn a_new_port_waits_for_the_pods_and_reports_it() {
    run(async |bench| {
        let _operator = bench.ready_operator().await;
        bench.prober("np", original()).await;
        bench.intercepted("default").await;
        bench.pod("default", "a", json!({})).await;
        bench.runs("default", "a", "10.1.0.1").await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
        bench.change("np", json!({"httpPort": "9191"})).await;
        bench
            .until_prober("np", &[("/needRestart", json!(1)), ("/observedGeneration", json!(2))])
            .await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
        let reported = async || {
            bench.events("np").await.into_iter().find(|(reason, _)| reason == "NeedRestart")
        };
        let (_, note) = eventually("the event", reported).await;
        assert!(note.contains("rollout restart"), "{note}");
        let there = bench.pods("default").get("a").await.expect("the pod was not restarted");
        assert_eq!(
            agent(&there).expect("agent").ports.as_ref().expect("ports")[0].container_port,
            9090
        );
        // A pod that is created now has the new port; the two find each other.
        let new = async || {
            let pod = bench.try_pod("default", "b", &json!({}), true).await.ok()?;
            (agent(&pod)?.ports.as_ref()?[0].container_port == 9191).then_some(())
        };
        eventually("the new port", new).await;
        bench.pod("default", "b", json!({})).await;
        bench.runs("default", "b", "10.1.0.2").await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090", "b 10.1.0.2:9191"]).await;
    });
}
