//! The loop that every kind shares: observe, plan, apply, report.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, PatchParams},
    core::{ApiResource, DeserializeGuard, DynamicObject},
    runtime::{
        Config, Controller,
        controller::{self, Action},
        finalizer,
        reflector::{ObjectRef, Store},
    },
};

use report::{announce, complain, publish, report, report_unreadable};

use crate::{api, api::Kind, clock, infra::watch, metrics::Metrics};

pub(crate) mod conditions;
pub mod disruptions;
pub(crate) mod error;
mod events;
mod memories;
mod report;
pub(crate) mod schedule;
pub use conditions::{Verdict, count, verdict};
pub use error::Error;
pub use memories::{Key, Memories, key};

/// The field manager of every write this operator makes.
pub const FIELD_MANAGER: &str = "traffic-operator";

/// The value of `app.kubernetes.io/managed-by` on every object this operator owns.
pub const MANAGED_BY: &str = "traffic-operator";

/// The outcome of `plan`: everything to write, and nothing written yet.
#[derive(Debug, PartialEq)]
pub struct Plan<D, S> {
    /// The state that `apply` must establish.
    pub desired: D,
    /// The status to publish, conditions apart.
    pub status: S,
    /// The conditions: `Ready` and at most two more.
    pub conditions: Vec<Verdict>,
    /// The notices to publish as events of the owner.
    pub notices: Vec<Notice>,
    /// Time until the next pass if nothing changes.
    pub period: Duration,
}

/// Something that happened, for the object's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A warning, or just news.
    pub warning: bool,
    /// `PascalCase`, stable.
    pub reason: &'static str,
    /// For a person.
    pub note: String,
    /// The node this is about, if any: events of one reason form one series per node.
    pub node: Option<String>,
}

/// One kind and the logic that serves it.
pub trait Reconciler: Send + Sync + 'static {
    /// The custom resource.
    type Kind: Kind;
    /// Facts read from the cluster and from Prometheus.
    type Observed: Send + Sync;
    /// The desired state.
    type Desired: Send + Sync;
    /// The state of an object that is kept between two passes; it may be lost at any time.
    type Memory: Default + Send;
    /// The controller's name: metric label, span.
    const NAME: &'static str;
    /// The finalizer of objects that [`Self::needs_cleanup`].
    const FINALIZER: &'static str;

    /// Reports whether changes outside the owner tree must be undone: by default, there are none.
    fn needs_cleanup(&self, _: &Self::Kind) -> bool {
        false
    }
    /// Reads; never writes.
    fn observe(
        &self,
        object: &Self::Kind,
        others: &Store<DeserializeGuard<Self::Kind>>,
    ) -> impl Future<Output = Result<Self::Observed, Error>> + Send;
    /// Decides; no client, no clock, no randomness.
    ///
    /// # Errors
    /// Only [`Error::Invalid`] and [`Error::Conflict`]; any other problem is an observation.
    fn plan(
        object: &Self::Kind,
        observed: &Self::Observed,
    ) -> Result<Plan<Self::Desired, <Self::Kind as Kind>::Status>, Error>;
    /// Writes; decides nothing. Returns the notices about the writes themselves.
    fn apply(
        &self,
        object: &Self::Kind,
        desired: Self::Desired,
    ) -> impl Future<Output = Result<Vec<Notice>, Error>> + Send;
    /// Cleans up what is outside the owner tree; the object is removed once this succeeds.
    fn cleanup(
        &self,
        _: &Self::Kind,
        _: &Store<DeserializeGuard<Self::Kind>>,
    ) -> impl Future<Output = Result<Vec<Notice>, Error>> + Send {
        std::future::ready(Ok(vec![]))
    }
    /// Returns the status after a pass that failed, conditions apart: by default it stays.
    fn status_after(&self, _: &Error, object: &Self::Kind) -> <Self::Kind as Kind>::Status {
        object.status().cloned().unwrap_or_default()
    }
    /// The memories of all objects. The driver drops the memory of an object that is gone, or whose
    /// spec cannot be served.
    fn memories(&self) -> &Memories<Self::Memory>;
    /// Drops the state kept elsewhere for an object when the driver drops its memory.
    fn forgotten(&self, _: &Key) {}
}

/// The state of a running loop.
pub struct Context<R: Reconciler> {
    client: Client,
    events: events::Events,
    reconciler: R,
    schedule: schedule::Schedule,
    metrics: Metrics,
    objects: Store<DeserializeGuard<R::Kind>>,
    /// Failed passes in a row.
    failures: Memories<u32>,
}

/// Runs one kind's loop until `shutdown`; `triggers` name objects to reconcile although they did
/// not change.
pub async fn run<R: Reconciler>(
    client: Client,
    reconciler: R,
    schedule: schedule::Schedule,
    metrics: Metrics,
    triggers: impl Stream<Item = ObjectRef<DeserializeGuard<R::Kind>>> + Send + 'static,
    synced: impl FnOnce() + Send,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let api = Api::<DeserializeGuard<R::Kind>>::all(client.clone());
    let controller = Controller::new(api, watch::config())
        .trigger_backoff(watch::backoff())
        // Unbounded: a pass waits for Prometheus most of the time, and when Prometheus hangs, every
        // object must report it within its own interval, instead of waiting in a queue.
        .with_config(Config::default())
        .reconcile_on(triggers)
        .graceful_shutdown_on(shutdown);
    let objects = controller.store();
    let (events, publishing) = events::channel(client.clone(), metrics.clone());
    let ctx = Arc::new(Context {
        events,
        client,
        reconciler,
        schedule,
        metrics,
        objects: objects.clone(),
        failures: Memories::default(),
    });
    let ready = async {
        if objects.wait_until_ready().await.is_ok() {
            synced();
        }
        // Only the controller's stream may end this function.
        std::future::pending::<()>().await;
    };
    let passes =
        controller.run(reconcile::<R>, error_policy::<R>, Arc::clone(&ctx)).for_each(|result| {
            match result {
                Ok((object, _)) => {
                    tracing::debug!(controller = R::NAME, %object, "reconciled");
                }
                Err(controller::Error::ObjectNotFound(object)) => {
                    let key = (object.namespace.unwrap_or_default(), object.name);
                    ctx.failures.forget(&key);
                    ctx.forget(&key);
                }
                Err(controller::Error::ReconcilerFailed(error, object)) if error.is_pending() => {
                    tracing::debug!(controller = R::NAME, %object, text = error.to_text(), "not yet");
                }
                Err(controller::Error::ReconcilerFailed(error, object)) => {
                    tracing::warn!(
                        controller = R::NAME, %object, reason = error.reason(),
                        error = error.to_text(), "reconcile failed"
                    );
                }
                Err(error) => {
                    tracing::warn!(controller = R::NAME, %error, "watch failed, trying again");
                    ctx.metrics.watch_restarted(R::NAME);
                }
            }
            std::future::ready(())
        });
    // In a fixed order, so that the simulation repeats itself.
    tokio::select! {
        biased;
        () = passes => {}
        () = ready => {}
        // The context holds the other end of its queue, so that it never ends by itself.
        () = publishing => {}
    }
}

impl<R: Reconciler> Context<R> {
    /// Drops everything that a kind keeps for an object.
    fn forget(&self, key: &Key) {
        self.reconciler.memories().forget(key);
        self.reconciler.forgotten(key);
    }
}

/// One pass over one object, timed and counted.
async fn reconcile<R: Reconciler>(
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
                report_unreadable(&*object, &ctx, &error).await;
                Err(error)
            }
            Err(error) => Err(error),
        },
    };
    let failure = result.as_ref().err().filter(|error| !error.is_pending());
    ctx.metrics.reconciled(R::NAME, started.elapsed(), failure.map(Error::reason));
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
    let api = R::Kind::api(ctx.client.clone(), object.namespace().as_deref());
    let outcome = finalizer(&api, R::FINALIZER, Arc::new(object.clone()), |event| async {
        match event {
            finalizer::Event::Apply(object) => pass_or_complain(&*object, ctx).await,
            finalizer::Event::Cleanup(object) => {
                match ctx.reconciler.cleanup(&object, &ctx.objects).await {
                    Ok(notices) => {
                        ctx.forget(&key(&*object));
                        publish(&*object, ctx, &notices);
                        Ok(Action::await_change())
                    }
                    Err(error) => {
                        complain(&*object, ctx, &error).await;
                        Err(error)
                    }
                }
            }
        }
    });
    outcome.await.or_else(|error| match error {
        finalizer::Error::ApplyFailed(error) | finalizer::Error::CleanupFailed(error) => Err(error),
        // Removing the finalizer of an object that is already gone is a success.
        finalizer::Error::RemoveFinalizer(kube::Error::Api(s)) if s.is_not_found() => {
            Ok(Action::await_change())
        }
        finalizer::Error::AddFinalizer(source) => {
            Err(Error::Kube { action: "add finalizer", source })
        }
        finalizer::Error::RemoveFinalizer(source) => {
            Err(Error::Kube { action: "remove finalizer", source })
        }
        error @ (finalizer::Error::UnnamedObject | finalizer::Error::InvalidFinalizer) => {
            Err(Error::Invalid(error.to_string()))
        }
    })
}

async fn pass_or_complain<R: Reconciler>(
    object: &R::Kind,
    ctx: &Context<R>,
) -> Result<Action, Error> {
    let result = pass(object, ctx).await;
    if let Err(error) = &result {
        if matches!(error, Error::Invalid(_) | Error::Conflict(_)) {
            // It is not judged any more, and its series must not suggest that it is.
            ctx.forget(&key(object));
        }
        // A change by another client in the meantime is not reported.
        if !error.is_partial() && !matches!(error, Error::Outpaced) {
            complain(object, ctx, error).await;
        }
    }
    result
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

/// Parameters of a merge patch under our own name; without one the API server calls it `unknown`.
#[must_use]
pub fn merge_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is the client library's")]
fn error_policy<R: Reconciler>(
    object: Arc<DeserializeGuard<R::Kind>>,
    error: &Error,
    ctx: Arc<Context<R>>,
) -> Action {
    let count = ctx.failures.change(&key(&*object), |count| {
        *count = count.saturating_add(1);
        *count
    });
    error.requeue_after(count).map_or_else(Action::await_change, Action::requeue)
}
