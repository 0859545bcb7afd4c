//! The objects of the simulated API server: versions, generations, finalizers, and a log of all
//! changes, from which watches are fed.
use std::{collections::BTreeMap, time::Duration};

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Identifies an object: plural, namespace (empty for those of the cluster), name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub plural: String,
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(plural: &str, namespace: &str, name: &str) -> Self {
        Self { plural: plural.into(), namespace: namespace.into(), name: name.into() }
    }
}

#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    /// The time since the beginning.
    pub at: Duration,
    /// The type of the event of a watch.
    pub event: &'static str,
    pub key: Key,
    /// The object after it, or the last one before a deletion.
    pub object: Value,
}

/// A refusal: code, reason and message.
pub type Refusal = (u16, &'static str, String);

/// A way to change an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The whole object (PUT).
    Replace,
    /// A JSON merge patch.
    Merge,
    Json,
    /// Server-side apply. Fields have no owners here: an apply to the status replaces it, any other
    /// is merged. The operator is the only one that applies, and always all of what it owns.
    Apply,
}

/// All objects.
#[derive(Default)]
pub struct Store {
    version: u64,
    uids: u64,
    objects: BTreeMap<Key, Value>,
    log: Vec<Change>,
    /// Watches cannot begin at or before this version.
    compacted: u64,
}

fn refused(code: u16, reason: &'static str, what: &str) -> Refusal {
    (code, reason, what.into())
}

impl Store {
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Makes all versions until now too old for a watch.
    pub fn compact(&mut self) {
        self.compacted = self.version;
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    pub fn all<'a>(&'a self, plural: &'a str) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        self.objects.iter().filter(move |(key, _)| key.plural == plural)
    }

    /// Returns the first change after a version that is of interest.
    pub fn next(&self, after: u64, wanted: impl Fn(&Change) -> bool) -> Option<&Change> {
        let begin = self.log.partition_point(|change| change.version <= after);
        self.log[begin..].iter().find(|change| wanted(change))
    }

    /// Creates an object.
    pub fn create(
        &mut self,
        key: &Key,
        mut object: Value,
        at: Duration,
        now: Timestamp,
    ) -> Result<Value, Refusal> {
        if self.objects.contains_key(key) {
            return Err(refused(409, "AlreadyExists", "it exists already"));
        }
        self.uids += 1;
        let meta = &mut object["metadata"];
        meta["name"] = json!(key.name);
        if !key.namespace.is_empty() {
            meta["namespace"] = json!(key.namespace);
        }
        meta["uid"] = json!(format!("uid-{}", self.uids));
        meta["generation"] = json!(1);
        meta["creationTimestamp"] = json!(seconds(now));
        Ok(self.put(key, object, at, "ADDED"))
    }

    /// Changes an object, or its status alone.
    pub fn edit(
        &mut self,
        key: &Key,
        status: bool,
        edit: Edit,
        patch: &Value,
        at: Duration,
    ) -> Result<Value, Refusal> {
        let Some(old) = self.objects.get(key) else {
            return Err(refused(404, "NotFound", "there is none"));
        };
        let mut new = old.clone();
        let over = patch.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if over.is_some_and(|over| old["metadata"]["resourceVersion"] != over) {
            return Err(refused(409, "Conflict", "the object has been modified"));
        }
        let uid = patch.pointer("/metadata/uid").and_then(Value::as_str);
        if edit == Edit::Merge && uid.is_some_and(|uid| old["metadata"]["uid"] != uid) {
            return Err(refused(422, "Invalid", "metadata.uid: field is immutable"));
        }
        match edit {
            Edit::Replace => new = patch.clone(),
            Edit::Apply if status => new["status"] = patch["status"].clone(),
            Edit::Merge | Edit::Apply => json_patch::merge(&mut new, patch),
            Edit::Json => apply_json(&mut new, patch)?,
        }
        // Identity is not the client's, and each of the two doors leads to its own part.
        for field in ["name", "namespace", "uid", "generation", "creationTimestamp"] {
            copy(&old["metadata"], &mut new["metadata"], field);
        }
        copy(&old["metadata"], &mut new["metadata"], "deletionTimestamp");
        copy(&old["metadata"], &mut new["metadata"], "resourceVersion");
        if status {
            let mut whole = old.clone();
            whole["status"] = new["status"].take();
            new = whole;
        } else if key.plural != "leases" {
            copy(old, &mut new, "status");
        }
        if new == *old {
            return Ok(new);
        }
        if new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        if is_leaving(&new) {
            return Ok(self.remove(key, new, at));
        }
        Ok(self.put(key, new, at, "MODIFIED"))
    }

    /// Deletes an object; one with finalizers is only marked.
    pub fn delete(&mut self, key: &Key, at: Duration, now: Timestamp) -> Result<Value, Refusal> {
        let Some(old) = self.objects.get(key) else {
            return Err(refused(404, "NotFound", "there is none"));
        };
        let mut object = old.clone();
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!(seconds(now));
            if !is_leaving(&object) {
                return Ok(self.put(key, object, at, "MODIFIED"));
            }
            return Ok(self.remove(key, object, at));
        }
        Ok(object)
    }

    fn remove(&mut self, key: &Key, object: Value, at: Duration) -> Value {
        let object = self.put(key, object, at, "DELETED");
        self.objects.remove(key);
        object
    }

    fn put(&mut self, key: &Key, mut object: Value, at: Duration, event: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        let (version, key) = (self.version, key.clone());
        self.log.push(Change { version, at, event, key, object: object.clone() });
        object
    }
}

fn seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap().to_string()
}

fn is_leaving(object: &Value) -> bool {
    let meta = &object["metadata"];
    !meta["deletionTimestamp"].is_null() && meta["finalizers"].as_array().is_none_or(Vec::is_empty)
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => drop(to.as_object_mut().map(|to| to.remove(field))),
    }
}

fn apply_json(object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let operations: Vec<PatchOperation> = serde_json::from_value(patch.clone())
        .map_err(|error| (400, "BadRequest", error.to_string()))?;
    let before = object.clone();
    // A missing field is null to the API server's tests.
    let operations = operations.into_iter().filter(|operation| match operation {
        PatchOperation::Test(test) => {
            !(test.value.is_null() && before.pointer(&test.path.to_string()).is_none())
        }
        _ => true,
    });
    let patch = json_patch::Patch(operations.collect());
    json_patch::patch(object, &patch).map_err(|error| (422, "Invalid", error.to_string()))
}
