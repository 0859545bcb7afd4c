//! Specs made from the CRD's own schema: allowed ones are accepted and served, others are refused
//! with the path; and one object goes through all of them.
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use traffic_operator::api::TrafficWatch;

use crate::{
    admission::object,
    bench::run,
    traffic_watch::judging::{deployment, three_nodes},
};

mod forms;
mod generator;
mod kinds;
mod mistakes;
mod others;
mod served;
mod walks;

use forms::Dice;
use generator::{Schema, understand};
use kinds::{Kind, TRAFFIC_WATCH};
use walks::{named, seed};

/// Number of good specs to try.
const GOOD: u64 = 150;

/// Concurrent requests.
const CONCURRENCY: usize = 16;

fn schema() -> Schema {
    schema_of(&TRAFFIC_WATCH)
}

fn schema_of(kind: &'static Kind) -> Schema {
    let schema = understand(kind, &kind.installed());
    schema.unwrap_or_else(|what| panic!("tests/reconcile/schema: {}: {what}", kind.name))
}

#[test]
fn a_field_that_the_generator_does_not_know_is_a_failure_that_reports_it() {
    let error = |change: fn(&mut Value)| {
        let mut schema = TRAFFIC_WATCH.installed();
        change(&mut schema);
        understand(&TRAFFIC_WATCH, &schema).err().unwrap_or_default()
    };
    assert_eq!(error(|_| {}), "");
    let text =
        error(|s| s["properties"]["spec"]["properties"]["speed"] = json!({"type": "string"}));
    assert!(text.contains("spec.speed") && text.contains("add it to FORMS"), "{text}");
    let text = error(|s| {
        s["properties"]["spec"]["properties"]["limit"] = json!({"type": "integer", "minimum": 0});
    });
    assert!(text.contains("spec.limit: has no maximum"), "{text}");
    let text = error(|s| {
        s["properties"]["spec"]["properties"]["mode"]["pattern"] = json!("^A");
    });
    assert!(text.contains("spec.mode") && text.contains("\"pattern\""), "{text}");
    let text = error(|s| {
        let rules = s["x-kubernetes-validations"].as_array_mut().expect("rules");
        rules.push(json!({"rule": "true", "message": "spec.mode: excludes spec.paused"}));
    });
    assert!(text.contains("excludes spec.paused") && text.contains("RULES"), "{text}");
}

#[test]
fn what_the_schema_allows_is_accepted_and_can_be_read() {
    run(async |bench| {
        let schema = schema();
        let (bench, schema) = (&bench, &schema);
        let checks = (0..GOOD).map(|case| async move {
            let spec = schema.spec(&mut Dice::new(seed(), case));
            let what = format!("{}: {spec}", named(case));
            match bench.dry_run(object("good", &spec)).await {
                Err(error) => Some(format!("{what}\n  is refused: {error}")),
                Ok(stored) => {
                    let stored = serde_json::to_value(stored).expect("JSON");
                    let read = serde_json::from_value::<TrafficWatch>(stored).err();
                    read.map(|error| format!("{what}\n  cannot be read: {error}"))
                }
            }
        });
        assert_no_complaints(stream::iter(checks)).await;
    });
}

#[test]
fn each_single_mistake_is_refused_with_its_path() {
    run(async |bench| {
        let schema = schema();
        let places = schema.all();
        let all: Vec<_> = places
            .iter()
            .flat_map(|node| mistakes::mistakes(node).into_iter().map(move |m| (*node, m)))
            .collect();
        assert!(all.len() > 200, "only {} mistakes", all.len());
        let (bench, schema) = (&bench, &schema);
        // Each mistake in two different specs.
        let cases = all.iter().chain(&all).zip(GOOD..).map(|((node, mistake), case)| {
            let broken = mistakes::make(schema, node, mistake, &mut Dice::new(seed(), case));
            (case, format!("{} {mistake:?}", node.path), broken)
        });
        let rules =
            TRAFFIC_WATCH.rules.iter().filter_map(|(start, broken)| Some((start, (*broken)?)));
        let cases = cases.chain(rules.zip(0..).map(|((start, change), case)| {
            let mut spec = schema.spec(&mut Dice::new(seed(), case));
            change(spec.as_object_mut().expect("a spec"));
            (case, (*start).to_owned(), mistakes::Broken { spec, said: (*start).to_owned() })
        }));
        let checks = cases.map(|(case, what, broken)| async move {
            let text = format!("{}, {what}: {}", named(case), broken.spec);
            match bench.dry_run(object("bad", &broken.spec)).await {
                Ok(_) => Some(format!("{text}\n  is accepted")),
                Err(error) if error.to_string().contains(&broken.said) => None,
                Err(error) => Some(format!("{text}\n  lacks {:?}: {error}", broken.said)),
            }
        });
        assert_no_complaints(stream::iter(checks)).await;
    });
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
