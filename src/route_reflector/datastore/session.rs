//! The settings of sessions besides their two ends: a password, timers, filters, addresses. Pure.
//!
//! The mesh has two of them in the BGPConfiguration, BGPPeers have theirs each for itself. New peers of ours get what
//! the others of ours have, the first ones what the mesh has. Existing ones are left alone: a
//! changed password resets all sessions of a peer at once, and one that only some peers have keeps
//! the two ends of a session apart, if two peers are for the same pair of nodes.
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Error, Snapshot};

/// The fields of a BGPPeer, and the equivalent fields of a BGPConfiguration for the mesh.
const FIELDS: [(&str, &str); 2] =
    [("password", "nodeMeshPassword"), ("maxRestartTime", "nodeMeshMaxRestartTime")];

/// The fields of a BGPPeer that say which sessions there are.
const ENDS: [&str; 6] =
    ["node", "nodeSelector", "peerIP", "peerSelector", "asNumber", "reversePeering"];

/// Fields that a BGPPeer by selectors cannot have, or that change its sessions.
const NOT_PORTABLE: [&str; 3] = ["localASNumber", "localWorkloadSelector", "reachableBy"];

/// Values that mean the same as no value.
const DEFAULTS: [(&str, &str); 3] =
    [("sourceAddress", "UseNodeIP"), ("nextHopMode", "Auto"), ("failureDetectionMode", "None")];

/// Fields of a BGPConfiguration that are about the mesh begin with this.
const ABOUT_MESH: &str = "nodeMesh";

/// These fields, as written in the spec of a BGPPeer, without those that have Calico's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session(pub Map<String, Value>);

impl Session {
    /// Reads the settings of a BGPPeer.
    pub(super) fn of_peer(spec: &Value) -> Self {
        let fields = spec.as_object().into_iter().flatten();
        let matters = |(name, value): &(&String, &Value)| {
            let default = |(field, default): &(&str, &str)| name == field && *value == default;
            !ENDS.contains(&name.as_str()) && is_set(value) && !DEFAULTS.iter().any(default)
        };
        let fields = fields.filter(matters).map(|(name, value)| (name.clone(), value.clone()));
        Self(fields.collect())
    }

    /// Reads the settings of a BGPConfiguration for the mesh.
    pub(super) fn of_mesh(spec: &Value) -> Self {
        let found = FIELDS.iter().filter_map(|(of_peer, of_mesh)| {
            let value = spec.get(of_mesh).filter(|value| is_set(value))?;
            Some(((*of_peer).to_owned(), value.clone()))
        });
        Self(found.collect())
    }

    /// Reports whether a BGPPeer by selectors can have them.
    #[must_use]
    pub fn is_portable(&self) -> bool {
        NOT_PORTABLE.iter().all(|field| !self.0.contains_key(*field))
    }

    /// The names of all fields.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// The names of the fields that differ.
    #[must_use]
    pub fn differences<'s>(&'s self, other: &'s Self) -> Vec<&'s str> {
        let names: BTreeSet<&str> =
            self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        names.into_iter().filter(|name| self.0.get(*name) != other.0.get(*name)).collect()
    }

    /// Returns the BGPConfiguration's names of the fields that are set.
    pub(super) fn names_of_mesh(&self) -> Vec<&'static str> {
        FIELDS.iter().filter(|(f, _)| self.0.contains_key(*f)).map(|(_, name)| *name).collect()
    }
}

/// An empty text or list, and `false`, mean none, as for Calico.
fn is_set(value: &Value) -> bool {
    !value.is_null() && *value != "" && *value != false && *value != Value::Array(vec![])
}

/// Fields of a BGPConfiguration that are about the mesh, and that no BGPPeer has.
pub(super) fn only_of_mesh(spec: &Value) -> Vec<String> {
    let fields = spec.as_object().into_iter().flatten();
    let known = |name: &str| FIELDS.iter().any(|(_, field)| *field == name);
    let fields = fields
        .filter(|(name, value)| name.starts_with(ABOUT_MESH) && !known(name) && is_set(value));
    fields.map(|(name, _)| name.clone()).collect()
}

impl Snapshot {
    /// Returns the settings of a new BGPPeer of ours.
    #[must_use]
    pub fn session(&self) -> Session {
        let mut ours = self.peers.iter().filter(|peer| peer.ours).map(|peer| &peer.session);
        match ours.next() {
            None => self.mesh_session.clone(),
            Some(first) if ours.all(|other| other == first) => first.clone(),
            Some(_) => Session::default(),
        }
    }

    /// Why Calico would refuse to switch the mesh off.
    #[must_use]
    pub fn mesh_off_refused(&self) -> Option<Error> {
        let fields = self.mesh_session.names_of_mesh();
        let refusal = "a rule of Calico 3.32 and later, and of its API server".to_owned();
        (self.strict_mesh && !fields.is_empty()).then_some(Error::MeshFields { fields, refusal })
    }

    /// Our BGPPeers that lack the password that the mesh has.
    #[must_use]
    pub fn without_password(&self) -> Vec<&str> {
        if !self.mesh_session.0.contains_key("password") {
            return vec![];
        }
        let lack = self.peers.iter().filter(|p| p.ours && !p.session.0.contains_key("password"));
        lack.map(|peer| peer.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::route_reflector::datastore::CalicoPeer;

    fn session(spec: &Value) -> Session {
        Session::of_peer(spec)
    }

    #[test]
    fn new_peers_get_what_our_others_have_and_the_first_ones_what_the_mesh_has() {
        let password = json!({"secretKeyRef": {"name": "bgp", "key": "mesh"}});
        let mesh = json!({
            "nodeMeshPassword": password, "nodeMeshMaxRestartTime": "30s", "asNumber": 64_512,
        });
        let all = session(&json!({"password": password, "maxRestartTime": "30s", "node": "n"}));
        let mut snapshot =
            Snapshot { mesh_session: Session::of_mesh(&mesh), ..Snapshot::default() };
        assert_eq!(snapshot.mesh_session, all);
        assert_eq!(all.names_of_mesh(), ["nodeMeshPassword", "nodeMeshMaxRestartTime"]);
        assert_eq!(snapshot.session(), all);
        let own = session(&json!({"password": {"secretKeyRef": {"name": "own", "key": "k"}}}));
        let mut peer = |name: &str, ours: bool, session: &Session| {
            let (name, session) = (name.to_owned(), session.clone());
            snapshot.peers.push(CalicoPeer { name, ours, session, ..CalicoPeer::default() });
            (snapshot.session(), snapshot.without_password().join(" "))
        };
        assert_eq!(peer("tor", false, &Session::default()), (all.clone(), String::new()));
        assert_eq!(peer("a", true, &own), (own.clone(), String::new()), "a user's own stays");
        assert_eq!(peer("b", true, &own), (own, String::new()));
        // Two ends of a session might have it by different peers.
        let mixed = peer("c", true, &Session::default());
        assert_eq!(mixed, (Session::default(), "c".into()));
    }

    #[test]
    fn what_only_the_mesh_can_have_is_found() {
        let spec = json!({
            "nodeMeshPassword": {}, "nodeMeshKeepalive": "1s", "nodeMeshX": null,
            "nodeToNodeMeshEnabled": true,
        });
        assert_eq!(only_of_mesh(&spec), ["nodeMeshKeepalive"]);
        assert_eq!(only_of_mesh(&json!(null)), Vec::<String>::new());
    }
}
