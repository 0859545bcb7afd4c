//! HTTP requests of an agent: to the operator over TLS, to a sink or an application beside it in
//! plain text.
//!
//! No redirects, no proxies, no environment variables: a request goes only to its address.
use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use percent_encoding::percent_decode_str;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::time::timeout;

/// The time for which an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);

/// Sends requests, over the previous connection if it is still open; clones share it.
#[derive(Clone)]
pub(crate) struct Client(legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Client {
    /// Creates a client for http addresses; it trusts no certificate.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn plain() -> anyhow::Result<Self> {
        Self::new(RootCertStore::empty(), None)
    }

    /// Creates a client for servers with a certificate signed by one of these, in PEM form;
    /// `connect` limits the time to connect.
    ///
    /// # Errors
    /// When the text contains no valid certificates.
    pub fn trusting(pem: &[u8], connect: Duration) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.context("PEM")?)?;
        }
        ensure!(!roots.is_empty(), "empty");
        Self::new(roots, Some(connect))
    }

    fn new(roots: RootCertStore, connect: Option<Duration>) -> anyhow::Result<Self> {
        let tls = !roots.is_empty();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("TLS")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(connect);
        let builder = HttpsConnectorBuilder::new().with_tls_config(config);
        let builder = if tls { builder.https_only() } else { builder.https_or_http() };
        let connector = builder.enable_http1().wrap_connector(tcp);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self(client))
    }

    /// Sends one request and returns the answer, whatever its status.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, HeaderValue::from_static(crate::USER_AGENT));
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        Ok(self.0.request(request).await?)
    }

    /// Posts and waits for a status of 2xx, with the credentials that the address may hold.
    ///
    /// # Errors
    /// When no such answer arrives within that time.
    pub async fn post(
        &self,
        to: &Uri,
        content_type: Option<&'static str>,
        body: Vec<u8>,
        within: Duration,
    ) -> anyhow::Result<()> {
        let mut request = Request::post(to);
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(credentials) = credentials(to) {
            request = request.header(header::AUTHORIZATION, credentials);
        }
        let request = request.body(Full::from(body))?;
        let status =
            timeout(within, self.send(request)).await.context("no answer in time")??.status();
        ensure!(status.is_success(), "HTTP {status}");
        Ok(())
    }
}

/// `http://name:password@host` requires authentication.
fn credentials(uri: &Uri) -> Option<HeaderValue> {
    let (credentials, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let (name, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let decoded = [name, password].map(|text| percent_decode_str(text).collect::<Vec<u8>>());
    let text = STANDARD.encode(decoded.join(&b':'));
    let mut value = HeaderValue::from_str(&format!("Basic {text}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stand_in_the_address() {
        let of = |text: &str| {
            credentials(&text.parse().unwrap()).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(of("http://localhost:8080/-/reload"), None);
        // `printf 'me:s@cret' | base64`
        assert_eq!(of("http://me:s%40cret@localhost/").unwrap(), "Basic bWU6c0BjcmV0");
        assert_eq!(of("http://me@localhost/").unwrap(), "Basic bWU6");
    }
}
