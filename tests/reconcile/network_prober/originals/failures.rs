//! Defects in what the operator makes of a request that fails.
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use lab::fault::{Fault, Rule};
use serde_json::json;

use super::original;
use crate::{bench::run, faults};

/// 10: a read that failed counted as "it exists", so that nothing was made.
#[test]
fn a_read_that_fails_is_reported_and_is_no_finding() {
    run(async |bench| {
        let foreign = json!({"metadata": {"name": "np"}, "data": {"mine": "yes"}});
        let foreign = serde_json::from_value(foreign).expect("ConfigMap");
        bench.maps("default").create(&PostParams::default(), &foreign).await.expect("create");
        let proxy = bench.proxy().await;
        let reads = Rule::new(Fault::Refuse(503)).verbs(&["get"]).resource("configmaps");
        proxy.set([reads.name("np")]);
        let operator = faults::start(&bench, &proxy, "15s", "operator-1");
        operator.ready().await;
        let since = Timestamp::now();
        bench.prober("np", original()).await;
        let message = bench.until_condition("np", "Ready", "Unknown", "ApiError").await;
        assert!(message.contains("get") && message.contains("503"), "{message}");
        // It may belong to another client, as this one does.
        operator.passes("networkprober", 2).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|write| write.resource != "configmaps"), "{writes:?}");
        proxy.clear();
        bench.until_condition("np", "Ready", "False", "Conflict").await;
        bench.maps("default").delete("np", &DeleteParams::default()).await.expect("delete");
        bench.until_listed("default", "np", &[]).await;
        bench.until_condition("np", "Ready", "True", "Serving").await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}
