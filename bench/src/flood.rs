//! Measures the effect on pods and agents while clients flood the operator's ports.
//!
//! A real API server creates 20 pods a second, and a known agent asks for its list at
//! the same time; meanwhile, hostile clients with their own addresses do all they can, on the same
//! processors. The first row creates pods that no object selects: the cost of the API server and of
//! this machine without the webhook.
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use lab::flood::Flood;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    ground::{free_address, header, start, wait},
    member::{Member, authority},
    serving::{self, NAMESPACE, Serving},
};

/// Pods of each row: the 99th percentile rests on three of them.
const PODS: u32 = 300;

/// Time between two creations: 20 a second.
const PACE: Duration = Duration::from_millis(50);

/// Duration of an attack before the first pod: by then the attack holds all that it can get.
const BEGUN: Duration = Duration::from_secs(3);

/// The path that agents request, without waiting.
const LIST: &str = "/pinglist?prober=default/mesh";

const HEADER: [&str; 12] = [
    "meanwhile",
    "attempts",
    "pods with an agent",
    "created ms, p50",
    "p99",
    "max",
    "lists answered",
    "lists ms, max",
    "tokens refused",
    "CPU ms/s",
    "RSS MiB",
    "RSS MiB, at most",
];

#[derive(Clone, Copy)]
enum Attack {
    Trickle,
    Idle,
    Junk,
    Tokens,
}

const ROWS: [(&str, bool, &[Attack]); 7] = [
    ("nothing, pods of nobody", false, &[]),
    ("nothing", true, &[]),
    ("trickling posts", true, &[Attack::Trickle]),
    ("1,800 idle connections", true, &[Attack::Idle]),
    ("HTTP/2 that is junk", true, &[Attack::Junk]),
    ("wrong tokens", true, &[Attack::Tokens]),
    ("all of it", true, &[Attack::Trickle, Attack::Idle, Attack::Junk, Attack::Tokens]),
];

pub async fn run(binary: &Path) -> anyhow::Result<()> {
    let (plane, client) = start().await?;
    let webhook = free_address()?;
    let serving = Serving::start((binary, &plane), "flood", webhook, &[]).await?;
    serving::install(&client).await?;
    let bench = Bench::new(client, webhook, serving).await?;
    header(&HEADER);
    for (row, (name, selected, attacks)) in ROWS.into_iter().enumerate() {
        println!("{name} | {}", bench.measure(row, selected, attacks).await?.join(" | "));
    }
    drop(bench);
    plane.stop().await
}

struct Bench {
    client: Client,
    webhook: SocketAddr,
    serving: Serving,
    authority: String,
    http: reqwest::Client,
    known: Member,
}

impl Bench {
    async fn new(client: Client, webhook: SocketAddr, serving: Serving) -> anyhow::Result<Self> {
        let authority = authority(&client).await?;
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        let known = serde_json::from_value(serving::pod("known", None))?;
        let known = pods.create(&PostParams::default(), &known).await?;
        let known = Member::of(&client, &known).await?;
        let roots = reqwest::Certificate::from_pem_bundle(authority.as_bytes())?;
        let http = reqwest::Client::builder()
            .tls_certs_only(roots)
            .local_address(Some(Ipv4Addr::new(127, 0, 0, 2).into()))
            .timeout(Duration::from_secs(10))
            .build()?;
        let bench = Self { client, webhook, serving, authority, http, known };
        wait("a list", async || bench.list().await.ok()).await?;
        Ok(bench)
    }

    /// Requests the list as the known agent; returns how long it took.
    async fn list(&self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let url = format!("https://{}{LIST}", self.serving.pinglists);
        let answer = self.http.get(url).bearer_auth(&self.known.token).send().await;
        let name = &self.known.name;
        answer?.error_for_status().with_context(|| format!("the list of {name}"))?;
        Ok(begun.elapsed())
    }

    fn attack(&self, attacks: &[Attack], flood: &Flood) -> JoinSet<()> {
        let (webhook, lists) = (self.webhook, self.serving.pinglists);
        let mut tasks = JoinSet::new();
        for attack in attacks {
            for source in 0..6 {
                let flood = || flood.clone();
                match attack {
                    Attack::Trickle => {
                        for _ in 0..4 {
                            let path = "/mutate/default/mesh";
                            tasks.spawn(flood().trickle(10 + source, webhook, path));
                            tasks.spawn(flood().trickle(10 + source, lists, LIST));
                        }
                    }
                    Attack::Idle => {
                        tasks.spawn(flood().idle(20 + source, webhook, 300));
                        tasks.spawn(flood().idle(20 + source, lists, 300));
                    }
                    Attack::Junk => {
                        tasks.spawn(flood().junk(30 + source, webhook));
                        tasks.spawn(flood().junk(30 + source, lists));
                    }
                    Attack::Tokens => {
                        let wrong =
                            vec!["nonsense".into(), "a.e30.b".into(), self.known.token.clone()];
                        tasks.spawn(flood().tokens(40 + source, lists, LIST, wrong));
                    }
                }
            }
        }
        tasks
    }

    async fn measure(
        &self,
        row: usize,
        selected: bool,
        attacks: &[Attack],
    ) -> anyhow::Result<[String; HEADER.len() - 1]> {
        let flood = Flood::new(&self.authority)?;
        let mut tasks = self.attack(attacks, &flood);
        if !attacks.is_empty() {
            tokio::time::sleep(BEGUN).await;
        }
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let (mut created, mut lists) = (Vec::new(), Vec::new());
        let (mut agents, mut asked) = (0, 0);
        let refused = async || {
            let name = "traffic_operator_networkprober_pinglist_requests_total";
            self.serving.metric(name, "code=\"401\"").await
        };
        let (before, cpu, start) = (refused().await?, self.serving.operator.cpu()?, Instant::now());
        let mut clock = tokio::time::interval(PACE);
        for number in 0..PODS {
            clock.tick().await;
            let pod = serde_json::from_value(pod(&format!("row-{row}-{number}"), selected))?;
            let begun = Instant::now();
            let pod = pods.create(&PostParams::default(), &pod).await?;
            created.push(begun.elapsed());
            agents += u32::from(serving::has_agent(&pod));
            if number % 10 == 0 {
                asked += 1;
                lists.extend(self.list().await.ok());
            }
        }
        let spent = (self.serving.operator.cpu()? - cpu) / start.elapsed().as_secs_f64();
        let attempts = flood.attempts();
        flood.stop();
        tasks.shutdown().await;
        let (now, most) = self.serving.operator.memory()?;
        created.sort_unstable();
        let at = |part: usize| created.get((created.len() - 1) * part / 100);
        let ms = |time: Option<&Duration>| {
            time.map_or_else(|| "-".into(), |time| format!("{:.1}", time.as_secs_f64() * 1e3))
        };
        Ok([
            attempts.to_string(),
            format!("{agents} of {}", if selected { PODS } else { 0 }),
            ms(at(50)),
            ms(at(99)),
            ms(created.last()),
            format!("{} of {asked}", lists.len()),
            ms(lists.iter().max()),
            format!("{}", refused().await? - before),
            format!("{spent:.0}"),
            format!("{now:.1}"),
            format!("{most:.1}"),
        ])
    }
}

fn pod(name: &str, selected: bool) -> Value {
    let mut pod = serving::pod(name, None);
    if !selected {
        pod["metadata"]["labels"] = json!({"app": "of-nobody"});
    }
    pod
}
