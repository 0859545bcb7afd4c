//! Several `NetworkProber`s at once: a pod that two select belongs to the older one.
use super::{
    scope::{Scope, Standing},
    settings::Settings,
};
use crate::{api::network_prober::Mode, pods::PodObject};

/// Reports whether an older one selects the pod.
#[must_use]
pub fn is_claimed(older: &[(&Settings, &Scope)], pod: &PodObject) -> bool {
    older.iter().any(|(settings, scope)| {
        settings.mode == Mode::Sidecar
            && scope.standing(pod.namespace()) == Some(Standing::Allowed)
            && settings.pods.matches(|key| pod.label(key))
    })
}
