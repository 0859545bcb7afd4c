//! BGPPeers: the fields that are read, how ours are made, and the settings of sessions besides
//! their two ends (a password, timers, filters, addresses). Both datastores have the same shape.
//! Pure.
//!
//! The mesh has two of these settings in the BGPConfiguration, BGPPeers have theirs each for
//! itself. New peers of ours get what the others of ours have, the first ones what the mesh has.
//! Existing ones are left alone: a changed password resets all sessions of a peer at once, and one
//! that only some peers have keeps the two ends of a session apart, if two peers are for the same
//! pair of nodes.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::{DEFAULT_AS_NUMBER, Error, Snapshot};
use crate::controller::MANAGED_BY;

/// Label with the owner. An owner reference would delete peers together with their set, while
/// `Retain` keeps them.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The set a BGPPeer of ours belongs to.
pub const SET_LABEL: &str = "route-reflectors.traffic.example.com/set";

/// The kind, for texts and objects.
pub(super) const KIND: &str = "BGPPeer";

/// A BGPPeer as it is in the datastore: texts, not understood yet. Empty texts are `None`, as they
/// are for Calico.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalicoPeer {
    /// Name of the BGPPeer.
    pub name: String,
    /// `spec.node`: the one node it is for, by the name that Kubernetes has for it.
    pub node: Option<String>,
    /// `spec.nodeSelector`; with neither it is for all nodes.
    pub node_selector: Option<String>,
    /// `spec.peerIP`, with its port if there is one.
    pub peer_ip: Option<String>,
    /// `spec.peerSelector`; with neither it creates no session between nodes.
    pub peer_selector: Option<String>,
    /// `spec.asNumber`: of the other end, where that is an address.
    pub as_number: Option<u32>,
    /// True if `spec.reversePeering` is not `Manual`: the other end peers back by itself.
    pub reverse: bool,
    /// True if it carries our label.
    pub ours: bool,
    /// The set it belongs to, if it is ours.
    pub set: Option<String>,
    /// The settings of its sessions.
    pub session: Session,
    /// The version for [`super::Datastore::delete_peer`].
    pub version: String,
}

/// The fields of a BGPPeer that determine the peerings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PeerSpec {
    #[serde(default, deserialize_with = "text")]
    pub node: Option<String>,
    #[serde(default, deserialize_with = "text")]
    node_selector: Option<String>,
    #[serde(default, rename = "peerIP", deserialize_with = "text")]
    peer_ip: Option<String>,
    #[serde(default, deserialize_with = "text")]
    peer_selector: Option<String>,
    #[serde(default)]
    as_number: Option<AsNumber>,
    #[serde(default, deserialize_with = "text")]
    reverse_peering: Option<String>,
    #[serde(flatten)]
    others: Value,
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

/// An AS number: Calico accepts 65000, "65000" and "1.10".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct AsNumber(pub u32);

impl TryFrom<Value> for AsNumber {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let bad = || format!("{value} is not an AS number");
        let number = match &value {
            Value::Number(number) => number.as_u64().and_then(|n| u32::try_from(n).ok()),
            Value::String(text) => match text.split_once('.') {
                Some((high, low)) => match (high.parse::<u16>(), low.parse::<u16>()) {
                    (Ok(high), Ok(low)) => Some((u32::from(high) << 16) | u32::from(low)),
                    _ => None,
                },
                None => text.parse().ok(),
            },
            _ => None,
        };
        number.map(Self).ok_or_else(bad)
    }
}

impl CalicoPeer {
    pub(super) fn new(
        name: String,
        labels: Option<&BTreeMap<String, String>>,
        spec: PeerSpec,
        version: String,
    ) -> Self {
        let label = |key: &str| labels.and_then(|labels| labels.get(key));
        let ours = label(MANAGED_BY_LABEL).is_some_and(|value| value == MANAGED_BY);
        Self {
            name,
            node: spec.node,
            node_selector: spec.node_selector,
            peer_ip: spec.peer_ip,
            peer_selector: spec.peer_selector,
            as_number: spec.as_number.map(|AsNumber(number)| number),
            session: Session::of_peer(&spec.others),
            reverse: spec.reverse_peering.as_deref() != Some("Manual"),
            ours,
            set: label(SET_LABEL).filter(|_| ours).cloned(),
            version,
        }
    }
}

/// One of our BGPPeers in its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedPeer<'a> {
    /// Name of the BGPPeer.
    pub name: &'a str,
    /// Selects the nodes that it configures.
    pub node_selector: &'a str,
    /// Selects the peers of these nodes.
    pub peer_selector: &'a str,
    /// The set it belongs to.
    pub set: &'a str,
    /// The settings of its sessions if it is new.
    pub session: Option<&'a Session>,
}

impl WantedPeer<'_> {
    /// The object, to be created.
    pub(super) fn object(&self, api_version: &str) -> Value {
        let mut spec = self.session.map(|session| session.0.clone()).unwrap_or_default();
        spec.insert("nodeSelector".into(), self.node_selector.into());
        spec.insert("peerSelector".into(), self.peer_selector.into());
        json!({
            "apiVersion": api_version, "kind": KIND,
            "metadata": {
                "name": self.name,
                "labels": {MANAGED_BY_LABEL: MANAGED_BY, SET_LABEL: self.set},
            },
            "spec": spec,
        })
    }

    /// Returns the merge patch from `object` to the desired state; `None` if it matches.
    ///
    /// # Errors
    /// If the object is not ours.
    pub(super) fn patch(&self, object: &Value) -> Result<Option<Value>, Error> {
        ensure_ours(KIND, self.name, object)?;
        let mut spec = Map::new();
        for (field, wanted) in [
            ("nodeSelector", Some(self.node_selector)),
            ("peerSelector", Some(self.peer_selector)),
            // Each of these would change its sessions, or is forbidden beside a selector.
            ("node", None),
            ("peerIP", None),
            ("asNumber", None),
            ("localASNumber", None),
            ("localWorkloadSelector", None),
            ("reachableBy", None),
        ] {
            let found = &object["spec"][field];
            if !found.is_null() && wanted.is_none() || wanted.is_some_and(|wanted| found != wanted)
            {
                spec.insert(field.into(), wanted.into());
            }
        }
        if object["spec"]["reversePeering"] == "Manual" {
            spec.insert("reversePeering".into(), Value::Null);
        }
        let mut patch = Map::new();
        if !spec.is_empty() {
            patch.insert("spec".into(), spec.into());
        }
        if object["metadata"]["labels"][SET_LABEL] != self.set {
            patch.insert("metadata".into(), json!({"labels": {SET_LABEL: self.set}}));
        }
        Ok((!patch.is_empty()).then(|| patch.into()))
    }
}

/// Fails if an object does not carry our label.
pub(super) fn ensure_ours(kind: &'static str, name: &str, object: &Value) -> Result<(), Error> {
    if object["metadata"]["labels"][MANAGED_BY_LABEL] == MANAGED_BY {
        Ok(())
    } else {
        Err(Error::Taken { kind, name: name.into() })
    }
}

/// The BGPConfiguration of the cluster: the mesh, and the AS number. If it is missing or empty,
/// Calico's defaults apply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigurationSpec {
    #[serde(default)]
    node_to_node_mesh_enabled: Option<bool>,
    #[serde(default)]
    as_number: Option<AsNumber>,
    /// Port of BIRD.
    #[serde(default)]
    pub listen_port: Option<u16>,
    /// The classes of `IPPool`s with routes that BIRD programs.
    #[serde(default)]
    pub program_cluster_routes: Option<String>,
    #[serde(flatten)]
    others: Value,
}

impl ConfigurationSpec {
    /// Returns the settings of the mesh's sessions.
    pub fn session(&self) -> Session {
        Session::of_mesh(&self.others)
    }

    /// Returns the settings that no BGPPeer can have.
    pub fn only_of_mesh(&self) -> Vec<String> {
        only_of_mesh(&self.others)
    }

    pub fn mesh(&self) -> bool {
        self.node_to_node_mesh_enabled.unwrap_or(true)
    }

    pub fn as_number(&self) -> u32 {
        self.as_number.map_or(DEFAULT_AS_NUMBER, |AsNumber(number)| number)
    }
}

/// The ClusterInformation of the cluster: whether Calico may be written to, and its release.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InformationSpec {
    #[serde(default)]
    datastore_ready: Option<bool>,
    #[serde(default)]
    calico_version: Option<String>,
}

impl InformationSpec {
    /// Calico itself waits for `true`, but a cluster on which nothing of it ever ran has no field.
    pub fn locked(&self) -> bool {
        self.datastore_ready == Some(false)
    }

    /// The release of Calico: its first two numbers, if they are known.
    pub fn release(&self) -> Option<(u32, u32)> {
        let version = self.calico_version.as_ref()?;
        let mut numbers = version.strip_prefix('v').unwrap_or(version).split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

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

/// The settings of sessions, as written in the spec of a BGPPeer, without those that have Calico's
/// defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session(pub Map<String, Value>);

impl Session {
    /// Reads the settings of a BGPPeer.
    fn of_peer(spec: &Value) -> Self {
        let fields = spec.as_object().into_iter().flatten();
        let matters = |(name, value): &(&String, &Value)| {
            let default = |(field, default): &(&str, &str)| name == field && *value == default;
            !ENDS.contains(&name.as_str()) && is_set(value) && !DEFAULTS.iter().any(default)
        };
        let fields = fields.filter(matters).map(|(name, value)| (name.clone(), value.clone()));
        Self(fields.collect())
    }

    /// Reads the settings of a BGPConfiguration for the mesh.
    fn of_mesh(spec: &Value) -> Self {
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
fn only_of_mesh(spec: &Value) -> Vec<String> {
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
    use super::*;

    fn read(object: &Value) -> CalicoPeer {
        let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap();
        let spec = serde_json::from_value(object["spec"].clone()).unwrap();
        CalicoPeer::new("p".into(), Option::as_ref(&labels), spec, "7".into())
    }

    #[test]
    fn texts_are_taken_as_calico_takes_them() {
        let peer = |change: fn(&mut CalicoPeer)| {
            let mut peer = CalicoPeer {
                name: "p".into(),
                version: "7".into(),
                reverse: true,
                ..CalicoPeer::default()
            };
            change(&mut peer);
            peer
        };
        for (spec, expected) in [
            (json!({}), peer(|_| {})),
            (
                json!({"node": "n1", "peerIP": "10.0.0.9:1790", "asNumber": 65001}),
                peer(|p| {
                    p.node = Some("n1".into());
                    p.peer_ip = Some("10.0.0.9:1790".into());
                    p.as_number = Some(65_001);
                }),
            ),
            (
                json!({"nodeSelector": "all()", "peerSelector": "has(rr)", "node": "", "peerIP": ""}),
                peer(|p| {
                    p.node_selector = Some("all()".into());
                    p.peer_selector = Some("has(rr)".into());
                }),
            ),
            (json!({"reversePeering": "Manual"}), peer(|p| p.reverse = false)),
            (json!({"reversePeering": "Auto"}), peer(|_| {})),
            (json!({"asNumber": "1.10"}), peer(|p| p.as_number = Some(65_546))),
            (json!({"asNumber": "64512", "node": null}), peer(|p| p.as_number = Some(64_512))),
            (json!({"asNumber": 4_294_967_295_u64}), peer(|p| p.as_number = Some(u32::MAX))),
        ] {
            assert_eq!(read(&json!({"spec": spec})), expected, "{spec}");
        }
        for bad in [json!({"asNumber": "x"}), json!({"asNumber": -1}), json!({"node": 7})] {
            assert!(serde_json::from_value::<PeerSpec>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn ours_is_what_carries_our_label() {
        for (labels, ours, set) in [
            (json!(null), false, None),
            (json!({"app.kubernetes.io/managed-by": "Helm"}), false, None),
            (json!({SET_LABEL: "a"}), false, None),
            (json!({MANAGED_BY_LABEL: MANAGED_BY}), true, None),
            (json!({MANAGED_BY_LABEL: MANAGED_BY, SET_LABEL: "a"}), true, Some("a")),
        ] {
            let peer = read(&json!({"metadata": {"labels": labels}, "spec": {}}));
            assert_eq!((peer.ours, peer.set.as_deref()), (ours, set), "{labels}");
        }
    }

    const WANTED: WantedPeer<'_> = WantedPeer {
        name: "p",
        node_selector: "!has(rr)",
        peer_selector: "has(rr)",
        set: "main",
        session: None,
    };

    #[test]
    fn a_new_peer_has_the_sessions_fields_and_one_that_is_there_keeps_its_own() {
        let session = Session::of_mesh(&json!({
            "nodeMeshPassword": {"secretKeyRef": {"name": "bgp", "key": "mesh"}},
            "nodeMeshMaxRestartTime": "30s",
        }));
        let wanted = WantedPeer { session: Some(&session), ..WANTED };
        let mut object = wanted.object("projectcalico.org/v3");
        assert_eq!(
            object["spec"],
            json!({
                "nodeSelector": "!has(rr)", "peerSelector": "has(rr)", "maxRestartTime": "30s",
                "password": {"secretKeyRef": {"name": "bgp", "key": "mesh"}},
            })
        );
        assert_eq!(read(&object).session, session);
        object["spec"]["password"] = json!({"secretKeyRef": {"name": "own", "key": "k"}});
        assert_eq!(wanted.patch(&object).unwrap(), None, "a user's own");
        object["spec"].as_object_mut().unwrap().remove("password");
        assert_eq!(wanted.patch(&object).unwrap(), None, "it would reset every session at once");
    }

    #[test]
    fn what_is_so_already_needs_no_patch_and_what_others_set_stays() {
        let mut object = WANTED.object("projectcalico.org/v3");
        assert_eq!(WANTED.patch(&object).unwrap(), None);
        object["spec"]["password"] = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        object["spec"]["reversePeering"] = json!("Auto");
        object["metadata"]["labels"]["team"] = json!("net");
        assert_eq!(WANTED.patch(&object).unwrap(), None);

        object["spec"]["nodeSelector"] = json!("all()");
        object["spec"]["asNumber"] = json!(65_001);
        object["spec"]["reversePeering"] = json!("Manual");
        object["metadata"]["labels"][SET_LABEL] = json!("old");
        let patch = json!({
            "metadata": {"labels": {SET_LABEL: "main"}},
            "spec": {"nodeSelector": "!has(rr)", "asNumber": null, "reversePeering": null},
        });
        assert_eq!(WANTED.patch(&object).unwrap(), Some(patch));
    }

    #[test]
    fn one_that_is_not_ours_gets_no_patch() {
        let object = json!({"metadata": {"name": "p"}, "spec": {"peerIP": "10.0.0.9"}});
        assert!(matches!(WANTED.patch(&object), Err(Error::Taken { .. })));
        let same = json!({"spec": {"nodeSelector": "!has(rr)", "peerSelector": "has(rr)"}});
        assert!(WANTED.patch(&same).is_err(), "even if it equals the wanted one");
    }

    #[test]
    fn a_configuration_that_says_nothing_means_a_mesh() {
        for (spec, mesh, number) in [
            (json!({}), true, 64_512),
            (json!({"nodeToNodeMeshEnabled": null, "asNumber": null}), true, 64_512),
            (json!({"nodeToNodeMeshEnabled": false, "asNumber": 65_000}), false, 65_000),
            (json!({"nodeToNodeMeshEnabled": true, "asNumber": "1.1"}), true, 65_537),
        ] {
            let read: ConfigurationSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!((read.mesh(), read.as_number()), (mesh, number), "{spec}");
        }
    }

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
