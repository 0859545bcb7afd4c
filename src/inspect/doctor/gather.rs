//! Reads the facts about the cluster, and reviews the rights that the operator needs by its installed
//! roles.
use std::fmt;

use futures::{StreamExt, stream};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authentication::v1::SelfSubjectReview,
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
            SubjectAccessReview, SubjectAccessReviewSpec,
        },
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::Value;

use super::{Facts, Replicas, Routes, Served, Streams, WebhookProcess};
use crate::{
    api::KINDS,
    infra::Api,
    inspect::{
        cluster::{self, Access, Listed, describe},
        leader::{self, Place},
        progress::Progress,
    },
    manifests::{self, Account},
    nodes::NodeObject,
    prometheus::Exporters,
    runtime::kinds::Kinds,
    traffic_watch::device_classes,
};

/// Maximum number of concurrent reviews.
const AT_ONCE: usize = 8;

/// The account whose rights are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The user of this command, by the name from the API server.
    Caller(String),
    /// Another account.
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

impl Subject {
    /// Returns the account that should have the rights: the webhook's if it matches, otherwise the
    /// controller's.
    fn account(&self, namespace: &str) -> Account {
        let (Self::Caller(name) | Self::As(name)) = self;
        let webhook = *name == Account::Webhook.user(namespace);
        if webhook { Account::Webhook } else { Account::Controller }
    }
}

/// Reads everything except Prometheus, as the caller, and the rights of `user` if there is one.
pub async fn gather(
    access: &Access,
    user: Option<&str>,
    place: &Place,
    exporters: &Exporters,
    kinds: &Kinds,
    progress: &Progress,
) -> Facts {
    let mut facts = Facts {
        now: Timestamp::now(),
        server: Err(String::new()),
        definitions: vec![],
        subject: Subject::As(user.unwrap_or_default().to_owned()),
        rights: vec![],
        leadership: Ok(None),
        deployment: Ok(None),
        webhook: None,
        namespace: place.namespace.clone(),
        nodes: Ok(vec![]),
        watches: Ok(Listed { read: vec![], unreadable: vec![] }),
        device_classes: Ok(vec![]),
        probing: None,
        streams: Streams::default(),
        routes: Routes::default(),
        exporters: exporters.clone(),
        endpoints: vec![],
    };
    progress.enter("asking the API server");
    let (reading, asking) = match (access.reading().await, access.asking(user).await) {
        (Ok(reading), Ok(asking)) => (reading, asking),
        // Prometheus can be checked without a cluster.
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
    progress.enter("reading the definitions");
    facts.definitions = definitions(&reading, kinds).await;
    progress.enter("reviewing the rights");
    let account = facts.subject.account(&place.namespace);
    facts.rights = reviews(&asking, rights_of(account, kinds, &place.namespace)).await;
    progress.enter("reading the operator's Lease and Deployments");
    facts.leadership = leader::leadership(&reading, place).await;
    facts.deployment = deployment(&reading, &place.namespace, Account::Controller).await;
    if kinds.has("NetworkProber") {
        facts.webhook = Some(webhook(&reading, &place.namespace, kinds).await);
    }
    progress.enter("reading nodes and objects");
    let nodes = Api::<NodeObject>::all(reading.clone()).list(&ListParams::default()).await;
    facts.nodes = nodes.map(|list| list.items).map_err(|e| describe("list nodes", e));
    if kinds.has("NetworkProber") {
        facts.probing = Some(super::probing::gather(&reading, &place.namespace).await);
    }
    if kinds.has("Swarm") {
        facts.streams = Streams::gather(&reading).await;
    }
    if kinds.has("RouteReflectorSet") {
        facts.routes.sets = Served::gather(&reading).await;
    }
    facts.watches = cluster::list(&reading).await.map_err(|e| describe("list TrafficWatches", e));
    if reserves(&facts) {
        let classes = device_classes::list(&reading).await;
        facts.device_classes = classes.map_err(|error| describe("list DeviceClasses", error));
    }
    facts
}

/// Reports whether any object has nodes offer a resource.
fn reserves(facts: &Facts) -> bool {
    facts.watches.iter().flat_map(|watches| &watches.read).any(|w| w.spec.reservation.is_some())
}

/// Returns the caller's name, as the API server knows it.
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

type Reviews = Vec<(Right, Result<bool, String>)>;

/// Reviews the rights of the caller.
async fn reviews(client: &Client, rights: Vec<Right>) -> Reviews {
    let api = Api::<SelfSubjectAccessReview>::all(client.clone());
    ask(rights, async |right| {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes(right)),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = api.create(&PostParams::default(), &review).await;
        answer
            .map(|review| review.status.is_some_and(|status| status.allowed))
            .map_err(|error| describe("create SelfSubjectAccessReview", error))
    })
    .await
}

/// Reviews the rights of the webhook's account, if the caller may review those of others.
async fn reviews_of_the_webhook(client: &Client, namespace: &str, kinds: &Kinds) -> Reviews {
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let groups = ["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()];
    let of_namespace = format!("system:serviceaccounts:{namespace}");
    let groups: Vec<_> = groups.into_iter().chain([of_namespace]).collect();
    let rights = rights_of(Account::Webhook, kinds, namespace);
    ask(rights, async |right| {
        let spec = SubjectAccessReviewSpec {
            user: Some(Account::Webhook.user(namespace)),
            groups: Some(groups.clone()),
            resource_attributes: Some(attributes(right)),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = api.create(&PostParams::default(), &review).await;
        answer
            .map(|review| review.status.is_some_and(|status| status.allowed))
            .map_err(|error| describe("create SubjectAccessReview", error))
    })
    .await
}

/// Reviews each right, several at once; in the order of the roles.
async fn ask(rights: Vec<Right>, review: impl AsyncFn(&Right) -> Result<bool, String>) -> Reviews {
    let review = &review;
    let reviews = stream::iter(rights).map(|right| async move {
        let answer = review(&right).await;
        (right, answer)
    });
    reviews.buffered(AT_ONCE).collect().await
}

fn attributes(right: &Right) -> ResourceAttributes {
    ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(right.resource.clone()),
        subresource: right.subresource.clone(),
        verb: Some(right.verb.clone()),
        namespace: right.namespace.clone(),
        name: right.name.clone(),
        ..ResourceAttributes::default()
    }
}

/// Reads the Deployment of the webhook, and the rights of its account if that Deployment exists.
async fn webhook(client: &Client, namespace: &str, kinds: &Kinds) -> WebhookProcess {
    let deployment = deployment(client, namespace, Account::Webhook).await;
    let rights = match &deployment {
        Ok(Some(_)) => reviews_of_the_webhook(client, namespace, kinds).await,
        _ => vec![],
    };
    WebhookProcess { deployment, rights }
}

async fn deployment(client: &Client, namespace: &str, account: Account) -> Replicas {
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployment =
        api.get_opt(account.name()).await.map_err(|e| describe("get Deployment", e))?;
    Ok(deployment.map(|deployment| {
        let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let available = deployment.status.and_then(|status| status.available_replicas);
        (wanted, available.unwrap_or(0))
    }))
}

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// `get`, `patch`, …
    pub verb: String,
    /// The API group, empty for core.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// The subresource: `status`, `eviction`.
    pub subresource: Option<String>,
    /// The namespace; `None` means all.
    pub namespace: Option<String>,
    /// The name of the object; `None` means any.
    pub name: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(sub) = &self.subresource {
            write!(f, "/{sub}")?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

/// Returns all rights of an account, with the operator in `namespace` and every kind; a right that
/// two kinds need occurs once.
#[must_use]
pub fn rights(account: Account, namespace: &str) -> Vec<Right> {
    rights_of(account, &Kinds::default(), namespace)
}

/// Returns the rights of an operator that runs these kinds.
#[must_use]
fn rights_of(account: Account, kinds: &Kinds, namespace: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    let run = KINDS.iter().filter(|kind| kinds.has(&kind.name()));
    let roles = run.flat_map(|kind| manifests::roles(kind).documents);
    for role in manifests::core().into_iter().chain(roles) {
        let owner = role["metadata"]["name"].as_str().and_then(Account::of_role);
        let place = match role["kind"].as_str() {
            Some("ClusterRole") if owner == Some(account) => None,
            Some("Role") if owner == Some(account) => Some(namespace),
            _ => continue,
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            of_rule(rule, place, &mut rights);
        }
    }
    rights
}

fn of_rule(rule: &Value, namespace: Option<&str>, rights: &mut Vec<Right>) {
    let texts = |field: &str| {
        let list = rule[field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let names: Vec<_> = match texts("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, sub)) => (resource.to_owned(), Some(sub.to_owned())),
                None => (resource, None),
            };
            for verb in texts("verbs") {
                for name in &names {
                    let right = Right {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        subresource: subresource.clone(),
                        namespace: namespace.map(str::to_owned),
                        name: name.clone(),
                    };
                    if !rights.contains(&right) {
                        rights.push(right);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_account_is_asked_for_its_own_rights() {
        for (name, expected) in [
            ("system:serviceaccount:ns:traffic-operator-webhook", Account::Webhook),
            ("system:serviceaccount:ns:traffic-operator", Account::Controller),
            ("system:serviceaccount:other:traffic-operator-webhook", Account::Controller),
            ("jane", Account::Controller),
        ] {
            for subject in [Subject::As(name.into()), Subject::Caller(name.into())] {
                assert_eq!(subject.account("ns"), expected, "{name}");
            }
        }
    }

    #[test]
    fn every_rule_of_the_roles_is_asked_for() {
        let texts: Vec<_> =
            rights(Account::Controller, "ns").iter().map(ToString::to_string).collect();
        for expected in [
            "patch nodes",
            "create deployments.apps",
            "watch trafficwatches.traffic.example.com",
            "patch trafficwatches/status.traffic.example.com",
            "create events.events.k8s.io",
            "create leases.coordination.k8s.io in ns",
            "update leases.coordination.k8s.io traffic-operator in ns",
            "patch networkprobers/status.probes.bigmikes.io",
            "watch namespaces",
            "delete configmaps",
            "patch mutatingwebhookconfigurations.admissionregistration.k8s.io traffic-operator",
            "create podmonitors.monitoring.coreos.com",
            "create tokenreviews.authentication.k8s.io",
            // Only one of the Secrets, and nothing of the rest.
            "create secrets in ns",
            "watch secrets traffic-operator-webhook in ns",
            "update secrets traffic-operator-webhook in ns",
        ] {
            assert!(texts.iter().any(|text| text == expected), "{expected} is not in {texts:?}");
        }
        for secret in texts.iter().filter(|text| text.contains(" secrets")) {
            let named = secret.contains(" secrets traffic-operator-webhook in ns");
            assert!(named || secret == "create secrets in ns", "{secret}");
        }
        // The roles for users are not rights of the operator.
        let of_users = ["trafficwatches.", "networkprobers."];
        for right in texts.iter().filter(|text| text.starts_with("delete")) {
            assert!(!of_users.iter().any(|kind| right.contains(kind)), "{right}");
        }
        // Two kinds need pods and nodes: each right is checked once.
        let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len(), "{texts:?}");
    }
}
