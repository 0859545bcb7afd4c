//! Specs made from the CRD's own schema: allowed ones are accepted and served, others are refused
//! with the path; and one object goes through all of them.
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, run},
    network_prober::with,
    traffic_watch::judging::{deployment, three_nodes},
};

mod forms;
mod generator;
mod kinds;
mod mistakes;
mod walking;

use forms::{Dice, named};
use generator::{Schema, understand};
use kinds::{ALL, Kind, TRAFFIC_WATCH};
use mistakes::{Broken, make, mistakes};

/// Number of good specs of each kind: enough that something is at every place of one of them.
const SPECS: u64 = 400;

/// Number of them to try; a mistake is made in any of them.
const GOOD: usize = 40;

/// Concurrent requests.
const CONCURRENCY: usize = 16;

fn schema_of(kind: &'static Kind) -> Schema {
    let schema = understand(kind, &kind.installed());
    schema.unwrap_or_else(|what| panic!("tests/reconcile/schema: {}: {what}", kind.name))
}

#[test]
fn a_field_that_the_generator_does_not_know_is_a_failure_that_reports_it() {
    let error = |place: &str, value: Value| {
        let mut schema = TRAFFIC_WATCH.installed();
        let (parent, key) = place.rsplit_once('/').expect("a pointer");
        let parent = schema.pointer_mut(parent).expect("a place");
        match (parent.as_array_mut(), key) {
            (Some(list), _) => list.push(value),
            (None, key) => parent[key] = value,
        }
        understand(TRAFFIC_WATCH, &schema).err().unwrap_or_default()
    };
    assert_eq!(error("/description", json!("text")), "");
    let fields = "/properties/spec/properties";
    let rule = json!({"rule": "true", "message": "spec.mode: excludes spec.paused"});
    for (place, value, expected) in [
        (format!("{fields}/speed"), json!({"type": "string"}), "spec.speed: is a text"),
        (format!("{fields}/limit"), json!({"type": "integer"}), "spec.limit: has no minimum"),
        (format!("{fields}/mode/pattern"), json!("^A"), "the keyword \"pattern\""),
        ("/x-kubernetes-validations/-".to_owned(), rule, "excludes spec.paused"),
    ] {
        let text = error(&place, value);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn what_a_schema_allows_is_accepted_and_each_mistake_is_refused_with_its_path_and_the_fix() {
    run(async |bench| {
        for kind in ALL {
            let schema = schema_of(kind);
            let specs = (0..SPECS).map(|case| schema.spec(&mut Dice::new(case)));
            let specs: Vec<_> = specs.collect();
            accepted(&bench, kind, &specs).await;
            refused(&bench, kind, &schema, &specs).await;
        }
    });
}

async fn accepted(bench: &Bench, kind: &Kind, specs: &[Value]) {
    let longest = "n".repeat(kind.longest_name.unwrap_or(1));
    let checks = specs.iter().enumerate().take(GOOD).map(|(case, spec)| {
        let longest = &longest;
        async move {
            let what = format!("{}, {}: {spec}", kind.name, named(case));
            match kind.create(bench, longest, spec, true).await {
                Err(error) => Some(format!("{what}\n  is refused: {error}")),
                Ok(stored) => {
                    let error = (kind.read)(serde_json::to_value(stored).expect("JSON"));
                    error.map(|error| format!("{what}\n  cannot be read: {error}"))
                }
            }
        }
    });
    assert_no_complaints(stream::iter(checks)).await;
}

/// Every mistake at every place, every breach of a rule, and a name that is too long.
async fn refused(bench: &Bench, kind: &Kind, schema: &Schema, specs: &[Value]) {
    let places = schema.all();
    let all = places.iter().flat_map(|node| mistakes(node).into_iter().map(move |m| (*node, m)));
    let all: Vec<_> = all.collect();
    assert!(all.len() > 100, "{}: only {} mistakes", kind.name, all.len());
    let mut dice = Dice::new(0);
    let single = all.iter().enumerate().map(|(from, (node, mistake))| {
        let (case, broken) = make(specs, from, (node, mistake), &mut dice);
        (case, format!("{} {mistake:?}", node.path), broken)
    });
    let patches = kind.rules.iter().flat_map(|(message, breaches)| {
        let breaches = breaches().as_array().expect("a list").clone();
        breaches.into_iter().map(move |breach| (*message, breach))
    });
    let rules = patches.enumerate().map(|(case, (message, breach))| {
        let spec = with(specs[case].clone(), &breach);
        (case, message.to_owned(), Broken { spec, said: vec![message.to_owned()] })
    });
    let checks = single.chain(rules).map(|(case, what, broken)| async move {
        let spec = broken.spec.to_string();
        // Lists that are too long are in the message of the API server, too.
        let short: String = spec.chars().take(1000).collect();
        let text = format!("{}, {}, {what}: {short}", kind.name, named(case));
        match kind.create(bench, "bad", &broken.spec, true).await {
            Ok(_) => Some(format!("{text}\n  is accepted")),
            Err(error) => {
                let error = error.to_string();
                let lacks = broken.said.iter().find(|said| !error.contains(*said))?;
                Some(format!("{text}\n  lacks {lacks:?}: {error}"))
            }
        }
    });
    assert_no_complaints(stream::iter(checks)).await;
    if let Some(longest) = kind.longest_name {
        let name = "n".repeat(longest + 1);
        let error = kind.create(bench, &name, &(kind.plain)(), true).await.expect_err("too long");
        assert!(error.to_string().contains("metadata.name: "), "{}: {error}", kind.name);
    }
}

/// A TrafficWatch with exactly this spec.
fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

/// `field:` with nothing after it is how templates leave a field out.
#[test]
fn null_is_the_same_as_absent_in_every_field() {
    run(async |bench| {
        three_nodes(&bench).await;
        let fields = TRAFFIC_WATCH.installed()["properties"]["spec"]["properties"].clone();
        let fields = fields.as_object().expect("fields").keys();
        let mut nulls: Value = fields.map(|field| (field.clone(), Value::Null)).collect();
        nulls["maxBandwidthPercent"] = "60".into();
        nulls["consecutive"] = json!({"unfit": null, "fit": 1});
        nulls["onUnknown"] = json!({"after": null, "action": null});
        nulls["eviction"] = json!({"after": null, "maxPerPass": null});
        nulls["deployment"] = deployment();
        nulls["interval"] = "1s".into();
        bench.create(object("nulls", &nulls)).await.expect("accepted");
        let _operator = bench.operator();
        let message = bench.condition("nulls", "Ready", "True", "Judged").await;
        assert_eq!(message, "every node with data has been judged");
    });
}

/// Runs all checks; panics with the first few complaints, if there are any.
async fn assert_no_complaints<F: Future<Output = Option<String>>>(
    checks: impl StreamExt<Item = F>,
) {
    let complaints = checks.buffer_unordered(CONCURRENCY).filter_map(std::future::ready);
    let complaints: Vec<_> = complaints.collect().await;
    let first: Vec<_> =
        complaints.iter().take(5).map(|text| text.replace("aaaaaaaa", "")).collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), first.join("\n"));
}
