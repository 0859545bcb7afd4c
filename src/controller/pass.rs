//! One pass over one object, and what follows if it fails.
use std::{sync::Arc, time::Instant};

use kube::{
    Resource, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
    runtime::{controller::Action, finalizer},
};

use super::{
    Context, Error, Reconciler, conditions, key,
    report::{announce, complain, publish, report, report_unreadable},
};
use crate::{
    api,
    api::Kind,
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
