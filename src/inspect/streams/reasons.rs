//! The reason why a worker has not released its streams, in a sentence, and the remedy.
use crate::{
    api::{Swarm, swarm::Strategy},
    inspect::probing::Advice,
    swarm::inspection::PageWaiting,
};

/// Returns the sentence for a rule of the protocol.
#[must_use]
pub fn sentence(why: &str) -> &'static str {
    match why {
        "Behind" => "its pod has acknowledged an older version only",
        "Silent" => "its pod has acknowledged no version",
        "Terminating" => "its pod is being deleted, and its containers may still run",
        "Ahead" => "its pod reports a version that was never published",
        "Unconfirmed" => {
            "its pod is gone; the operator reads that from the API server itself first"
        }
        "Template" => "a pod that is made now may still mount an older file",
        "Unpublished" => "the file that takes the stream away is not written yet",
        _ => "the operator has not looked at it yet",
    }
}

/// Returns the advice for an awaited worker.
#[must_use]
pub fn advice(swarm: &Swarm, waiting: &PageWaiting) -> Option<Advice> {
    let (namespace, _) = swarm.key();
    let PageWaiting { worker, epoch, why, text, .. } = waiting;
    let what = format!("{worker} has not acknowledged version {epoch}: {text}");
    let refresh = &swarm.spec.refresh;
    let next = match (why.as_str(), swarm.strategy()) {
        ("Behind" | "Silent", Strategy::DeletePod) => format!(
            "the operator evicts its pod; if it stays: kubectl -n {namespace} get events,pdb; then \
             kubectl -n {namespace} delete pod {worker}"
        ),
        ("Behind", _) => format!(
            "it reads the file within about a minute; if not: kubectl -n {namespace} logs {worker}, and \
             does it mount the ConfigMap without subPath?"
        ),
        ("Silent", _) => format!(
            "it has to answer GET :{}{} (docs/reference/worker.md); if it cannot: \
             kubectl -n {namespace} delete pod {worker}",
            refresh.port, refresh.path
        ),
        ("Ahead", _) => {
            format!("kubectl -n {namespace} delete pod {worker}: a new pod reads the current file")
        }
        ("Terminating", _) => {
            "wait until its containers have ended; if its node is gone for good, confirm it: \
             docs/reference/swarm.md#unreachable-nodes"
                .into()
        }
        _ => return None,
    };
    Some(Advice::of(what, next))
}
