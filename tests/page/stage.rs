//! The page on loopback, and a browser that opens it.
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::{Next, from_fn_with_state},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use serde_json::Value;
use traffic_operator::{
    runtime::status_page::{self, STATE_PATH, StateSource},
    traffic_watch::overview::{Filter, Overview},
};

use crate::{fixtures::filtered, probers::Known};

/// Longer than Chromium takes on a busy machine with two cores.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers the n-th request with the n-th view, and later ones with the last.
pub struct Script {
    views: Vec<Overview>,
    asked: AtomicUsize,
}

impl Script {
    pub fn new(views: Vec<Overview>) -> Arc<Self> {
        Arc::new(Self { views, asked: AtomicUsize::new(0) })
    }
}

impl StateSource for Script {
    fn view(&self, filter: &Filter) -> Overview {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        filtered(self.views[asked.min(self.views.len() - 1)].clone(), filter)
    }
}

/// The page of one test; ends when dropped.
pub struct Stage {
    source: Arc<Script>,
    url: String,
    browser: PathBuf,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Stage {
    /// Serves the views one after the other; after `answers` requests, if set, the API fails.
    pub async fn set(browser: &Path, views: Vec<Overview>, answers: Option<usize>) -> Result<Self> {
        Self::set_with(browser, views, answers, Known(vec![])).await
    }

    /// The same, with objects of kind `NetworkProber`.
    pub async fn set_with(
        browser: &Path,
        views: Vec<Overview>,
        answers: Option<usize>,
        probers: Known,
    ) -> Result<Self> {
        let left = Arc::new(AtomicUsize::new(answers.unwrap_or(usize::MAX)));
        let source = Script::new(views);
        let app = status_page::router(source.clone())
            .merge(status_page::probers_router(Arc::new(probers)))
            .layer(from_fn_with_state(left, fail_later))
            .route("/measure", get(async || Html(include_str!("measure.html"))));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                eprintln!("the test's server: {error}");
            }
        });
        Ok(Self { source, url, browser: browser.into(), server })
    }

    /// Loads the page in a frame of this width, and returns the result of `measure.html`.
    pub async fn measure(&self, width: u32, page: &str, flags: &[&str]) -> Result<Value> {
        self.measure_after(1500, "", width, page, flags).await
    }

    /// Returns the number of requests for the state.
    pub fn asked(&self) -> usize {
        self.source.asked.load(Ordering::Relaxed)
    }

    /// Measures after some milliseconds of the page's time, and after a user's action (`hide`,
    /// `press=SELECTOR`, `type=TEXT`).
    pub async fn measure_after(
        &self,
        after: u32,
        act: &str,
        width: u32,
        page: &str,
        flags: &[&str],
    ) -> Result<Value> {
        let page: String = form_urlencoded::byte_serialize(page.as_bytes()).collect();
        let url = format!("{}/measure?width={width}&after={after}&page={page}&{act}", self.url);
        let budget = format!("--virtual-time-budget={}", after + 4000);
        let mut all = vec!["--dump-dom", &budget, "--hide-scrollbars", "--window-size=1400,900"];
        all.extend(flags);
        let dom = self.browse(&all, &url).await?;
        let text = dom
            .split_once("<pre id=\"result\">")
            .and_then(|(_, rest)| rest.split_once("</pre>"))
            .map(|(text, _)| text)
            .with_context(|| format!("nothing was measured: {dom}"))?;
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}");
        serde_json::from_str(&text.replace("&amp;", "&")).with_context(|| text.clone())
    }

    pub async fn picture(&self, page: &str, size: (u32, u32), file: &Path) -> Result<Vec<u8>> {
        let flags = [
            format!("--screenshot={}", file.display()),
            format!("--window-size={},{}", size.0, size.1),
            "--virtual-time-budget=1500".to_owned(),
            "--hide-scrollbars".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.browse(&flags, &format!("{}/{page}", self.url)).await?;
        let picture = std::fs::read(file).with_context(|| file.display().to_string())?;
        let number = |at: usize| {
            let bytes = picture.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes)
        };
        // The first chunk of every PNG begins with its width and height.
        ensure!((number(16), number(20)) == (Some(size.0), Some(size.1)), "{}", file.display());
        Ok(picture)
    }

    async fn browse(&self, flags: &[&str], url: &str) -> Result<String> {
        static PROFILES: AtomicUsize = AtomicUsize::new(0);
        let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "page/{}-{}",
            std::process::id(),
            PROFILES.fetch_add(1, Ordering::Relaxed)
        ));
        std::fs::create_dir_all(&profile)?;
        let output = tokio::process::Command::new(&self.browser)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--lang=en-US"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(flags)
            .arg(url)
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, output).await;
        let removed = std::fs::remove_dir_all(&profile);
        let output = output.with_context(|| format!("{url}: the browser does not end"))??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{url}: {}: {said}", output.status);
        // Complaints of the page itself: a refused script or style, an exception.
        let complaint = said.lines().find(|line| {
            line.contains("CONSOLE") && !line.contains("the server responded with a status of 503")
        });
        ensure!(complaint.is_none(), "{url}: {complaint:?}");
        removed.with_context(|| profile.display().to_string())?;
        String::from_utf8(output.stdout).context("the document is not UTF-8")
    }
}

async fn fail_later(
    State(left): State<Arc<AtomicUsize>>,
    request: Request,
    next: Next,
) -> Response {
    let counts = request.uri().path() == STATE_PATH;
    let take = |left: usize| left.checked_sub(1);
    if counts && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "lost its way\n").into_response();
    }
    next.run(request).await
}
