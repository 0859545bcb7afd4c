//! `spec.reservation`: names that the API server would refuse on a node, and odd percentages.
use serde_json::json;

use super::{object, refused};
use crate::bench::run;

#[test]
fn bad_reservations_are_refused_with_their_field_and_the_fix() {
    run(async |bench| {
        let name = "resource must be the name of an extended resource with a prefix outside of \
                    kubernetes.io, e.g. \"traffic.example.com/egress-mbps\"";
        let unit = "unit must be a quantity of bits per second greater than 0, e.g. \"1M\"";
        let reserve = "reserve must be a percentage from 0% to 99%, e.g. \"10%\"";
        let step = "step must be a percentage from 1% to 99%, e.g. \"5%\"";
        let long = format!("{}.example.com/mbps", "a".repeat(240));
        let full = json!({
            "maxBandwidthPercent": "60", "reservation": {"resource": "example.com/mbps"},
        });
        refused(
            &bench,
            &full,
            &[
                ("reservation", json!({}), "spec.reservation.resource: Required value"),
                ("reservation", json!("example.com/mbps"), "must be of type object"),
                ("reservation.resource", json!("cpu"), name),
                ("reservation.resource", json!("kubernetes.io/mbps"), name),
                ("reservation.resource", json!("net.kubernetes.io/mbps"), name),
                ("reservation.resource", json!("requests.example.com/mbps"), name),
                ("reservation.resource", json!("Example.com/mbps"), name),
                ("reservation.resource", json!("example.com/a/b"), name),
                ("reservation.resource", json!(long), name),
                ("reservation.resource", json!("a".repeat(301)), "may not be more than 300"),
                ("reservation.unit", json!("0"), unit),
                ("reservation.unit", json!(0), unit),
                ("reservation.unit", json!("1MB"), unit),
                ("reservation.reserve", json!("100%"), reserve),
                ("reservation.reserve", json!("10"), reserve),
                ("reservation.reserve", json!(10), "must be of type string"),
                ("reservation.step", json!("0%"), step),
                ("reservation.step", json!("2.5%"), step),
            ],
        )
        .await;
        for good in [
            json!({"resource": "traffic.example.com/egress-mbps"}),
            json!({"resource": "a/B", "unit": 1, "reserve": "0%", "step": "99%"}),
            json!({"resource": "team-a.example.com/x_y.z", "unit": "2.5G", "reserve": "99%"}),
        ] {
            let spec = json!({"maxBandwidth": "1G", "reservation": good});
            let stored = bench.dry_run(object("good", &spec)).await;
            stored.unwrap_or_else(|error| panic!("{spec}: {error}"));
        }
    });
}
