//! Broken rules, to show that the oracles find them. The operator stays as it is: it is shown a
//! different world, or its writes arrive changed.
use serde_json::{Value, json};

use super::store::Key;

/// A rule that does not hold in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weakened {
    /// All of them hold.
    #[default]
    Nothing,
    /// The operator reads a maxUnfit of all nodes, and no minFit.
    Limits,
    /// Nodes without a sample appear to be idle.
    Absence,
    /// Patches of nodes set a label of another owner too.
    Ownership,
    /// Removals of labels get lost.
    Removals,
    /// Marks of nodes get lost.
    Marks,
    /// Each write of a status contains something new.
    Silence,
}

impl Weakened {
    /// All that break a rule.
    pub const ALL: [Self; 6] =
        [Self::Limits, Self::Absence, Self::Ownership, Self::Removals, Self::Marks, Self::Silence];

    pub fn shown(self, key: &Key, object: &Value) -> Value {
        let mut object = object.clone();
        if self == Self::Limits && key.plural == "trafficwatches" {
            object["spec"]["maxUnfit"] = json!("100%");
            object["spec"]["minFit"] = json!(0);
        }
        if self == Self::Silence && key.plural == "trafficwatches" {
            object["status"]["max"] = json!("lost");
        }
        object
    }

    pub fn tampered(self, key: &Key, patch: &Value) -> Value {
        let mut patch = patch.clone();
        let Some(labels) = patch.pointer_mut("/metadata/labels").and_then(Value::as_object_mut)
        else {
            return patch;
        };
        if key.plural == "nodes" {
            match self {
                Self::Ownership => drop(labels.insert("team".into(), json!("ours"))),
                Self::Removals => labels.retain(|_, value| !value.is_null()),
                Self::Marks => labels.retain(|_, value| *value != "true"),
                _ => {}
            }
        }
        patch
    }
}
