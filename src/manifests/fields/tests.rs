//! The writer of the tables, with definitions of all kinds.
use serde_json::{Value, json};

use super::*;

/// Returns a definition with these fields in its spec.
fn definition(fields: &Value) -> Value {
    json!({"spec": {
        "group": "example.com",
        "names": {"kind": "Thing"},
        "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-validations": [{"rule": "x", "message": "spec: a | b"}],
            "properties": {
                "spec": {"type": "object", "required": ["name"], "properties": fields},
                "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
            },
        }}}],
    }})
}

fn row_of(schema: &Value) -> String {
    let text = page(&definition(&json!({"field": schema}))).unwrap();
    let row = text.lines().find(|line| line.starts_with("| `spec.field` |"));
    row.unwrap_or_else(|| panic!("no row: {text}")).to_owned()
}

#[test]
fn each_type_has_its_words() {
    let string = json!({"type": "string"});
    let object = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    for (schema, expected) in [
        (string.clone(), "string"),
        (json!({"type": "string", "format": "date-time"}), "string (date-time)"),
        (json!({"type": "integer", "format": "int32"}), "integer (int32)"),
        (json!({"x-kubernetes-int-or-string": true}), "integer or string"),
        (object.clone(), "[object](#specfield)"),
        (json!({"type": "array", "items": string}), "list of strings"),
        (json!({"type": "array", "items": object}), "list of [objects](#specfield)"),
        (
            json!({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
            "list of lists of numbers",
        ),
        (json!({"type": "object", "additionalProperties": string}), "map of strings"),
        (
            json!({"type": "object", "additionalProperties": {"type": "array", "items": object}}),
            "map of lists of [objects](#specfieldname)",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"a": {"type": "string"}}}),
            "object of Kubernetes",
        ),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), "see the description"),
    ] {
        assert_eq!(row_of(&schema), format!("| `spec.field` | {expected} |  |  |  |  |"));
    }
}

#[test]
fn limits_are_those_of_the_field_and_of_its_elements() {
    for (schema, expected) in [
        (json!({"type": "integer", "minimum": 1.0, "maximum": 100.0}), "1 to 100"),
        (json!({"type": "integer", "minimum": 0.0}), "at least 0"),
        (json!({"type": "string", "maxLength": 233}), "length at most 233"),
        (json!({"type": "string", "enum": ["A", "B", null]}), "one of `A`, `B`"),
        (json!({"type": "string", "pattern": "^a|b$"}), "matches `^a\\|b$`"),
        (
            json!({"type": "array", "minItems": 1, "x-kubernetes-list-type": "set",
                "items": {"type": "string", "maxLength": 3}}),
            "items: at least 1<br>no duplicates<br>each: length at most 3",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "properties": {"type": {"type": "string"}}}}),
            "unique by `type`",
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [
                {"rule": "r", "message": "field must be <a>"}, {"rule": "self != ''"}]}),
            "field must be &lt;a><br>`self != ''`",
        ),
    ] {
        let row = row_of(&schema);
        let cells: Vec<_> = row.split(" | ").collect();
        assert!(row.ends_with(&format!(" | {expected} |  |")), "{row}: {cells:?}");
    }
}

#[test]
fn defaults_are_values_that_can_be_copied() {
    for (default, expected) in [
        (json!("50%"), "`\"50%\"`"),
        (json!(2), "`2`"),
        (json!(false), "`false`"),
        (json!({"unfit": 2, "fit": 2}), "`{\"fit\":2,\"unfit\":2}`"),
        (json!(["a|b"]), "`[\"a\\|b\"]`"),
    ] {
        let row = row_of(&json!({"type": "string", "default": default, "description": "Text."}));
        assert_eq!(row, format!("| `spec.field` | string |  | {expected} |  | Text. |"));
    }
}

#[test]
fn a_page_has_a_table_for_each_object_in_it() {
    let fields = json!({
        "name": {"type": "string", "description": "Its <name>."},
        "rules": {"type": "array", "items": {"type": "object", "required": ["max"], "properties": {
            "max": {"x-kubernetes-int-or-string": true},
        }}},
    });
    let text = page(&definition(&fields)).unwrap();
    let (_, tables) = text.split_once("\n## `spec`\n").unwrap();
    let expected = "
| field | type | required | default | limits | description |
|---|---|---|---|---|---|
| `spec.name` | string | yes |  |  | Its &lt;name>. |
| `spec.rules` | list of [objects](#specrules) |  |  |  |  |

### `spec.rules[]`

| field | type | required | default | limits | description |
|---|---|---|---|---|---|
| `spec.rules[].max` | integer or string | yes |  |  |  |

## `status`

| field | type | required | default | limits | description |
|---|---|---|---|---|---|
| `status.ready` | boolean |  |  |  |  |
";
    assert_eq!(tables, expected);
    assert!(text.contains("\n- [`spec`](#spec), [`spec.rules[]`](#specrules)\n"), "{text}");
    assert!(text.contains("\n- [`status`](#status)\n"), "{text}");
    assert!(text.contains("\n- spec: a \\| b\n"), "{text}");
}

/// A limit that is not on the page would seem not to exist.
#[test]
fn a_keyword_that_the_tables_do_not_show_is_an_error() {
    let fields = json!({"field": {"type": "integer", "multipleOf": 2}});
    let error = format!("{:#}", page(&definition(&fields)).unwrap_err());
    assert_eq!(error, "spec.field: the tables do not show \"multipleOf\"");
    let fields = json!({"field": {"type": "null"}});
    let error = format!("{:#}", page(&definition(&fields)).unwrap_err());
    assert!(error.starts_with("spec.field: a field of the type"), "{error}");
}

#[test]
fn every_kind_has_a_page_with_all_of_its_fields() {
    let files = files().unwrap();
    assert_eq!(files.len(), KINDS.len());
    for file in files {
        let rows = file.text.lines().filter(|line| line.starts_with("| `")).count();
        assert!(rows > 40, "{}: {rows} fields", file.path);
        // Every row has six cells.
        for row in file.text.lines().filter(|line| line.starts_with('|')) {
            let bars = row.replace("\\|", "").matches('|').count();
            assert_eq!(bars, 7, "{}: {row}", file.path);
        }
    }
}

#[test]
fn a_text_stays_in_its_cell() {
    for (text, expected) in [
        ("One\nline.", "One line."),
        ("A paragraph.\n\n  Another.\n\n", "A paragraph.<br>Another."),
        ("a | b, `c | d`", "a \\| b, `c \\| d`"),
        ("<label> and `<label>`", "&lt;label> and `<label>`"),
        ("eth[0-9]*\\. `[0-9]*\\.`", "eth\\[0-9\\]\\*\\\\. `[0-9]*\\.`"),
        ("", ""),
    ] {
        assert_eq!(cell(text), expected, "{text:?}");
    }
}

#[test]
fn code_may_hold_anything() {
    assert_eq!(code("^a|b$"), "`^a\\|b$`");
    assert_eq!(code("`a`"), "`` `a` ``");
}

#[test]
fn an_anchor_is_that_of_the_heading() {
    assert_eq!(anchor("status.nodes.<name>.criteria[]"), "statusnodesnamecriteria");
    assert_eq!(anchor("spec.onUnknown"), "speconunknown");
}
