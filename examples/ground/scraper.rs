//! A Prometheus that scrapes the operator while it is measured, as the deployed one does.
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
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
        let told = Arc::clone(&largest);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                // It may not listen yet; the end tries once more.
                if let Ok(bytes) = scrape(&asked).await {
                    told.fetch_max(bytes, Ordering::Relaxed);
                }
            }
        });
        Self { largest, task, url }
    }

    /// The largest page, in MB.
    pub async fn end(self) -> anyhow::Result<f64> {
        self.task.abort();
        let last = scrape(&self.url).await?;
        let largest = last.max(self.largest.load(Ordering::Relaxed));
        Ok(f64::from(u32::try_from(largest)?) / 1e6)
    }
}

async fn scrape(url: &str) -> anyhow::Result<usize> {
    let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().build()?;
    let page = http.get(url).send().await?.error_for_status()?.text().await?;
    ensure!(page.ends_with("# EOF\n"), "the page has no end");
    Ok(page.len())
}

/// A port without a listener, which no connection takes meanwhile.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(([127, 0, 0, 1], lab::free_port()?).into())
}
