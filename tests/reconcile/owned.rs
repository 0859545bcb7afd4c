//! The operator's account writes only its own objects: the limits of a stolen token.
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::{
    authors::{self, Author, rule},
    bench::{ACCOUNT, Bench, eventually},
};

mod children;
mod kinds;
mod node_status;
mod others;

/// The objects of one kind in a namespace or in the cluster, as the administrator and as the
/// operator see them.
pub struct Pair {
    admin: Api<DynamicObject>,
    operator: Api<DynamicObject>,
    resource: ApiResource,
}

impl Pair {
    /// `kind` as `group/version/Kind/plural`; the core group has no name.
    pub async fn of(bench: &Bench, kind: &str, namespace: Option<&str>) -> Self {
        let [group, version, kind, plural] = kind.split('/').collect::<Vec<_>>()[..] else {
            panic!("{kind}")
        };
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api = |client: Client| match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let (admin, operator) = (api(bench.client.clone()), api(bench.as_operator().await));
        Self { admin, operator, resource }
    }

    fn object(&self, name: &str, body: &Value) -> DynamicObject {
        let mut object = json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "metadata": {"name": name},
        });
        json_patch::merge(&mut object, body);
        serde_json::from_value(object).expect("object")
    }

    /// Creates the object as the administrator, and replaces an existing one of that name.
    pub async fn recreate(&self, name: &str, body: &Value) {
        self.remove(name).await;
        self.admin.create(&PostParams::default(), &self.object(name, body)).await.expect("create");
    }

    /// Deletes the object as the administrator.
    pub async fn remove(&self, name: &str) {
        let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        // It may not exist.
        let _ = self.admin.patch(name, &PatchParams::default(), &strip).await;
        let _ = self.admin.delete(name, &DeleteParams::background()).await;
        let gone = async || self.admin.get_opt(name).await.ok()?.is_none().then_some(());
        eventually("the object to go", gone).await;
    }

    /// Tries to create the object with the operator's account, as a dry run.
    pub async fn create(&self, name: &str, body: &Value) -> Result<(), String> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        outcome(self.operator.create(&params, &self.object(name, body)).await)
    }

    /// Tries a patch, as a dry run: a strategic one where the kind supports it, otherwise a merge
    /// patch.
    pub async fn patch(&self, name: &str, patch: &Value) -> Result<(), String> {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let built_in =
            !self.resource.group.contains('.') || self.resource.group.ends_with(".k8s.io");
        let answer = if built_in {
            self.operator.patch(name, &params, &Patch::Strategic(patch)).await
        } else {
            self.operator.patch(name, &params, &Patch::Merge(patch)).await
        };
        outcome(answer)
    }

    pub async fn delete(&self, name: &str) -> Result<(), String> {
        let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
        outcome(self.operator.delete(name, &params).await)
    }

    /// Waits until the policies of the kind are in force: `patch` is refused.
    pub async fn until_guarded(&self, name: &str, patch: &Value) {
        let refused = async || {
            let answer = self.patch(name, patch).await;
            answer.err().filter(|text| text.contains("ValidatingAdmissionPolicy"))
        };
        eventually("the policy to be in force", refused).await;
    }
}

fn outcome<T>(answer: kube::Result<T>) -> Result<(), String> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

/// The tests' API server itself guards owner references: changing them takes the right to delete
/// the object. With that right the policies stand alone, as on most clusters.
pub async fn without_the_guard_of_owners(
    bench: &Bench,
    resources: &[(&str, &str)],
    test: impl Future<Output = ()>,
) {
    const NAME: &str = "operator-may-delete";
    let rules = resources.iter().map(|(group, plural)| rule(group, plural, &["delete"]));
    authors::cluster_role(bench, NAME, &rules.collect::<Vec<_>>()).await;
    authors::bind_everywhere(bench, NAME, ACCOUNT, NAME).await;
    let account = Author::of(bench, ACCOUNT).await;
    for (group, plural) in resources {
        account.until_granted(bench, &rule(group, plural, &["delete"])).await;
    }
    test.await;
    let bindings = Api::<ClusterRoleBinding>::all(bench.client.clone());
    bindings.delete(NAME, &DeleteParams::default()).await.expect("delete the binding");
}

/// Asserts a refusal by one of the policies, with this text.
#[track_caller]
pub fn refused(answer: Result<(), String>, what: &Value, text: &str) {
    let message = answer.expect_err(&what.to_string());
    assert!(message.contains(text), "{what}: {message}");
}

/// Returns an owner reference to an existing object of ours: the garbage collector deletes objects
/// whose owner is missing.
pub async fn owner(bench: &Bench, kind: &str, name: &str) -> Value {
    let (group, plural, spec) = match kind {
        "NetworkProber" => (
            "probes.bigmikes.io",
            "networkprobers",
            json!({"podSelector": {"matchLabels": {"app": "none"}}}),
        ),
        "Swarm" => (
            "traffic.example.com",
            "swarms",
            json!({"workload": {"name": "none"}, "jobs": ["stream:1"], "paused": true}),
        ),
        _ => (
            "traffic.example.com",
            "trafficwatches",
            json!({"maxBandwidthPercent": "60", "paused": true}),
        ),
    };
    let kinds = format!("{group}/v1alpha1/{kind}/{plural}");
    let all = Pair::of(bench, &kinds, Some("default")).await;
    all.recreate(name, &json!({"spec": spec})).await;
    let uid = all.admin.get(name).await.expect("owner").metadata.uid;
    json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind, "name": name, "uid": uid,
        "controller": true})
}

/// A reference to a foreign owner that does not exist: the garbage collector deletes its
/// dependents.
pub fn stranger() -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x",
        "uid": "6c5a1c1e-0000-4000-8000-000000000002"}])
}
