//! Reads the cluster's facts.
use std::fmt;

use futures::{StreamExt, stream};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authentication::v1::SelfSubjectReview,
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        },
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};

use super::{Facts, Right, rights::rights_of};
use crate::{
    api::KINDS,
    inspect::{
        cluster::{Access, Watches, describe, watches},
        leader::{self, Place},
    },
    manifests,
    nodes::NodeObject,
    runtime::kinds::Kinds,
};

/// How many reviews are asked for at once.
const AT_ONCE: usize = 8;

/// Whose rights are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Who runs this command, by the name the API server gives.
    Caller(String),
    /// Somebody else.
    As(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller(name) => write!(f, "{name} (you)"),
            Self::As(name) => f.write_str(name),
        }
    }
}

/// Reads everything but Prometheus: as the caller, and the rights of `user` if there is one.
pub async fn gather(
    access: &Access,
    user: Option<&str>,
    place: &Place,
    node_labels: &[String],
    kinds: &Kinds,
) -> Facts {
    let mut facts = Facts {
        now: Timestamp::now(),
        server: Err(String::new()),
        definitions: vec![],
        subject: Subject::As(user.unwrap_or_default().to_owned()),
        rights: vec![],
        leadership: Ok(None),
        deployment: Ok(None),
        namespace: place.namespace.clone(),
        nodes: Ok(vec![]),
        watches: Ok(Watches::default()),
        probing: None,
        node_labels: node_labels.to_vec(),
        endpoints: vec![],
    };
    let (reading, asking) = match (access.reading().await, access.asking(user).await) {
        (Ok(reading), Ok(asking)) => (reading, asking),
        // Prometheus can be looked at without a cluster.
        (Err(error), _) | (_, Err(error)) => {
            facts.server = Err(format!("{error:#}"));
            return facts;
        }
    };
    let server = reading.apiserver_version().await;
    facts.server = server.map(|info| info.git_version).map_err(|e| describe("get /version", e));
    if facts.server.is_err() {
        return facts;
    }
    if user.is_none() {
        facts.subject = Subject::Caller(whoami(&asking).await);
    }
    facts.definitions = definitions(&reading, kinds).await;
    facts.rights = reviews(&asking, &place.namespace, kinds).await;
    facts.leadership = leader::leadership(&reading, place).await;
    facts.deployment = deployment(&reading, &place.namespace).await;
    let nodes = Api::<NodeObject>::all(reading.clone()).list(&ListParams::default()).await;
    facts.nodes = nodes.map(|list| list.items).map_err(|e| describe("list nodes", e));
    if kinds.has("NetworkProber") {
        facts.probing = Some(super::probing::gather(&reading, &place.namespace).await);
    }
    facts.watches = watches(&reading).await.map_err(|e| describe("list TrafficWatches", e));
    facts
}

/// The caller's name, as the API server knows it.
async fn whoami(client: &Client) -> String {
    let review = Api::<SelfSubjectReview>::all(client.clone())
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let info = review.ok().and_then(|review| review.status).and_then(|status| status.user_info);
    info.and_then(|info| info.username).unwrap_or_else(|| "the caller".into())
}

type Definitions =
    Vec<(CustomResourceDefinition, Result<Option<CustomResourceDefinition>, String>)>;

async fn definitions(client: &Client, kinds: &Kinds) -> Definitions {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let mut definitions = Vec::new();
    for kind in KINDS.iter().filter(|kind| kinds.has(&kind.name())) {
        let ours = (kind.crd)();
        let there = api.get_opt(&ours.name_any()).await;
        definitions.push((ours, there.map_err(|e| describe("get CustomResourceDefinition", e))));
    }
    definitions
}

async fn reviews(
    client: &Client,
    namespace: &str,
    kinds: &Kinds,
) -> Vec<(Right, Result<bool, String>)> {
    let api = Api::<SelfSubjectAccessReview>::all(client.clone());
    let reviews = stream::iter(rights_of(kinds, namespace)).map(|right| {
        let api = api.clone();
        async move {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        group: Some(right.group.clone()),
                        resource: Some(right.resource.clone()),
                        subresource: right.subresource.clone(),
                        verb: Some(right.verb.clone()),
                        namespace: right.namespace.clone(),
                        name: right.name.clone(),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let answer = api.create(&PostParams::default(), &review).await;
            let answer = answer
                .map(|review| review.status.is_some_and(|status| status.allowed))
                .map_err(|error| describe("create SelfSubjectAccessReview", error));
            (right, answer)
        }
    });
    // In the order of the roles.
    reviews.buffered(AT_ONCE).collect().await
}

async fn deployment(client: &Client, namespace: &str) -> Result<Option<(i32, i32)>, String> {
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployment =
        api.get_opt(manifests::NAME).await.map_err(|e| describe("get Deployment", e))?;
    Ok(deployment.map(|deployment| {
        let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let available = deployment.status.and_then(|status| status.available_replicas);
        (wanted, available.unwrap_or(0))
    }))
}
