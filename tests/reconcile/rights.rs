//! Rights of users, as the real API server decides by the installed roles.
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use traffic_operator::api::KINDS;

use crate::bench::{Bench, eventually, run};

async fn person(bench: &Bench, name: &str) -> Client {
    let config = bench.plane().config_for(name, &[]).await.expect("config");
    Client::try_from(config).expect("client")
}

async fn may(client: &Client, verb: &str, group: &str, plural: &str) -> bool {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.into()),
                group: Some(group.into()),
                resource: Some(plural.into()),
                namespace: Some("default".into()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api = Api::<SelfSubjectAccessReview>::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await.expect("review");
    answer.status.is_some_and(|status| status.allowed)
}

/// Binds a `ClusterRole` to a user in `default`.
async fn bind(bench: &Bench, role: &str, user: &str) {
    let name = format!("{user}-{role}");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let api = Api::<RoleBinding>::namespaced(bench.client.clone(), "default");
    let params = PatchParams::apply("test").force();
    api.patch(&name, &params, &Patch::Apply(binding)).await.expect("RoleBinding");
}

#[test]
fn edit_and_admin_of_a_namespace_read_our_kinds_and_write_none() {
    run(async |bench| {
        for role in ["edit", "admin"] {
            let user = format!("someone-with-{role}");
            bind(&bench, role, &user).await;
            let client = person(&bench, &user).await;
            for kind in KINDS {
                let crd = (kind.crd)();
                let (group, plural) = (crd.spec.group, crd.spec.names.plural);
                // Aggregated rules arrive a moment later.
                eventually(&format!("{role} to read {plural}"), async || {
                    may(&client, "get", &group, &plural).await.then_some(())
                })
                .await;
                for verb in ["create", "update", "patch", "delete", "deletecollection"] {
                    let allowed = may(&client, verb, &group, &plural).await;
                    assert!(!allowed, "{role} may {verb} {plural}");
                }
            }
            // Users who must write these kinds get the role for it.
            bind(&bench, "trafficwatch-editor", &user).await;
            let group = traffic_operator::api::GROUP;
            eventually("the role to count", async || {
                may(&client, "create", group, "trafficwatches").await.then_some(())
            })
            .await;
            assert!(!may(&client, "create", group, "swarms").await);
        }
    });
}
