//! The same for the other kinds: what their schemas allow is accepted, everything else is refused
//! with the path, and one object of each goes through generated specs and back.
use futures::stream;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    assert_no_complaints,
    forms::Dice,
    kinds::{Kind, NETWORK_PROBER, ROUTE_REFLECTOR_SET, SWARM},
    mistakes, schema_of,
    served::difference,
    walks::{Walk, named, seed, steps},
};
use crate::bench::{Bench, Operator, eventually, eventually_or, run};

/// Number of good specs to try.
const GOOD: u64 = 40;

/// Number of specs that one object goes through; each takes a pass or two.
const STEPS: u64 = 10;

/// Longer than elsewhere: these tests load the machine, which may have other work.
const LEASE: &str = "15s";

/// The object that goes through all specs.
const WALKER: &str = "walker";

/// Tries good specs, and specs with each single mistake.
async fn tried(bench: &Bench, kind: &'static Kind) {
    let schema = schema_of(kind);
    let good = (0..GOOD).map(|case| {
        let spec = schema.spec(&mut Dice::new(seed(), case));
        async move {
            let what = format!("{}, {}: {spec}", kind.name, named(case));
            match kind.create(bench, "good", &spec, true).await {
                Err(error) => Some(format!("{what}\n  is refused: {error}")),
                Ok(stored) => {
                    let stored = serde_json::to_value(stored).expect("JSON");
                    let error = (kind.read)(stored);
                    error.map(|error| format!("{what}\n  cannot be read: {error}"))
                }
            }
        }
    });
    assert_no_complaints(stream::iter(good)).await;

    let places = schema.all();
    let all: Vec<_> = places
        .iter()
        .flat_map(|node| mistakes::mistakes(node).into_iter().map(move |m| (*node, m)))
        .collect();
    assert!(all.len() > 100, "{}: only {} mistakes", kind.name, all.len());
    let single = all.iter().zip(GOOD..).map(|((node, mistake), case)| {
        let broken = mistakes::make(&schema, node, mistake, &mut Dice::new(seed(), case));
        (case, format!("{} {mistake:?}", node.path), broken)
    });
    let rules = kind.rules.iter().filter_map(|(start, broken)| Some((*start, (*broken)?)));
    let rules = rules.zip(0..).map(|((start, change), case)| {
        let mut spec = schema.spec(&mut Dice::new(seed(), case));
        change(spec.as_object_mut().expect("a spec"));
        (case, start.to_owned(), mistakes::Broken { spec, said: start.to_owned() })
    });
    let checks = single.chain(rules).map(|(case, what, broken)| async move {
        let spec = broken.spec.to_string();
        // Lists that are too long are in the message of the API server, too.
        let short: String = spec.chars().take(1000).collect();
        let text = format!("{}, {}, {what}: {short}", kind.name, named(case));
        match kind.create(bench, "bad", &broken.spec, true).await {
            Ok(_) => Some(format!("{text}\n  is accepted")),
            Err(error) if error.to_string().contains(&broken.said) => None,
            Err(error) => Some(format!("{text}\n  lacks {:?}: {error}", broken.said)),
        }
    });
    assert_no_complaints(stream::iter(checks)).await;
}

/// Waits until the condition Ready is about the present spec, gives a reason, and has an accepted
/// status and reason; returns these.
async fn settled(
    api: &Api<DynamicObject>,
    what: &str,
    accepts: impl Fn(&str, &str) -> bool,
) -> (String, String) {
    let holds = async || {
        let object = api.get(WALKER).await.expect("walker");
        let generation = object.metadata.generation;
        let conditions = object.data["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        let (status, reason, message) = (text("status"), text("reason"), text("message"));
        let seen = ready["observedGeneration"].as_i64() == generation;
        let explained = !reason.is_empty() && !message.is_empty();
        let accepted = accepts(&status, &reason);
        (seen && explained && accepted).then_some((status, reason))
    };
    let state = async || {
        let object = api.get(WALKER).await;
        object.map_or_else(|error| error.to_string(), |object| object.data.to_string())
    };
    eventually_or(&format!("{what}: the condition Ready"), holds, state).await
}

/// Replaces the whole spec, like a user who edits it; returns the refusal, if there is one.
async fn replace(api: &Api<DynamicObject>, spec: &Value, what: &str) -> Option<String> {
    let old = api.get(WALKER).await.expect("walker");
    let patch = Patch::Merge(json!({"spec": difference(&old.data["spec"], spec)}));
    let refused = api.patch(WALKER, &PatchParams::default(), &patch).await.err();
    refused.map(|error| format!("{what}: {spec}\n  is refused: {error}"))
}

async fn deleted_fields_have_their_defaults(api: &Api<DynamicObject>, kind: &Kind) {
    let fields = kind.installed()["properties"]["spec"]["properties"].clone();
    let mut checked = 0;
    for (field, schema) in fields.as_object().expect("fields") {
        let Some(default) = schema.get("default") else { continue };
        if kind.kept.contains(&field.as_str()) {
            continue;
        }
        let patch = Patch::Merge(json!({"spec": {field: null}}));
        let stored = api.patch(WALKER, &PatchParams::default(), &patch).await;
        let stored = stored.unwrap_or_else(|error| panic!("{}: spec.{field}: {error}", kind.name));
        assert_eq!(stored.data["spec"][field], *default, "{}: spec.{field}", kind.name);
        checked += 1;
    }
    assert!(checked > 2, "{}: only {checked} defaults", kind.name);
}

fn is_well(operator: &mut Operator, what: &str) {
    let ended = operator.child.try_wait().expect("wait");
    assert!(ended.is_none(), "{what}: the operator ended: {ended:?}\n{}", operator.log());
    assert!(!operator.log().contains("panicked"), "{what}: {}", operator.log());
}

/// One object goes from each generated spec to the next, and back to the first one.
async fn walked(bench: &Bench, kind: &'static Kind) {
    for node in ["node-1", "node-2"] {
        bench.node(node).await;
    }
    let (schema, api) = (schema_of(kind), kind.api(bench));
    let plain = (kind.plain)();
    kind.create(bench, WALKER, &plain, false).await.expect("accepted");
    let mut operator = bench.operator_with("operator-1", LEASE);
    operator.ready().await;
    let mut walk = Walk::of(kind.name);
    let (first, _) = settled(&api, kind.name, |_, _| true).await;
    for case in 0..steps(STEPS) {
        let mut spec = schema.spec(&mut Dice::new(seed(), case));
        (kind.keep)(spec.as_object_mut().expect("a spec"));
        let what = format!("{}, {}", kind.name, named(case));
        let refused = replace(&api, &spec, &what).await;
        let stays = refused.is_some();
        walk.went(refused);
        if stays {
            continue;
        }
        settled(&api, &what, |_, _| true).await;
        is_well(&mut operator, &what);
    }
    walk.went(replace(&api, &plain, "back").await);
    // The first condition may have been on the way to a better one.
    let recovered = |status: &str, reason: &str| {
        reason != "InvalidSpec" && (first != "True" || status == "True")
    };
    settled(&api, &format!("{}, back", kind.name), recovered).await;
    deleted_fields_have_their_defaults(&api, kind).await;
    settled(&api, &format!("{}, defaults", kind.name), |_, _| true).await;
    is_well(&mut operator, kind.name);
    api.delete(WALKER, &DeleteParams::default()).await.expect("delete");
    walk.end();
    // A finalizer of route reflectors may wait for Calico, which is not there.
    if kind.name != ROUTE_REFLECTOR_SET.name {
        let gone = async || api.get_opt(WALKER).await.ok()?.is_none().then_some(());
        eventually(&format!("{}: {WALKER} to go", kind.name), gone).await;
    }
    assert_eq!(operator.terminate().await, Some(0));
}

#[test]
fn a_network_prober_is_what_its_schema_says() {
    run(async |bench| tried(&bench, &NETWORK_PROBER).await);
}

#[test]
fn a_swarm_is_what_its_schema_says() {
    run(async |bench| tried(&bench, &SWARM).await);
}

#[test]
fn a_route_reflector_set_is_what_its_schema_says() {
    run(async |bench| tried(&bench, &ROUTE_REFLECTOR_SET).await);
}

#[test]
fn a_network_prober_goes_through_generated_specs_and_back() {
    run(async |bench| walked(&bench, &NETWORK_PROBER).await);
}

#[test]
fn a_swarm_goes_through_generated_specs_and_back() {
    run(async |bench| walked(&bench, &SWARM).await);
}

#[test]
fn a_route_reflector_set_goes_through_generated_specs_and_back() {
    run(async |bench| walked(&bench, &ROUTE_REFLECTOR_SET).await);
}
