//! The leader keeps the Secret in the wanted state.
use std::{convert::Infallible, time::Duration};

use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::watch;

use super::{
    Certificates, Defect, IssueError, Lifetimes, NAME, PINGLISTS, State, UnixSeconds, next,
};
use crate::infra::Api;

/// The longest pause; a check costs one request. What the watch of the Secret does not show is seen
/// after it, and what the system clock makes due when it is set.
const LONGEST: Duration = Duration::from_mins(1);

/// The shortest sleep: with lifetimes of a minute, as in tests, steps take some seconds.
const SHORTEST: Duration = Duration::from_secs(1);

/// The pause after a failure. The certificate has a third of its life left: there is no hurry.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The reason why the Secret does not have the expected content.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The API server refused, or did not answer.
    #[error("secret {NAME}: {0}")]
    Api(#[from] kube::Error),
    /// No certificate could be created.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The state could not be written.
    #[error("secret {NAME}: {0}")]
    Write(#[from] Defect),
}

/// Writes the Secret. Only the leader may run it.
pub struct CertificateKeeper {
    api: Api<Secret>,
    lifetimes: Lifetimes,
    names: Vec<String>,
    touched: watch::Receiver<()>,
}

impl CertificateKeeper {
    /// Keeps the Secret in the operator's namespace.
    ///
    /// `names` are the server's names: see [`service_names`](Self::service_names).
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        lifetimes: Lifetimes,
        names: Vec<String>,
        certificates: &Certificates,
    ) -> Self {
        let touched = certificates.touched();
        Self { api: Api::namespaced(client, namespace), lifetimes, names, touched }
    }

    /// Returns the names of the Services for the API server (`<name>.<namespace>.svc`) and for
    /// pods.
    #[must_use]
    pub fn service_names(namespace: &str) -> Vec<String> {
        let names = [NAME, PINGLISTS].into_iter().flat_map(|name| {
            let service = format!("{name}.{namespace}.svc");
            [format!("{service}.cluster.local"), service]
        });
        names.collect()
    }

    /// Maintains it for ever: checks when an action is due, and after any change of the Secret.
    pub async fn keep(mut self) -> Infallible {
        loop {
            self.touched.mark_unchanged();
            let pause = match self.pass(Timestamp::now().as_second()).await {
                Ok(due) => {
                    let left = due.saturating_sub(Timestamp::now().as_second());
                    Duration::from_secs(u64::try_from(left).unwrap_or_default())
                        .clamp(SHORTEST, LONGEST)
                }
                // Another writer was faster: read again.
                Err(KeepError::Api(kube::Error::Api(status)))
                    if status.is_conflict() || status.is_already_exists() =>
                {
                    SHORTEST
                }
                Err(error) => {
                    tracing::warn!(%error, "certificates not renewed, trying again");
                    AFTER_FAILURE
                }
            };
            let changed = async {
                if self.touched.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Not at once: repeated writes are not answered each time.
                () = changed => tokio::time::sleep(SHORTEST).await,
            }
        }
    }

    /// Checks once, writes if an action is due, and returns the time of the next action.
    ///
    /// # Errors
    /// When the Secret could not be read or written.
    pub async fn pass(&self, now: UnixSeconds) -> Result<UnixSeconds, KeepError> {
        let found = self.api.get_opt(NAME).await?;
        let state = found.as_ref().and_then(|secret| {
            State::from_secret(secret)
                .inspect_err(|defect| {
                    tracing::warn!(secret = NAME, %defect, "not what we wrote, making a new authority");
                })
                .ok()
        });
        let Some(next) = next(state.as_ref(), now, self.lifetimes, &self.names)? else {
            return Ok(state.map_or(now, |state| state.due_at()));
        };
        let mut secret = found.unwrap_or_else(blank);
        secret.data = Some(next.to_data()?);
        secret.metadata.managed_fields = None;
        let labels = secret.metadata.labels.get_or_insert_default();
        labels.insert("app.kubernetes.io/managed-by".into(), "traffic-operator".into());
        let post = PostParams::default();
        // With its resourceVersion, the server refuses the write if the object changed since we
        // read it.
        if secret.metadata.resource_version.is_some() {
            self.api.replace(NAME, &post, &secret).await?;
        } else {
            self.api.create(&post, &secret).await?;
        }
        tracing::info!(
            authorities = next.authorities.len(),
            leaf_not_after = next.leaf.not_after,
            signed_by = next.leaf.authority,
            "certificates written"
        );
        Ok(next.due_at())
    }
}

/// Returns an empty Secret of the type that tools expect for certificates.
fn blank() -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".into()),
        ..Secret::default()
    }
}
