//! The client of one endpoint.
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Method, header};
use reqwest::Response;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Class, Permit, QueryError,
    budget::{self, Limits},
    config::{EndpointConfig, shown},
    decode::{Pieces, Series},
    question::Question,
    transport::{Ready, Transport},
};
use crate::metrics::Metrics;

/// Difference between the server's timeout and ours, so that the server does not continue for a
/// client that has given up.
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

/// The raw answer, to be read by `super::decode`.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`, empty if there is none.
    pub content_type: String,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// An answer, with the permit if it is large.
type Read = (Answer, Option<OwnedSemaphorePermit>);

impl Client {
    /// Creates a client for one endpoint.
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

    /// Returns the endpoint's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.config.name()
    }

    /// Returns the timeout of a request.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.0.config.timeout
    }

    /// Returns the base URL, without credentials.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Reports whether objects in a namespace may query it.
    #[must_use]
    pub fn allows(&self, namespace: &str) -> bool {
        let allowed = self.0.config.allowed_namespaces.as_ref();
        allowed.is_none_or(|all| all.iter().any(|one| one == "*" || one == namespace))
    }

    /// Reports whether another server could impersonate the endpoint (`insecureSkipVerify`).
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.0.config.tls.insecure_skip_verify
    }

    /// Queries the current values and reads the answer with `read`; nothing else of it is kept.
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

    /// Does the same for one of many requests: with a permit, which is released when the answer has
    /// been read.
    ///
    /// # Errors
    /// As for [`Self::query`], with [`Self::timeout`] as the deadline; when the answer is larger
    /// than the permit allows.
    pub async fn query_with_permit<T>(
        &self,
        promql: &str,
        permit: Permit,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        self.ask(Question::instant(promql), self.timeout(), &permit.limits, read).await
    }

    /// Does the same for an instant vector; its elements go to `take` while it arrives. Returns the
    /// warnings of the server.
    ///
    /// # Errors
    /// As for [`Self::query_with_permit`], or when it is not a vector, or `take` refuses an
    /// element. Then the elements passed to `take` are invalid.
    pub async fn query_vector(
        &self,
        promql: &str,
        permit: Permit,
        take: impl FnMut(Series<'_>) -> Result<(), QueryError>,
    ) -> Result<Vec<String>, QueryError> {
        let (question, deadline) = self.within(Question::instant(promql), self.timeout());
        let read = async {
            let mut response = self.response(&question).await?;
            let (status, content_type) = head(&response);
            let mut pieces = Pieces::new(status, content_type, take);
            let mut size = Size::new(&permit.limits);
            while let Some(piece) = self.piece(&mut response).await? {
                size.take(piece.len())?;
                pieces.feed(&piece);
                size.hold(pieces.kept()).await;
            }
            pieces.end()
        };
        self.timed(deadline, read).await
    }

    /// Counts a request that was not made.
    pub(super) fn not_asked(&self, error: &QueryError) {
        self.0.metrics.prometheus_not_asked(self.name(), error.class.reason());
    }

    /// Queries the values from `start` to `end` (Unix seconds), one every `step`, and reads the
    /// answer with `read`.
    ///
    /// # Errors
    /// As for [`Self::query`].
    pub async fn query_range<T>(
        &self,
        promql: &str,
        start: i64,
        end: i64,
        step: Duration,
        deadline: Duration,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let question = Question { range: Some((start, end, step)), ..Question::instant(promql) };
        self.ask(question, deadline, &Limits::COMMAND, read).await
    }

    async fn ask<T>(
        &self,
        question: Question,
        deadline: Duration,
        limits: &Limits,
        read: impl FnOnce(&Answer) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let (question, deadline) = self.within(question, deadline);
        let whole = async {
            let (answer, _large) = self.whole(self.response(&question).await?, limits).await?;
            read(&answer)
        };
        self.timed(deadline, whole).await
    }

    /// Returns the query with the server's timeout in it, and our own deadline.
    fn within(&self, mut question: Question, deadline: Duration) -> (Question, Duration) {
        let deadline = deadline.min(self.timeout());
        question.timeout = deadline.saturating_sub(SERVER_MARGIN).max(deadline / 2);
        (question, deadline)
    }

    /// Queries and reads within a deadline, and counts the result.
    async fn timed<T>(
        &self,
        deadline: Duration,
        read: impl Future<Output = Result<T, QueryError>>,
    ) -> Result<T, QueryError> {
        let mut counted = Counted::new(self);
        let url = &self.0.url;
        let result = tokio::time::timeout(deadline, read).await.unwrap_or_else(|_| {
            Err(QueryError::new(Class::Timeout, format!("{url}: no answer within {deadline:?}")))
        });
        // What is wrong there is mostly the address or the credentials.
        let result = result.map_err(|error| match error.class {
            Class::BadAnswer | Class::Unauthorized if !error.message.starts_with(&**url) => {
                QueryError::new(error.class, format!("{url}: {}", error.message))
            }
            _ => error,
        });
        counted.result = result.as_ref().map_or_else(|error| error.class.reason(), |_| "success");
        result
    }

    /// Returns the answer, of which only the head has been read.
    async fn response(&self, question: &Question) -> Result<Response, QueryError> {
        let ready = self.0.transport.ready().await?;
        if self.0.use_get.load(Ordering::Relaxed) {
            return self.send(&ready, Method::GET, question).await;
        }
        let response = self.send(&ready, Method::POST, question).await?;
        // As in Prometheus' own clients: a read-only proxy refuses POST.
        if matches!(response.status().as_u16(), 403 | 405 | 501) {
            drop(response);
            let second = self.send(&ready, Method::GET, question).await?;
            if second.status().as_u16() == 200 {
                self.0.use_get.store(true, Ordering::Relaxed);
            }
            return Ok(second);
        }
        Ok(response)
    }

    async fn send(
        &self,
        ready: &Ready<'_>,
        method: Method,
        question: &Question,
    ) -> Result<Response, QueryError> {
        let response = ready.send(&method, question).await?;
        if let Some(target) = self.redirect(&response) {
            let message = format!("redirects to {target}: is this URL the Prometheus API?");
            return Err(QueryError::new(Class::BadAnswer, format!("{}: {message}", self.0.url)));
        }
        Ok(response)
    }

    /// Returns the answer with its body, and the permit if it is large.
    async fn whole(&self, mut response: Response, limits: &Limits) -> Result<Read, QueryError> {
        let (status, content_type) = head(&response);
        let (mut body, mut held) = (Vec::new(), Size::new(limits));
        while let Some(piece) = self.piece(&mut response).await? {
            let size = held.take(piece.len())?;
            held.hold(size).await;
            if size > body.capacity() {
                // Doubles the capacity as usual, but never beyond the limit.
                let wanted = (body.capacity() * 2).clamp(size, limits.max);
                body.reserve_exact(wanted - body.len());
            }
            body.extend_from_slice(&piece);
        }
        Ok((Answer { status, content_type, body }, held.large))
    }

    async fn piece(
        &self,
        response: &mut Response,
    ) -> Result<Option<impl Deref<Target = [u8]>>, QueryError> {
        response.chunk().await.map_err(|error| self.0.transport.failed(&error))
    }

    /// Returns the target of a redirect: scheme, host and port only, because the rest may contain
    /// tokens.
    fn redirect(&self, response: &Response) -> Option<String> {
        if !response.status().is_redirection() {
            return None;
        }
        let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
        let target = self.0.config.url.join(location).ok()?;
        Some(target.origin().ascii_serialization())
    }
}

/// Counts a request when it ends. One that is dropped has had no answer within the patience of its
/// last caller: where that is always shorter than the timeout, nothing else would show that the
/// server hangs.
struct Counted<'a> {
    client: &'a Client,
    started: Instant,
    result: &'static str,
}

impl<'a> Counted<'a> {
    fn new(client: &'a Client) -> Self {
        Self { client, started: Instant::now(), result: Class::Timeout.reason() }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let (metrics, took) = (&self.client.0.metrics, self.started.elapsed());
        metrics.prometheus_request(self.client.name(), self.result, took);
    }
}

/// Returns the status and the content type.
fn head(response: &Response) -> (u16, String) {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    (response.status().as_u16(), content_type.to_owned())
}

/// The size of an answer so far, and the permit for a large one.
struct Size<'a> {
    limits: &'a Limits,
    read: usize,
    large: Option<OwnedSemaphorePermit>,
}

impl<'a> Size<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self { limits, read: 0, large: None }
    }

    /// Adds some bytes, and returns the new total.
    fn take(&mut self, bytes: usize) -> Result<usize, QueryError> {
        self.read += bytes;
        if self.read > self.limits.max {
            return Err(self.limits.exceeded());
        }
        Ok(self.read)
    }

    /// Waits for a permit if this many bytes count as large. Meanwhile the server waits with the
    /// remaining bytes.
    async fn hold(&mut self, bytes: usize) {
        if bytes > self.limits.small
            && self.large.is_none()
            && let Some(permits) = &self.limits.large
        {
            self.large = Some(budget::permit(Arc::clone(permits)).await);
        }
    }
}

#[cfg(test)]
mod tests;
