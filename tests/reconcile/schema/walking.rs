//! One object of each kind goes through generated specs and back.
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Map, Value, json};

use super::{
    forms::{Dice, named, number},
    kinds::{ALL, Kind},
    schema_of,
};
use crate::bench::{Bench, Operator, eventually, eventually_or, run};

/// Number of specs that one object goes through; each takes a pass or two.
const STEPS: u64 = 10;

/// Longer than elsewhere: these tests load the machine, which may have other work.
const LEASE: &str = "15s";

/// The object that goes through all specs.
const WALKER: &str = "walker";

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
    let mut refusals = vec![];
    let (first, _) = settled(&api, kind.name, |_, _| true).await;
    for case in 0..number("SCHEMA_STEPS").unwrap_or(STEPS) {
        let mut spec = schema.spec(&mut Dice::new(case));
        (kind.keep)(spec.as_object_mut().expect("a spec"));
        let what = format!("{}, {}", kind.name, named(case));
        if let Some(refused) = replace(&api, &spec, &what).await {
            refusals.push(refused);
            continue;
        }
        settled(&api, &what, |_, _| true).await;
        is_well(&mut operator, &what);
    }
    refusals.extend(replace(&api, &plain, "back").await);
    // The first condition may have been on the way to a better one.
    let recovered = |status: &str, reason: &str| {
        reason != "InvalidSpec" && (first != "True" || status == "True")
    };
    settled(&api, &format!("{}, back", kind.name), recovered).await;
    deleted_fields_have_their_defaults(&api, kind).await;
    settled(&api, &format!("{}, defaults", kind.name), |_, _| true).await;
    is_well(&mut operator, kind.name);
    api.delete(WALKER, &DeleteParams::default()).await.expect("delete");
    assert!(refusals.is_empty(), "{}", refusals.join("\n"));
    // A finalizer of route reflectors may wait for Calico, which is not there.
    if kind.name != "RouteReflectorSet" {
        let gone = async || api.get_opt(WALKER).await.ok()?.is_none().then_some(());
        eventually(&format!("{}: {WALKER} to go", kind.name), gone).await;
    }
    assert_eq!(operator.terminate().await, Some(0));
}

/// Returns the merge patch that turns `old` into `new`.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let nothing = Value::Null;
    let there = new
        .iter()
        .map(|(key, value)| (key.clone(), difference(old.get(key).unwrap_or(&nothing), value)));
    gone.chain(there).collect::<Map<_, _>>().into()
}

#[test]
fn an_object_of_each_kind_goes_through_generated_specs_and_back() {
    for kind in ALL {
        run(async |bench| walked(&bench, kind).await);
    }
}
