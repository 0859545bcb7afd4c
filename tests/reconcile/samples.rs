//! The samples work unchanged.
use std::fs;

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, ValidationDirective},
    core::{ApiResource, GroupVersionKind},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    bench::{eventually, run},
    traffic_watch::judging::three_nodes,
};

/// Returns the objects of one of our kinds in every sample, each with its file.
fn samples(kind: &str) -> Vec<(String, Value)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/samples");
    let mut files: Vec<_> =
        fs::read_dir(dir).expect("samples").map(|entry| entry.expect("entry").path()).collect();
    // The directory also has subdirectories for kustomize.
    files.retain(|path| path.is_file());
    files.sort();
    let mut samples = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("sample");
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).expect("YAML");
            if document["kind"] == kind {
                samples.push((file.display().to_string(), document));
            }
        }
    }
    samples
}

/// Applies as `kubectl apply --server-side` does, which refuses fields that the definition does not
/// know.
async fn apply(client: &Client, sample: &Value) -> kube::Result<DynamicObject> {
    let word = |key: &str| sample[key].as_str().expect("text");
    let (group, version) = word("apiVersion").split_once('/').expect("group and version");
    let kind = GroupVersionKind::gvk(group, version, word("kind"));
    let resource = ApiResource::from_gvk(&kind);
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &resource);
    let name = sample["metadata"]["name"].as_str().expect("name");
    let strict = Some(ValidationDirective::Strict);
    let params = PatchParams { field_validation: strict, ..PatchParams::apply("test").force() };
    api.patch(name, &params, &Patch::Apply(sample)).await
}

#[test]
fn every_sample_is_accepted_by_the_api_server_and_by_the_operator() {
    run(async |bench| {
        three_nodes(&bench).await;
        let endpoint = json!({"url": bench.prometheus.url});
        let text = json!({"endpoints": {"default": endpoint, "edge": endpoint}});
        let path = format!("{}/samples.yaml", env!("CARGO_TARGET_TMPDIR"));
        fs::write(&path, text.to_string()).expect("endpoints");
        let args = ["--lease-duration", "15s"];
        let _operator = bench.operator_args(&["--prometheus-config", &path], &args);
        let samples = samples("TrafficWatch");
        assert!(samples.len() >= 6, "{samples:?}");
        for (file, sample) in samples {
            let stored = apply(&bench.client, &sample).await;
            let stored = stored.unwrap_or_else(|error| panic!("{file}: {error}"));
            let name = stored.metadata.name.expect("name");
            // The condition of this sample and not of another one of the same name.
            let generation = json!(stored.metadata.generation);
            let verdict = async || {
                let status = bench.status(&name).await;
                let ready =
                    status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
                // Of a reservation, the pods are listed a moment later.
                let judged = ready["reason"] != "PodsUnknown";
                (judged && ready["observedGeneration"] == generation).then(|| ready.clone())
            };
            let ready = eventually(&format!("{file}: condition Ready"), verdict).await;
            let reason = ready["reason"].as_str().unwrap_or_default();
            assert!(
                ["Judged", "Judging", "NoNodes", "LowCoverage", "NoSamples"].contains(&reason),
                "{file}: {ready}"
            );
        }
    });
}

#[test]
fn every_sample_of_a_prober_is_accepted_and_served() {
    run(async |bench| {
        let _operator = bench.ready_operator().await;
        let samples = samples("NetworkProber");
        assert!(samples.len() >= 3, "{samples:?}");
        for (file, sample) in samples {
            let stored = apply(&bench.client, &sample).await;
            let stored = stored.unwrap_or_else(|error| panic!("{file}: {error}"));
            bench
                .until_condition(&kube::ResourceExt::name_any(&stored), "Ready", "True", "Serving")
                .await;
            bench.clean_probers().await;
        }
    });
}
