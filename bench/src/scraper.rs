//! A Prometheus that scrapes the operator while it is measured, as the deployed one does.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use http::header;
use tokio::{task::JoinHandle, time::MissedTickBehavior};

/// The interval of `monitoring/servicemonitor.yaml`.
const INTERVAL: Duration = Duration::from_secs(15);

/// Scrapes until `end` is called.
pub struct Scraper {
    largest: Arc<AtomicUsize>,
    task: JoinHandle<()>,
    url: String,
}

impl Scraper {
    pub fn start(url: String) -> Self {
        let (largest, asked) = (Arc::<AtomicUsize>::default(), url.clone());
        let reported = Arc::clone(&largest);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                // The operator may not listen yet; `end` tries once more.
                if let Ok(bytes) = scrape(&asked).await {
                    reported.fetch_max(bytes, Ordering::Relaxed);
                }
            }
        });
        Self { largest, task, url }
    }

    /// Ends scraping, and returns the size of the largest page, in MB.
    pub async fn end(self) -> anyhow::Result<f64> {
        self.task.abort();
        let last = scrape(&self.url).await?;
        let largest = last.max(self.largest.load(Ordering::Relaxed));
        Ok(f64::from(u32::try_from(largest)?) / 1e6)
    }
}

async fn scrape(url: &str) -> anyhow::Result<usize> {
    page(url).await.map(|page| page.len())
}

/// Returns the page, which must be whole.
pub async fn page(url: &str) -> anyhow::Result<String> {
    let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().build()?;
    let response = http.get(url).send().await?.error_for_status()?;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let open = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/openmetrics"));
    let page = response.text().await?;
    // The text format, which a peer may have, does not mark its end.
    ensure!(page.ends_with(if open { "# EOF\n" } else { "\n" }), "the page has no end");
    Ok(page)
}
