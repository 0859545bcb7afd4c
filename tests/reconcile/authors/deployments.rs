//! `spec.deployment`: only for authors who may create Deployments in the namespace.
use serde_json::json;

use super::{Author, WATCH, kinds, refused};
use crate::{bench::run, traffic_watch::judging::deployment};

#[test]
fn who_may_create_no_deployment_has_none_created() {
    run(async |bench| {
        let clerk = Author::with_rules(&bench, "clerk", &[kinds()]).await;
        let with = json!({"deployment": deployment()});
        let right = "spec.deployment: user 'clerk' has no right to create deployments.apps in \
            namespace team-a; grant it with: kubectl create rolebinding 'create-deployments:clerk' \
            -n team-a --clusterrole=traffic-operator-create-deployments --user='clerk'";
        refused(clerk.try_create(WATCH, with.clone()).await, &[right]);
        clerk.try_create(WATCH, json!({})).await.expect("without");
        let observe = json!({"deployment": deployment(), "mode": "Observe"});
        clerk.create(WATCH, "seen", observe).await.expect("Observe");
        refused(clerk.change("seen", json!({"mode": "Enforce"})).await, &[right]);

        let jane = Author::tenant(&bench, "jane-deployments").await;
        jane.create(WATCH, "web", with.clone()).await.expect("edit may create Deployments");
        // The clerk may neither change Deployments of others nor have their pods evicted.
        let image = json!({"deployment": {"template": {"spec": {
            "serviceAccountName": "admin", "containers": [{"name": "c", "image": "other"}]}}}});
        for spec in [image, json!({"eviction": {"after": "0s"}}), json!({"placement": "Preferred"})]
        {
            refused(clerk.change("web", spec).await, &[right]);
        }
        clerk.change("web", json!({"maxBandwidthPercent": "70"})).await.expect("another field");
        clerk.change("web", json!({"deployment": null})).await.expect("none is less");
        refused(clerk.change("web", with).await, &[right]);
    });
}
