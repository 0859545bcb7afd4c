//! Writes the plan: the agents' objects and the webhooks. Decides nothing.
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};

use super::{
    NetworkProberReconciler,
    children::{Child, ChildKey, ChildKind},
    observe::is_ours,
    plan::Desired,
    refusals::refused,
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

    pub(super) async fn delete_child(&self, owner: &Key, key: &ChildKey) -> Result<(), Error> {
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
