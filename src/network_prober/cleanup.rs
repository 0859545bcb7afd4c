//! Removes the objects outside of an object's namespace when it is deleted.
use kube::ResourceExt;

use super::NetworkProberReconciler;
use crate::{
    api::NetworkProber,
    controller::{Error, Notice, key},
};

/// Deletes what does not go with its owner.
pub(super) async fn cleanup(
    reconciler: &NetworkProberReconciler,
    prober: &NetworkProber,
) -> Result<Vec<Notice>, Error> {
    let owner = key(prober);
    // The webhook first: the API server asks it about pods for as long as its entry is there.
    let mut ours: Vec<_> = reconciler.entries.of(&owner).into_iter().collect();
    ours.extend(reconciler.owned.of(&prober.uid().unwrap_or_default()));
    // Objects next to their owner are garbage-collected.
    let beyond: Vec<_> =
        ours.into_iter().filter(|key| key.namespace.as_ref() != Some(&owner.0)).collect();
    // If one cannot be deleted, the others still are.
    let mut first = None;
    for key in &beyond {
        let deleted = reconciler.delete_child(&owner, key).await;
        first = first.or(deleted.err());
    }
    if let Some(error) = first {
        return Err(error);
    }
    let notice = (!beyond.is_empty()).then(|| Notice {
        warning: false,
        reason: "Removed",
        note: format!(
            "removed {} objects outside of this namespace; agents in running pods stay until \
             their pods are restarted",
            beyond.len()
        ),
        node: None,
    });
    Ok(notice.into_iter().collect())
}
