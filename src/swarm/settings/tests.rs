//! Lists and specs, good and bad.
use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "written where it is called")]
fn swarm(spec: Value) -> Swarm {
    let mut all = json!({"workload": {"name": "w"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "n"}, "spec": all
    }))
    .unwrap()
}

fn map(text: &str) -> MapFacts {
    let data = [("config.yml".to_owned(), text.to_owned())].into();
    MapFacts { data: Arc::new(data), ..MapFacts::default() }
}

fn from(spec: Value, text: &str) -> Result<Settings, Error> {
    let mut spec = spec;
    spec["streamsFrom"] = json!({"configMapKeyRef": {"name": "m"}});
    Settings::of(&swarm(spec), Some(&map(text)))
}

#[test]
fn the_three_forms_of_the_list_are_the_same_list() {
    let ids = |settings: Settings| {
        settings.streams.into_iter().map(|s| (s.id, s.weight)).collect::<Vec<_>>()
    };
    let wanted = [("a".to_owned(), 1), ("b".to_owned(), 1)];
    let plain = Settings::of(&swarm(json!({"jobs": ["a", "b"]})), None).unwrap();
    assert_eq!(ids(plain), wanted);
    let full = swarm(json!({"streams": [{"id": "a"}, {"id": "b"}]}));
    assert_eq!(ids(Settings::of(&full, None).unwrap()), wanted);
    // The original's controller configuration.
    assert_eq!(ids(from(json!({}), "jobs:\n  - a\n  - b\nversion: 0\n").unwrap()), wanted);
    assert_eq!(ids(from(json!({}), "\u{feff}jobs:\r\n- a\r\n- b\r\n").unwrap()), wanted);
    let weighted = from(json!({}), "streams: [{id: a, weight: 3}, {id: b}]").unwrap();
    assert_eq!(ids(weighted), [("a".to_owned(), 3), ("b".to_owned(), 1)]);
}

#[test]
fn a_list_that_cannot_be_read_names_its_place() {
    for (spec, text, words) in [
        (json!({}), "jobs: []", "no stream is listed; workers keep what they have"),
        (json!({}), "jobs: [a, b, a]", "\"a\" is listed 2 times"),
        (json!({}), "a\nb\n", "expected YAML with jobs or streams, such as \"jobs: [a, b]\""),
        (json!({}), "- a\n- b\n", "expected YAML with jobs or streams"),
        (json!({}), "version: 3", "has neither jobs nor streams"),
        (json!({}), "jobs: [a]\nstreams: [{id: b}]", "has both"),
        (json!({}), "jobs: [", "key \"config.yml\": "),
        (json!({}), "streams: [{id: a, weight: 0}]", "\"a\": weight must be"),
        (json!({}), "streams: [{id: a, weight: -1}]", "weight"),
        (json!({"policy": "Stateless"}), "streams: [{id: a, weight: 2}]", "needs policy Sticky"),
        (json!({"policy": "Contiguous"}), "streams: [{id: a, pin: w-0}]", "pin and dedicated"),
        (
            json!({"workload": {"kind": "Deployment", "name": "w"}}),
            "streams: [{id: a, pin: w-0}]",
            "pin needs a StatefulSet",
        ),
    ] {
        let error = from(spec, text).unwrap_err().to_string();
        assert!(error.starts_with("spec.streamsFrom: ConfigMap n/m"), "{error}");
        assert!(error.contains(words), "{error} has no {words:?}");
    }
    let absent = swarm(json!({"streamsFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}));
    let error = Settings::of(&absent, None).unwrap_err().to_string();
    assert_eq!(error, "spec.streamsFrom: ConfigMap n/m does not exist");
    let error = Settings::of(&absent, Some(&map("x"))).unwrap_err().to_string();
    assert_eq!(error, "spec.streamsFrom: ConfigMap n/m has no key \"k\"");
}

#[test]
fn the_length_of_an_id_is_counted_in_characters() {
    // As the schema counts those of spec.streams.
    let ids = |id: &str| from(json!({}), &format!("streams: [{{id: {id}}}]"));
    let long = "é".repeat(253);
    assert_eq!(ids(&long).unwrap().streams[0].id, long);
    let error = ids(&"é".repeat(254)).unwrap_err().to_string();
    assert!(error.contains("an id has 254 characters, and at most 253 are allowed"), "{error}");
    assert!(from(json!({}), &format!("jobs: [{long}]")).is_ok());
}

#[test]
fn a_list_that_is_too_large_names_field_value_and_limit() {
    let jobs = |count: usize| (0..count).map(|i| format!("{i:x}")).collect::<Vec<_>>();
    let text = |count| format!("jobs: [{}]", jobs(count).join(","));
    assert_eq!(from(json!({}), &text(100_000)).unwrap().streams.len(), 100_000);
    let place = "spec.streamsFrom: ConfigMap n/m, key \"config.yml\"";
    let error = from(json!({}), &text(limits::STREAMS + 1)).unwrap_err().to_string();
    assert_eq!(error, format!("{place} has 150001 streams, and a Swarm has at most 150000"));
    let named = swarm(json!({"jobs": jobs(limits::STREAMS + 1)}));
    let error = Settings::of(&named, None).unwrap_err().to_string();
    assert_eq!(error, "spec.jobs has 150001 streams, and a Swarm has at most 150000");
    let error = from(json!({}), &"#".repeat((1 << 20) + 1)).unwrap_err().to_string();
    assert_eq!(error, format!("{place}: has 1048577 bytes, and at most 1048576 are read"));
}

/// A short text that expands to gigabytes.
#[test]
fn aliases_do_not_make_a_list_longer_than_its_text() {
    let aliases = |anchored: &str, times: usize| {
        format!("x: &a {anchored}\njobs: [{}]", vec!["*a"; times].join(","))
    };
    let error = from(json!({}), &aliases(&"a".repeat(500_000), 9)).unwrap_err().to_string();
    assert!(error.contains("an id has 500000 characters, and at most 253"), "{error}");
    assert!(error.len() < 300, "{error}");
    let error = from(json!({}), &aliases(&"a".repeat(200), 300_000)).unwrap_err().to_string();
    assert!(error.contains("the names in it have more than 1572864 bytes"), "{error}");
    let error = from(json!({}), &aliases("a", 2)).unwrap_err().to_string();
    assert!(error.contains("\"a\" is listed 2 times"), "{error}");
}

#[test]
fn the_list_does_not_stand_where_the_shares_are_written() {
    let same = swarm(json!({"streamsFrom": {"configMapKeyRef": {"name": "w-config"}}}));
    let error = Settings::of(&same, Some(&map("jobs: [a]"))).unwrap_err().to_string();
    assert!(
        error.contains("n/w-config is the one to which the lists of streams are written"),
        "{error}"
    );
}

#[test]
fn an_error_in_a_list_does_not_repeat_a_long_value() {
    let text = format!("streams: [{{id: a, weight: {}}}]", "x".repeat(100_000));
    let error = from(json!({}), &text).unwrap_err().to_string();
    assert!(error.len() < 700, "{} bytes", error.len());
    assert!(error.contains("key \"config.yml\": "), "{error}");
}
