//! The page of the `NetworkProber`s: its answers, and its layout in a browser.
use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result, ensure};
use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use traffic_operator::{
    agent::pinglist::Protocol,
    api::network_prober::Mode,
    network_prober::{
        measurement::{Blame, Measurement, NodeFigures, PathFigures, Silent},
        overview::{Filter, Measured, Overview, PodView, ProberSource, ProberView, Uncovered},
    },
    runtime::status_page::{self, PROBERS_PATH},
};

use crate::{
    fixtures::{SCRIPT, now},
    stage::Stage,
};

/// A source that always returns the same data.
pub struct Known(pub Vec<ProberView>);

impl ProberSource for Known {
    fn overview<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Overview> {
        let mut probers = self.0.clone();
        probers.retain(|one| filter.namespace.as_ref().is_none_or(|it| *it == one.namespace));
        probers.retain(|one| filter.name.as_ref().is_none_or(|it| *it == one.name));
        if filter.one().is_none() {
            for prober in &mut probers {
                prober.measured = None;
            }
        }
        let overview = Overview {
            identity: "traffic-operator-6c9f7d5b4-x2x8q".into(),
            version: "0.1.0".into(),
            now: now(),
            synced: true,
            probers,
        };
        Box::pin(async move { overview })
    }

    fn pod<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, PodView> {
        Box::pin(async { PodView::default() })
    }
}

fn prober(namespace: &str, name: &str, figures: Option<Measurement>) -> ProberView {
    ProberView {
        namespace: namespace.into(),
        name: name.into(),
        problem: None,
        mode: Mode::Sidecar,
        period_seconds: 10.0,
        timeout_seconds: 1.0,
        probes: vec![Protocol::Http, Protocol::Udp],
        image: Some("registry.invalid/traffic-operator:0.1.0".into()),
        listed: true,
        selected: 6,
        injected: 5,
        need_restart: 1,
        not_injected: vec![Uncovered::of("HostNetwork", 1)],
        failing: None,
        paused: vec![],
        members: 5,
        nodes: 3,
        agents: vec![],
        estimated_series: 1468,
        measured: Some(Measured { endpoint: "default".into(), problem: None, figures }),
    }
}

/// Returns figures of these nodes; the node with the index `bad` is bad.
fn figures(names: &[String], bad: usize) -> Measurement {
    let value = |from: usize, to: usize, good: f64, worse: f64| {
        let is_bad = from == bad || to == bad;
        (from != to).then(|| {
            let spread = f64::from(u32::try_from((from * 7 + to * 3) % 5).unwrap_or_default());
            {
                let value = if is_bad { worse * (1.0 + spread / 10.0) } else { good * spread };
                // Rounded, so that reading the JSON gives what was written.
                (value * 1e5).round() / 1e5
            }
        })
    };
    let matrix = |good: f64, worse: f64| -> Vec<Vec<Option<f64>>> {
        let row = |from| (0..names.len()).map(|to| value(from, to, good, worse)).collect();
        (0..names.len()).map(row).collect()
    };
    let node = |(i, name): (usize, &String)| NodeFigures {
        node: name.clone(),
        zone: if i < names.len() / 2 { "zone-a" } else { "zone-b" }.into(),
        loss: Some(if i == bad { 0.19 } else { 0.002 }),
        p99: Some(if i == bad { 0.13 } else { 0.004 }),
        bad: i == bad,
    };
    let path = |to: usize| PathFigures {
        from: names[bad].clone(),
        to: names[to].clone(),
        loss: Some(0.2),
        p99: Some(0.14),
        bad: true,
        blame: Blame::From,
        ..PathFigures::default()
    };
    Measurement {
        scraped: 5,
        lossy: 0.05,
        slow: 0.1,
        silent_agents: 1,
        silent: vec![Silent { namespace: "shop".into(), pod: "web-7".into(), peers: 20 }],
        measured_nodes: names.len(),
        nodes: names.iter().enumerate().map(node).collect(),
        loss: matrix(0.001, 0.18),
        p99: matrix(0.0008, 0.12),
        worst: (0..names.len()).filter(|to| *to != bad).take(20).map(path).collect(),
        traces: vec![],
        targets: vec![],
    }
}

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|i| format!("node-{i:02}")).collect()
}

fn mesh() -> ProberView {
    prober("monitoring", "mesh", Some(figures(&names(3), 1)))
}

async fn ask(path: &str) -> Result<(StatusCode, String, String)> {
    let source = Arc::new(Known(vec![mesh(), prober("shop", "web", None)]));
    let request = Request::builder().uri(path).body(Body::empty())?;
    let answer = status_page::probers_router(source).oneshot(request).await?;
    let (parts, body) = answer.into_parts();
    let policy = parts.headers.get("content-security-policy").context("no policy")?;
    let policy = policy.to_str()?.to_owned();
    Ok((parts.status, policy, String::from_utf8(body.collect().await?.to_bytes().to_vec())?))
}

pub async fn probers_are_served_under_the_same_policy_and_name_no_other_host() -> Result<()> {
    for path in ["/networkprobers", "/networkprobers.js", "/networkprobers.css", PROBERS_PATH] {
        let (status, policy, body) = ask(path).await?;
        ensure!(status == StatusCode::OK && !body.is_empty(), "{path}: {status}");
        ensure!(policy.contains("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        let body = body.replace("http://www.w3.org/2000/svg", "");
        for sign in ["http://", "https://", "src=\"//", "url(", "@import", "innerHTML"] {
            ensure!(!body.contains(sign), "{path} contains {sign}");
        }
    }
    Ok(())
}

pub async fn figures_are_given_for_one_prober_at_a_time() -> Result<()> {
    let (_, _, body) = ask(PROBERS_PATH).await?;
    let all: Overview = serde_json::from_str(&body)?;
    ensure!(all.probers.len() == 2 && all.probers.iter().all(|one| one.measured.is_none()));
    let (_, _, body) = ask(&format!("{PROBERS_PATH}?namespace=monitoring&name=mesh")).await?;
    let one: Overview = serde_json::from_str(&body)?;
    ensure!(one.probers == [mesh()], "{body}");
    let (status, _, body) = ask(&format!("{PROBERS_PATH}?limit=1")).await?;
    ensure!(status == StatusCode::BAD_REQUEST, "{status}");
    ensure!(body == "limit: unknown parameter; known are namespace, name\n", "{body}");
    Ok(())
}

async fn see(browser: PathBuf, all: Vec<ProberView>, width: u32, page: &str) -> Result<Value> {
    let stage = Stage::set_with(&browser, vec![], None, Known(all)).await?;
    let seen = stage.measure(width, page, &[]).await?;
    ensure!(seen["trouble"] == "", "{}", seen["trouble"]);
    Ok(seen)
}

pub async fn three_nodes_are_a_matrix_with_numbers(browser: PathBuf) -> Result<()> {
    let seen = see(browser, vec![mesh()], 1280, "networkprobers").await?;
    let section = &seen["watches"][0];
    ensure!(section["name"] == "monitoring/mesh", "{section}");
    let verdict = "5 of 6 selected pods have an agent; most paths of node-02 are bad.";
    ensure!(section["verdict"] == verdict, "{}", section["verdict"]);
    let maps = seen["maps"].as_array().context("maps")?;
    ensure!(maps.len() == 2 && maps[0]["cells"] == 9 && maps[0]["numbers"] == 6, "{maps:?}");
    let label = maps[0]["label"].as_str().context("label")?;
    ensure!(label.starts_with("Loss between 3 nodes; the worst is 23 % from node-0"), "{label}");
    let titles = maps[1]["titles"].as_array().context("titles")?;
    ensure!(titles.iter().any(|t| t == "node-01 → node-01: not measured"), "{titles:?}");
    ensure!(titles.iter().any(|t| t == "node-01 → node-03: 800 µs p99"), "{titles:?}");
    let rows = section["rows"].as_array().context("rows")?;
    let expected = serde_json::json!(["node-02", "node-01", "▲ 20 %", "▲ 140 ms", "node-02"]);
    ensure!(rows.contains(&expected), "{rows:?}");
    let why = rows.iter().find(|row| row[0] == "HostNetwork").context("no reason")?;
    ensure!(why[3] == "leave it as it is, or measure nodes with mode: DaemonSet", "{why}");
    let silent = "! Silent agents: 1 have probed no peer for five minutes: shop/web-7";
    ensure!(section["problems"][0] == silent, "{}", section["problems"]);
    Ok(())
}

pub async fn sixty_nodes_fit_and_are_read_by_their_titles(browser: PathBuf) -> Result<()> {
    let many = prober("monitoring", "mesh", Some(figures(&names(64), 40)));
    for width in [390, 1280] {
        let seen = see(browser.clone(), vec![many.clone()], width, "networkprobers").await?;
        let map = &seen["maps"][0];
        ensure!(map["cells"] == 64 * 64 && map["numbers"] == 0, "{map}");
        // The picture scrolls in its frame; the page does not.
        ensure!(seen["scrollWidth"] == seen["width"], "{} {}", seen["scrollWidth"], seen["width"]);
    }
    Ok(())
}

pub async fn names_of_probers_and_nodes_are_never_markup(browser: PathBuf) -> Result<()> {
    let bad = vec![SCRIPT.to_owned(), format!("b{SCRIPT}"), "c".into()];
    let mut hostile = prober("monitoring", "mesh", Some(figures(&bad, 1)));
    SCRIPT.clone_into(&mut hostile.name);
    hostile.failing = Some((1, SCRIPT.into()));
    hostile.not_injected = vec![Uncovered::of(SCRIPT, 1)];
    let mut broken = prober("shop", "web", None);
    broken.problem = Some(SCRIPT.into());
    broken.measured =
        Some(Measured { endpoint: SCRIPT.into(), problem: Some(SCRIPT.into()), figures: None });
    let chosen: String =
        form_urlencoded::byte_serialize(format!("monitoring/{SCRIPT}").as_bytes()).collect();
    for page in [format!("networkprobers?prober={chosen}"), "networkprobers?prober=shop/web".into()]
    {
        let seen = see(browser.clone(), vec![hostile.clone(), broken.clone()], 1280, &page).await?;
        ensure!(seen["scripts"] == 2 && seen["images"] == 0, "{page}: {seen}");
        ensure!(seen["title"].as_str().is_some_and(|t| t != "injected"), "{}", seen["title"]);
        ensure!(seen["watches"][0]["problems"].to_string().contains("onerror"), "{seen}");
    }
    Ok(())
}

pub async fn what_is_missing_is_shown_in_words(browser: PathBuf) -> Result<()> {
    let unscraped = prober("monitoring", "mesh", Some(Measurement::default()));
    let seen = see(browser.clone(), vec![unscraped], 1280, "networkprobers").await?;
    let problem = seen["watches"][0]["problems"][0].as_str().context("a problem")?;
    ensure!(problem.contains("scrapes none of the agents"), "{problem}");
    let seen = see(browser.clone(), vec![], 1280, "networkprobers").await?;
    ensure!(seen["notice"].as_str().is_some_and(|n| n.starts_with("No NetworkProber")), "{seen}");
    let both = vec![mesh(), prober("shop", "web", None)];
    let seen = see(browser, both, 1280, "networkprobers?prober=shop/other").await?;
    ensure!(seen["notice"] == "There is no NetworkProber shop/other", "{}", seen["notice"]);
    ensure!(seen["index"][0] == "monitoring/mesh 5 of 6 pods", "{}", seen["index"]);
    Ok(())
}

/// Renders the pictures of the documentation.
pub async fn pictures(stage: &Stage, directory: &std::path::Path) -> Result<()> {
    let file = directory.join("networkprobers.png");
    stage.picture("networkprobers?prober=monitoring/mesh", (1280, 1000), &file).await?;
    Ok(())
}

/// A cluster of twelve nodes, one of which loses packets.
pub fn made_up() -> Known {
    Known(vec![
        prober("monitoring", "mesh", Some(figures(&names(12), 7))),
        prober("shop", "web", None),
    ])
}
