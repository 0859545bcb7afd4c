//! Why calls to a datastore fail.
use super::off;
use crate::controller::error::is_refusal;

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
        "BGPConfiguration default: Calico refuses to switch the mesh off while spec has {}: {refusal}; our BGPPeers carry every route, so remove it in the same change: kubectl patch bgpconfiguration default --type merge -p '{}'",
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
    pub(super) fn kube(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
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
