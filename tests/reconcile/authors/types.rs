//! The API server checks the expressions of policies against the schemas of the kinds they judge.
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use lab::calico::{self, Group};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    bench::{Bench, eventually, run},
    shipped::policies,
};

/// Returns the API server's warnings about a policy, once it has checked the policy.
async fn warnings(bench: &Bench, name: &str) -> Vec<String> {
    let api = Api::<ValidatingAdmissionPolicy>::all(bench.client.clone());
    let looked = async || {
        let policy = api.get(name).await.ok()?;
        let generation = policy.metadata.generation;
        let status = policy.status.filter(|status| status.observed_generation == generation)?;
        let warnings = status.type_checking?.expression_warnings.unwrap_or_default();
        Some(warnings.into_iter().map(|w| format!("{}: {}", w.field_ref, w.warning)).collect())
    };
    eventually(&format!("the types of {name}"), looked).await
}

fn shipped() -> Vec<Value> {
    let texts = policies();
    let all = texts.iter().flat_map(|text| serde_yaml::Deserializer::from_str(text));
    let all = all.map(|document| Value::deserialize(document).expect("YAML"));
    all.filter(|object| object["kind"] == "ValidatingAdmissionPolicy").collect()
}

#[test]
fn the_expressions_of_every_policy_have_the_types_of_what_they_judge() {
    run(async |bench| {
        // Some policies judge Calico's kinds, whose schemas are checked as well.
        calico::install(&bench.client, Group::V1).await.expect("install");
        let api = Api::<ValidatingAdmissionPolicy>::all(bench.client.clone());
        let shipped = shipped();
        assert!(shipped.len() >= 12, "{}", shipped.len());
        for policy in shipped {
            let name = policy["metadata"]["name"].as_str().expect("name");
            assert_eq!(policy["spec"]["failurePolicy"], "Fail", "{name}");
            let found = warnings(&bench, name).await;
            assert!(found.is_empty(), "{name}: {found:#?}");
            // The API server checks variables only where a validation uses them.
            let variables = policy["spec"]["variables"].as_array().cloned().unwrap_or_default();
            let every = variables.iter().map(|variable| {
                let expression = variable["expression"].as_str().expect("expression");
                json!({"expression": format!("[dyn({expression})].size() == 1")})
            });
            let every: Vec<_> = every.collect();
            if every.is_empty() {
                continue;
            }
            let mut shadow = policy.clone();
            shadow["metadata"] = json!({"name": format!("shadow-{name}")});
            shadow["spec"]["validations"] = every.into();
            let shadow: ValidatingAdmissionPolicy = serde_json::from_value(shadow).expect("policy");
            let shadow =
                api.create(&PostParams::default(), &shadow).await.expect("shadow").name_any();
            let found = warnings(&bench, &shadow).await;
            api.delete(&shadow, &DeleteParams::default()).await.expect("delete");
            assert!(found.is_empty(), "{name}: {found:#?}");
        }
        let there = api.list(&ListParams::default()).await.expect("list");
        assert!(there.iter().all(|policy| !policy.name_any().starts_with("shadow-")));
    });
}
