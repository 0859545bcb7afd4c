//! Every way in which a single value of a spec can be wrong.
use serde_json::{Value, json};

use super::{
    forms::Dice,
    generator::{Node, Shape},
};

/// A change that makes a good spec wrong.
#[derive(Clone, Debug)]
pub enum Mistake {
    Replace(Value),
    /// A value that a rule of the field refuses, with its words.
    Ruled(Value, String),
    Remove(String),
    Add,
    TooMany(usize),
    Twice,
}

/// A spec with one mistake, and what the refusal must say.
#[derive(Debug)]
pub struct Broken {
    pub spec: Value,
    pub said: Vec<String>,
}

/// Every mistake that can be made at one place.
pub fn mistakes(node: &Node) -> Vec<Mistake> {
    let types = |wrong: Value| wrong.as_array().cloned().unwrap_or_default();
    let mut values = match &node.shape {
        Shape::Deployment => types(json!(["text", 1, [], true, {"replicas": 1}])),
        Shape::Words(words) => types(json!([7, {"a": 1}, "Nope", words[0].to_lowercase()])),
        Shape::Number => types(json!(["7", 1.5, {}, true])),
        // A policy checks the rest.
        Shape::Reference => types(json!([{}, {"name": 5}, "a".repeat(254)])),
        Shape::Flag => types(json!(["true", 1, []])),
        Shape::Whole { least, most } => types(json!(["7", 1.5, {}, true, least - 1, most + 1])),
        Shape::Text { or_whole: true, .. } => types(json!([true, {"a": 1}, [1], 1.5])),
        Shape::Text { .. } => types(json!([7, true, {"a": 1}, ["a"]])),
        Shape::Object { .. } | Shape::Map(_) => types(json!(["text", 7, [1]])),
        Shape::List { .. } => types(json!(["text", 7, {"a": 1}])),
    };
    let mut all = vec![];
    if let Shape::Text { form, message, least, most, .. } = &node.shape {
        let message = message.clone().unwrap_or_default();
        let bad = form.bad().into_iter();
        all.extend(bad.map(|value| match value.as_str().map(|text| text.chars().count()) {
            // The schema says it first.
            Some(length) if length < *least || most.is_some_and(|most| length > most) => {
                Mistake::Replace(value)
            }
            _ => Mistake::Ruled(value, message.clone()),
        }));
        values.extend(most.map(|most| json!("a".repeat(most + 1))));
        values.extend((*least > 0).then(|| json!("")));
    }
    all.extend(values.into_iter().map(Mistake::Replace));
    match &node.shape {
        Shape::Object { fields } => {
            all.push(Mistake::Add);
            let required = fields.iter().filter(|field| field.required);
            all.extend(required.map(|field| Mistake::Remove(field.name.clone())));
        }
        Shape::List { least, most, keys, set, .. } => {
            // Ten thousands take too long, and a set of words has no more of them.
            all.extend(most.filter(|most| *most <= 100 && !set).map(Mistake::TooMany));
            all.extend((!keys.is_empty() || *set).then_some(Mistake::Twice));
            all.extend((*least > 0).then(|| Mistake::Replace(json!([]))));
        }
        _ => {}
    }
    // The whole spec has no path of its own, and is never replaced.
    all.retain(|mistake| !node.path.is_empty() || !matches!(mistake, Mistake::Replace(_)));
    all
}

/// Makes a mistake in one of these good specs, from the one of this number on, that has something at
/// this place; returns its number as well.
pub fn make(
    specs: &[Value],
    from: usize,
    (node, mistake): (&Node, &Mistake),
    dice: &mut Dice,
) -> (usize, Broken) {
    let mut cases = (0..specs.len()).map(|i| (from + i) % specs.len());
    let (case, place) = cases
        .find_map(|case| {
            let places = places(&specs[case], &node.path);
            (!places.is_empty()).then(|| (case, dice.one(&places)))
        })
        .unwrap_or_else(|| panic!("no generated spec has spec.{}", node.path));
    let mut spec = specs[case].clone();
    let at = spec.pointer_mut(&place).expect("a place");
    let path = path(&place);
    let said = match mistake {
        Mistake::Replace(value) => {
            *at = value.clone();
            vec![path]
        }
        Mistake::Ruled(value, message) => {
            *at = value.clone();
            vec![path, message.clone()]
        }
        Mistake::Remove(field) => {
            at.as_object_mut().expect("an object").remove(field);
            vec![format!("{path}.{field}: Required value")]
        }
        Mistake::Add => {
            at["unheardOf"] = json!(1);
            vec![format!("unknown field \"{path}.unheardOf\"")]
        }
        Mistake::TooMany(most) => {
            *at = node.items(most + 1, dice).into();
            vec![path]
        }
        Mistake::Twice => {
            let item = node.items(1, dice).remove(0);
            *at = json!([item, item]);
            vec![format!("{path}[1]: Duplicate value")]
        }
    };
    (case, Broken { spec, said })
}

/// The JSON pointers of a pattern like `criteria[].max` in a spec.
fn places(spec: &Value, pattern: &str) -> Vec<String> {
    let steps = pattern.replace("[]", ".[]").replace("{}", ".[]");
    let mut found = vec![String::new()];
    for step in steps.split('.').filter(|step| !step.is_empty()) {
        let next = |place: &String| -> Vec<String> {
            let here = spec.pointer(place).expect("a place");
            let keys: Vec<String> = match (step, here) {
                ("[]", Value::Array(items)) => (0..items.len()).map(|i| i.to_string()).collect(),
                ("[]", Value::Object(map)) => map.keys().cloned().collect(),
                (name, here) => here.get(name).map(|_| name.to_owned()).into_iter().collect(),
            };
            let escaped = keys.into_iter().map(|key| key.replace('~', "~0").replace('/', "~1"));
            escaped.map(|key| format!("{place}/{key}")).collect()
        };
        found = found.iter().flat_map(next).collect();
    }
    let there = |place: &String| spec.pointer(place).is_some_and(|value| !value.is_null());
    found.into_iter().filter(there).collect()
}

/// A JSON pointer as the API server writes it: `spec.criteria[0].max`.
fn path(pointer: &str) -> String {
    let steps = pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    steps.fold("spec".to_owned(), |path, step| match step.parse::<usize>() {
        Ok(index) => format!("{path}[{index}]"),
        Err(_) => format!("{path}.{step}"),
    })
}
