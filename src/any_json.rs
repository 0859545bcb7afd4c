//! Any JSON, for properties of what reads it.
use proptest::{collection, prelude::*};
use serde_json::{Value, json};

/// Any JSON whose fields have these names, separated by blanks, and whose texts are these ones or
/// any short ones: names and texts that mean something lead further into a reader.
pub fn of(names: &str, texts: &[&str]) -> impl Strategy<Value = Value> + use<> {
    let names: Vec<_> = names.split_whitespace().map(str::to_owned).collect();
    let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        prop::sample::select(texts).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        let name = prop::sample::select(names.clone());
        prop_oneof![
            1 => collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => collection::btree_map(name, inner, 0..6).prop_map(|all| json!(all)),
        ]
    })
}
