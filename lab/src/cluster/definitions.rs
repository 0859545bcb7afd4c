//! The custom resource definitions of prometheus-operator, OLM and Karpenter, taken from their Go
//! modules.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::tools::module_dir;
use crate::wait::until;
use crate::{versions, workspace};

const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";

const KARPENTER: &str = "sigs.k8s.io/karpenter";

/// The module of OLM's types.
const OPERATOR_FRAMEWORK: &str = "github.com/operator-framework/api";

/// The kinds of prometheus-operator that are used here. Each of the others (alert routing, agents,
/// Thanos) costs the API server up to two seconds of work at the start; the operator does without.
const KINDS: [&str; 6] = [
    "podmonitors",
    "probes",
    "prometheuses",
    "prometheusrules",
    "scrapeconfigs",
    "servicemonitors",
];

/// Creates the definitions, all at once, and waits until their kinds are served.
pub(super) async fn install(client: &Client) -> Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let texts = KINDS.iter().map(|kind| cached(kind)).collect::<Result<Vec<_>>>()?;
    // Sent verbatim: there is no need to parse half a megabyte of schema.
    let create = |text: Vec<u8>| async move {
        let request =
            http::Request::post(path).header("content-type", "application/json").body(text)?;
        client
            .request::<Value>(request)
            .await
            .context("creating a definition of prometheus-operator")
    };
    try_join_all(texts.into_iter().map(create)).await?;
    established(client).await
}

/// Waits until all kinds are served.
pub(crate) async fn established(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    until("custom resource definitions served", Duration::from_mins(3), || async {
        let all = definitions.list(&ListParams::default()).await?;
        let served = |definition: &&CustomResourceDefinition| {
            let status = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
            let mut conditions = status.into_iter().flatten();
            conditions.any(|c| c.type_ == "Established" && c.status == "True")
        };
        let waiting = all.items.iter().find(|definition| !served(definition));
        Ok(waiting.map(|definition| format!("{} is not", definition.name_any())))
    })
    .await
}

/// Returns the definition of a kind, by its plural, as JSON, which the API server reads several
/// times faster than YAML.
pub fn cached(kind: &str) -> Result<Vec<u8>> {
    let dir = workspace::state()
        .join(format!("cache/prometheus-operator-{}", versions::PROMETHEUS_OPERATOR));
    let path = dir.join(format!("{kind}.json"));
    if let Ok(text) = fs::read(&path) {
        return Ok(text);
    }
    let source = module_dir("lab/tools", PROMETHEUS_OPERATOR)?
        .join(format!("example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"));
    let text = serde_json::to_vec(&serde_yaml::from_str::<Value>(&workspace::read(&source)?)?)?;
    fs::create_dir_all(&dir)?;
    workspace::write_whole(&path, &text)?;
    Ok(text)
}

/// Returns the definition of a kind of the Operator Lifecycle Manager, by its plural, as YAML.
pub fn of_olm(kind: &str) -> Result<String> {
    let module = module_dir("lab/tools", OPERATOR_FRAMEWORK)?;
    workspace::read(&module.join(format!("crds/operators.coreos.com_{kind}.yaml")))
}

/// Returns the definitions of Karpenter and of its provider of simulated nodes, as YAML.
pub fn of_karpenter() -> Result<Vec<String>> {
    let module = module_dir("lab/tools/karpenter", KARPENTER)?;
    let files = [
        "pkg/apis/crds/karpenter.sh_nodeclaims.yaml",
        "pkg/apis/crds/karpenter.sh_nodeoverlays.yaml",
        "pkg/apis/crds/karpenter.sh_nodepools.yaml",
        "pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml",
        "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
    ];
    files.into_iter().map(|file| workspace::read(&module.join(file))).collect()
}
