//! Reads the schema of a CRD, and generates good specs.
use serde_json::{Map, Value, json};

use super::{
    forms::{Dice, Form, KEYS},
    kinds::Kind,
};
use crate::traffic_watch::judging::deployment;

/// The longest generated list: the API takes 30,000 streams.
const LONGEST: usize = 40;

/// The schema of the spec of one kind.
pub struct Schema {
    root: Node,
    kind: &'static Kind,
}

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
    /// A number of any size.
    Number,
    Flag,
    /// `{name: …}`, which has no type in the schema.
    Reference,
    Text {
        form: &'static Form,
        /// What its rule says.
        message: Option<String>,
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
        least: usize,
        most: Option<usize>,
        keys: Vec<String>,
        /// No item may occur twice.
        set: bool,
    },
}

pub struct Field {
    pub name: String,
    pub required: bool,
    pub node: Node,
}

/// Parses the schema of the spec.
pub fn understand(kind: &'static Kind, object: &Value) -> Result<Schema, String> {
    let mut messages = messages(object);
    let root =
        Reader { messages: &mut messages }.node(&object["properties"]["spec"], String::new())?;
    // These are not about a single spec.
    messages.retain(|m| !m.starts_with("metadata.name: ") && !m.contains("cannot change"));
    for message in &messages {
        if !kind.rules.iter().any(|(start, _)| message.starts_with(start)) {
            return Err(format!("the rule {message:?} is new: add it to RULES and to `repair`"));
        }
    }
    for (start, _) in kind.rules {
        if !messages.iter().any(|message| message.starts_with(start)) {
            return Err(format!("the rule {start:?} is gone from the schema"));
        }
    }
    Ok(Schema { root, kind })
}

/// The messages of the rules at one place.
fn messages(schema: &Value) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
    rules.iter().filter_map(|rule| rule["message"].as_str().map(str::to_owned)).collect()
}

struct Reader<'m> {
    /// The rules that are not about a single text.
    messages: &'m mut Vec<String>,
}

impl Reader<'_> {
    fn node(&mut self, schema: &Value, path: String) -> Result<Node, String> {
        const KNOWN: &str = "type description default nullable properties required items \
            additionalProperties enum format minimum maximum minLength maxLength minItems maxItems \
            maxProperties x-kubernetes-int-or-string x-kubernetes-preserve-unknown-fields \
            x-kubernetes-validations x-kubernetes-list-map-keys x-kubernetes-list-type";
        let nullable = schema["nullable"] == true;
        if path == "deployment" {
            return Ok(Node { path, nullable, shape: Shape::Deployment });
        }
        let keywords = schema.as_object().ok_or(format!("{path}: no schema"))?;
        let unknown = |keyword: &&String| !KNOWN.split_whitespace().any(|known| known == *keyword);
        if let Some(keyword) = keywords.keys().find(unknown) {
            return Err(format!(
                "spec.{path}: the generator does not know the keyword {keyword:?}"
            ));
        }
        let shape = self.shape(schema, &path)?;
        if !matches!(shape, Shape::Text { .. }) {
            self.messages.extend(messages(schema));
        }
        Ok(Node { path, nullable, shape })
    }

    fn shape(&mut self, schema: &Value, path: &str) -> Result<Shape, String> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "bounds of 32 bits, which JSON has as floats"
        )]
        let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
        let length = |name: &str| bound(name).and_then(|length| usize::try_from(length).ok());
        let or_whole = schema["x-kubernetes-int-or-string"] == true;
        let missing = |what: &str| format!("spec.{path}: {what}");
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            return Ok(Shape::Reference);
        }
        if let Some(words) = schema["enum"].as_array() {
            return Ok(Shape::Words(
                words.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect(),
            ));
        }
        match schema["type"].as_str() {
            Some("boolean") => Ok(Shape::Flag),
            Some("integer") if schema["format"] == "int64" && bound("minimum").is_none() => {
                Ok(Shape::Number)
            }
            Some("integer") => Ok(Shape::Whole {
                least: bound("minimum").ok_or_else(|| missing("has no minimum"))?,
                most: bound("maximum").ok_or_else(|| missing("has no maximum"))?,
            }),
            Some("string") | None if or_whole || schema["type"] == "string" => {
                let lacks =
                    "is a text that this test has no good and bad values for: add it to FORMS";
                let form = Form::of(path).ok_or_else(|| missing(lacks))?;
                let message = messages(schema).pop();
                if message.is_some() == form.bad().is_empty() {
                    return Err(missing("has a rule without bad values, or these without a rule"));
                }
                let (least, most) = (length("minLength").unwrap_or(0), length("maxLength"));
                Ok(Shape::Text { form, message, least, most, or_whole })
            }
            Some("array") => {
                let item = Box::new(self.node(&schema["items"], format!("{path}[]"))?);
                let keys =
                    schema["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
                let keys = keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect();
                let (least, most) = (length("minItems").unwrap_or(0), length("maxItems"));
                let set = schema["x-kubernetes-list-type"] == "set";
                Ok(Shape::List { item, least, most, keys, set })
            }
            Some("object") => match schema["properties"].as_object() {
                Some(properties) => {
                    let required = schema["required"].as_array().cloned().unwrap_or_default();
                    let dot = if path.is_empty() { "" } else { "." };
                    let fields = properties.iter().map(|(name, schema)| {
                        let required = required.iter().any(|r| r == name);
                        let node = self.node(schema, format!("{path}{dot}{name}"))?;
                        Ok(Field { name: name.clone(), required, node })
                    });
                    Ok(Shape::Object { fields: fields.collect::<Result<_, String>>()? })
                }
                None => Ok(Shape::Map(Box::new(
                    self.node(&schema["additionalProperties"], format!("{path}{{}}"))?,
                ))),
            },
            other => Err(missing(&format!("the generator does not know the type {other:?}"))),
        }
    }
}

impl Schema {
    /// All places.
    pub fn all(&self) -> Vec<&Node> {
        self.root.all()
    }

    pub fn spec(&self, dice: &mut Dice) -> Value {
        let mut spec = self.root.value(dice);
        (self.kind.repair)(spec.as_object_mut().expect("a spec"), dice);
        spec
    }
}

impl Node {
    /// All places, this one included.
    fn all(&self) -> Vec<&Self> {
        let below: Vec<_> = match &self.shape {
            Shape::Object { fields } => fields.iter().flat_map(|field| field.node.all()).collect(),
            Shape::Map(item) | Shape::List { item, .. } => item.all(),
            _ => vec![],
        };
        std::iter::once(self).chain(below).collect()
    }

    /// A good value of this place.
    pub fn value(&self, dice: &mut Dice) -> Value {
        match &self.shape {
            Shape::Deployment => deployment(),
            Shape::Words(words) => json!(dice.one(words)),
            Shape::Number => json!(dice.below(3600)),
            Shape::Flag => json!(dice.percent(20)),
            Shape::Reference => json!({"name": dice.one(&["web", "no.such"])}),
            Shape::Whole { least, most } => {
                let (least, most) = (*least, *most);
                let any = dice.draw(least..=most);
                json!(dice.one(&[least, least, most, any]))
            }
            Shape::Text { form, .. } => form.good(dice),
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
                let entry = |dice: &mut Dice| (dice.one(KEYS).to_owned(), item.value(dice));
                (0..count).map(|_| entry(dice)).collect::<Map<_, _>>().into()
            }
            Shape::List { least, most, .. } => {
                let many = most.unwrap_or(3).min(LONGEST);
                let count = if dice.percent(10) { many } else { dice.below(3) };
                self.items(count.max(*least), dice).into()
            }
        }
    }

    /// Items of a list, no two of which have the same keys or, in a set, are the same.
    pub fn items(&self, count: usize, dice: &mut Dice) -> Vec<Value> {
        let Shape::List { item, keys, set, .. } = &self.shape else { return vec![] };
        let mut items: Vec<Value> = vec![];
        while items.len() < count {
            let new = item.value(dice);
            let same = |other: &Value| keys.iter().all(|key| other[key] == new[key]);
            let known = if *set { items.contains(&new) } else { items.iter().any(same) };
            if !known || (keys.is_empty() && !set) {
                items.push(new);
            }
        }
        items
    }
}
