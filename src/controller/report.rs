//! The results of a pass: events, conditions, status.
use kube::{
    Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::DeserializeGuard,
};

use super::{Context, Error, FIELD_MANAGER, Notice, Reconciler, Verdict, conditions, merge_params};
use crate::{api::Kind, clock};

/// Queues events to be written; a pass does not wait for them.
pub(super) fn publish<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, notices: &[Notice]) {
    for notice in notices {
        ctx.events.publish(object.object_ref(&()), notice);
    }
}

/// Reports a failed pass to its owner: the condition and an event, both best effort.
pub(super) async fn complain<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, error: &Error) {
    announce(object, ctx, error);
    let status = ctx.reconciler.status_after(error, object);
    if let Err(error) = report(object, ctx, status, &[error.verdict()]).await {
        tracing::debug!(error = error.to_text(), "condition not written");
    }
}

/// Returns the event of an error, unless the condition already reports it.
pub(super) fn announce<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, error: &Error) {
    let verdict = error.verdict();
    let mut status = object.status().cloned().unwrap_or_default();
    let known = R::Kind::conditions_mut(&mut status).iter().any(|c| {
        c.type_ == verdict.type_ && c.reason == verdict.reason && c.message == verdict.message
    });
    if !known {
        let Verdict { reason, message: note, .. } = verdict;
        publish(object, ctx, &[Notice { warning: true, reason, note, node: None }]);
    }
}

/// Writes the status if it differs from what the object holds.
pub(super) async fn report<R: Reconciler>(
    object: &R::Kind,
    ctx: &Context<R>,
    mut status: <R::Kind as Kind>::Status,
    verdicts: &[Verdict],
) -> Result<(), Error> {
    let generation = object.meta().generation;
    *R::Kind::observed_generation_mut(&mut status) = generation;
    let mut old = object.status().cloned().unwrap_or_default();
    let conditions = R::Kind::conditions_mut(&mut status);
    conditions.clone_from(R::Kind::conditions_mut(&mut old));
    for verdict in verdicts {
        conditions::set(conditions, verdict, generation, clock::timestamp());
    }
    if object.status() == Some(&status) {
        return Ok(());
    }
    let api = R::Kind::api(ctx.client.clone(), object.namespace().as_deref());
    let patch = serde_json::json!({
        "apiVersion": R::Kind::api_version(&()),
        "kind": R::Kind::kind(&()),
        "status": status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch_status(&object.name_any(), &params, &Patch::Apply(patch)).await {
        // Deleted meanwhile: there is no object to report to.
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        Err(source) => Err(Error::Kube { action: "apply status", source }),
        Ok(_) => Ok(()),
    }
}

/// Writes `Ready=False` on an object whose spec this version cannot read; its other fields are
/// inaccessible, so only the conditions are patched.
pub(super) async fn report_unreadable<R: Reconciler>(
    object: &DeserializeGuard<R::Kind>,
    ctx: &Context<R>,
    error: &Error,
) {
    let mut conditions = vec![];
    conditions::set(
        &mut conditions,
        &error.verdict(),
        object.meta().generation,
        clock::timestamp(),
    );
    let api = R::Kind::api(ctx.client.clone(), object.namespace().as_deref());
    let patch = Patch::Merge(serde_json::json!({ "status": { "conditions": conditions } }));
    // The answer contains the unreadable object again, which is no new error.
    match api.patch_status(&object.name_any(), &merge_params(), &patch).await {
        Ok(_) | Err(kube::Error::SerdeError(_)) => {}
        Err(error) => tracing::warn!(%error, "condition not written"),
    }
}
