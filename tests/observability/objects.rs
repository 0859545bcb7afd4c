//! Kubernetes objects of a rendered overlay.
use crate::files::{NAMESPACE, documents_of, root, run, tool};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, OnceLock};

/// The output of `kubectl kustomize` for a directory.
pub struct Rendered(pub Vec<Value>);

/// Renders a directory; each once, for it takes a second of a processor.
pub fn render(dir: &str) -> &'static Rendered {
    type Cell = &'static OnceLock<Rendered>;
    static ALL: Mutex<BTreeMap<String, Cell>> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock().expect("no test panics here");
    let cell = *all.entry(dir.to_owned()).or_insert_with(|| Box::leak(Box::default()));
    drop(all);
    cell.get_or_init(|| {
        let text = run(&tool("kubectl"), &["kustomize", &root().join(dir).to_string_lossy()]);
        Rendered(documents_of(&text))
    })
}

impl Rendered {
    pub fn all(&self, kind_: &str) -> Vec<&Value> {
        self.0.iter().filter(|object| kind(object) == kind_).collect()
    }

    pub fn one(&self, kind_: &str, name_: &str) -> &Value {
        let mut found = self.all(kind_);
        found.retain(|object| name(object) == name_);
        // A Role of one name may exist in two namespaces; the caller means ours.
        if found.len() > 1 {
            found.retain(|object| namespace(object) == NAMESPACE);
        }
        assert_eq!(found.len(), 1, "{kind_} {name_}");
        found[0]
    }
}

pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

pub fn contains(list: &Value, text: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|item| item == text))
}

pub fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Reports whether a set of matchLabels selects these labels. An empty one selects everything.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    selector
        .as_object()
        .is_some_and(|map| !map.is_empty() && map.iter().all(|(key, value)| labels[key] == *value))
}

/// Returns the connections that policies allow, one line for each port and peer, sorted.
pub fn passages(policies: &[&Value], direction: &str, peers: &str) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for policy in policies {
        for rule in policy["spec"][direction].as_array().into_iter().flatten() {
            let ports = rule["ports"].as_array().cloned().unwrap_or_default();
            assert!(!ports.is_empty(), "{}: a rule for every port", name(policy));
            let peers = match rule[peers].as_array() {
                None => vec!["anywhere".to_owned()],
                Some(peers) => peers.iter().map(peer).collect(),
            };
            for port in &ports {
                for peer in &peers {
                    let protocol = port["protocol"].as_str().unwrap_or("TCP");
                    lines.insert(format!("{protocol}/{} {peer}", port["port"]));
                }
            }
        }
    }
    lines.into_iter().collect()
}

pub fn peer(peer: &Value) -> String {
    let label = |selector: &str, key: &str| {
        if let Some(value) = peer[selector]["matchLabels"][key].as_str() {
            return Some(value.to_owned());
        }
        let mut all = peer[selector]["matchExpressions"].as_array().into_iter().flatten();
        let one_of = all.find(|term| term["key"] == key && term["operator"] == "In")?;
        let values: Vec<_> = one_of["values"].as_array()?.iter().map(Value::as_str).collect();
        Some(values.into_iter().collect::<Option<Vec<_>>>()?.join("|"))
    };
    let mut parts = Vec::new();
    if let Some(cidr) = peer["ipBlock"]["cidr"].as_str() {
        parts.push(format!("cidr={cidr}"));
    }
    if let Some(namespace) = label("namespaceSelector", "kubernetes.io/metadata.name") {
        parts.push(format!("namespace={namespace}"));
    }
    if let Some(pod) = label("podSelector", "app.kubernetes.io/name") {
        parts.push(format!("pod={pod}"));
    }
    if *peer == serde_json::json!({"namespaceSelector": {}}) {
        parts.push("any pod".to_owned());
    }
    assert!(!parts.is_empty(), "a peer that is not understood: {peer}");
    parts.join(" ")
}
