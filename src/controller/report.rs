//! What a pass tells: events, conditions, status.
use k8s_openapi::{
    api::{core::v1::ObjectReference, events},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::DeserializeGuard,
    runtime::events::{Event, EventType},
};

use super::{Context, Error, FIELD_MANAGER, Notice, Reconciler, Verdict, conditions, merge_params};
use crate::api::Kind;

/// Publishes events, best effort: an event that cannot be written never fails a pass.
pub(super) async fn publish<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, notices: &[Notice]) {
    for notice in notices {
        let event = Event {
            type_: if notice.warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.into(),
            // 1,024 bytes is the API server's limit.
            note: Some(conditions::truncate(&notice.note, 1024)),
            action: "Reconcile".into(),
            secondary: notice.node.as_ref().map(|node| ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(node.clone()),
                ..ObjectReference::default()
            }),
        };
        let reference = object.object_ref(&());
        let published = if object.name_any().len() > LONGEST_NAME {
            publish_shortened(ctx, event, reference).await
        } else {
            ctx.recorder.publish(&event, &reference).await
        };
        if let Err(error) = published {
            tracing::debug!(%error, reason = notice.reason, "event not published");
        }
    }
}

/// The longest name of an object whose events the client library can name: it appends a dot and the
/// time in 16 digits, and a name ends at 253.
const LONGEST_NAME: usize = 236;

/// Publishes an event about an object whose name is too long to begin the event's name with: one that
/// counts no repetitions.
async fn publish_shortened<R: Reconciler>(
    ctx: &Context<R>,
    event: Event,
    regarding: ObjectReference,
) -> kube::Result<()> {
    let now = Timestamp::now();
    let name = regarding.name.as_deref().unwrap_or_default();
    let name = name[..name.floor_char_boundary(LONGEST_NAME)].trim_end_matches(['.', '-']);
    let namespace = regarding.namespace.clone();
    let object = events::v1::Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some(event.action),
        event_time: Some(MicroTime(now)),
        note: event.note,
        reason: Some(event.reason),
        regarding: Some(regarding),
        related: event.secondary,
        reporting_controller: Some(FIELD_MANAGER.into()),
        reporting_instance: Some(FIELD_MANAGER.into()),
        type_: Some(match event.type_ {
            EventType::Normal => "Normal".into(),
            EventType::Warning => "Warning".into(),
        }),
        ..events::v1::Event::default()
    };
    // Events of objects without a namespace stand in this one.
    let namespace = namespace.as_deref().unwrap_or("default");
    let api = Api::<events::v1::Event>::namespaced(ctx.client.clone(), namespace);
    api.create(&PostParams::default(), &object).await.map(drop)
}

/// Tells of a failed pass where its owner looks: the condition and an event, both best effort.
pub(super) async fn complain<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, error: &Error) {
    announce(object, ctx, error).await;
    let status = object.status().cloned().unwrap_or_default();
    if let Err(error) = report(object, ctx, status, &[error.verdict()]).await {
        tracing::debug!(error = error.to_text(), "condition not written");
    }
}

/// The event of an error, unless the condition says the same already.
pub(super) async fn announce<R: Reconciler>(object: &R::Kind, ctx: &Context<R>, error: &Error) {
    let verdict = error.verdict();
    let mut status = object.status().cloned().unwrap_or_default();
    let known = R::Kind::conditions_mut(&mut status).iter().any(|c| {
        c.type_ == verdict.type_ && c.reason == verdict.reason && c.message == verdict.message
    });
    if !known {
        let Verdict { reason, message: note, .. } = verdict;
        publish(object, ctx, &[Notice { warning: true, reason, note, node: None }]).await;
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
        conditions::set(conditions, verdict, generation, Timestamp::now());
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
        // Deleted meanwhile: there is nobody left to tell.
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        Err(source) => Err(Error::Kube { action: "apply status", source }),
        Ok(_) => Ok(()),
    }
}

/// Writes `Ready=False` on an object whose spec this version cannot read; its other fields are out
/// of reach, so only the conditions are patched.
pub(super) async fn report_unreadable<R: Reconciler>(
    object: &DeserializeGuard<R::Kind>,
    ctx: &Context<R>,
    error: &Error,
) {
    let mut conditions = vec![];
    conditions::set(&mut conditions, &error.verdict(), object.meta().generation, Timestamp::now());
    let api = R::Kind::api(ctx.client.clone(), object.namespace().as_deref());
    let patch = Patch::Merge(serde_json::json!({ "status": { "conditions": conditions } }));
    // The answer holds the unreadable object again: that it cannot be read is no news.
    match api.patch_status(&object.name_any(), &merge_params(), &patch).await {
        Ok(_) | Err(kube::Error::SerdeError(_)) => {}
        Err(error) => tracing::warn!(%error, "condition not written"),
    }
}
