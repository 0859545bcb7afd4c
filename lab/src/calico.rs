//! Calico's kinds in an API server without Calico: our own definitions, in either of Calico's two
//! API groups, or Calico's.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;

use crate::{tools, wait::until};

/// Both groups have the same kinds.
const DEFINITIONS: &str = include_str!("../manifests/calico.yaml");

/// Calico's own definitions, of the one version that is served as a Go module: between 3.30 and
/// 3.31. Later releases have rules, which ours have too.
const PUBLISHED: &str =
    "github.com/projectcalico/calico@v1.11.0-cni-plugin.0.20250813170300-a0db560f0520";

/// The deadline for definitions to be served, or to be gone.
const LIMIT: Duration = Duration::from_mins(1);

/// The API group in which Calico stores its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `projectcalico.org/v3`.
    V3,
    /// `crd.projectcalico.org/v1`.
    V1,
}

impl Group {
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V3 => "projectcalico.org/v3",
            Self::V1 => "crd.projectcalico.org/v1",
        }
    }

    fn definitions(self) -> Result<Vec<CustomResourceDefinition>> {
        let (group, version) = self.api_version().split_once('/').unwrap_or_default();
        let text = DEFINITIONS.replace("GROUP", group).replace("VERSION", version);
        serde_yaml::Deserializer::from_str(&text)
            .map(|document| CustomResourceDefinition::deserialize(document).context("definition"))
            .collect()
    }
}

/// Installs the kinds of one group that route reflectors need, and waits until they are served. Existing ones stay.
pub async fn install(client: &Client, group: Group) -> Result<()> {
    serve(client, group, group.definitions()?).await
}

/// Does the same with Calico's own definitions of `crd.projectcalico.org`.
pub async fn install_published(client: &Client) -> Result<()> {
    let definitions = tokio::task::spawn_blocking(published).await??;
    serve(client, Group::V1, definitions).await
}

/// Reads Calico's own definitions of the kinds that ours define.
fn published() -> Result<Vec<CustomResourceDefinition>> {
    let folder = tools::fetched_dir(PUBLISHED)?.join("libcalico-go/config/crd");
    let read = |ours: CustomResourceDefinition| {
        let file = format!("{}_{}.yaml", ours.spec.group, ours.spec.names.plural);
        let text = std::fs::read_to_string(folder.join(&file)).with_context(|| file.clone())?;
        serde_yaml::from_str(&text).with_context(|| file.clone())
    };
    Group::V1.definitions()?.into_iter().map(read).collect()
}

async fn serve(
    client: &Client,
    group: Group,
    definitions: Vec<CustomResourceDefinition>,
) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in &definitions {
        match api.create(&PostParams::default(), definition).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => {
                created.with_context(|| format!("creating {}", definition.name_any()))?;
            }
        }
    }
    for definition in &definitions {
        let name = definition.name_any();
        let plural = &definition.spec.names.plural;
        // The condition Established precedes discovery and the endpoint by a moment.
        until(&format!("{name} served"), LIMIT, || async {
            let listed = client.list_api_group_resources(group.api_version()).await;
            let listed = listed.is_ok_and(|list| list.resources.iter().any(|r| &r.name == plural));
            let path = format!("/apis/{}/{plural}?limit=1", group.api_version());
            let answers = client.request_text(http::Request::get(path).body(vec![])?).await;
            let answers = answers.is_ok();
            let served = listed && answers;
            Ok((!served).then(|| format!("listed: {listed}, answers: {answers}")))
        })
        .await?;
    }
    Ok(())
}

/// Removes the definitions of a group, with all their objects, and waits until they are gone.
pub async fn remove(client: &Client, group: Group) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in group.definitions()? {
        match api.delete(&definition.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => {
                deleted.with_context(|| format!("deleting {}", definition.name_any()))?;
            }
        }
    }
    until(&format!("no {}", group.api_version()), LIMIT, || async {
        let listed = client.list_api_group_resources(group.api_version()).await;
        let gone = match listed {
            Ok(list) => list.resources.is_empty(),
            Err(kube::Error::Api(status)) => status.code == 404,
            Err(_) => false,
        };
        Ok((!gone).then(|| "still served".to_owned()))
    })
    .await
}
