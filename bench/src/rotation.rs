//! Verifies that a rotation of the webhook's certificates never costs a pod its agent.
//!
//! `make bench-rotation`. Authority and certificate change every minute at least, while pods are
//! created through a real API server that calls the operator's webhook. At the same time the bench
//! opens new connections with the trust that an agent has at that moment: the API server keeps its
//! connections, and does not notice.
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;
use tokio::task::JoinSet;
use traffic_operator::{manifests, webhook::certificates};

use crate::{
    ground::{free_address, start},
    serving::{self, NAME, NAMESPACE, Serving, has_agent, pod, sum},
};

/// Lifetime of an authority, which is replaced after two thirds of it: every minute.
const AUTHORITY: &str = "90s";

/// Lifetime of a certificate, at most two thirds of the authority's: replaced every 40 s, and with
/// its authority.
const CERTIFICATE: &str = "60s";

/// Time between two pods: 20 in a second.
const EVERY: Duration = Duration::from_millis(50);

/// Time between two handshakes: several within the shortest step of a rotation, which is 10 s.
const HANDSHAKE: Duration = Duration::from_millis(250);

/// Duration in minutes, unless `ROTATION_MINUTES` sets another.
const MINUTES: u64 = 10;

pub async fn run(binary: &Path) -> anyhow::Result<()> {
    let minutes = std::env::var("ROTATION_MINUTES").ok().map(|text| text.parse()).transpose()?;
    let time = Duration::from_mins(minutes.unwrap_or(MINUTES));
    let (plane, client) = start().await?;
    let lives = ["--authority-lifetime", AUTHORITY, "--certificate-lifetime", CERTIFICATE];
    let webhook = free_address()?;
    let serving = Serving::start((binary, &plane), "rotation", webhook, &lives).await?;
    serving::install(&client).await?;
    let before = Page::read(&client).await?;
    let ((memory, _), cpu) = (serving.operator.memory()?, serving.operator.cpu()?);
    println!(
        "{} pods/s for {} min, authority {AUTHORITY}, certificate {CERTIFICATE}",
        Duration::from_secs(1).as_millis() / EVERY.as_millis(),
        time.as_secs() / 60
    );
    let end = Instant::now() + time;
    let handshakes = tokio::spawn(handshakes(client.clone(), serving.pinglists, end));
    let rotations = tokio::spawn(rotations(client.clone(), end));
    let pods = pods(&client, end).await?;
    let (handshakes, rotations) = (handshakes.await??, rotations.await??);
    let page = Page::read(&client).await?;
    println!("what | figure\n--- | ---");
    let at = |share: usize| pods.times.get(pods.times.len() * share / 1000);
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let missed = page.failed_open - before.failed_open;
    println!("authorities seen | {}", rotations.authorities);
    println!("certificates seen | {}", rotations.leaves);
    println!("bundles that handshakes trusted | {}", handshakes.bundles);
    println!("pods created (dry run) | {}", pods.times.len());
    println!("… without agent | {}", pods.without);
    println!("… refused | {}", pods.refused);
    println!("apiserver_admission_webhook_fail_open_count | {missed}");
    println!("apiserver_admission_webhook_request_total code=200 | {}", page.good - before.good);
    println!("… any other code | {}", page.bad - before.bad);
    println!(
        "creation p50 / p99 / max ms | {:.1} / {:.1} / {:.1}",
        ms(at(500)),
        ms(at(990)),
        ms(pods.times.last())
    );
    println!("handshakes | {}", handshakes.good + handshakes.failed);
    println!("… failed | {}", handshakes.failed);
    let (now, peak) = serving.operator.memory()?;
    println!("operator MiB before / after / peak | {memory:.1} / {now:.1} / {peak:.1}");
    let share = (serving.operator.cpu()? - cpu) / 10.0 / time.as_secs_f64();
    println!("operator % of a core | {share:.1}");
    let requests = "traffic_operator_injector_requests_total";
    let injected = serving.metric(requests, "\"injected\"").await?;
    let again = serving.metric(requests, "AlreadyInjected").await?;
    println!("injections that the operator counts | {injected}");
    println!("… pods it was asked about once more | {again}");
    let failures = pods.without + pods.refused + handshakes.failed;
    // Counters: whole numbers.
    let of_server = missed + page.bad - before.bad;
    ensure!(failures == 0 && of_server < 0.5, "FAIL: see above");
    let least = usize::try_from(time.as_secs() / 60)?;
    ensure!(rotations.authorities >= least, "FAIL: too few rotations to say anything");
    // A count that always stays zero would prove nothing.
    drop(serving);
    let pod = serde_json::from_value(pod("last", None))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let last = Api::<Pod>::namespaced(client.clone(), NAMESPACE).create(&dry, &pod).await?;
    let counted = Page::read(&client).await?.failed_open - page.failed_open;
    ensure!(!has_agent(&last) && counted > 0.5, "FAIL: the API server does not count failures");
    println!("PASS");
    plane.stop().await
}

/// The API server's counts of requests to our webhook.
struct Page {
    failed_open: f64,
    good: f64,
    bad: f64,
}

impl Page {
    async fn read(client: &Client) -> anyhow::Result<Self> {
        let page = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
        let of = |name: &str, label: &str| {
            sum(&page, &format!("apiserver_admission_webhook_{name}"), label)
        };
        let good = of("request_total", "code=\"200\"");
        Ok(Self {
            failed_open: of("fail_open_count", NAME),
            good,
            bad: of("request_total", NAME) - good,
        })
    }
}

#[derive(Default)]
struct Pods {
    without: usize,
    refused: usize,
    /// The times, sorted.
    times: Vec<Duration>,
}

/// Creates pods by the clock, and checks the results.
async fn pods(client: &Client, end: Instant) -> anyhow::Result<Pods> {
    let api = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let body: Arc<Pod> = Arc::new(serde_json::from_value(pod("loaded", None))?);
    let (mut tasks, mut pods) = (JoinSet::new(), Pods::default());
    let mut clock = tokio::time::interval(EVERY);
    let begin = Instant::now();
    while Instant::now() < end {
        clock.tick().await;
        let (api, body) = (api.clone(), Arc::clone(&body));
        tasks.spawn(async move {
            let (start, dry) = (Instant::now(), PostParams { dry_run: true, ..Default::default() });
            (api.create(&dry, &body).await, start.elapsed())
        });
        while let Some(done) = tasks.try_join_next() {
            pods.take(done?, begin);
        }
    }
    while let Some(done) = tasks.join_next().await {
        pods.take(done?, begin);
    }
    pods.times.sort_unstable();
    Ok(pods)
}

impl Pods {
    fn take(&mut self, (answer, took): (kube::Result<Pod>, Duration), begin: Instant) {
        self.times.push(took);
        let at = begin.elapsed().as_secs_f64();
        match answer {
            Ok(pod) if has_agent(&pod) => {}
            Ok(_) => {
                eprintln!("{at:.1} s: a pod without agent, after {took:?}");
                self.without += 1;
            }
            Err(error) => {
                eprintln!("{at:.1} s: {error}");
                self.refused += 1;
            }
        }
    }
}

#[derive(Default)]
struct Handshakes {
    good: usize,
    failed: usize,
    bundles: usize,
}

/// Opens new connections, each with the `ca.crt` that agents get at that moment.
async fn handshakes(
    client: Client,
    pinglists: SocketAddr,
    end: Instant,
) -> anyhow::Result<Handshakes> {
    let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let (mut seen, mut all) = (BTreeSet::new(), Handshakes::default());
    let mut clock = tokio::time::interval(HANDSHAKE);
    let begin = Instant::now();
    while Instant::now() < end {
        clock.tick().await;
        let data = maps.get(NAME).await?.data.context("a ConfigMap without data")?;
        let ca = data.get("ca.crt").context("a ConfigMap without ca.crt")?;
        seen.insert(ca.clone());
        let roots = reqwest::Certificate::from_pem_bundle(ca.as_bytes())?;
        let http = reqwest::Client::builder().tls_certs_only(roots).build()?;
        // Without a token the answer is no list; the handshake is what counts.
        match http.get(format!("https://{pinglists}/pinglist")).send().await {
            Ok(_) => all.good += 1,
            Err(error) => {
                eprintln!("{:.1} s: handshake: {error:?}", begin.elapsed().as_secs_f64());
                all.failed += 1;
            }
        }
    }
    all.bundles = seen.len();
    Ok(all)
}

struct Rotations {
    authorities: usize,
    leaves: usize,
}

/// Counts the authorities and certificates that the Secret held over time.
async fn rotations(client: Client, end: Instant) -> anyhow::Result<Rotations> {
    let secrets = Api::<Secret>::namespaced(client, manifests::NAMESPACE);
    let (mut authorities, mut leaves) = (BTreeSet::new(), BTreeSet::new());
    let mut clock = tokio::time::interval(Duration::from_secs(1));
    while Instant::now() < end {
        clock.tick().await;
        let data = secrets.get(certificates::NAME).await?.data.context("a Secret without data")?;
        let times: Value = serde_json::from_slice(&data.get("times.json").context("no times")?.0)?;
        leaves.insert(times["leaf"]["issued"].to_string());
        let names = times["authorities"].as_array().into_iter().flatten();
        authorities.extend(names.map(|authority| authority["name"].to_string()));
    }
    Ok(Rotations { authorities: authorities.len(), leaves: leaves.len() })
}
