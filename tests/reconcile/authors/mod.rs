//! An object gives its author no right that the author lacks: the API server's answers to tenants,
//! to administrators and to a pipeline.
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    client::Body,
    core::{GroupVersionKind, Resource},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, eventually},
    network_prober::with,
};

mod deployments;
mod deprecated;
mod grants;
mod labels;
mod limits;
mod probers;
mod queries;
mod reservations;
mod types;
mod updates;

pub const TENANT: &str = "team-a";

/// A label key that belongs to that namespace.
pub const LABEL: &str = "web.team-a";

#[derive(Clone, Copy)]
pub struct Kind {
    group: &'static str,
    name: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const GROUP: &str = "traffic.example.com";
const PROBES: &str = "probes.bigmikes.io";

pub const WATCH: Kind =
    Kind { group: GROUP, name: "TrafficWatch", plural: "trafficwatches", namespaced: true };
pub const SWARM: Kind = Kind { group: GROUP, name: "Swarm", plural: "swarms", namespaced: true };
pub const SET: Kind = Kind {
    group: GROUP,
    name: "RouteReflectorSet",
    plural: "routereflectorsets",
    namespaced: false,
};
pub const PROBER: Kind =
    Kind { group: PROBES, name: "NetworkProber", plural: "networkprobers", namespaced: true };

/// A user who writes objects.
pub struct Author {
    pub client: Client,
    pub user: String,
}

pub fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// Returns a rule with all rights to our namespaced kinds.
pub fn kinds() -> Value {
    json!({"apiGroups": [GROUP, PROBES], "resources": ["trafficwatches", "swarms", "networkprobers"],
        "verbs": ["*"]})
}

impl Author {
    /// A user with the role edit in the namespace, and all rights to our kinds there.
    pub async fn tenant(bench: &Bench, user: &str) -> Self {
        let edit = json!({"kind": "ClusterRole", "name": "edit"});
        let author = Self::with_rules(bench, user, &[kinds()]).await;
        bind(bench, &format!("edit-{user}"), user, edit).await;
        let deployments = rule("apps", "deployments", &["create"]);
        author.until_granted(bench, &deployments).await;
        author
    }

    /// A user with only these rights in the namespace.
    pub async fn with_rules(bench: &Bench, user: &str, rules: &[Value]) -> Self {
        bench.namespace(TENANT, json!({})).await;
        let author = Self::of(bench, user).await;
        role(bench, user, rules).await;
        bind(bench, user, user, json!({"kind": "Role", "name": user})).await;
        // A write that needs only the right to the kind, and one that needs more: rights and
        // policies take a moment to come into force.
        let observe = json!({"mode": "Observe"});
        let allowed = async || author.try_create(WATCH, observe.clone()).await.ok();
        eventually("the rights of the author", allowed).await;
        let refused = async || author.try_create(WATCH, json!({"taint": "NoSchedule"})).await.err();
        eventually("the policies", refused).await;
        author
    }

    /// A user with all rights, granted by RBAC and not by a group.
    pub async fn administrator(bench: &Bench, user: &str) -> Self {
        bench.namespace(TENANT, json!({})).await;
        let author = Self::of(bench, user).await;
        bind_everywhere(bench, user, user, "cluster-admin").await;
        let allowed = async || author.try_create(WATCH, json!({"mode": "Observe"})).await.ok();
        eventually("the rights of the administrator", allowed).await;
        author
    }

    pub async fn of(bench: &Bench, user: &str) -> Self {
        Self { client: bench.as_user(user, &[]).await, user: user.to_owned() }
    }

    /// Waits until the API server grants a right of this author in the namespace.
    pub async fn until_granted(&self, bench: &Bench, rule: &Value) {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
                "user": self.user, "resourceAttributes": {
                    "namespace": TENANT, "group": rule["apiGroups"][0],
                    "resource": rule["resources"][0], "verb": rule["verbs"][0],
                    "name": rule["resourceNames"][0].as_str().unwrap_or_default(),
                },
            },
        });
        eventually(&format!("{rule} of {}", self.user), async || {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let answer: Value = bench.post(path, &review).await.ok()?;
            (answer["status"]["allowed"] == true).then_some(())
        })
        .await;
    }

    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(kind.group, "v1alpha1", kind.name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), TENANT, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// Tries to create an object with these fields of the spec, as a dry run; returns the API
    /// server's refusal.
    pub async fn try_create(&self, kind: Kind, spec: Value) -> Result<(), String> {
        self.post(kind, "offered", spec, "&dryRun=All").await
    }

    pub async fn create(&self, kind: Kind, name: &str, spec: Value) -> Result<(), String> {
        self.post(kind, name, spec, "").await
    }

    async fn post(&self, kind: Kind, name: &str, spec: Value, more: &str) -> Result<(), String> {
        outcome(self.client.request::<Value>(creation(kind, name, &spec, more)).await)
    }

    /// Returns the API server's warnings about creating an object with these fields of the spec, as
    /// a dry run that it accepts.
    pub async fn warnings(&self, kind: Kind, spec: &Value) -> Vec<String> {
        let request = creation(kind, "offered", spec, "&dryRun=All").map(Body::from);
        let answer = self.client.send(request).await.expect("an answer");
        assert!(answer.status().is_success(), "{spec}: {}", answer.status());
        let all = answer.headers().get_all("warning").iter();
        all.map(|text| text.to_str().expect("text").to_owned()).collect()
    }

    pub async fn patch(&self, kind: Kind, name: &str, patch: Value) -> Result<(), String> {
        let patch = Patch::Merge(patch);
        outcome(self.api(kind).patch(name, &PatchParams::default(), &patch).await)
    }

    /// A merge patch of the spec.
    pub async fn change(&self, name: &str, spec: Value) -> Result<(), String> {
        self.patch(WATCH, name, json!({"spec": spec})).await
    }

    /// Server-side apply, as pipelines do it.
    pub async fn apply(&self, kind: Kind, name: &str, spec: Value) -> Result<(), String> {
        let params = PatchParams::apply(&self.user.replace(':', "-")).force();
        let object = object(kind, name, &spec);
        outcome(self.api(kind).patch(name, &params, &Patch::Apply(object)).await)
    }

    pub async fn delete(&self, kind: Kind, name: &str) -> Result<(), String> {
        outcome(self.api(kind).delete(name, &DeleteParams::default()).await)
    }
}

/// A request to create an object, which rejects unknown fields.
fn creation(kind: Kind, name: &str, spec: &Value, more: &str) -> http::Request<Vec<u8>> {
    let within = if kind.namespaced { format!("/namespaces/{TENANT}") } else { String::new() };
    let path = format!("/apis/{}/v1alpha1{within}/{}", kind.group, kind.plural);
    let request = http::Request::post(format!("{path}?fieldValidation=Strict{more}"));
    let request = request.header("Content-Type", "application/json");
    request.body(serde_json::to_vec(&object(kind, name, spec)).expect("JSON")).expect("request")
}

/// An object with the minimum that its kind needs, the namespace's own label, and these fields.
pub fn object(kind: Kind, name: &str, spec: &Value) -> Value {
    let least = match kind.name {
        "TrafficWatch" => {
            json!({"maxBandwidthPercent": "60", "interval": "5s", "window": "4s", "label": LABEL})
        }
        // Fields that need no right.
        "NetworkProber" => json!({
            "podSelector": {"matchLabels": {"app": "web"}},
            "monitoring": {"podMonitor": false, "prometheusRule": false},
        }),
        "Swarm" => json!({"workload": {"name": "workers"}, "jobs": ["stream:1"]}),
        _ => json!({}),
    };
    let mut object = json!({
        "apiVersion": format!("{}/v1alpha1", kind.group), "kind": kind.name,
        "metadata": {"name": name}, "spec": with(least, spec),
    });
    if kind.namespaced {
        object["metadata"]["namespace"] = TENANT.into();
    }
    object
}

fn outcome<T>(answer: kube::Result<T>) -> Result<(), String> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

/// Asserts that the answer is a refusal with all of these texts.
pub fn refused(answer: Result<(), String>, texts: &[&str]) -> String {
    let message = answer.expect_err(&format!("{texts:?}"));
    for text in texts {
        assert!(message.contains(text), "no {text:?} in: {message}");
    }
    message
}

pub async fn role(bench: &Bench, name: &str, rules: &[Value]) {
    let api = Api::<Role>::namespaced(bench.client.clone(), TENANT);
    apply(&api, "Role", name, json!({"rules": rules})).await;
}

pub async fn cluster_role(bench: &Bench, name: &str, rules: &[Value]) {
    apply(
        &Api::<ClusterRole>::all(bench.client.clone()),
        "ClusterRole",
        name,
        json!({"rules": rules}),
    )
    .await;
}

pub async fn bind(bench: &Bench, name: &str, user: &str, role: Value) {
    let api = Api::<RoleBinding>::namespaced(bench.client.clone(), TENANT);
    apply(&api, "RoleBinding", name, binding(user, &role)).await;
}

pub async fn bind_everywhere(bench: &Bench, name: &str, user: &str, role: &str) {
    let api = Api::<ClusterRoleBinding>::all(bench.client.clone());
    let role = json!({"kind": "ClusterRole", "name": role});
    apply(&api, "ClusterRoleBinding", name, binding(user, &role)).await;
}

fn binding(user: &str, role: &Value) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "roleRef": with(json!({"apiGroup": group}), role),
        "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
    })
}

async fn apply<K>(api: &Api<K>, kind: &str, name: &str, body: Value)
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug + Resource<DynamicType = ()>,
{
    let base = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
    });
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(with(base, &body))).await.expect(kind);
}
