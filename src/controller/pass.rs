//! One pass over one object, and what follows if it fails.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use kube::{
    Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
    runtime::{controller::Action, finalizer, reflector::ObjectRef},
};

use super::{
    Context, Error, FIELD_MANAGER, Key, Notice, Reconciler, Verdict, conditions, key, merge_params,
};
use crate::{
    api::{self, Kind},
    clock,
    infra::{Api, watch::DeserializeGuard},
};

/// One pass over one object, timed and counted.
pub(super) async fn reconcile<R: Reconciler>(
    object: Arc<DeserializeGuard<R::Kind>>,
    ctx: Arc<Context<R>>,
) -> Result<Action, Error> {
    let started = Instant::now();
    let result = match object.0.as_ref() {
        Ok(object) => reconcile_valid(object, &ctx).await,
        Err(invalid) => match cleanable(&object, &ctx).await {
            Ok(Some(object)) => reconcile_valid(&object, &ctx).await,
            Ok(None) => {
                ctx.forget(&key(&*object));
                let error = Error::Invalid(format!("spec: {}", invalid.error));
                Err(report_unreadable(&*object, &ctx, error).await)
            }
            Err(error) => Err(error),
        },
    };
    // One that is refused because of another object is looked at every ten seconds.
    let known = ctx.failures.read(&key(&*object), |count| *count > 0);
    let counts = |error: &&Error| !(error.is_pending() || known && error.is_by_another());
    let failure = result.as_ref().err().filter(counts);
    let namespace = object.namespace().unwrap_or_default();
    let reason = failure.map(Error::reason);
    ctx.metrics.reconciled(R::NAME, &namespace, started.elapsed(), reason);
    if result.is_ok() {
        ctx.failures.forget(&key(&*object));
    }
    result
}

/// Returns an unreadable object that is being deleted, with the data that its cleanup needs:
/// neither the object nor its namespace may stay for ever.
async fn cleanable<R: Reconciler>(
    object: &DeserializeGuard<R::Kind>,
    ctx: &Context<R>,
) -> Result<Option<R::Kind>, Error> {
    let meta = object.meta();
    let ours = object.finalizers().iter().any(|finalizer| finalizer == R::FINALIZER);
    if meta.deletion_timestamp.is_none() || !ours {
        return Ok(None);
    }
    let resource = ApiResource::erase::<R::Kind>(&());
    let client = ctx.client.clone();
    let api: Api<DynamicObject> = match &meta.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    // By list, because the account has no permission to get: everything else comes from watches.
    let this = ListParams::default().fields(&format!("metadata.name={}", object.name_any()));
    let mut found = api.list(&this).await.map_err(Error::kube("list object"))?;
    let Some(mut there) = found.items.pop() else { return Ok(None) };
    let Some(spec) = R::Kind::spec_for_cleanup(&there.data["spec"]) else { return Ok(None) };
    there.data["spec"] = spec;
    let read = |object: &DynamicObject| {
        serde_json::to_value(object).and_then(serde_json::from_value::<R::Kind>).ok()
    };
    Ok(read(&there).or_else(|| {
        // The status may be the unreadable part.
        there.data["status"] = serde_json::json!(null);
        read(&there)
    }))
}

async fn reconcile_valid<R: Reconciler>(
    object: &R::Kind,
    ctx: &Context<R>,
) -> Result<Action, Error> {
    ctx.unreadable.forget(&key(object));
    let has_finalizer = object.finalizers().iter().any(|f| f == R::FINALIZER);
    if api::has_ended(object, R::FINALIZER) {
        return Ok(Action::await_change());
    }
    // The same as in the finalizer, without a copy of the object.
    if object.meta().deletion_timestamp.is_none()
        && (has_finalizer || !ctx.reconciler.needs_cleanup(object))
    {
        return pass_or_complain(object, ctx).await;
    }
    let api = R::Kind::api(ctx.client.clone(), object.namespace().as_deref()).each();
    let guarded = Arc::new(DeserializeGuard(Ok(object.clone())));
    let outcome = finalizer(&api, R::FINALIZER, guarded, |event| async move {
        match event {
            finalizer::Event::Apply(_) => pass_or_complain(object, ctx).await,
            finalizer::Event::Cleanup(_) => {
                match ctx.reconciler.cleanup(object, &ctx.objects).await {
                    Ok(notices) => {
                        ctx.forget(&key(object));
                        publish(object, ctx, &notices);
                        Ok(Action::await_change())
                    }
                    Err(error) => Err(complain(object, ctx, error).await),
                }
            }
        }
    });
    let outcome = if object.meta().deletion_timestamp.is_none() {
        // One write: the pass follows when the watch shows it.
        let _permit = ctx.writes.acquire().await;
        outcome.await
    } else {
        outcome.await
    };
    match outcome {
        Ok(action) => Ok(action),
        Err(finalizer::Error::ApplyFailed(error) | finalizer::Error::CleanupFailed(error)) => {
            Err(error)
        }
        // Removing the finalizer of an object that is already gone is a success.
        Err(finalizer::Error::RemoveFinalizer(kube::Error::Api(s))) if s.is_not_found() => {
            Ok(Action::await_change())
        }
        Err(finalizer::Error::AddFinalizer(source)) => {
            Err(unfinalized(object, ctx, "add finalizer", source).await)
        }
        Err(finalizer::Error::RemoveFinalizer(source)) => {
            Err(unfinalized(object, ctx, "remove finalizer", source).await)
        }
        Err(error @ (finalizer::Error::UnnamedObject | finalizer::Error::InvalidFinalizer)) => {
            Err(Error::Invalid(error.to_string()))
        }
    }
}

/// Reports that the list of finalizers could not be written: the object is not served, or not
/// deleted, and nothing else on it says why.
async fn unfinalized<R: Reconciler>(
    object: &R::Kind,
    ctx: &Context<R>,
    action: &'static str,
    source: kube::Error,
) -> Error {
    // It is gone, or another client changed it in the meantime: the patch tests the list.
    let outpaced = matches!(&source, kube::Error::Api(s) if matches!(s.code, 404 | 409 | 422));
    let error = Error::Kube { action, source };
    if outpaced { error } else { complain(object, ctx, error).await }
}

async fn pass_or_complain<R: Reconciler>(
    object: &R::Kind,
    ctx: &Context<R>,
) -> Result<Action, Error> {
    let error = match pass(object, ctx).await {
        Ok(action) => return Ok(action),
        Err(error) => error,
    };
    if error.is_by_another() || matches!(error, Error::Invalid(_)) {
        // It is not judged any more, and its series must not suggest that it is.
        ctx.forget(&key(object));
    }
    // A change by another client in the meantime is not reported.
    if error.is_partial() || matches!(error, Error::Outpaced) {
        return Err(error);
    }
    Err(complain(object, ctx, error).await)
}

async fn pass<R: Reconciler>(object: &R::Kind, ctx: &Context<R>) -> Result<Action, Error> {
    let began = clock::instant();
    let observed = ctx.reconciler.observe(object, &ctx.objects).await?;
    let plan = R::plan(object, &observed)?;
    // Writes take time, during which observations of thousands of nodes need not stay in memory.
    drop(observed);
    let applied = ctx.reconciler.apply(object, plan.desired).await;
    // The decision is reported even if a write failed: the failure is reported after it.
    publish(object, ctx, &plan.notices);
    let (notices, mut error) = match applied {
        Ok(notices) => (notices, None),
        Err(Error::Stages { notices, errors, again }) => {
            (notices, Some(Error::Stages { notices: vec![], errors, again }))
        }
        Err(error) if error.is_partial() => (vec![], Some(error)),
        Err(error) => return Err(error),
    };
    publish(object, ctx, &notices);
    let mut conditions = plan.conditions;
    if let Some(error) = &error
        && conditions::fail(&mut conditions, error.verdict())
    {
        announce(object, ctx, error);
    }
    report(object, ctx, plan.status, &conditions).await?;
    let next = ctx.schedule.until_due(began, clock::instant(), plan.period);
    // A failed write delays no judgment: retries of writes have their own delays.
    if let Some(Error::Stages { again, .. }) = &mut error {
        *again = next;
    }
    error.map_or(Ok(Action::requeue(next)), Err)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is the client library's")]
pub(super) fn error_policy<R: Reconciler>(
    object: Arc<DeserializeGuard<R::Kind>>,
    error: &Error,
    ctx: Arc<Context<R>>,
) -> Action {
    let key = key(&*object);
    let count = ctx.failures.change(&key, |count| {
        *count = count.saturating_add(1);
        *count
    });
    if let Some(pause) = error.requeue_after(count) {
        return Action::requeue(pause);
    }
    // If it is deleted before it changes, no pass follows that could forget it.
    ctx.failures.forget(&key);
    Action::await_change()
}

/// What the API server says of a field that its definition does not have.
const NOT_DECLARED: &str = "field not declared in schema";

/// Queues events to be written; a pass does not wait for them.
fn publish<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, notices: &[Notice]) {
    for notice in notices {
        ctx.events.publish(object.object_ref(&()), notice);
    }
}

/// Reports a failed pass to its owner by the condition and an event; returns the error with which
/// the pass ends.
async fn complain<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, error: Error) -> Error {
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
fn announce<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, error: &Error) {
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
async fn report<R: Reconciler>(
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
async fn report_unreadable<R: Reconciler>(
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
