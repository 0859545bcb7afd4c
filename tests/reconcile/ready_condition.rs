//! Bad input that the API server accepts: the operator refuses it in the condition Ready.
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::traffic_watch::judging::{KEY, deployment, with_three_nodes};

#[test]
fn what_only_the_operator_can_see_is_reported_in_the_ready_condition() {
    with_three_nodes(async |bench| {
        let mut mismatch = deployment();
        mismatch["selector"] = json!({"matchLabels": {"app": "other"}});
        bench.watch("mismatch", json!({"deployment": mismatch})).await;
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]});
        bench.watch("selector", json!({"nodeSelector": bad})).await;
        let mut misspelled = deployment();
        misspelled["template"]["spec"]["containers"][0]["imagePullPolice"] = "Never".into();
        bench.watch("misspelled", json!({"deployment": misspelled})).await;
        let endpoint = json!({"prometheus": "nowhere"});
        bench.watch("endpoint", endpoint).await;
        let own = |query: &str| json!({"query": query, "window": null});
        bench.watch("syntax", own("sum(broken")).await;
        bench.watch("scalar", own("scalar(broken)")).await;
        let criteria = json!([{"name": "good", "query": "x", "max": 1},
                              {"name": "bad", "query": "rate(broken)", "max": 1}]);
        bench.watch("criterion", json!({"criteria": criteria})).await;
        // As Prometheus answers.
        bench.prometheus.script("broken", |query| match query {
            "scalar(broken)" => {
                json!({"status": "success", "data": {"resultType": "scalar", "result": [0, "1"]}})
            }
            query => {
                let error = format!("invalid parameter \"query\": 1:4: parse error in {query}");
                json!({"status": "error", "errorType": "bad_data", "error": error})
            }
        });
        bench.watch("web", json!({})).await;
        let _operator = bench.operator();
        for (name, texts) in [
            ("endpoint", ["spec.prometheus: ", "\"nowhere\" is configured (there is default)"]),
            ("syntax", ["spec.query: Prometheus says: ", "1:4: parse error in sum(broken"]),
            ("scalar", ["spec.query: the query gives a scalar", "one value per node"]),
            ("criterion", ["spec.criteria[1].query: Prometheus says: ", "rate(broken)"]),
            ("mismatch", ["spec.deployment.selector", "add app: other to the template"]),
            ("selector", ["spec.nodeSelector.matchExpressions[0].operator", "In, NotIn"]),
            ("misspelled", ["spec.deployment", "imagePullPolice"]),
        ] {
            let message = bench.condition(name, "Ready", "False", "InvalidSpec").await;
            for text in texts {
                assert!(message.contains(text), "{name}: {message}");
            }
        }
        // No other object is affected, and a refused Deployment stops no judgment.
        bench.until_label("node-1", KEY, Some("false")).await;
        bench.until_label("node-1", "misspelled.traffic.example.com/unfit", Some("false")).await;
        // A corrected spec is served at once.
        let patch = Patch::Merge(json!({"spec": {"deployment": deployment()}}));
        let api = bench.watches("default");
        api.patch("misspelled", &PatchParams::default(), &patch).await.unwrap();
        let fixed = Patch::Merge(json!({"spec": {"deployment": {"template": {"spec":
            {"containers": [{"name": "c", "image": "busybox:1.35"}]}}}}}));
        api.patch("misspelled", &PatchParams::default(), &fixed).await.unwrap();
        bench.condition("misspelled", "Ready", "True", "Judged").await;
    });
}

#[test]
fn queries_of_authors_can_be_switched_off_and_the_flag_is_named() {
    with_three_nodes(async |bench| {
        bench.watch("query", json!({"query": "x", "window": null})).await;
        let criteria = json!([{"name": "loss", "query": "loss", "max": 1}]);
        bench.watch("criteria", json!({"criteria": criteria})).await;
        bench.watch("web", json!({})).await;
        let prometheus = ["--prometheus-url", &bench.prometheus.url];
        let flags = ["--own-queries=false", "--lease-duration", "15s"];
        let operator = bench.operator_args(&prometheus, &flags);
        for name in ["query", "criteria"] {
            let message = bench.condition(name, "Ready", "False", "InvalidSpec").await;
            assert!(message.starts_with(&format!("spec.{name}: ")), "{message}");
            assert!(message.contains("--own-queries=false"), "{message}");
        }
        bench.condition("web", "Ready", "True", "Judged").await;
        let requests = bench.prometheus.requests();
        assert!(requests.iter().all(|query| query.contains("node_network")), "{requests:?}");
        assert_eq!(operator.terminate().await, Some(0));
    });
}
