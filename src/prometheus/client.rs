//! The HTTP client of one Prometheus endpoint.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use prometheus_http_query::Client as Api;
use reqwest::redirect;

use super::{Class, QueryError};
use crate::metrics::Metrics;

/// The largest answer that is read, after decompression: 5,000 nodes need half a mebibyte, a wrong
/// query must not take the memory limit.
const MAX_BODY: usize = 32 << 20;

/// How much earlier than we the server is asked to give up, so that it does not go on working for
/// nobody.
const SERVER_MARGIN: Duration = Duration::from_millis(500);

/// How an endpoint is reached.
#[derive(Clone, Debug)]
pub struct Config {
    /// Base URL, without `/api/v1`.
    pub url: String,
    /// The longest a request may take.
    pub timeout: Duration,
}

/// The client of one endpoint; clones share it.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    api: Api,
    url: String,
    timeout: Duration,
    /// Some proxies refuse POST.
    use_get: AtomicBool,
    metrics: Metrics,
}

/// The raw answer, to be read by [`super::decode`].
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`, empty if there is none.
    pub content_type: String,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// A URL as it may be logged and written into a status.
fn shown(mut url: reqwest::Url) -> String {
    // These fail for URLs that cannot have credentials, and then there are none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string().trim_end_matches('/').to_owned()
}

impl Client {
    /// A client for one endpoint.
    ///
    /// # Errors
    /// When the URL is no http(s) URL.
    pub fn new(config: &Config, metrics: Metrics) -> anyhow::Result<Self> {
        let url = reqwest::Url::parse(&config.url)
            .context("--prometheus-url is no URL: write for example http://prometheus:9090")?;
        anyhow::ensure!(
            matches!(url.scheme(), "http" | "https") && url.has_host(),
            "--prometheus-url must begin with http:// or https:// and name a host"
        );
        let host = url.host_str().map(str::to_owned);
        let http = reqwest::Client::builder()
            .user_agent(crate::USER_AGENT)
            .connect_timeout(config.timeout.min(Duration::from_secs(5)))
            // A login page on another host is no answer, and must never see a header of ours.
            .redirect(redirect::Policy::custom(move |attempt| {
                if attempt.url().host_str() == host.as_deref() && attempt.previous().len() < 5 {
                    attempt.follow()
                } else {
                    attempt.stop()
                }
            }))
            // A scratch image has no CA certificates, and the builder refuses to look for them.
            .tls_certs_only([])
            .no_proxy()
            .build()
            .context("HTTP client")?;
        Ok(Self(Arc::new(Inner {
            api: Api::from(http, &config.url).context("--prometheus-url")?,
            url: shown(url),
            timeout: config.timeout,
            use_get: AtomicBool::new(false),
            metrics,
        })))
    }

    /// The longest a request may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// The base URL, without credentials.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Asks once and reads the answer with `read`; nothing else of it is kept.
    ///
    /// # Errors
    /// When there is no answer within `deadline` (at most [`Self::timeout`]), or `read` refuses it.
    pub async fn query<T>(
        &self,
        promql: &str,
        deadline: Duration,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let deadline = deadline.min(self.0.timeout);
        let started = Instant::now();
        let result = tokio::time::timeout(deadline, self.ask(promql, deadline))
            .await
            .unwrap_or_else(|_| {
                let message = format!("{}: no answer within {deadline:?}", self.0.url);
                Err(QueryError::new(Class::Timeout, message))
            })
            .and_then(|answer| read(&answer));
        let label = result.as_ref().map_or_else(|error| error.class.reason(), |_| "success");
        self.0.metrics.prometheus_request(label, started.elapsed());
        result
    }

    async fn ask(&self, promql: &str, deadline: Duration) -> Result<Answer, QueryError> {
        if self.0.use_get.load(Ordering::Relaxed) {
            return self.send(promql, deadline, true).await;
        }
        let answer = self.send(promql, deadline, false).await?;
        // What Prometheus' own clients do: a proxy that allows only reading refuses POST.
        if matches!(answer.status, 403 | 405 | 501) {
            let second = self.send(promql, deadline, true).await?;
            if second.status == 200 {
                self.0.use_get.store(true, Ordering::Relaxed);
            }
            return Ok(second);
        }
        Ok(answer)
    }

    async fn send(
        &self,
        promql: &str,
        deadline: Duration,
        get: bool,
    ) -> Result<Answer, QueryError> {
        let server = deadline.saturating_sub(SERVER_MARGIN).max(deadline / 2);
        let query =
            self.0.api.query(promql).timeout(i64::try_from(server.as_millis()).unwrap_or(i64::MAX));
        let response = if get { query.get_raw().await } else { query.post_raw().await };
        let mut response = response.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        let content_type = response
            .headers()
            .get(reqwest::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + chunk.len() > MAX_BODY {
                let message = format!("answer is larger than {} MiB", MAX_BODY >> 20);
                return Err(QueryError::new(Class::BadAnswer, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, content_type, body })
    }

    /// The last cause says what happened ("connection refused"); the ones above it repeat the URL
    /// with the whole query.
    fn unreachable(&self, error: &dyn std::error::Error) -> QueryError {
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        QueryError::new(Class::Unreachable, format!("{}: {cause}", self.0.url))
    }
}

#[cfg(test)]
mod tests;
