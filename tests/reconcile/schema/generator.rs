//! Reads the schema of the CRD, and generates specs: good ones, and ones with a single mistake.
use serde_json::{Map, Value, json};
use traffic_operator::api::KINDS;

use super::forms::{Dice, FORMS, Form, key};
use crate::traffic_watch::judging::deployment;

/// A place in the schema.
pub struct Node {
    /// The path from the spec: `criteria[].max`.
    pub path: String,
    nullable: bool,
    pub shape: Shape,
}

/// The form of a value at a place.
pub enum Shape {
    /// The embedded Deployment, which is always the same small one.
    Deployment,
    Words(Vec<String>),
    Whole {
        least: i64,
        most: i64,
    },
    Flag,
    Text {
        form: &'static Form,
        least: usize,
        most: Option<usize>,
        or_whole: bool,
    },
    Object {
        fields: Vec<Field>,
    },
    Map(Box<Node>),
    List {
        item: Box<Node>,
        most: Option<usize>,
        keys: Vec<String>,
    },
}

pub struct Field {
    pub name: String,
    pub required: bool,
    pub node: Node,
}

/// A change to a spec.
pub type Change = fn(&mut Map<String, Value>);

/// The rules that connect fields, each by the beginning of its message, and a way to break it in a
/// good spec; the first is about the name and not about the spec.
pub const RULES: &[(&str, Option<Change>)] = &[
    ("metadata.name: too long", None),
    ("spec: at least one of maxBandwidthPercent", Some(without_measures)),
    (
        "spec.maxBandwidth: cannot be set together",
        Some(|spec| {
            spec.insert("maxBandwidth".into(), json!("1G"));
            spec.insert("maxBandwidthPercent".into(), json!("60"));
        }),
    ),
    (
        "spec.query: needs",
        Some(|spec| {
            without_measures(spec);
            spec.insert("query".into(), json!("x"));
            spec.insert("criteria".into(), json!([{"name": "loss", "query": "x", "max": 1}]));
        }),
    ),
    (
        "spec.direction, devices, window, maxSampleAge, capacity: belong",
        Some(|spec| {
            spec.remove("maxBandwidth");
            spec.insert("maxBandwidthPercent".into(), json!("60"));
            spec.insert("query".into(), json!("x"));
            spec.insert("window".into(), json!("3m"));
        }),
    ),
    (
        "spec.eviction: needs",
        Some(|spec| {
            spec.remove("deployment");
            spec.insert("eviction".into(), json!({}));
        }),
    ),
];

fn without_measures(spec: &mut Map<String, Value>) {
    spec.retain(|name, _| {
        let name = name.as_str();
        !BUILT_IN.contains(&name) && !MEASURES.contains(&name)
    });
}

const BUILT_IN: [&str; 5] = ["capacity", "devices", "direction", "maxSampleAge", "window"];
const MEASURES: [&str; 4] = ["maxBandwidthPercent", "maxBandwidth", "query", "criteria"];

/// The schema of the object, as it is installed.
pub fn installed() -> Value {
    let crd = (KINDS[0].crd)();
    let schema = crd.spec.versions[0].schema.clone().and_then(|s| s.open_api_v3_schema);
    serde_json::to_value(schema).expect("JSON")
}

/// Parses the schema of the spec.
pub fn understand(object: &Value) -> Result<Node, String> {
    let rules = object["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
    let messages: Vec<_> = rules.iter().filter_map(|rule| rule["message"].as_str()).collect();
    for message in &messages {
        if !RULES.iter().any(|(start, _)| message.starts_with(start)) {
            return Err(format!("the rule {message:?} is new: add it to RULES and to `repair`"));
        }
    }
    for (start, _) in RULES {
        if !messages.iter().any(|message| message.starts_with(start)) {
            return Err(format!("the rule {start:?} is gone from the schema"));
        }
    }
    node(&object["properties"]["spec"], String::new())
}

fn node(schema: &Value, path: String) -> Result<Node, String> {
    const KNOWN: &[&str] = &[
        "type",
        "description",
        "default",
        "nullable",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "format",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "maxItems",
        "x-kubernetes-int-or-string",
        "x-kubernetes-validations",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
    ];
    let nullable = schema["nullable"] == true;
    if path == "deployment" {
        return Ok(Node { path, nullable, shape: Shape::Deployment });
    }
    let keywords = schema.as_object().ok_or(format!("{path}: no schema"))?;
    if let Some(keyword) = keywords.keys().find(|keyword| !KNOWN.contains(&keyword.as_str())) {
        return Err(format!("spec.{path}: the generator does not know the keyword {keyword:?}"));
    }
    let shape = shape(schema, &path)?;
    if !matches!(shape, Shape::Text { .. }) && schema.get("x-kubernetes-validations").is_some() {
        return Err(format!("spec.{path}: the generator knows rules of texts only"));
    }
    Ok(Node { path, nullable, shape })
}

fn shape(schema: &Value, path: &str) -> Result<Shape, String> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "bounds of 32 bits, which JSON has as floats"
    )]
    let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
    let length = |name: &str| bound(name).and_then(|length| usize::try_from(length).ok());
    let or_whole = schema["x-kubernetes-int-or-string"] == true;
    let missing = |what: &str| format!("spec.{path}: {what}");
    if let Some(words) = schema["enum"].as_array() {
        return Ok(Shape::Words(
            words.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect(),
        ));
    }
    match schema["type"].as_str() {
        Some("boolean") => Ok(Shape::Flag),
        Some("integer") => Ok(Shape::Whole {
            least: bound("minimum").ok_or_else(|| missing("has no minimum"))?,
            most: bound("maximum").ok_or_else(|| missing("has no maximum"))?,
        }),
        Some("string") | None if or_whole || schema["type"] == "string" => {
            let form = FORMS.iter().find(|form| form.path == path).ok_or_else(|| {
                missing("is a text that this test has no good and bad values for: add it to FORMS")
            })?;
            let (least, most) = (length("minLength").unwrap_or(0), length("maxLength"));
            Ok(Shape::Text { form, least, most, or_whole })
        }
        Some("array") => {
            let item = Box::new(node(&schema["items"], format!("{path}[]"))?);
            let keys = schema["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
            let keys = keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect();
            Ok(Shape::List { item, most: length("maxItems"), keys })
        }
        Some("object") => match schema["properties"].as_object() {
            Some(properties) => {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                let dot = if path.is_empty() { "" } else { "." };
                let fields = properties.iter().map(|(name, schema)| {
                    let required = required.iter().any(|r| r == name);
                    let node = node(schema, format!("{path}{dot}{name}"))?;
                    Ok(Field { name: name.clone(), required, node })
                });
                Ok(Shape::Object { fields: fields.collect::<Result<_, String>>()? })
            }
            None => Ok(Shape::Map(Box::new(node(
                &schema["additionalProperties"],
                format!("{path}{{}}"),
            )?))),
        },
        other => Err(missing(&format!("the generator does not know the type {other:?}"))),
    }
}

impl Node {
    /// All places, this one included.
    pub fn all(&self) -> Vec<&Self> {
        let below: Vec<_> = match &self.shape {
            Shape::Object { fields } => fields.iter().flat_map(|field| field.node.all()).collect(),
            Shape::Map(item) | Shape::List { item, .. } => item.all(),
            _ => vec![],
        };
        std::iter::once(self).chain(below).collect()
    }

    /// A good spec.
    pub fn spec(&self, dice: &mut Dice) -> Value {
        let mut spec = self.value(dice);
        repair(spec.as_object_mut().expect("a spec"), dice);
        spec
    }

    /// A good value of this place.
    pub fn value(&self, dice: &mut Dice) -> Value {
        match &self.shape {
            Shape::Deployment => deployment(),
            Shape::Words(words) => json!(dice.one(words)),
            Shape::Flag => json!(dice.percent(20)),
            Shape::Whole { least, most } => {
                let (least, most) = (*least, *most);
                let any = dice.draw(least..=most);
                json!(dice.one(&[least, least, most, any]))
            }
            Shape::Text { form, .. } => (form.good)(dice),
            Shape::Object { fields } => {
                let mut object = Map::new();
                for Field { name, required, node } in fields {
                    if *required || dice.percent(45) {
                        let null = node.nullable && !required && dice.percent(10);
                        let value = if null { Value::Null } else { node.value(dice) };
                        object.insert(name.clone(), value);
                    }
                }
                object.into()
            }
            Shape::Map(item) => {
                let count = dice.below(2);
                let entry = |dice: &mut Dice| {
                    (key(dice).as_str().expect("a key").to_owned(), item.value(dice))
                };
                (0..count).map(|_| entry(dice)).collect::<Map<_, _>>().into()
            }
            Shape::List { most, .. } => {
                let count = if dice.percent(10) { most.unwrap_or(3) } else { dice.below(3) };
                self.items(count, dice).into()
            }
        }
    }

    /// Items of a list, no two of which have the same keys.
    pub fn items(&self, count: usize, dice: &mut Dice) -> Vec<Value> {
        let Shape::List { item, keys, .. } = &self.shape else { return vec![] };
        let mut items: Vec<Value> = vec![];
        while items.len() < count {
            let new = item.value(dice);
            let same = |other: &Value| keys.iter().all(|key| other[key] == new[key]);
            if keys.is_empty() || !items.iter().any(same) {
                items.push(new);
            }
        }
        items
    }
}

/// Makes the fields of a spec consistent, as the rules of the object demand.
fn repair(spec: &mut Map<String, Value>, dice: &mut Dice) {
    let has = |spec: &Map<String, Value>, name: &str| spec.get(name).is_some_and(|v| !v.is_null());
    if has(spec, "maxBandwidth") && has(spec, "maxBandwidthPercent") {
        spec.remove(dice.one(&["maxBandwidth", "maxBandwidthPercent"]));
    }
    let criteria = spec.get("criteria").and_then(Value::as_array).is_some_and(|c| !c.is_empty());
    let bandwidth = has(spec, "maxBandwidth") || has(spec, "maxBandwidthPercent");
    if !bandwidth && !criteria {
        spec.insert("maxBandwidthPercent".into(), json!("60"));
    }
    let bandwidth = bandwidth || !criteria;
    if has(spec, "query") && (!bandwidth || dice.percent(50)) {
        spec.remove("query");
    }
    if !bandwidth || has(spec, "query") {
        spec.retain(|name, _| !BUILT_IN.contains(&name.as_str()));
    }
    if has(spec, "eviction") {
        spec.insert("deployment".into(), deployment());
    }
}
