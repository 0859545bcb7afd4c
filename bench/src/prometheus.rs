//! A Prometheus whose answers are prepared, so that its own work does not count.
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Instant,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::header,
    response::IntoResponse,
};
use futures::stream;
use lab::wait::lock;

/// The bytes written at once, as by Prometheus' own server.
const PIECE: usize = 32 << 10;

/// The label that the operator's query gives to each measure; the same in a form.
const MEASURE: &[u8] = b"measure";

/// The longest form that is read, in bytes: a query has a few thousand.
const MAX_FORM: usize = 64 << 10;

const END: &[u8] = b"]}}";

/// Link load of a node that is fit, and of one that is not; texts of the same length.
const SHARES: [&[u8; 2]; 2] = [b"10", b"90"];

/// The measures of the built-in query with the value of each for a node, in the order of the query:
/// all series of one, then all of the next.
const MEASURES: [(&str, &str); 6] = [
    ("transmit_rate", "10"),
    ("transmit_total", "1000000000000"),
    ("transmit_total_before", "1000000000000"),
    ("speed", "100"),
    ("age", "3.25"),
    ("age_before", "123.25"),
];

/// The server; clones share it.
#[derive(Clone)]
pub struct Prometheus(Arc<Mutex<Inner>>);

struct Inner {
    body: Vec<u8>,
    /// The position of each node's share in the body.
    shares: Vec<usize>,
    /// The length of the first measure.
    first: usize,
    /// Number of unfit nodes, which are the first ones.
    unfit: usize,
    /// Number of nodes that become unfit with each answer.
    step: usize,
    /// For each answer, the number of unfit nodes and the time of its last byte.
    answers: Vec<(usize, Instant)>,
}

impl Prometheus {
    pub async fn start(nodes: usize) -> anyhow::Result<(Self, String)> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let inner = answer(nodes);
        let prometheus = Self(Arc::new(Mutex::new(inner)));
        let router = Router::new().fallback(serve).with_state(prometheus.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((prometheus, url))
    }

    /// Sets the number of unfit nodes from the next answer on; each later answer adds `step`.
    pub fn set(&self, unfit: usize, step: usize) {
        let mut inner = lock(&self.0);
        inner.paint(unfit);
        inner.step = step;
    }

    /// Returns, for each answer so far, the number of unfit nodes and the time of its last byte.
    pub fn answers(&self) -> Vec<(usize, Instant)> {
        lock(&self.0).answers.clone()
    }

    /// Returns the number of answers so far.
    pub fn requests(&self) -> u32 {
        u32::try_from(lock(&self.0).answers.len()).unwrap_or(u32::MAX)
    }
}

impl Inner {
    fn paint(&mut self, unfit: usize) {
        for (node, place) in self.shares.iter().enumerate() {
            self.body[*place..place + 2].copy_from_slice(SHARES[usize::from(node < unfit)]);
        }
        self.unfit = unfit;
    }
}

/// Builds the answer, with the position of each node's share in it.
fn answer(nodes: usize) -> Inner {
    let mut body = br#"{"status":"success","data":{"resultType":"vector","result":["#.to_vec();
    let mut shares = vec![];
    let mut first = 0;
    for (measure, value) in MEASURES {
        for i in 0..nodes {
            let host = format!("10.{}.{}.{}:9100", i / 65536, i / 256 % 256, i % 256);
            let comma = if body.ends_with(b"[") { "" } else { "," };
            let labels = format!(r#""device":"eth0","instance":"{host}","measure":"{measure}""#);
            let element = format!(r#"{comma}{{"metric":{{{labels}}},"value":[1700000000.123,""#);
            body.extend_from_slice(element.as_bytes());
            if first == 0 {
                shares.push(body.len());
            }
            body.extend_from_slice(value.as_bytes());
            body.extend_from_slice(br#""]}"#);
        }
        if first == 0 {
            first = body.len();
        }
    }
    body.extend_from_slice(END);
    Inner { body, shares, first, unfit: 0, step: 0, answers: vec![] }
}

/// Reports whether a query asks for several measures, as the operator's does; a simple one, which a
/// peer may send, asks for the first measure.
async fn asks_for_all(request: Request) -> bool {
    let in_url = request.uri().query().unwrap_or_default().to_owned();
    let form = to_bytes(request.into_body(), MAX_FORM).await.unwrap_or_default();
    let texts = [in_url.as_bytes(), &form];
    texts.into_iter().any(|text| text.windows(MEASURE.len()).any(|part| part == MEASURE))
}

async fn serve(State(this): State<Prometheus>, request: Request) -> impl IntoResponse {
    let all = asks_for_all(request).await;
    let (body, unfit) = {
        let mut inner = lock(&this.0);
        let step = inner.unfit + inner.step;
        if inner.step > 0 {
            inner.paint(step);
        }
        let body: Bytes = if all {
            Bytes::copy_from_slice(&inner.body)
        } else {
            [&inner.body[..inner.first], END].concat().into()
        };
        (body, inner.unfit)
    };
    let pieces = stream::unfold(body, move |mut body| {
        let this = this.clone();
        async move {
            let piece = body.split_to(PIECE.min(body.len()));
            if body.is_empty() && !piece.is_empty() {
                lock(&this.0).answers.push((unfit, Instant::now()));
            }
            (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), body))
        }
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces))
}
