//! Writes the plan: the agents' objects and the webhooks; and removes them. Decides nothing.
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};

use super::{
    children::{Child, ChildKey, ChildKind},
    context::NetworkProberReconciler,
    observe::is_ours,
    plan::Desired,
};
use crate::{
    api::NetworkProber,
    controller::{Error, FIELD_MANAGER, Key, Notice, error::is_refusal, key, merge_params},
};

/// Applies and deletes the planned objects.
pub(super) async fn apply(
    reconciler: &NetworkProberReconciler,
    prober: &NetworkProber,
    desired: Desired,
) -> Result<Vec<Notice>, Error> {
    // If one cannot be written, the others still are.
    let mut first = None;
    let owner = key(prober);
    for child in desired.apply {
        let (key, hash) = (child.key.clone(), child.hash);
        let restores = reconciler.memories.read(&owner, |memory| memory.restores(&key, hash));
        let known = reconciler.refusals.of(&key, hash);
        let result = match known {
            Some(error) => Err(error),
            None => reconciler.apply_child(prober, child).await,
        };
        if restores && result.is_ok() {
            reconciler.metrics.restored(key.kind.as_str());
        }
        match result {
            Err(error) if error.is_partial() => {
                reconciler.refusals.remember(key, hash, &error);
                first = first.or(Some(error));
            }
            other => other?,
        }
    }
    for key in &desired.delete {
        reconciler.delete_child(&owner, key).await?;
    }
    first.map_or(Ok(vec![]), Err)
}

impl NetworkProberReconciler {
    async fn apply_child(&self, prober: &NetworkProber, child: Child) -> Result<(), Error> {
        let uid = prober.uid().unwrap_or_default();
        let owner = key(prober);
        if child.key.kind == ChildKind::Webhook {
            let applied = self.entries.apply(&self.client, &owner, &child).await;
            if let Some(made) = applied.map_err(|error| refused(&child.key, error))? {
                self.applied(&owner, child, made);
            }
            return Ok(());
        }
        if !self.owned.has(&child.key, &uid)
            && let Some(there) = self.look(&child.key).await?
            && !is_ours(&there, &owner)
        {
            return Err(Error::Taken(format!(
                "{} exists and does not belong to this NetworkProber; delete it or rename one of them",
                child.key
            )));
        }
        let api = self.api(&child.key);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let mut applied = if child.is_part {
            api.patch(&child.key.name, &merge_params(), &Patch::Merge(&child.object)).await
        } else {
            api.patch(&child.key.name, &params, &Patch::Apply(&child.object)).await
        };
        if let (Err(kube::Error::Api(status)), Some(fallback)) = (&applied, &child.fallback)
            && is_refusal(status)
        {
            applied = api.patch(&child.key.name, &params, &Patch::Apply(fallback)).await;
        }
        match applied {
            Ok(object) => {
                let version = self.owned.wrote(&child.key, &object.metadata);
                self.applied(&owner, child, version);
                Ok(())
            }
            Err(error) => Err(refused(&child.key, error)),
        }
    }

    fn applied(&self, owner: &Key, child: Child, version: u64) {
        self.memories.change(owner, |memory| memory.applied(child.key, child.hash, version));
    }

    async fn delete_child(&self, owner: &Key, key: &ChildKey) -> Result<(), Error> {
        if key.kind == ChildKind::Webhook {
            let removed = self.entries.remove(&self.client, owner).await;
            removed.map_err(Error::kube("remove webhook"))?;
        } else {
            match self.api(key).delete(&key.name, &DeleteParams::background()).await {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(Error::kube("delete child")(error)),
            }
            self.owned.deleted(key);
        }
        self.memories.change(owner, |memory| memory.deleted(key));
        Ok(())
    }
}

/// Handles an error of an apply. A quota or a policy of one namespace, or a terminating namespace,
/// delays no other; nor does an object of the maximum size.
fn refused(key: &ChildKey, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status)
            if is_refusal(&status) || matches!(status.code, 403 | 404 | 409 | 413) =>
        {
            Error::Refused(format!("{key}: {}", status.message))
        }
        source => Error::Kube { action: "apply child", source },
    }
}

/// Deletes what is outside of the namespace of a deleted object: it does not go with its owner.
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
