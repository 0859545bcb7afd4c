//! Deprecated forms of fields, and values of a likely wrong unit, are accepted with a warning.
use serde_json::{Value, json};

use super::{Author, Kind, PROBER, SET, SWARM, WATCH};
use crate::bench::{eventually, run};

#[test]
fn former_forms_are_accepted_with_a_warning_and_present_ones_without() {
    run(async |bench| {
        let author = Author::administrator(&bench, "root-forms").await;
        let etcd = |of: Value| json!({"datastore": {"type": "etcd", "etcd": {"secretRef": of}}});
        let fitness = "spec.fitnessRef: a plain name is deprecated; write {name: ...}";
        let secret = "spec.datastore.etcd.secretRef: a plain name is deprecated";
        let spelling = "spec.neighbours: this spelling is deprecated; write neighbors";
        let port = "spec.httpPort: agents may listen below 1024 only where";
        let numbers = || json!({"inZone": 4, "perOtherZone": 1});
        let cases: [(Kind, Value, Value, &str); 4] = [
            (SWARM, json!({"fitnessRef": "web"}), json!({"fitnessRef": {"name": "web"}}), fitness),
            (SET, etcd(json!("calico")), etcd(json!({"name": "calico"})), secret),
            (PROBER, json!({"httpPort": "80"}), json!({"httpPort": 8080}), port),
            (PROBER, json!({"neighbours": numbers()}), json!({"neighbors": numbers()}), spelling),
        ];
        for (kind, former, present, text) in cases {
            // Policies take a moment to come into force.
            let warned = async || {
                let warnings = author.warnings(kind, &former).await;
                warnings.iter().any(|warning| warning.contains(text)).then_some(())
            };
            eventually(text, warned).await;
            assert_eq!(author.warnings(kind, &present).await, [""; 0], "{present}");
        }
    });
}

#[test]
fn a_ratio_and_a_value_without_its_unit_are_warned_of() {
    run(async |bench| {
        let author = Author::administrator(&bench, "root-units").await;
        let bits = |of: Value| json!({"maxBandwidthPercent": null, "maxBandwidth": of});
        for (unlikely, likely, text) in [
            (
                json!({"maxBandwidthPercent": "0.6"}),
                json!({"maxBandwidthPercent": "1"}),
                "less than 1 percent",
            ),
            (bits(json!(800)), bits(json!(800_000_000)), "800M"),
            (bits(json!("800k")), bits(json!("1M")), "800M"),
            (
                json!({"maxBandwidthPercent": "60", "capacity": 10}),
                json!({"maxBandwidthPercent": "60", "capacity": "10G"}),
                "10G",
            ),
        ] {
            let warned = async || {
                let warnings = author.warnings(WATCH, &unlikely).await;
                warnings.iter().any(|warning| warning.contains(text)).then_some(())
            };
            eventually(text, warned).await;
            assert_eq!(author.warnings(WATCH, &likely).await, [""; 0], "{likely}");
        }
    });
}
