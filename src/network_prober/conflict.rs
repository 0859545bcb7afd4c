//! Several `NetworkProber`s at once: a pod that two select belongs to the older one, and the older
//! ones come first in the one object that holds the webhooks of all.
use super::{
    scope::{Scope, Standing},
    settings::Settings,
    tenancy::Tenancy,
};
use crate::{api::network_prober::Mode, pods::PodObject};

/// Maximum number of `NetworkProber`s that have a webhook, the older ones first. For every pod that
/// is created, the API server checks all of them, calls the matching ones one after the other, and
/// caches clients for 200.
pub const WEBHOOKS: usize = 100;

/// Maximum size of all their entries together, as JSON: etcd accepts objects of 1.5 MiB.
pub const WEBHOOK_BYTES: usize = 1_000_000;

/// Size of an entry besides its selectors: two CA certificates of 1 kB each in base64, two names of
/// at most 253 bytes, and a line for each field in `managedFields`.
const ENTRY_BYTES: usize = 4_096;

/// The part of the one shared object that the entries of some `NetworkProber`s take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of webhooks.
    pub webhooks: usize,
    /// Their size together.
    pub bytes: usize,
}

impl Load {
    /// Reports whether these leave a place for one more.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.webhooks < WEBHOOKS
    }

    /// Reports whether an entry of this size fits beside these.
    #[must_use]
    pub fn fits(&self, bytes: usize) -> bool {
        self.bytes + bytes <= WEBHOOK_BYTES
    }
}

/// Reports whether an older one selects the pod.
#[must_use]
pub fn is_claimed(older: &[(&Settings, &Scope)], pod: &PodObject) -> bool {
    older.iter().any(|(settings, scope)| {
        settings.mode == Mode::Sidecar
            && scope.standing(pod.namespace()) == Some(Standing::Allowed)
            && settings.pods.matches(|key| pod.label(key))
    })
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
