//! The page's routes, without a browser.
use anyhow::{Context, Result, ensure};
use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode},
};
use http_body_util::BodyExt;
use tower::ServiceExt;
use traffic_operator::{
    runtime::status_page::{self, Live, STATE_PATH},
    traffic_watch::{Memories, overview::Overview},
};

use crate::{
    fixtures::{follower, night},
    stage::Script,
};

async fn ask(
    views: Vec<Overview>,
    method: Method,
    path: &str,
) -> Result<(StatusCode, HeaderMap, String)> {
    let request = Request::builder().method(method).uri(path).body(Body::empty())?;
    let answer = status_page::router(Script::new(views)).oneshot(request).await?;
    let (parts, body) = answer.into_parts();
    let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
    Ok((parts.status, parts.headers, body))
}

pub async fn every_file_is_served_under_a_strict_policy() -> Result<()> {
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/shared.js", "text/javascript; charset=utf-8"),
        (STATE_PATH, "application/json"),
    ] {
        let (status, headers, body) = ask(vec![night()], Method::GET, path).await?;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        ensure!(status == StatusCode::OK && !body.is_empty(), "{path}: {status}");
        ensure!(header("content-type") == Some(kind), "{path}: {headers:?}");
        ensure!(header("x-content-type-options") == Some("nosniff"), "{path}: {headers:?}");
        ensure!(header("cache-control") == Some("no-store"), "{path}: {headers:?}");
        let policy = header("content-security-policy").context("no policy")?;
        for part in [
            "default-src 'none';",
            "script-src 'self';",
            "style-src 'self';",
            "connect-src 'self';",
            "img-src 'self' data:;",
        ] {
            ensure!(policy.contains(part), "{path}: {policy} lacks {part}");
        }
        ensure!(!policy.contains("unsafe"), "{path}: {policy}");
    }
    Ok(())
}

/// The page loads nothing from other hosts, so it works in clusters without internet access.
pub async fn the_files_name_no_other_host() -> Result<()> {
    for path in ["/", "/page.css", "/page.js", "/shared.js"] {
        let (_, _, body) = ask(vec![night()], Method::GET, path).await?;
        let body = body.replace("http://www.w3.org/2000/svg", "");
        for sign in ["http://", "https://", "src=\"//", "url(", "@import", "innerHTML"] {
            ensure!(!body.contains(sign), "{path} contains {sign}");
        }
    }
    Ok(())
}

pub async fn only_reading_is_served() -> Result<()> {
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        for path in ["/", STATE_PATH] {
            let (status, ..) = ask(vec![night()], method.clone(), path).await?;
            ensure!(status == StatusCode::METHOD_NOT_ALLOWED, "{method} {path}: {status}");
        }
    }
    Ok(())
}

pub async fn the_state_is_the_contract_and_is_filtered() -> Result<()> {
    let (_, _, body) = ask(vec![night()], Method::GET, STATE_PATH).await?;
    ensure!(serde_json::from_str::<Overview>(&body)? == night(), "{body}");
    let path = format!("{STATE_PATH}?namespace=shop&name=web&node=node-4");
    let (_, _, body) = ask(vec![night()], Method::GET, &path).await?;
    let view: Overview = serde_json::from_str(&body)?;
    ensure!(view.watches.len() == 1 && view.watches[0].nodes.len() == 1, "{body}");
    ensure!(view.watches[0].nodes[0].name == "node-4" && view.watches[0].summary.nodes == 7);
    Ok(())
}

pub async fn a_follower_reports_it_and_has_no_watches() -> Result<()> {
    let source = std::sync::Arc::new(Live::new(
        "pod-b".into(),
        traffic_operator::prometheus::Exporters::default(),
        Memories::default(),
    ));
    let request = Request::builder().uri(STATE_PATH).body(Body::empty())?;
    let answer = status_page::router(source).oneshot(request).await?;
    let view: Overview = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
    ensure!(!view.leader && view.watches.is_empty() && view.identity == "pod-b", "{view:?}");
    ensure!(view.started <= view.now && view.version == follower().version, "{view:?}");
    Ok(())
}
