//! The places for webhooks in the one object that holds them all: the older `NetworkProber`s come
//! first, within the shares of their namespaces. Pure.
use std::{collections::HashMap, fmt};

use super::{
    scope::Scope,
    settings::{Settings, Tenancy},
};
use crate::api::network_prober::Mode;

/// Size of an entry besides its selectors: two CA certificates of 1 kB each in base64, two names of
/// at most 253 bytes, and a line for each field in `managedFields`.
const ENTRY_BYTES: usize = 4_096;

/// Common limits of the webhooks of some `NetworkProber`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of webhooks.
    pub webhooks: usize,
    /// Size of their entries together, as JSON.
    pub bytes: usize,
}

/// The webhooks of all. For every pod that is created, the API server checks all of them, calls the
/// matching ones one after the other, and caches clients for 200; etcd accepts objects of 1.5 MiB.
pub const OF_ALL: Share = Share { webhooks: 100, bytes: 1_000_000 };

/// The webhooks of all namespaces except the operator's, so that administrators always have some.
pub const OF_AUTHORS: Share = Share { webhooks: 80, bytes: 800_000 };

/// The webhooks of one namespace that is not the operator's: three others can do the same.
pub const OF_NAMESPACE: Share = Share { webhooks: 25, bytes: 250_000 };

/// The `NetworkProber`s that have a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Those of a namespace.
    Namespace(String),
    /// Those of all namespaces but the operator's.
    Authors,
    /// All of them.
    All,
}

impl Group {
    /// Returns their share.
    #[must_use]
    pub const fn share(&self) -> Share {
        match self {
            Self::Namespace(_) => OF_NAMESPACE,
            Self::Authors => OF_AUTHORS,
            Self::All => OF_ALL,
        }
    }

    /// Returns the groups of a `NetworkProber` of this namespace, which must all have room.
    fn of(namespace: &str, tenancy: &Tenancy) -> Vec<Self> {
        if namespace == tenancy.operator() {
            vec![Self::All]
        } else {
            vec![Self::Namespace(namespace.to_owned()), Self::Authors, Self::All]
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "the NetworkProbers of the namespace {name}"),
            Self::Authors => f.write_str("the NetworkProbers of all namespaces but the operator's"),
            Self::All => f.write_str("all NetworkProbers together"),
        }
    }
}

/// The reason why a `NetworkProber` gets no webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Full {
    /// The older ones of the group have all that it may have.
    Webhooks(Group),
    /// Its entry is larger than what the older ones of the group leave.
    Bytes(Group),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Webhooks(group) => write!(
                f,
                "spec.mode: {group} may have {} webhooks (mode Sidecar), and older ones have them: \
                 delete one, or use one for several namespaces (namespaceSelector)",
                group.share().webhooks
            ),
            Self::Bytes(group) => write!(
                f,
                "spec.namespaceSelector: the webhooks of {group} may take {} bytes in the one \
                 MutatingWebhookConfiguration, and with this one they take more: select fewer \
                 namespaces, by labels from the operator's namespace, or by shorter selectors",
                group.share().bytes
            ),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    webhooks: usize,
    bytes: usize,
}

/// The places that are taken, as a running sum from the oldest `NetworkProber` on.
#[derive(Debug)]
pub struct Places {
    tenancy: Tenancy,
    taken: HashMap<Group, Load>,
}

impl Places {
    /// All of them, free.
    #[must_use]
    pub fn new(tenancy: &Tenancy) -> Self {
        Self { tenancy: tenancy.clone(), taken: HashMap::new() }
    }

    /// Returns why an entry of this size has no place beside those that have one.
    #[must_use]
    pub fn full(&self, namespace: &str, bytes: usize) -> Option<Full> {
        Group::of(namespace, &self.tenancy).into_iter().find_map(|group| {
            let (share, taken) = (group.share(), self.taken.get(&group).copied());
            let taken = taken.unwrap_or_default();
            if taken.webhooks >= share.webhooks {
                return Some(Full::Webhooks(group));
            }
            (taken.bytes + bytes > share.bytes).then_some(Full::Bytes(group))
        })
    }

    /// Takes the place of the next one, if it needs one and there is one.
    pub fn take(&mut self, settings: &Settings, scope: &Scope, bytes: usize) {
        let namespace = &settings.namespace;
        if !needs_one(settings, scope, &self.tenancy) || self.full(namespace, bytes).is_some() {
            return;
        }
        for group in Group::of(namespace, &self.tenancy) {
            let load = self.taken.entry(group).or_default();
            load.webhooks += 1;
            load.bytes += bytes;
        }
    }
}

/// Reports whether it has a webhook if there is a place. With labels for the API server, it has one
/// before the first namespace with these labels.
fn needs_one(settings: &Settings, scope: &Scope, tenancy: &Tenancy) -> bool {
    settings.mode == Mode::Sidecar
        && (scope.allows_any() || settings.namespace_labels(tenancy).is_some())
}

/// About how large its entry is.
#[must_use]
pub fn webhook_bytes(settings: &Settings, scope: &Scope, tenancy: &Tenancy) -> usize {
    let text = |selector| serde_json::to_string(selector).map_or(0, |text| text.len());
    let namespaces = match settings.namespace_labels(tenancy) {
        Some(labels) => text(labels),
        // Each in quotes, with a comma.
        None => scope.allowed().iter().map(|name| name.len() + 3).sum(),
    };
    ENTRY_BYTES + text(&settings.pod_selector) + namespaces
}
