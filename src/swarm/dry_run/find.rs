//! Finds the `Swarm` of a stream or of a worker.
use kube::Client;

use crate::{
    api::{Swarm, swarm::WorkloadKind},
    controller::Error,
    swarm::{settings::Settings, watches},
};

/// Reports whether the spec itself lists a stream.
#[must_use]
pub fn is_listed(swarm: &Swarm, stream: &str) -> bool {
    let spec = &swarm.spec;
    spec.jobs.iter().flatten().any(|id| id == stream)
        || spec.streams.iter().flatten().any(|one| one.id == stream)
}

/// Reports whether one of the `ConfigMap`s contains the stream: that of `streamsFrom`, or that with
/// the shares, which may contain streams that are no longer in the spec.
///
/// # Errors
/// The error of the API server.
pub async fn is_written(client: &Client, swarm: &Swarm, stream: &str) -> Result<bool, Error> {
    let view = watches::maps(client, swarm).await?;
    let listed = Settings::of(swarm, view.source.as_ref())
        .is_ok_and(|settings| settings.streams.iter().any(|one| one.id == stream));
    let published = super::published(swarm, &view);
    let owned = published.owners().any(|(id, _)| **id == *stream);
    Ok(listed || owned || published.releasing.keys().any(|(id, _)| **id == *stream))
}

/// Reports whether a pod of this name can be a worker of a `Swarm`.
#[must_use]
pub fn may_be_of(swarm: &Swarm, worker: &str) -> bool {
    let workload = &swarm.spec.workload;
    let rest = worker.strip_prefix(&*workload.name).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| match workload.kind {
        WorkloadKind::StatefulSet => rest.parse::<u32>().is_ok(),
        // The hash of the template, and five letters.
        WorkloadKind::Deployment => rest.split('-').count() == 2,
    })
}
