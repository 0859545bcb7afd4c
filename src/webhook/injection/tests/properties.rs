//! Properties of every Pod, including fields that it may have in the future.
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::pods::{AGENT_CONTAINER, AGENT_VOLUME, HASH_ANNOTATION};

/// Any JSON.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z~/]{0,4}", inner), 0..3).prop_map(|e| object(e).into()),
        ]
    })
}

fn object(entries: Vec<(String, Value)>) -> Map<String, Value> {
    entries.into_iter().collect()
}

/// An object with some known fields (absent, null or as given) and some unknown ones.
fn fields(known: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let known: Vec<_> = known
        .into_iter()
        .map(|(name, value)| {
            let value = prop_oneof![
                1 => Just(None),
                1 => Just(Some(Value::Null)),
                4 => value.prop_map(Some),
            ];
            value.prop_map(move |value| value.map(|value| (name.to_owned(), value)))
        })
        .collect();
    (known, prop::collection::vec(("x-[a-z~/]{1,5}", anything()), 0..2))
        .prop_map(|(known, unknown)| {
            let mut object = object(unknown);
            object.extend(known.into_iter().flatten());
            Value::Object(object)
        })
        .boxed()
}

fn text(of: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(of).prop_map(Value::from).boxed()
}

fn resources() -> BoxedStrategy<Value> {
    let amounts = || {
        fields(vec![
            ("cpu", text(&["0", "100m", "0.1", "1", "2"])),
            ("memory", text(&["0", "64Mi", "67108864", "1Gi"])),
            ("nvidia.com/gpu", text(&["1"])),
        ])
    };
    let same = amounts().prop_map(|amounts| json!({"requests": amounts, "limits": amounts}));
    prop_oneof![fields(vec![("requests", amounts()), ("limits", amounts())]), same].boxed()
}

fn container() -> BoxedStrategy<Value> {
    let port = fields(vec![
        ("name", text(&["http", "np-ping"])),
        (
            "containerPort",
            prop::sample::select(&[80, 8080, 2112, 9090][..]).prop_map(Value::from).boxed(),
        ),
        ("protocol", text(&["TCP", "UDP", "SCTP"])),
    ]);
    fields(vec![
        ("name", text(&["app", "other", "net-prober"])),
        ("image", text(&["a", "b"])),
        ("restartPolicy", text(&["Always", "Never"])),
        (
            "securityContext",
            fields(vec![(
                "runAsUser",
                prop::sample::select(&[0, 65532][..]).prop_map(Value::from).boxed(),
            )]),
        ),
        ("ports", list(port, 0)),
        ("resources", resources()),
    ])
}

fn list(element: BoxedStrategy<Value>, least: usize) -> BoxedStrategy<Value> {
    prop::collection::vec(element, least..3).prop_map(Value::from).boxed()
}

fn pod() -> BoxedStrategy<Value> {
    let annotations = fields(vec![
        ("netprober-container-deployed", text(&["true", ""])),
        ("probes.bigmikes.io/inject", text(&["true", "false"])),
        ("probes.bigmikes.io/injected-by", text(&["probing/mesh", "a/b"])),
        ("probes.bigmikes.io/injected-hash", text(&["0"])),
        ("kubernetes.io/config.mirror", text(&["x"])),
    ]);
    // Mostly without: a pod with any of these is seldom injected.
    let annotations =
        prop_oneof![4 => fields(vec![("other/key", text(&["x"]))]), 1 => annotations].boxed();
    let owner = fields(vec![
        ("kind", text(&["Job", "ReplicaSet"])),
        ("controller", any::<bool>().prop_map(Value::from).boxed()),
    ]);
    let metadata = fields(vec![
        ("name", text(&["p"])),
        ("annotations", annotations),
        ("ownerReferences", list(owner, 0)),
    ]);
    let host = prop_oneof![6 => Just(false), 1 => Just(true)].prop_map(Value::from).boxed();
    let spec = fields(vec![
        ("hostNetwork", host.clone()),
        ("shareProcessNamespace", host),
        ("os", fields(vec![("name", text(&["linux", "linux", "windows"]))])),
        ("restartPolicy", text(&["Always", "Never"])),
        ("containers", list(container(), 1)),
        ("initContainers", list(container(), 0)),
        ("volumes", list(fields(vec![("name", text(&["v", "w", "x", "net-prober-vol"]))]), 0)),
        ("resources", resources()),
        (
            "securityContext",
            fields(vec![(
                "runAsUser",
                prop::sample::select(&[0, 7][..]).prop_map(Value::from).boxed(),
            )]),
        ),
    ]);
    fields(vec![("metadata", metadata), ("spec", spec), ("status", fields(vec![]))])
}

/// Returns the injected pod without the additions.
fn without_ours(mut injected: Value, original: &Value) -> Value {
    let taken = |value: &mut Value, name: &str| {
        if let Some(list) = value.as_array_mut() {
            list.retain(|element| element["name"] != name);
        }
    };
    let spec = &mut injected["spec"];
    taken(&mut spec["containers"], AGENT_CONTAINER);
    for (key, name) in [("initContainers", AGENT_CONTAINER), ("volumes", AGENT_VOLUME)] {
        // Indexing turns an absent value into null: the original distinguishes them.
        taken(&mut spec[key], name);
        restore(spec, &original["spec"], key);
    }
    if let Some(annotations) = injected.pointer_mut("/metadata/annotations") {
        for key in [DEPLOYED_ANNOTATION, INJECTED_BY_ANNOTATION, HASH_ANNOTATION] {
            let present = original.pointer("/metadata/annotations").and_then(|all| all.get(key));
            match present {
                Some(value) => annotations[key] = value.clone(),
                None => drop(annotations.as_object_mut().unwrap().remove(key)),
            }
        }
    }
    restore(&mut injected["metadata"], &original["metadata"], "annotations");
    restore(&mut injected, original, "metadata");
    injected
}

/// Restores a value that was absent or null, if it contains only our additions now.
fn restore(parent: &mut Value, original: &Value, key: &str) {
    let empty = match &parent[key] {
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        value => value.is_null(),
    };
    match original.get(key) {
        Some(Value::Null) if empty => parent[key] = Value::Null,
        None if empty => drop(parent.as_object_mut().unwrap().remove(key)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn applies_and_changes_nothing_else(pod in pod(), native: bool, own_image: bool) {
        let recipe = Recipe { native_sidecar: native, own_image, ..recipe() };
        let read: PodObject = serde_json::from_value(pod.clone()).unwrap();
        let ops = patch(&read, &recipe);
        let injected = inject(&pod, &recipe);
        let injectable = skip_reason(&read, &recipe).is_none()
            && read.containers().is_some_and(|containers| !containers.is_empty());
        prop_assert_eq!(injectable, !ops.is_empty());
        if ops.is_empty() {
            prop_assert_eq!(&injected, &pod);
            return Ok(());
        }
        let after: PodObject = serde_json::from_value(injected.clone()).unwrap();
        prop_assert!(after.agent().is_some_and(|agent| agent.native == native && !agent.stripped));
        prop_assert_eq!(after.qos(), read.qos());
        prop_assert_eq!(skip_reason(&after, &recipe), Some(SkipReason::AlreadyInjected));
        prop_assert_eq!(&inject(&injected, &recipe), &injected);
        if let Some(place) = stripped(&read, &recipe) {
            let mut expected = pod;
            expected["spec"]["initContainers"][place]["restartPolicy"] = json!("Always");
            prop_assert_eq!(&injected, &expected);
            return Ok(());
        }
        let volumes = after.volumes().unwrap().iter().filter(|name| &***name == AGENT_VOLUME);
        prop_assert_eq!(volumes.count(), 1);
        let mut expected = pod.clone();
        if let Some(volumes) = expected.pointer_mut("/spec/volumes").and_then(Value::as_array_mut) {
            // Left by a webhook that removed the container only.
            volumes.retain(|volume| volume["name"] != AGENT_VOLUME);
        }
        prop_assert_eq!(without_ours(injected, &pod).to_string(), expected.to_string());
    }

    #[test]
    fn reads_any_pod_without_panic(pod in pod(), value in anything()) {
        let read: PodObject = serde_json::from_value(pod).unwrap();
        let _ = (read.qos(), read.agent(), read.takes_names(), read.ips(), read.controller());
        let _ = serde_json::from_value::<PodObject>(value).map(|pod| patch(&pod, &recipe()));
    }
}
