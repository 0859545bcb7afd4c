//! Objects that the operator cannot read.
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{Patch, PostParams},
};
use serde_json::{Value, json};
use traffic_operator::api::TrafficWatch;

use crate::{bench::eventually, traffic_watch::judging::with_three_nodes};

/// The operator is upgraded and its definitions are not.
#[test]
fn under_an_older_definition_the_conditions_are_reported() {
    with_three_nodes(async |bench| {
        let crds = Api::<CustomResourceDefinition>::all(bench.client.clone());
        let name = TrafficWatch::crd().name_any();
        let definition = crds.get(&name).await.expect("definition");
        let mut older = definition.clone();
        older.metadata.managed_fields = None;
        let schema = older.spec.versions[0].schema.as_mut().unwrap();
        let mut text = serde_json::to_value(&schema.open_api_v3_schema).unwrap();
        let status = text.pointer_mut("/properties/status/properties").unwrap();
        status.as_object_mut().unwrap().remove("lastEvaluationTime").unwrap();
        schema.open_api_v3_schema = serde_json::from_value(text).unwrap();
        crds.replace(&name, &PostParams::default(), &older).await.expect("replace");
        let _operator = bench.operator();
        bench.watch("web", json!({})).await;
        bench.condition("web", "Ready", "True", "Judged").await;
        bench.until_event("web", "DefinitionOutdated", "deploy/crds").await;
        let mut newer = crds.get(&name).await.expect("definition");
        newer.spec = definition.spec;
        crds.replace(&name, &PostParams::default(), &newer).await.expect("replace");
        bench.until("web", &[("/ready", json!(true)), ("/summary/nodes", json!(3))]).await;
    });
}

/// After a change of its schema, or a downgrade of the operator, an object must still be deletable.
#[test]
fn an_object_that_cannot_be_read_can_be_deleted() {
    with_three_nodes(async |bench| {
        let crds = Api::<CustomResourceDefinition>::all(bench.client.clone());
        let name = TrafficWatch::crd().name_any();
        bench.watch("web", json!({"label": "odd"})).await;
        let operator = bench.operator();
        let key = "odd.traffic.example.com/unfit";
        bench.until_label("node-1", key, Some("false")).await;
        let replace = async |spec: Value| {
            let mut now = crds.get(&name).await.expect("definition");
            now.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema =
                serde_json::from_value(spec).unwrap();
            crds.replace(&name, &PostParams::default(), &now).await.expect("replace");
        };
        let strict = crds.get(&name).await.unwrap().spec.versions[0].schema.clone();
        let strict = serde_json::to_value(strict.unwrap().open_api_v3_schema).unwrap();
        replace(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).await;
        let spoil = Patch::Merge(json!({"spec": {"interval": ["never"], "maxUnfit": {"a": 1}}}));
        let spoilt = async || {
            // Until the API server serves the new schema.
            let request = http::Request::patch(
                "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/web",
            );
            let Patch::Merge(body) = &spoil else { return None };
            let request = request.header("Content-Type", "application/merge-patch+json");
            let request = request.body(body.to_string().into_bytes()).unwrap();
            bench.client.request::<Value>(request).await.ok()
        };
        let judged = async || operator.metric("traffic_operator_trafficwatch_nodes", &[]).await;
        assert!(judged().await > 0.0);
        eventually("the object to be spoilt", spoilt).await;
        let logged = async || operator.log().contains("InvalidSpec").then_some(());
        eventually("the operator to see it", logged).await;
        // Nothing suggests that it is still judged.
        let forgotten = async || (judged().await <= 0.0).then_some(());
        eventually("its series to go", forgotten).await;
        let request = http::Request::delete(
            "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/web",
        );
        bench.client.request::<Value>(request.body(vec![]).unwrap()).await.expect("delete");
        bench.until_label("node-1", key, None).await;
        let gone = async || {
            let path = "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/web";
            let request = http::Request::get(path).body(vec![]).unwrap();
            bench.client.request::<Value>(request).await.is_err().then_some(())
        };
        eventually("the object to go", gone).await;
        replace(strict).await;
    });
}
