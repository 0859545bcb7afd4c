//! Our own kinds belong to their authors: the operator's account writes only its finalizer and the
//! status.
use serde_json::{Value, json};

use super::{Pair, refused, stranger, without_the_guard_of_owners};
use crate::bench::{Bench, run};

#[test]
fn of_our_own_kinds_the_account_changes_nothing_but_its_finalizer() {
    run(async |bench| {
        let kinds = [
            ("traffic.example.com", "trafficwatches"),
            ("probes.bigmikes.io", "networkprobers"),
            ("traffic.example.com", "routereflectorsets"),
        ];
        without_the_guard_of_owners(&bench, &kinds, of_our_kinds(&bench)).await;
    });
}

/// Swarms are not here: the account may not patch them at all.
async fn of_our_kinds(bench: &Bench) {
    let watch = json!({"maxBandwidthPercent": "60", "paused": true});
    let prober = json!({"podSelector": {"matchLabels": {"app": "none"}}});
    for (kind, namespace, spec, finalizer, change) in [
        (
            "traffic.example.com/v1alpha1/TrafficWatch/trafficwatches",
            Some("default"),
            watch,
            "traffic.example.com/node-labels",
            json!({"taint": "NoSchedule"}),
        ),
        (
            "probes.bigmikes.io/v1alpha1/NetworkProber/networkprobers",
            Some("default"),
            prober,
            "probes.bigmikes.io/agents",
            json!({"podSelector": {"matchLabels": {"app": "other"}}}),
        ),
        (
            "traffic.example.com/v1alpha1/RouteReflectorSet/routereflectorsets",
            None,
            json!({"paused": true}),
            "traffic.example.com/route-reflectors",
            json!({"mesh": "Migrate"}),
        ),
    ] {
        let objects = Pair::of(bench, kind, namespace).await;
        let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
        let foreign = "example.com/held";
        let mut object = finalizers(&[foreign]);
        object["spec"] = spec;
        objects.recreate("guarded", &object).await;
        objects.until_guarded("guarded", &json!({"metadata": {"labels": {"a": "b"}}})).await;
        let nothing = "may change nothing of its own kinds but its finalizer";
        for patch in [
            json!({"spec": change}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            json!({"metadata": {"ownerReferences": stranger()}}),
            finalizers(&[]),
            finalizers(&[finalizer]),
            finalizers(&[foreign, "example.com/another"]),
        ] {
            refused(objects.patch("guarded", &patch).await, &patch, nothing);
        }
        objects.patch("guarded", &finalizers(&[foreign, finalizer])).await.expect(finalizer);
        objects.patch("guarded", &Value::Object(serde_json::Map::new())).await.expect("nothing");
        objects.remove("guarded").await;
    }
}
