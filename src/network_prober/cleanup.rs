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
    let mut ours = reconciler.owned.of(&prober.uid().unwrap_or_default());
    ours.extend(reconciler.entries.of(&owner));
    // Objects next to their owner are garbage-collected.
    let beyond: Vec<_> =
        ours.into_iter().filter(|key| key.namespace.as_ref() != Some(&owner.0)).collect();
    for key in &beyond {
        reconciler.delete_child(&owner, key).await?;
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
