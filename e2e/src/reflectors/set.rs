//! The status of a `RouteReflectorSet`. No IO.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::Value;

use crate::objects::text;

/// The status, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set {
    /// True if the status is of the spec as it is now.
    pub current: bool,
    /// Nothing is left to be done.
    pub converged: bool,
    /// The reason why not.
    pub why: String,
    /// True if the loss of one reflector costs no route.
    pub safe: bool,
    pub topology: String,
    /// `On` or `Off`.
    pub mesh: String,
    /// The node in each slot.
    pub slots: BTreeMap<i64, Slot>,
    /// The number of nodes that are clients, by group.
    pub groups: BTreeMap<String, i64>,
}

/// A reflector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub node: String,
    pub zone: String,
}

impl Set {
    pub fn read(object: &DynamicObject) -> Self {
        let status = &object.data["status"];
        let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
        let conditions = list("conditions");
        let condition = |name: &str| conditions.iter().find(|c| c["type"] == name);
        let holds = |name: &str| condition(name).is_some_and(|c| c["status"] == "True");
        let reported = |name: &str| {
            let found = condition(name);
            let part = |field: &str| found.map_or("", |c| c[field].as_str().unwrap_or_default());
            format!("{}: {}", part("reason"), part("message"))
        };
        let slot = |slot: &Value| {
            let slot_of = Slot { node: text(&slot["node"]), zone: text(&slot["zone"]) };
            Some((slot["id"].as_i64()?, slot_of))
        };
        let group = |group: &Value| Some((text(&group["name"]), group["nodes"].as_i64()?));
        Self {
            current: status["observedGeneration"].as_i64() == object.metadata.generation,
            converged: holds("Converged"),
            why: reported("Converged"),
            safe: holds("RoutesSafe"),
            topology: text(&status["topology"]),
            mesh: text(&status["mesh"]),
            slots: list("slots").iter().filter_map(slot).collect(),
            groups: list("groups").iter().filter_map(group).collect(),
        }
    }

    /// Reports whether this node reflects.
    pub fn holds(&self, node: &str) -> bool {
        self.slots.values().any(|slot| slot.node == node)
    }

    /// The reflectors of a zone, in the order of their slots.
    pub fn of_zone<'a>(&'a self, zone: &str) -> Vec<&'a str> {
        let of_zone = self.slots.values().filter(|slot| slot.zone == zone);
        of_zone.map(|slot| slot.node.as_str()).collect()
    }
}
