//! The results of a pass: events, conditions, status.
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::{
    Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::reflector::ObjectRef,
};

use super::{
    Context, Error, FIELD_MANAGER, Key, Notice, Reconciler, Verdict, conditions, key, merge_params,
};
use crate::{api::Kind, clock, infra::watch::DeserializeGuard};

/// What the API server says of a field that its definition does not have.
const NOT_DECLARED: &str = "field not declared in schema";

/// Queues events to be written; a pass does not wait for them.
pub(super) fn publish<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, notices: &[Notice]) {
    for notice in notices {
        ctx.events.publish(object.object_ref(&()), notice);
    }
}

/// Reports a failed pass to its owner by the condition and an event; returns the error with which
/// the pass ends.
pub(super) async fn complain<R: Reconciler>(
    object: &R::Kind,
    ctx: &Context<R>,
    error: Error,
) -> Error {
    announce(object, ctx, &error);
    let status = object.status().cloned().unwrap_or_default();
    let written = report(object, ctx, status, &[error.verdict()]).await;
    ending(error, written)
}

/// Returns the error with which a pass ends, given whether its report was written. An invalid spec
/// waits for a change, so a failed report of it must be retried, or its owner never sees it. After
/// any other error, the next pass reports again.
fn ending(error: Error, written: Result<(), Error>) -> Error {
    let Err(unwritten) = written else { return error };
    tracing::debug!(error = error.to_text(), by = unwritten.to_text(), "condition not written");
    if matches!(error, Error::Invalid(_)) { unwritten } else { error }
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
    // Never closed, so there is always a permit to wait for.
    let _permit = ctx.writes.acquire().await;
    let api = R::Kind::api(ctx.client.clone(), object.namespace().as_deref());
    let patch = serde_json::json!({
        "apiVersion": R::Kind::api_version(&()),
        "kind": R::Kind::kind(&()),
        "status": status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let mut written = api.patch_status(&object.name_any(), &params, &Patch::Apply(patch)).await;
    if let Err(kube::Error::Api(answer)) = &written
        && answer.message.contains(NOT_DECLARED)
    {
        let note = format!(
            "the definition is older than the operator, so that only the conditions are reported: \
             apply the definitions of this version (deploy/crds): {}",
            answer.message
        );
        let notice = Notice { warning: true, reason: "DefinitionOutdated", note, node: None };
        publish(object, ctx, &[notice]);
        let conditions = &*R::Kind::conditions_mut(&mut status);
        if conditions == R::Kind::conditions_mut(&mut old) {
            return Ok(());
        }
        let patch = Patch::Merge(serde_json::json!({"status": {"conditions": conditions}}));
        written = api.patch_status(&object.name_any(), &merge_params(), &patch).await;
    }
    match written {
        // Deleted meanwhile: there is no object to report to.
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        Err(source) => Err(Error::Kube { action: "apply status", source }),
        Ok(_) => Ok(()),
    }
}

/// Writes `Ready=False` on an object whose spec this version cannot read; its other fields are
/// inaccessible, so only the conditions are patched. Returns the error with which the pass ends.
pub(super) async fn report_unreadable<R: Reconciler>(
    object: &DeserializeGuard<R::Kind>,
    ctx: &Context<R>,
    error: Error,
) -> Error {
    let key = key(object);
    let meta = object.meta();
    let report =
        Report { uid: meta.uid.clone(), generation: meta.generation, text: error.to_text() };
    // Its condition is unreadable too, so that the time of its transition is not known: each write
    // would change it, and wake the next pass.
    if ctx.unreadable.has(&key, &report) {
        return error;
    }
    let mut conditions = vec![];
    conditions::set(&mut conditions, &error.verdict(), meta.generation, clock::timestamp());
    let _permit = ctx.writes.acquire().await;
    let api = R::Kind::api(ctx.client.clone(), object.namespace().as_deref());
    let patch = Patch::Merge(serde_json::json!({ "status": { "conditions": conditions } }));
    let written = match api.patch_status(&object.name_any(), &merge_params(), &patch).await {
        // The answer contains the unreadable object again, which is no new error.
        Ok(_) | Err(kube::Error::SerdeError(_)) => {
            let is_there = |(namespace, name): &Key| {
                let reference = ObjectRef::<DeserializeGuard<R::Kind>>::new(name);
                ctx.objects.get(&reference.within(namespace)).is_some()
            };
            ctx.unreadable.add(key, report, ctx.objects.len(), is_there);
            Ok(())
        }
        // Deleted meanwhile: there is no object to report to.
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        Err(source) => Err(Error::Kube { action: "patch status", source }),
    };
    ending(error, written)
}

/// The last written report about each object whose spec this version cannot read.
#[derive(Default)]
pub(super) struct Reports(Mutex<BTreeMap<Key, Report>>);

/// A report about an object: another generation or text is another one.
#[derive(PartialEq, Eq)]
struct Report {
    uid: Option<String>,
    generation: Option<i64>,
    text: String,
}

impl Reports {
    /// Reports whether this is the last report about an object.
    fn has(&self, key: &Key, report: &Report) -> bool {
        self.all().get(key) == Some(report)
    }

    /// Stores a report that was written, when there are this many objects. The deletion of such an
    /// object wakes no pass, so the reports about objects that are gone are dropped here.
    fn add(&self, key: Key, report: Report, objects: usize, is_there: impl Fn(&Key) -> bool) {
        let mut all = self.all();
        all.insert(key, report);
        if all.len() > objects {
            all.retain(|key, _| is_there(key));
        }
    }

    /// Drops the report about an object that can be read, or is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.all().remove(key);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_about_objects_that_are_gone_are_dropped() {
        let reports = Reports::default();
        let report = || Report { uid: Some("u".into()), generation: Some(1), text: "x".into() };
        let named = |name: &str| ("a".to_owned(), name.to_owned());
        for round in 0..100 {
            // Each is created, reported and deleted before the next one.
            let there = named(&round.to_string());
            reports.add(there.clone(), report(), 1, |key| *key == there);
            assert!(reports.has(&there, &report()));
            assert_eq!(reports.all().len(), 1);
        }
    }
}
