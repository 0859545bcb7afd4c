//! Goes back to the mesh, step by step, when a set is deleted.
use kube::ResourceExt;

use super::{Others, RouteReflectorReconciler, observe::observe, plan};
use crate::{
    api::{Mode, RouteReflectorSet, route_reflector_set::DeletionPolicy},
    controller::{Error, Notice, Reconciler},
};

/// One step back to the mesh; `Ok` when nothing is left to do.
pub(super) async fn cleanup(
    reconciler: &RouteReflectorReconciler,
    set: &RouteReflectorSet,
    others: &Others,
) -> Result<Vec<Notice>, Error> {
    let name = set.name_any();
    if set.spec.deletion_policy == DeletionPolicy::Retain || set.spec.mode == Mode::Observe {
        reconciler.forget("", &name);
        return Ok(vec![]);
    }
    let observed = observe(reconciler, set, others, true).await?;
    if observed.held.is_some() {
        // It never wrote anything.
        reconciler.forget("", &name);
        return Ok(vec![]);
    }
    let plan::Restore { desired, end } = plan::restore(set, &observed)?;
    if let Some(desired) = desired {
        reconciler.write(set, &reconciler.datastore(set)?, desired).await?;
    }
    let notices = end?;
    reconciler.forget("", &name);
    Ok(notices)
}
