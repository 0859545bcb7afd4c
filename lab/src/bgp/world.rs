//! The input of Calico's confd: nodes, peers, the mesh. Typed, from Kubernetes objects. No IO.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::{Deserialize, de::IgnoredAny};

use super::family::Family;
use super::selector::{Labels, Selector};

/// The annotation that makes a node a reflector: the cluster id.
pub const CLUSTER_ID: &str = "projectcalico.org/RouteReflectorClusterID";
/// Calico's own, where nothing is configured.
const AS_NUMBER: u32 = 64512;

/// Everything that decides about the configuration of every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// The one autonomous system.
    pub as_number: u32,
    /// True if nodes that are no reflectors peer with each other.
    pub mesh: bool,
    /// By name.
    pub nodes: BTreeMap<String, Node>,
    /// By name.
    pub peers: BTreeMap<String, Peer>,
}

/// The annotation that names a node's address in a family: `10.90.0.10/16`, `fd90::a/64`.
pub(super) fn annotation(family: Family) -> &'static str {
    family.pick("projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address")
}

/// A node's BIRD of one address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// The address at which its neighbors reach it.
    pub address: IpAddr,
    /// The block that it announces: `10.91.0.0/24`.
    pub pods: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// One for each address family that it speaks; there is one.
    pub speakers: BTreeMap<Family, Speaker>,
    /// The labels that selectors match.
    pub labels: Labels,
    /// A node with a cluster id is a reflector.
    pub cluster_id: Option<Ipv4Addr>,
}

/// A `BGPPeer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The nodes whose configuration it changes.
    pub local: Local,
    /// With whom they peer.
    pub remote: Remote,
    /// True if the other side peers back without being told to.
    pub reverse: bool,
    /// The time for which the other side keeps routes of a node whose BIRD starts again.
    pub restart: Option<Duration>,
}

/// The nodes whose configuration a [`Peer`] changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// Every node's: Calico calls such a peer global.
    All,
    /// One node's, by name.
    Node(String),
    Selected(Selector),
}

/// The peers of these nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    Selected(Selector),
    /// A node's, or of something outside, which this ground does not have.
    Address(IpAddr),
}

impl Default for World {
    /// Calico's own: a full mesh.
    fn default() -> Self {
        Self { as_number: AS_NUMBER, mesh: true, nodes: BTreeMap::new(), peers: BTreeMap::new() }
    }
}

impl World {
    /// Reads all objects. Unreadable ones count as missing; the second value holds the reasons.
    pub fn read<A: Borrow<v1::Node>, B: Borrow<DynamicObject>>(
        nodes: &[A],
        peers: &[B],
        configurations: &[B],
    ) -> (Self, Vec<String>) {
        let default = |object: &&DynamicObject| object.name_any() == "default";
        let mut configurations = configurations.iter().map(Borrow::<DynamicObject>::borrow);
        let (mesh, as_number) = configuration(configurations.find(default));
        let mut world = Self { as_number, mesh, ..Self::default() };
        let mut unread = Vec::new();
        for node in nodes.iter().map(Borrow::<v1::Node>::borrow) {
            match Node::read(node) {
                Ok(read) => world.nodes.extend(read.map(|read| (node.name_any(), read))),
                Err(error) => unread.push(format!("{error:#}")),
            }
        }
        for peer in peers.iter().map(Borrow::<DynamicObject>::borrow) {
            match Peer::read(peer) {
                Ok(read) => world.peers.extend([(peer.name_any(), read)]),
                Err(error) => unread.push(format!("{error:#}")),
            }
        }
        (world, unread)
    }
}

impl Local {
    /// Reports whether a node's configuration is changed by it.
    pub(super) fn takes(&self, name: &str, node: &Node) -> bool {
        match self {
            Self::All => true,
            Self::Node(wanted) => wanted == name,
            Self::Selected(selector) => selector.matches(&node.labels),
        }
    }
}

impl Remote {
    pub(super) fn takes(&self, node: &Node, address: IpAddr) -> bool {
        match self {
            Self::Selected(selector) => selector.matches(&node.labels),
            Self::Address(wanted) => address == *wanted,
        }
    }
}

impl Node {
    /// Reads a Node; one without an address speaks no BGP.
    pub fn read(node: &v1::Node) -> Result<Option<Self>> {
        let mut speakers = BTreeMap::new();
        for family in Family::ALL {
            if let Some(speaker) = Speaker::read(node, family)? {
                speakers.insert(family, speaker);
            }
        }
        if speakers.is_empty() {
            return Ok(None);
        }
        let id = node.annotations().get(CLUSTER_ID);
        let cluster_id = id.map(|id| id.parse().with_context(|| unread(node, CLUSTER_ID, id)));
        let cluster_id = cluster_id.transpose()?;
        Ok(Some(Self { speakers, labels: node.labels().clone(), cluster_id }))
    }
}

impl Speaker {
    fn read(node: &v1::Node, family: Family) -> Result<Option<Self>> {
        let key = annotation(family);
        let Some(text) = node.annotations().get(key) else { return Ok(None) };
        let plain = text.split('/').next().unwrap_or_default();
        let address: IpAddr = plain.parse().with_context(|| unread(node, key, text))?;
        ensure!(Family::of(address) == family, unread(node, key, text));
        let all = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default();
        let pods = all.iter().find(|pods| Family::of_network(pods) == family).cloned();
        let missing = || format!("{} has no {family:?} network in spec.podCIDRs", node.name_any());
        Ok(Some(Self { address, pods: pods.with_context(missing)? }))
    }
}

fn unread(node: &v1::Node, key: &str, value: &str) -> String {
    format!("{key} of {}: {value:?}", node.name_any())
}

/// The fields that this stand-in knows; a peer with others is an error, not half understood.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PeerSpec {
    node: String,
    node_selector: String,
    #[serde(rename = "peerIP")]
    peer_ip: String,
    peer_selector: String,
    reverse_peering: String,
    max_restart_time: Option<String>,
    /// Read and passed over: there is one autonomous system.
    #[allow(dead_code)]
    as_number: u32,
    /// Passed over too: both ends have the same.
    #[allow(dead_code)]
    password: IgnoredAny,
    #[allow(dead_code)]
    keepalive_time: IgnoredAny,
    #[allow(dead_code)]
    source_address: IgnoredAny,
}

impl Peer {
    /// Reads a `BGPPeer`.
    pub fn read(object: &DynamicObject) -> Result<Self> {
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let read = || -> Result<Self> {
            let spec: PeerSpec = serde_json::from_value(spec)?;
            let local = match (spec.node.as_str(), spec.node_selector.as_str()) {
                ("", "") => Local::All,
                ("", selector) => Local::Selected(Selector::parse(selector)?),
                (node, "") => Local::Node(node.to_owned()),
                _ => bail!("node and nodeSelector exclude each other"),
            };
            let remote = match (spec.peer_ip.as_str(), spec.peer_selector.as_str()) {
                ("", "") => bail!("neither peerIP nor peerSelector"),
                ("", selector) => Remote::Selected(Selector::parse(selector)?),
                (address, "") => {
                    Remote::Address(address.parse().with_context(|| format!("peerIP {address}"))?)
                }
                _ => bail!("peerIP and peerSelector exclude each other"),
            };
            let restart = spec.max_restart_time.as_deref().map(seconds).transpose()?;
            Ok(Self { local, remote, reverse: spec.reverse_peering != "Manual", restart })
        };
        read().with_context(|| format!("BGPPeer {}", object.name_any()))
    }
}

/// Reads a Go duration of whole seconds or minutes.
fn seconds(text: &str) -> Result<Duration> {
    let known = text.chars().all(|c| c.is_ascii_digit() || "hms".contains(c));
    ensure!(known, "duration {text:?}: only h, m and s are known here");
    let time: SignedDuration = text.parse().with_context(|| format!("duration {text:?}"))?;
    Ok(time.try_into()?)
}

/// Reads the mesh and the autonomous system from the `BGPConfiguration` called `default`.
fn configuration(object: Option<&DynamicObject>) -> (bool, u32) {
    let spec = object.map(|object| &object.data["spec"]);
    let mesh = spec.and_then(|spec| spec["nodeToNodeMeshEnabled"].as_bool());
    let number = spec.and_then(|spec| spec["asNumber"].as_u64());
    let number = number.and_then(|number| u32::try_from(number).ok());
    (mesh.unwrap_or(true), number.unwrap_or(AS_NUMBER))
}
