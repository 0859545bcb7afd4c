//! Missing data is never a verdict: whatever is wrong with the measurement, labels stay as they
//! are.
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::{
    bench::{Bench, Operator, run},
    prometheus::{Mode, Sample},
    traffic_watch::judging::{KEY, three_nodes},
};

/// Sets up node-2 as unfit and the others as fit, with everything written.
async fn one_unfit(bench: &Bench) -> Operator {
    three_nodes(bench).await;
    bench.prometheus.set("node-2", Sample::percent("90"));
    bench.watch("web", json!({})).await;
    let operator = bench.operator();
    bench.until("web", &[("/ready", json!(true)), ("/summary/unfit", json!(1))]).await;
    operator
}

async fn assert_held(bench: &Bench, since: Timestamp) {
    assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
    assert_eq!(bench.label("node-1", KEY).await.as_deref(), Some("false"));
    let writes = bench.writes_since(since).await;
    let to_nodes: Vec<_> = writes.iter().filter(|w| w.resource == "nodes").collect();
    assert!(to_nodes.is_empty(), "{to_nodes:?}");
}

#[test]
fn every_bad_answer_freezes_the_labels_and_reports_it_and_judging_resumes_by_itself() {
    run(async |bench| {
        let _operator = one_unfit(&bench).await;
        let error = |kind| format!(r#"{{"status":"error","errorType":"{kind}","error":"why"}}"#);
        let success = |kind, result| {
            format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#)
        };
        let json = "application/json";
        for (mode, reason) in [
            (Mode::Raw(503, "text/plain", "Service Unavailable".into()), "PrometheusUnavailable"),
            (Mode::Raw(200, "text/html", "<html>login".into()), "BadAnswer"),
            (Mode::Raw(400, json, error("bad_data")), "QueryInvalid"),
            (Mode::Raw(422, json, error("execution")), "QueryFailed"),
            (Mode::Raw(401, "text/html", String::new()), "Unauthorized"),
            (Mode::Raw(200, json, success("matrix", "[]")), "QueryInvalid"),
            (Mode::Raw(200, json, success("vector", "[]")), "NoSamples"),
            (Mode::Hang, "PrometheusTimeout"),
        ] {
            let since = Timestamp::now();
            let what = format!("{mode:?}");
            bench.prometheus.answer(mode);
            let message = bench.condition("web", "MetricsAvailable", "False", reason).await;
            assert!(!message.is_empty(), "{what}");
            // One judgment changes no label, whatever it says.
            bench.judgments(2).await;
            assert_held(&bench, since).await;
            let status = bench.status("web").await;
            assert_eq!(status["summary"]["unknown"], 3, "{what}");
            assert_eq!(status["nodes"]["node-2"]["unfit"], true, "{what}");
            bench.prometheus.answer(Mode::Samples);
            bench.condition("web", "MetricsAvailable", "True", "Available").await;
        }
        bench.prometheus.set("node-2", Sample::percent("1"));
        bench.until_label("node-2", KEY, Some("false")).await;
        for reason in ["MetricsUnavailable", "MetricsRestored"] {
            bench.until_event("web", reason, "").await;
        }
    });
}
