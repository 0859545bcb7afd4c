//! Asks workers which version of the file they run.
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::Deserialize;

/// How long a worker in the same cluster may take; one that needs longer is asked again.
const DEADLINE: Duration = Duration::from_secs(1);

/// The largest answer that is read: as many streams as a `ConfigMap` can hold.
const MAX_BODY: usize = 1 << 20;

/// What a worker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The version of the file it runs; `None` before it runs any.
    pub version: Option<u64>,
    /// The streams it runs.
    pub jobs: Vec<String>,
}

/// The original's answer, and the name of the worker.
#[derive(Deserialize)]
struct Wire {
    version: i64,
    #[serde(default)]
    jobs: Option<Vec<String>>,
    #[serde(default)]
    worker: Option<String>,
}

/// The client for all workers; clones share it.
#[derive(Clone)]
pub struct Asker(reqwest::Client);

impl Asker {
    /// A client that goes nowhere but to the address it is told.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn new() -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .user_agent(crate::USER_AGENT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(DEADLINE)
            // No certificates: workers are asked by plain HTTP, and the image has none to be found.
            .tls_certs_only([])
            // A connection per worker would be kept open for nothing while nothing moves.
            .pool_idle_timeout(Duration::from_secs(5))
            .build()?;
        Ok(Self(client))
    }

    /// Asks one worker.
    ///
    /// # Errors
    /// Why it is not known what it runs, in one line.
    pub async fn ask(
        &self,
        worker: &str,
        ip: IpAddr,
        port: u16,
        path: &str,
    ) -> Result<Answer, String> {
        let at = SocketAddr::new(ip, port);
        let url = format!("http://{at}{path}");
        let request = self.0.get(&url).send();
        let mut response = request.await.map_err(|error| format!("{url}: {}", cause(&error)))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("{url}: HTTP status {}", status.as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| format!("{url}: {}", cause(&error)))?
        {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(format!("{url}: the answer is larger than 1 MiB"));
            }
            body.extend_from_slice(&chunk);
        }
        read(worker, &body).map_err(|text| format!("{url}: {text}"))
    }
}

/// Reads an answer.
fn read(worker: &str, body: &[u8]) -> Result<Answer, String> {
    let wire: Wire = serde_json::from_slice(body)
        .map_err(|error| format!("the answer is not {{\"jobs\": […], \"version\": N}}: {error}"))?;
    // An address may have been given to another pod in the meantime.
    if let Some(name) = wire.worker.filter(|name| name != worker) {
        return Err(format!("the answer is of {name}"));
    }
    // The original's workers begin with 0, before any file.
    let version = u64::try_from(wire.version).ok().filter(|version| *version > 0);
    Ok(Answer { version, jobs: wire.jobs.unwrap_or_default() })
}

/// The innermost reason: the library's own text repeats the URL.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", DEADLINE.as_secs());
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Result<Answer, String> {
        read("swarm-worker-0", body.as_bytes())
    }

    #[test]
    fn the_originals_answer_and_ours_are_read() {
        let jobs = || vec!["a".to_owned(), "b".to_owned()];
        let wanted = Answer { version: Some(7), jobs: jobs() };
        assert_eq!(of(r#"{"jobs":["a","b"],"version":7}"#).unwrap(), wanted);
        let ours = of(r#"{"jobs":["a","b"],"version":7,"worker":"swarm-worker-0","x":1}"#);
        assert_eq!(ours.unwrap(), wanted);
        let none = Answer::default();
        assert_eq!(of(r#"{"jobs":null,"version":0}"#).unwrap(), none);
        assert_eq!(of(r#"{"version":-3}"#).unwrap(), none);
        assert_eq!(of(r#"{"version":3}"#).unwrap().version, Some(3));
    }

    #[test]
    fn what_cannot_be_read_is_no_acknowledgement() {
        assert!(of("<html>").unwrap_err().contains("not {"));
        assert!(of(r#"{"jobs":[]}"#).unwrap_err().contains("version"));
        let other = of(r#"{"jobs":[],"version":7,"worker":"swarm-worker-1"}"#);
        assert_eq!(other.unwrap_err(), "the answer is of swarm-worker-1");
    }

    #[tokio::test]
    async fn a_worker_that_is_not_there_is_told_with_its_address() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let asker = Asker::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let local = IpAddr::from([127, 0, 0, 1]);
        let error = asker.ask("w-0", local, port, "/v").await.unwrap_err();
        assert!(error.starts_with(&format!("http://127.0.0.1:{port}/v: ")), "{error}");
        assert!(error.contains("refused"), "{error}");
    }
}
