//! The faults of requests and watches with the kinds that write files: handovers and lists end as
//! without a fault.
use std::time::Duration;

use kube::api::DeleteParams;
use lab::fault::{EventFault, Fault, Proxy, Rule, Wire};
use serde_json::{Value, json};

use super::{WRITES, start};
use crate::{
    bench::run,
    swarm::{self, sample},
};

/// The sample of the original prober, whose lists are a file.
const PROBER: &str = include_str!("../../../deploy/samples/networkprober-original.yaml");

/// Each fault by its id, for a kind that writes this resource.
fn faults(resource: &str) -> Vec<(&'static str, Rule)> {
    let writes = |fault| Rule::new(fault).verbs(WRITES).resource(resource);
    vec![
        ("A8", Rule::new(Fault::Close(Duration::from_secs(1))).verbs(&["watch"])),
        ("A9", writes(Fault::Refuse(503)).times(3)),
        ("A10, lost", writes(Fault::Lost).times(1)),
        ("A10, executed", writes(Fault::Executed(504)).times(1)),
        ("A12", writes(Fault::Throttle(1)).times(2)),
        ("A13", writes(Fault::Refuse(409)).every(2)),
        ("A19", Rule::event(EventFault::Duplicate)),
    ]
}

/// Begins a fault: with new connections, so that it is one of all watches.
async fn begin(proxy: &Proxy, what: &str, rule: Rule) {
    eprintln!("{what}: {rule:?}");
    proxy.set([rule]);
    if what == "A8" {
        proxy.wire(Wire::Reset);
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.wire(Wire::Open);
    }
}

#[test]
fn streams_are_handed_over_once_whatever_the_api_server_answers() {
    run(async |bench| {
        let stage = swarm::Stage::new(bench).await;
        let proxy = stage.bench.proxy().await;
        let mut operator = start(&stage.bench, &proxy, "15s", "operator-1");
        operator.ready().await;
        stage.stateful_set("faulty", 2, json!({})).await;
        let spec = json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}});
        stage.swarm("faulty", spec).await;
        let mut version = stage.settled("faulty", 2, &sample()).await.version;
        for (round, (what, rule)) in faults("configmaps").into_iter().enumerate() {
            let workers = if round % 2 == 0 { 3 } else { 2 };
            begin(&proxy, what, rule).await;
            stage.scale("faulty", workers).await;
            // This also asserts that no stream ever ran twice.
            let file = stage.settled("faulty", workers as usize, &sample()).await;
            assert!(file.version > version, "{what}: {} after {version}", file.version);
            version = file.version;
            proxy.clear();
        }
        assert!(operator.child.try_wait().expect("wait").is_none(), "the operator ended");
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn lists_of_agents_follow_the_pods_whatever_the_api_server_answers() {
    run(async |bench| {
        let proxy = bench.proxy().await;
        let mut operator = start(&bench, &proxy, "15s", "operator-1");
        operator.ready().await;
        // The garbage collector deletes pods of nodes that do not exist.
        bench.node("node-1").await;
        let prober: Value = serde_yaml::from_str(PROBER).expect("YAML");
        bench.prober("np", prober["spec"].clone()).await;
        bench.intercepted("default").await;
        bench.running_pod("a", "10.1.0.1").await;
        bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
        for (round, (what, rule)) in faults("configmaps").into_iter().enumerate() {
            begin(&proxy, what, rule).await;
            if round % 2 == 0 {
                bench.running_pod("b", "10.1.0.2").await;
                let both = ["a 10.1.0.1:9090", "b 10.1.0.2:9090"];
                bench.until_listed("default", "np", &both).await;
            } else {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                bench.pods("default").delete("b", &now).await.expect("delete");
                bench.until_listed("default", "np", &["a 10.1.0.1:9090"]).await;
            }
            proxy.clear();
        }
        assert!(operator.child.try_wait().expect("wait").is_none(), "the operator ended");
        assert_eq!(operator.terminate().await, Some(0));
    });
}
