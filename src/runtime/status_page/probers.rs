//! The page of the `NetworkProber`s, and the JSON that it shows.
use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    response::Response,
    routing::get,
};
use serde::Serialize;

use super::{answer, file, refusal};
use crate::network_prober::overview::{Filter, ProberSource};

/// Path of the `NetworkProber`s.
pub const PROBERS_PATH: &str = "/api/v1/networkprobers";

const PAGE: &str = include_str!("networkprobers.html");
const SCRIPT: &str = include_str!("networkprobers.js");
const STYLE: &str = include_str!("networkprobers.css");

type Source = Arc<dyn ProberSource>;

/// The routes `/networkprobers`, its script and style, and [`PROBERS_PATH`].
pub fn router(source: Source) -> Router {
    let pod = format!("{PROBERS_PATH}/pods/{{namespace}}/{{name}}");
    Router::new()
        .route("/networkprobers", get(async || file("text/html; charset=utf-8", PAGE)))
        .route("/networkprobers.css", get(async || file("text/css; charset=utf-8", STYLE)))
        .route("/networkprobers.js", get(async || file("text/javascript; charset=utf-8", SCRIPT)))
        .route(PROBERS_PATH, get(probers))
        .route(&pod, get(one_pod))
        .with_state(source)
}

async fn probers(State(source): State<Source>, RawQuery(query): RawQuery) -> Response {
    match Filter::parse(query.as_deref().unwrap_or_default()) {
        Ok(filter) => json(&source.overview(&filter).await),
        Err(error) => refusal(StatusCode::BAD_REQUEST, &error),
    }
}

async fn one_pod(
    State(source): State<Source>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    json(&source.pod(&namespace, &name).await)
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => answer(StatusCode::OK, "application/json", text),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("state: {error}")),
    }
}
