//! `/metrics`: encoded while it is read, for a limited number of concurrent readers.
use std::{fmt, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::mpsc;
use traffic_operator_core::exposition::{Format, Rewriter};

use super::access::Access;
use crate::{metrics::Metrics, serving::places::Places};

/// Path of the metrics.
pub const PATH: &str = "/metrics";

/// Maximum number of concurrent readers, in total and of one source: two replicas of Prometheus,
/// and people, perhaps all behind one address. A slow reader has a thread and two pieces of 32 KiB.
const READERS: (usize, usize) = (16, 4);

#[derive(Clone)]
struct Scrapes {
    metrics: Metrics,
    /// The access check; without one, every client may read.
    access: Option<Arc<Access>>,
    readers: Places,
}

/// Returns the route. Without `access`, every client that reaches it may read.
pub fn router(metrics: Metrics, access: Option<Access>) -> Router {
    let readers = Places::new(READERS.0, READERS.1);
    let scrapes = Scrapes { metrics, access: access.map(Arc::new), readers };
    Router::new().route(PATH, get(scrape)).with_state(scrapes)
}

async fn scrape(
    State(scrapes): State<Scrapes>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    let answer = match &scrapes.access {
        Some(access) => access.check(peer.ip(), &headers).await,
        None => Ok(()),
    };
    let answer = match answer {
        Ok(()) => scrapes.page(peer, format(&headers)),
        Err(refusal) => refusal.into_response(),
    };
    scrapes.metrics.scraped(answer.status().as_u16());
    answer
}

/// The format that a request asks for.
fn format(headers: &HeaderMap) -> Format {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    Format::preferred(&accept, &[Format::Text, Format::OpenMetrics])
}

impl Scrapes {
    fn page(&self, peer: SocketAddr, format: Format) -> Response {
        let Some(place) = self.readers.take(peer.ip()) else {
            let text = "too many read the metrics at once\n";
            return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        };
        let (give, take) = mpsc::channel::<Result<Bytes, fmt::Error>>(1);
        let metrics = self.metrics.clone();
        // It waits for the reader, and ends with the connection, because then the channel is
        // closed.
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let mut rewriter = Rewriter::default();
            let piece = |piece: Vec<u8>| {
                let piece = match format {
                    Format::Text => rewriter.rewrite(&piece),
                    Format::OpenMetrics | Format::Protobuf => piece,
                };
                give.blocking_send(Ok(Bytes::from(piece))).map_err(|_| fmt::Error)
            };
            // A page that breaks off ends its connection, so that nobody takes it for a whole one.
            if let Err(error) = metrics.stream(piece) {
                tracing::debug!(%peer, "a page of metrics was not read to its end");
                let _ = give.blocking_send(Err(error));
            }
        });
        let pieces = futures::stream::unfold(take, async |mut take| {
            take.recv().await.map(|piece| (piece, take))
        });
        let content_type = [(header::CONTENT_TYPE, format.content_type())];
        (content_type, Body::from_stream(pieces)).into_response()
    }
}
