//! The ways to reload an application, and to know when the reload is done.
use std::{fmt, time::Duration};

use anyhow::{Context, bail, ensure};
use futures::future::BoxFuture;
use http::Uri;
use nix::sys::signal::{Signal, kill};
use tokio::time::sleep;

use super::processes::{self, Process};
use crate::client::Client;

/// A way to reload an application.
#[derive(Clone, Debug)]
pub enum Method {
    /// By a POST; a 2xx status confirms that it runs the file.
    Url {
        /// The URL of the request.
        url: Uri,
        /// The time that the answer may take.
        timeout: Duration,
    },
    /// By a signal, which has no answer.
    Signal {
        /// The signal to send.
        signal: Signal,
        /// The processes of that name.
        process: String,
        /// The time that the application needs to apply the file.
        settle: Duration,
    },
}

impl fmt::Display for Method {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, .. } => write!(to, "POST {url}"),
            Self::Signal { signal, process, .. } => write!(to, "{signal} to {process}"),
        }
    }
}

/// The application beside us.
pub(super) enum Application {
    Url { client: Box<Client>, url: Uri, timeout: Duration },
    Signal { signal: Signal, process: String, settle: Duration },
}

impl Application {
    pub(super) fn new(method: Method) -> anyhow::Result<Self> {
        Ok(match method {
            Method::Url { url, timeout } => {
                Self::Url { client: Box::new(Client::plain()?), url, timeout }
            }
            Method::Signal { signal, process, settle } => Self::Signal { signal, process, settle },
        })
    }

    /// Makes the application read the file again; ends when the file is applied.
    pub(super) fn reload(&self) -> BoxFuture<'static, anyhow::Result<()>> {
        match self {
            Self::Url { client, url, timeout } => {
                let (client, url, timeout) = (client.clone(), url.clone(), *timeout);
                Box::pin(async move { client.post(&url, None, Vec::new(), timeout).await })
            }
            Self::Signal { signal, process, settle } => {
                Box::pin(tell(*signal, process.clone(), *settle))
            }
        }
    }
}

async fn tell(signal: Signal, name: String, settle: Duration) -> anyhow::Result<()> {
    let signaled = {
        let name = name.clone();
        blocking(move || {
            let found = processes::named(&name);
            ensure!(!found.is_empty(), "no process {name} (shareProcessNamespace?)");
            for Process { id, .. } in &found {
                kill(*id, signal).with_context(|| {
                    format!(
                        "{signal} to {name}, process {id} (the same runAsUser, or KILL, is needed)"
                    )
                })?;
            }
            Ok(found)
        })
        .await?
    };
    let ids: Vec<_> = signaled.iter().map(|process| process.id.as_raw()).collect();
    tracing::info!(
        %signal, process = name, ?ids, ?settle,
        "signaled; nobody answers a signal: taken as followed after that time"
    );
    sleep(settle).await;
    // The signal ends an application that was not ready for it.
    blocking(move || match signaled.iter().find(|process| !processes::is_there(process)) {
        Some(gone) => bail!("{name}, process {}, ended", gone.id),
        None => Ok(()),
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("reading /proc")?
}
