//! Goes back to the mesh, step by step, when a set is deleted.
use super::{Others, RouteReflectorReconciler, observe::observe, plan};
use crate::{
    api::{Mode, RouteReflectorSet, route_reflector_set::DeletionPolicy},
    controller::{Error, Notice},
};

/// One step back to the mesh; `Ok` when nothing is left to do.
pub(super) async fn cleanup(
    reconciler: &RouteReflectorReconciler,
    set: &RouteReflectorSet,
    others: &Others,
) -> Result<Vec<Notice>, Error> {
    if set.spec.deletion_policy == DeletionPolicy::Retain || set.spec.mode == Mode::Observe {
        return Ok(vec![]);
    }
    let observed = observe(reconciler, set, others, true).await?;
    if observed.held.is_some() {
        // It never wrote anything.
        return Ok(vec![]);
    }
    let plan::Restore { desired, end } = plan::restore(set, &observed)?;
    if let Some(desired) = desired {
        reconciler.write(set, &reconciler.datastore(set)?, desired).await?;
    }
    end
}
