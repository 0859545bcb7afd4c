//! Calico's objects: read, and written only where they are ours.
//!
//! Calico keeps its BGPPeers and its BGPConfiguration in the Kubernetes API (`kubernetes`, in one
//! of two groups) or in an etcd of its own ([`etcd`](Etcd)). [`Datastore`] is both:
//!
//! - [`Datastore::read`] gives everything at once, as texts: what a selector means is not decided
//!   here.
//! - Each write reads the object again, refuses one that is not ours, and is tied to the very
//!   version that it read. A write that would change nothing is skipped.
//! - [`Datastore::changes`] reports all changes, by any client.
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::stream::BoxStream;
use k8s_openapi::jiff::Timestamp;

use super::families::Addresses;
use crate::{
    api::route_reflector_set::{self, DatastoreType},
    controller::error::is_refusal,
    infra::lease::Fence,
    nodes::Texts,
};

#[cfg(feature = "etcd")]
mod etcd;
mod kubernetes;
mod node_status;
mod peer;
mod routing;

#[cfg(feature = "etcd")]
pub use etcd::{Credentials, Etcd};
pub use kubernetes::{Group, Kubernetes};
pub use node_status::{MAX_NODES, Report};
pub use peer::{CalicoPeer, MANAGED_BY_LABEL, SET_LABEL, Session, WantedPeer};
pub use routing::{Idle, Needed, Pool, Routing};

/// The autonomous system of a cluster if its BGPConfiguration names none.
pub const DEFAULT_AS_NUMBER: u32 = 64_512;

/// The name of the BGPConfiguration and ClusterInformation that hold for the whole cluster.
const DEFAULT: &str = "default";

/// Maximum age of a read while a watch reports no changes: a watch may be silent because it is
/// broken, and 15,000 peers a minute are no load.
const MAX_AGE: Duration = Duration::from_mins(1);

/// Individual addresses and AS numbers, by node.
pub type Speakers = BTreeMap<Arc<str>, (Addresses, Option<u32>)>;

/// The ports of BIRDs that do not listen on port 179: confd puts them into the names of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenPorts {
    /// The port of all nodes: `listenPort` of the BGPConfiguration `default`.
    pub all: Option<u16>,
    /// The ports of single nodes, from configurations `node.<name>`.
    pub nodes: BTreeMap<Arc<str>, u16>,
}

impl ListenPorts {
    /// Reads the port from a BGPConfiguration that applies to one node.
    fn note(&mut self, configuration: &str, port: Option<u16>) {
        let node = configuration.strip_prefix("node.").map(Into::into);
        self.nodes.extend(node.zip(port));
    }
}

/// An object of Calico's that cannot be read: the routes that it carries are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Kind and name.
    pub object: String,
    /// The field, and the error.
    pub why: String,
    /// Calico cannot read it either, and goes on without it.
    pub ignored: bool,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.object, self.why)
    }
}

impl Unreadable {
    /// A BGPPeer with a spec that does not decode.
    fn peer(name: &str, error: &serde_json::Error) -> Self {
        Self { object: format!("BGPPeer {name}"), why: format!("spec: {error}"), ignored: false }
    }
}

/// The contents of the datastore.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// All BGPPeers, ours and others', by name.
    pub peers: Vec<CalicoPeer>,
    /// The objects that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// True if nodes without a cluster id peer with each other.
    pub mesh: bool,
    /// The settings of the mesh's sessions.
    pub mesh_session: Session,
    /// Calico refuses a BGPConfiguration that has the mesh off and fields of its sessions.
    pub strict_mesh: bool,
    /// Fields about the mesh that no BGPPeer can have.
    pub only_of_mesh: Vec<String>,
    /// The cluster's autonomous system.
    pub as_number: u32,
    /// Cluster ids by the name of the Kubernetes node: of Calico's own Nodes in etcd. With the
    /// Kubernetes API they are annotations of Nodes, and this is empty.
    pub cluster_ids: BTreeMap<Arc<str>, Ipv4Addr>,
    /// In the same way the labels of Calico's own Nodes, by which BGPPeers select; `None` where
    /// those of Kubernetes' Nodes count.
    pub labels: Option<BTreeMap<Arc<str>, Texts>>,
    /// In the same way the addresses that nodes speak BGP with, and their AS numbers where they
    /// have their own.
    pub speakers: Option<Speakers>,
    /// The ports of BIRDs.
    pub listen_ports: ListenPorts,
    /// Who programs the routes between nodes.
    pub routing: Routing,
    /// The kind of datastore: `projectcalico.org/v3`, `crd.projectcalico.org/v1` or `etcd`.
    pub flavor: &'static str,
    /// Calico is moving its objects to another place: nothing may be written.
    pub locked: bool,
    /// The reason, if this is not the current answer of Calico's API: then nothing of Calico's may
    /// be written.
    pub stale: Option<Stale>,
}

/// Why a snapshot was not read where it is written to. Steps that only write Nodes continue with
/// it: the pods of Calico's API server may need the very route that a repair restores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The time at which it was read; `None` if it is what Calico's API server keeps its objects
    /// in, and current.
    pub since: Option<Timestamp>,
    /// The error of the read.
    pub why: String,
}

/// The moment of the snapshot is a fixed one: a text that changes with each pass would be a write.
impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Calico's API does not answer ({}); only Nodes are written until it does, ",
            self.why
        )?;
        match self.since {
            Some(since) => write!(f, "by what was read at {}", since.strftime("%H:%M UTC on %F")),
            None => write!(f, "by what crd.projectcalico.org has"),
        }
    }
}

/// The change of a node's cluster id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdChange {
    /// It stays.
    Keep,
    /// It is removed.
    Remove,
    /// It is this one.
    Set(Ipv4Addr),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// No write: the state was already as wanted.
    Unchanged,
    /// One write.
    Changed,
}

/// The datastore in which Calico stores its objects.
#[derive(Clone)]
pub enum Datastore {
    /// In the Kubernetes API.
    Kubernetes(Arc<Kubernetes>),
    /// In etcd.
    #[cfg(feature = "etcd")]
    Etcd(Arc<Etcd>),
}

/// One call for both.
macro_rules! either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Datastore::Kubernetes($store) => $call,
            #[cfg(feature = "etcd")]
            Datastore::Etcd($store) => $call,
        }
    };
}

impl Datastore {
    /// The datastore of a spec; no request is made yet. `namespace` is the operator's, where the
    /// Secret of an etcd is; `fence` is that of the client.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the spec names an etcd and describes none, or this program was built
    /// without the feature `etcd`.
    #[cfg_attr(not(feature = "etcd"), expect(unused_variables))]
    pub fn new(
        client: kube::Client,
        namespace: &str,
        spec: &route_reflector_set::Datastore,
        fence: &Fence,
    ) -> Result<Self, Error> {
        match spec.type_ {
            DatastoreType::Kubernetes => Ok(Self::Kubernetes(Arc::new(Kubernetes::new(client)))),
            #[cfg(feature = "etcd")]
            DatastoreType::Etcd => {
                let etcd = spec.etcd.as_ref().ok_or_else(|| {
                    Error::Invalid("spec.datastore.etcd: needed with type etcd".into())
                })?;
                Ok(Self::Etcd(Arc::new(Etcd::new(client, namespace, etcd, fence.clone())?)))
            }
            #[cfg(not(feature = "etcd"))]
            DatastoreType::Etcd => Err(Error::Invalid(
                "spec.datastore.type: this program was built without etcd (cargo feature etcd)"
                    .into(),
            )),
        }
    }

    /// Returns all objects. While the stream of [`Self::changes`] is being read and nothing has
    /// changed, returns the result of the last read, for at most a minute.
    ///
    /// # Errors
    /// Every variant of [`Error`] that is about reading.
    pub async fn read(&self) -> Result<Arc<Snapshot>, Error> {
        either!(self, store => {
            if let Some(snapshot) = store.cache.get() {
                return Ok(snapshot);
            }
            let generation = store.cache.generation();
            match store.read().await {
                Ok(snapshot) => {
                    let snapshot = Arc::new(snapshot);
                    store.cache.keep(generation, &snapshot);
                    Ok(snapshot)
                }
                Err(error) => store.instead(error).await.map(Arc::new),
            }
        })
    }

    /// Creates one of our BGPPeers, or updates it to the wanted state. Fields that do not affect
    /// the peerings (a password, timers, filters) are left to their authors; a new one gets those
    /// of `wanted`.
    ///
    /// # Errors
    /// [`Error::Taken`] if the name belongs to another owner; otherwise as for any write.
    pub async fn apply_peer(&self, wanted: &WantedPeer<'_>) -> Result<Written, Error> {
        either!(self, store => store.cache.after(store.apply_peer(wanted).await))
    }

    /// Deletes one of our BGPPeers, if it is unchanged since the decision.
    ///
    /// # Errors
    /// [`Error::Taken`] if it is not ours, [`Error::Changed`] if it has another version.
    pub async fn delete_peer(&self, name: &str, version: &str) -> Result<Written, Error> {
        either!(self, store => store.cache.after(store.delete_peer(name, version).await))
    }

    /// Switches Calico's node-to-node mesh. No other field of the BGPConfiguration is touched.
    ///
    /// # Errors
    /// The same as for any write.
    pub async fn set_mesh(&self, on: bool) -> Result<Written, Error> {
        either!(self, store => store.cache.after(store.set_mesh(on).await))
    }

    /// Marks a node (by its name in Kubernetes) if Calico has separate Nodes: a merge patch of its
    /// labels, and the change of its cluster id, in one transaction. With the Kubernetes API both
    /// are part of the Node, and this does nothing.
    ///
    /// # Errors
    /// [`Error::NoSpeaker`] if the node gets an id and Calico does not know it, or it takes no part
    /// in BGP.
    #[cfg_attr(not(feature = "etcd"), expect(clippy::unused_async, unused_variables))]
    pub async fn mark(
        &self,
        node: &str,
        labels: &serde_json::Value,
        id: IdChange,
    ) -> Result<Written, Error> {
        match self {
            Self::Kubernetes(_) => Ok(Written::Unchanged),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.cache.after(store.mark(node, labels, id).await),
        }
    }

    /// The next [`Self::read`] asks the server.
    pub fn refresh(&self) {
        either!(self, store => store.cache.bump());
    }

    /// Yields an item whenever something may have changed, the first as soon as the watch is open;
    /// never ends. Bursts are one item.
    #[must_use]
    pub fn changes(&self) -> BoxStream<'static, ()> {
        match self {
            Self::Kubernetes(store) => kubernetes::changes(Arc::clone(store)),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => etcd::changes(Arc::clone(store)),
        }
    }

    /// Reports whether both are the same connection.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kubernetes(one), Self::Kubernetes(two)) => Arc::ptr_eq(one, two),
            #[cfg(feature = "etcd")]
            (Self::Etcd(one), Self::Etcd(two)) => Arc::ptr_eq(one, two),
            #[cfg(feature = "etcd")]
            _ => false,
        }
    }

    /// Calico's report about the sessions of nodes, which exists in the Kubernetes API alone.
    #[must_use]
    pub fn node_status(&self) -> Option<&Kubernetes> {
        match self {
            Self::Kubernetes(store) => Some(store),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => None,
        }
    }
}

/// The last read, and whether it is still valid.
#[derive(Default)]
struct ReadCache {
    /// Grows with each observed change, and with each write of ours.
    generation: AtomicU64,
    /// True while a watch reports changes.
    watching: AtomicBool,
    last: Mutex<Option<Kept>>,
}

/// A stored read.
struct Kept {
    generation: u64,
    read: Instant,
    /// The same by the clock, for reports.
    at: Timestamp,
    snapshot: Arc<Snapshot>,
}

impl ReadCache {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn bump(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn watching(&self, watching: bool) {
        self.watching.store(watching, Ordering::Release);
    }

    fn get(&self) -> Option<Arc<Snapshot>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref()?;
        let holds = self.watching.load(Ordering::Acquire)
            && last.generation == self.generation()
            && last.read.elapsed() < MAX_AGE;
        holds.then(|| Arc::clone(&last.snapshot))
    }

    /// Returns the last read, valid or not, with its time.
    fn last(&self) -> Option<(Timestamp, Arc<Snapshot>)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|last| (last.at, Arc::clone(&last.snapshot)))
    }

    /// Stores a result that was read while `generation` was current.
    fn keep(&self, generation: u64, snapshot: &Arc<Snapshot>) {
        let (read, at, snapshot) = (Instant::now(), Timestamp::now(), Arc::clone(snapshot));
        let kept = Kept { generation, read, at, snapshot };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// After a write no earlier read is valid; nor is it after a failed one, since that may have
    /// been executed.
    fn after(&self, result: Result<Written, Error>) -> Result<Written, Error> {
        if !matches!(result, Ok(Written::Unchanged)) {
            self.bump();
        }
        result
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Kubernetes API has no Calico objects.
    #[error(
        "Calico is not installed: the API server has BGPPeers neither in projectcalico.org/v3 nor in crd.projectcalico.org/v1"
    )]
    NotInstalled,
    /// Calico's own migration has locked the datastore.
    #[error(
        "Calico is migrating its datastore (ClusterInformation default: datastoreReady is false); nothing is written until the migration ends"
    )]
    Locked,
    /// The name belongs to another owner.
    #[error(
        "{kind} {name} exists and is not ours; to hand it over: kubectl label {} {name} app.kubernetes.io/managed-by=traffic-operator",
        kind.to_lowercase()
    )]
    Taken {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// Calico refuses that the mesh is off while its BGPConfiguration has fields of the mesh. Only
    /// reported once the sessions of our BGPPeers are verified.
    #[error(
        "BGPConfiguration default: Calico refuses to switch the mesh off while spec has {}: {refusal}; no route depends on the mesh, so remove it in the same change: kubectl patch bgpconfiguration default --type merge -p '{}'",
        fields.join(" and "), off(fields)
    )]
    MeshFields {
        /// The fields of the mesh that are set.
        fields: Vec<&'static str>,
        /// The message from Calico.
        refusal: String,
    },
    /// It changed after it was read: read again, decide again.
    #[error("{0} changed while it was being written")]
    Changed(String),
    /// The user's settings cannot work; the text begins with the path of the field.
    #[error("{0}")]
    Invalid(String),
    /// An object of Calico's that every decision needs cannot be read. Unlike [`Error::Invalid`] it
    /// is mended without a change of the set, so the set must go on looking.
    #[error("{0}")]
    Unreadable(String),
    /// The Secret of an etcd is missing or cannot be used; begins with the path of the field.
    /// Unlike [`Error::Invalid`] it may be mended without a change of the object.
    #[error("{0}")]
    Secret(String),
    /// A node takes no part in BGP.
    #[error("{0}")]
    NoSpeaker(String),
    /// The API server failed.
    #[error("kubernetes api: {action}")]
    Kube {
        /// The failed operation.
        action: &'static str,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
    /// etcd did not answer, or refused.
    #[error("etcd: {0}")]
    Etcd(String),
    /// Another process may lead.
    #[error("not written: the lease is not held")]
    NotLeading,
}

impl Error {
    /// Wraps a client error with the failed operation.
    fn kube(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kube { action, source }
    }

    /// Reports whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Kube { source: kube::Error::Api(status), .. } => {
                !status.is_forbidden() && !is_refusal(status)
            }
            Self::Locked
            | Self::Changed(_)
            | Self::Kube { .. }
            | Self::Etcd(_)
            | Self::Secret(_)
            | Self::Unreadable(_)
            | Self::NotLeading => true,
            Self::NotInstalled
            | Self::Taken { .. }
            | Self::MeshFields { .. }
            | Self::Invalid(_)
            | Self::NoSpeaker(_) => false,
        }
    }

    /// A `PascalCase` word for conditions.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotInstalled => "CalicoNotFound",
            Self::Locked => "DatastoreLocked",
            Self::Taken { .. } | Self::MeshFields { .. } => "Conflict",
            Self::Invalid(_) | Self::NoSpeaker(_) => "InvalidSpec",
            Self::Kube { source: kube::Error::Api(status), .. } if status.is_forbidden() => {
                "Forbidden"
            }
            Self::Kube { source: kube::Error::Api(status), .. } if is_refusal(status) => {
                "InvalidSpec"
            }
            Self::Changed(_) | Self::Kube { .. } | Self::NotLeading => "ApiError",
            Self::Etcd(_) => "DatastoreUnreachable",
            Self::Secret(_) => "SecretInvalid",
            Self::Unreadable(_) => "CalicoUnreadable",
        }
    }
}

/// The patch that switches the mesh off and removes these fields.
fn off(fields: &[&str]) -> serde_json::Value {
    let mut spec = serde_json::json!({"nodeToNodeMeshEnabled": false});
    for field in fields {
        spec[*field] = serde_json::Value::Null;
    }
    serde_json::json!({"spec": spec})
}

#[cfg(test)]
mod tests;
