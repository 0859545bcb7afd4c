//! The server behind a proxy.

use anyhow::{Context, Result};
use axum::body::{Body, Bytes};
use http::request::Parts;

/// Headers of a request that are passed on. Compressed answers cannot be changed, and framing
/// belongs to each connection.
const PASSED: [&str; 4] = ["accept", "content-type", "user-agent", "x-scope-orgid"];

/// Headers of an answer that belong to the connection that it came on.
const KEPT: [&str; 4] = ["connection", "content-length", "keep-alive", "transfer-encoding"];

/// The server behind a proxy.
pub(super) enum Upstream {
    /// An API server, with the identity of one user.
    Kubernetes(kube::Client),
    /// A server of plain HTTP, by its URL without a path.
    Plain(reqwest::Client, String),
}

impl Upstream {
    /// An API server, with the identity of this configuration.
    pub fn kubernetes(mut config: kube::Config) -> Result<Self> {
        // Every answer is the client's, errors too; and a watch may be silent.
        config.default_retry = false;
        config.read_timeout = None;
        let client = kube::Client::try_from(config).context("making the proxy's client")?;
        Ok(Self::Kubernetes(client))
    }

    /// A server of plain HTTP.
    pub fn plain(url: &str) -> Result<Self> {
        crate::credentials::install_crypto();
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(redirects).build()?;
        Ok(Self::Plain(client, url.trim_end_matches('/').to_owned()))
    }

    /// Sends a request to this target (path and query), and returns the answer's head and body.
    pub async fn send(
        &self,
        head: &Parts,
        target: &str,
        body: Bytes,
    ) -> Result<http::Response<Body>> {
        let url = match self {
            Self::Kubernetes(_) => target.to_owned(),
            Self::Plain(_, url) => format!("{url}{target}"),
        };
        let mut request = http::Request::builder().method(head.method.clone()).uri(url);
        for name in PASSED {
            if let Some(value) = head.headers.get(name) {
                request = request.header(name, value);
            }
        }
        let answer = match self {
            Self::Kubernetes(client) => {
                let request = request.body(kube::client::Body::from(body.to_vec()))?;
                client.send(request).await?.map(Body::new)
            }
            Self::Plain(client, _) => {
                let request = request.body(reqwest::Body::from(body))?;
                let answer = client.execute(request.try_into()?).await?;
                http::Response::<reqwest::Body>::from(answer).map(Body::new)
            }
        };
        let (mut parts, body) = answer.into_parts();
        for name in KEPT {
            parts.headers.remove(name);
        }
        // The version of the connection behind the proxy is not that of the one before it.
        parts.version = http::Version::HTTP_11;
        Ok(http::Response::from_parts(parts, body))
    }
}
