//! The admin server: `/livez`, `/readyz`, `/metrics`, and what is merged into it.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// What must be true before this replica is ready; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, bool>>>);

impl Readiness {
    /// Adds something to wait for.
    pub fn expect(&self, what: &'static str) {
        self.set(what, false);
    }

    /// Says that it came true.
    pub fn reached(&self, what: &'static str) {
        self.set(what, true);
    }

    /// What is still waited for.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.iter().filter(|(_, reached)| !**reached).map(|(what, _)| *what).collect()
    }

    fn set(&self, what: &'static str, reached: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(what, reached);
    }
}

/// The routes. Liveness says that the process answers and nothing more: restarting it would not
/// bring the API server or Prometheus back. `page` is the status page with its state.
pub fn router(metrics: Metrics, readiness: Readiness, page: Router) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(readiness)
        .merge(Router::new().route("/metrics", get(metrics_page)).with_state(metrics))
        .merge(page)
}

/// Serves until `shutdown`.
///
/// # Errors
/// When the address cannot be bound, or the server fails.
pub async fn serve(
    address: SocketAddr,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--admin-address {address}: cannot listen"))?;
    tracing::info!(address = %listener.local_addr()?, "serving /, /metrics, /livez, /readyz");
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await.context("admin server")
}

async fn readyz(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let missing = readiness.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".into())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", missing.join(", ")))
    }
}

async fn metrics_page(State(metrics): State<Metrics>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.encode() {
        Ok(page) => ([(header::CONTENT_TYPE, OPEN_METRICS)], page).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode: {error}\n")).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    use super::*;
    use crate::{
        runtime::status_page::{self, Live, STATE_PATH},
        traffic_watch::Decisions,
    };

    #[tokio::test]
    async fn the_page_stands_beside_probes_and_metrics() {
        let page =
            status_page::router(Arc::new(Live::new("pod-a".into(), vec![], Decisions::default())));
        let router = router(Metrics::new(), Readiness::default(), page);
        for path in ["/", "/page.css", "/page.js", STATE_PATH, "/metrics", "/livez", "/readyz"] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
        }
    }
}
