//! Offers of nodes to everybody's pods: only for authors who may write them without an object.
use serde_json::json;

use super::{Author, WATCH, refused};
use crate::bench::run;

#[test]
fn a_tenant_does_not_decide_what_nodes_offer() {
    run(async |bench| {
        let jane = Author::tenant(&bench, "jane-offers").await;
        let reservation = json!({"reservation": {"resource": "traffic.example.com/egress-mbps"}});
        let right = "user 'jane-offers' has no right to patch nodes/status; grant it with: \
            kubectl create clusterrolebinding 'patch-node-status:jane-offers' \
            --clusterrole=traffic-operator-patch-node-status --user='jane-offers'";
        let answer = jane.try_create(WATCH, reservation.clone()).await;
        refused(answer, &["spec.reservation: decides what nodes offer", right]);
        // Observe writes nothing, and the change to Enforce is one of all that is written then.
        let mut observe = reservation.clone();
        observe["mode"] = "Observe".into();
        jane.create(WATCH, "observes", observe).await.expect("Observe");
        let enforce = jane.change("observes", json!({"mode": "Enforce"})).await;
        refused(enforce, &["spec.reservation: ", right]);
        let root = Author::administrator(&bench, "root-offers").await;
        root.try_create(WATCH, reservation).await.expect("an administrator");
    });
}

/// A user who may not write what nodes offer cannot change it through an administrator's object.
#[test]
fn what_decides_about_an_administrators_reservation_is_the_administrators() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-reserves").await;
        let jane = Author::tenant(&bench, "jane-reserves").await;
        let reservation = json!({"resource": "traffic.example.com/egress-mbps", "reserve": "20%"});
        root.create(WATCH, "web", json!({"reservation": reservation})).await.expect("web");
        for (field, spec) in [
            ("reservation", json!({"reservation": {"reserve": "0%"}})),
            ("maxBandwidthPercent", json!({"maxBandwidthPercent": "100"})),
            ("capacity", json!({"capacity": "100G"})),
            ("nodeSelector", json!({"nodeSelector": {"matchLabels": {"pool": "others"}}})),
        ] {
            let field = format!("spec.{field}: ");
            refused(jane.change("web", spec).await, &[&field, "patch nodes/status"]);
        }
        for spec in [
            json!({"interval": "5s"}),
            json!({"paused": true}),
            json!({"paused": false}),
            // Less is always allowed.
            json!({"reservation": null}),
            json!({"maxBandwidthPercent": "70"}),
        ] {
            jane.change("web", spec.clone()).await.unwrap_or_else(|e| panic!("{spec}: {e}"));
        }
    });
}
