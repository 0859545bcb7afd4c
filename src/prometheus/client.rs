//! Asking one endpoint.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Method, header};

use tokio::sync::OwnedSemaphorePermit;

use super::{
    Class, QueryError, Seat,
    budget::{self, Limits},
    config::{EndpointConfig, shown},
    transport::{Ready, Transport},
};
use crate::metrics::Metrics;

/// How much earlier than we the server is asked to give up, so that it does not go on working for
/// nobody.
const SERVER_MARGIN: Duration = Duration::from_millis(500);

/// The client of one endpoint; clones share it.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    config: Arc<EndpointConfig>,
    transport: Transport,
    url: String,
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

/// What is asked: a path of the API, and its parameters.
struct Question {
    path: &'static str,
    parameters: Vec<(&'static str, String)>,
}

/// An answer, with the permit to hold it if it is large.
type Read = (Answer, Option<OwnedSemaphorePermit>);

impl Question {
    fn instant(promql: &str) -> Self {
        Self { path: "api/v1/query", parameters: vec![("query", promql.to_owned())] }
    }
}

impl Client {
    /// A client for one endpoint.
    ///
    /// # Errors
    /// When it cannot be built; files are read at each request, not here.
    pub fn new(config: &EndpointConfig, metrics: Metrics) -> anyhow::Result<Self> {
        let config = Arc::new(config.clone());
        let transport = Transport::new(Arc::clone(&config))?;
        let url = shown(&config.url);
        let use_get = AtomicBool::new(false);
        Ok(Self(Arc::new(Inner { config, transport, url, use_get, metrics })))
    }

    /// The endpoint's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.config.name()
    }

    /// The longest a request may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.0.config.timeout
    }

    /// The base URL, without credentials.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Whether objects in a namespace may ask it.
    #[must_use]
    pub fn allows(&self, namespace: &str) -> bool {
        let allowed = self.0.config.allowed_namespaces.as_ref();
        allowed.is_none_or(|all| all.iter().any(|one| one == "*" || one == namespace))
    }

    /// Whether anybody may answer in the endpoint's place (`insecureSkipVerify`).
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.0.config.tls.insecure_skip_verify
    }

    /// Asks for the values of now and reads the answer with `read`; nothing else of it is kept.
    ///
    /// # Errors
    /// When there is no answer within `deadline` (at most [`Self::timeout`]), or `read` refuses it.
    pub async fn query<T>(
        &self,
        promql: &str,
        deadline: Duration,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let question = Question::instant(promql);
        self.ask(question, deadline, &Limits::COMMAND, read).await
    }

    /// The same for one of many: with a seat, which is given back when the answer has been read.
    ///
    /// # Errors
    /// As for [`Self::query`], with [`Self::timeout`] as the deadline; when the answer is larger than
    /// the seat allows.
    pub async fn query_seated<T>(
        &self,
        promql: &str,
        seat: Seat,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        self.ask(Question::instant(promql), self.timeout(), &seat.limits, read).await
    }

    /// Counts a request that was not made.
    pub fn not_asked(&self, error: &QueryError) {
        self.0.metrics.prometheus_request(self.name(), error.class.reason(), Duration::ZERO);
    }

    /// Asks for the values from `start` to `end` (Unix seconds), one every `step`, and reads the
    /// answer with `read`.
    ///
    /// # Errors
    /// As for [`Self::query`].
    pub async fn query_range<T>(
        &self,
        promql: &str,
        start: f64,
        end: f64,
        step: Duration,
        deadline: Duration,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let parameters = vec![
            ("query", promql.to_owned()),
            // To the millisecond, Prometheus' own resolution.
            ("start", format!("{start:.3}")),
            ("end", format!("{end:.3}")),
            ("step", format!("{:.3}", step.as_secs_f64())),
        ];
        let question = Question { path: "api/v1/query_range", parameters };
        self.ask(question, deadline, &Limits::COMMAND, read).await
    }

    async fn ask<T>(
        &self,
        mut question: Question,
        deadline: Duration,
        limits: &Limits,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let deadline = deadline.min(self.timeout());
        let server = deadline.saturating_sub(SERVER_MARGIN).max(deadline / 2);
        question.parameters.push(("timeout", format!("{}ms", server.as_millis())));
        let started = Instant::now();
        let result = tokio::time::timeout(deadline, self.answer(&question, limits))
            .await
            .unwrap_or_else(|_| {
                let message = format!("{}: no answer within {deadline:?}", self.0.url);
                Err(QueryError::new(Class::Timeout, message))
            })
            .and_then(|(answer, _large)| read(&answer));
        let label = result.as_ref().map_or_else(|error| error.class.reason(), |_| "success");
        self.0.metrics.prometheus_request(self.name(), label, started.elapsed());
        result
    }

    async fn answer(&self, question: &Question, limits: &Limits) -> Result<Read, QueryError> {
        let ready = self.0.transport.ready().await?;
        if self.0.use_get.load(Ordering::Relaxed) {
            return self.send(&ready, Method::GET, question, limits).await;
        }
        let answer = self.send(&ready, Method::POST, question, limits).await?;
        // What Prometheus' own clients do: a proxy that allows only reading refuses POST.
        if matches!(answer.0.status, 403 | 405 | 501) {
            drop(answer);
            let second = self.send(&ready, Method::GET, question, limits).await?;
            if second.0.status == 200 {
                self.0.use_get.store(true, Ordering::Relaxed);
            }
            return Ok(second);
        }
        Ok(answer)
    }

    async fn send(
        &self,
        ready: &Ready<'_>,
        method: Method,
        question: &Question,
        limits: &Limits,
    ) -> Result<Read, QueryError> {
        let own = question.parameters.iter().map(|(name, value)| (*name, value.as_str()));
        let configured = self.0.config.parameters.iter();
        let configured = configured.map(|(name, value)| (name.as_str(), value.as_str()));
        let parameters: Vec<_> = own.chain(configured).collect();
        let mut response = ready.send(method, question.path, &parameters).await?;
        if let Some(target) = self.redirect(&response) {
            let message = format!("redirects to {target}: is this URL the Prometheus API?");
            return Err(QueryError::new(Class::BadAnswer, format!("{}: {message}", self.0.url)));
        }
        let status = response.status().as_u16();
        let content_type = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let (mut body, mut large) = (Vec::new(), None);
        let failed = |error| self.0.transport.failed(&error);
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            let size = body.len() + chunk.len();
            if size > limits.max {
                return Err(limits.exceeded());
            }
            if size > limits.small
                && large.is_none()
                && let Some(permits) = &limits.large
            {
                // The server waits meanwhile, and so do its bytes.
                large = Some(budget::permit(Arc::clone(permits)).await);
            }
            if size > body.capacity() {
                // Twice as much, as ever, but never more than may be used.
                let wanted = (body.capacity() * 2).clamp(size, limits.max);
                body.reserve_exact(wanted - body.len());
            }
            body.extend_from_slice(&chunk);
        }
        Ok((Answer { status, content_type, body }, large))
    }

    /// Where a redirect leads: scheme, host and port only, because the rest may carry tokens.
    fn redirect(&self, response: &reqwest::Response) -> Option<String> {
        if !response.status().is_redirection() {
            return None;
        }
        let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
        let target = self.0.config.url.join(location).ok()?;
        Some(target.origin().ascii_serialization())
    }
}

#[cfg(test)]
mod tests;
