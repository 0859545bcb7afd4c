//! Measures a `NetworkProber`: series, pinglists, memory, processor time and writes, at 250 to
//! 2,000 pods.
//!
//! A real API server; pods come through the webhook, and the bench sets their status
//! in place of a kubelet. Every agent is a connection over TLS that waits for its list, with the
//! token of its own pod.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use lab::ControlPlane;
use serde_json::json;
use traffic_operator::api::NetworkProber;

use crate::{
    agents::Agents,
    ground::{Figure, free_address, print, start, wait},
    member::Member,
    serving::{self, NAME, NAMESPACE, Serving, pod},
};

/// Number of nodes, in three zones: each has 40 of 2,000 pods.
const NODES: usize = 50;

/// Number of zones, as in regions of cloud providers.
const ZONES: usize = 3;

/// Number of agents that probe each pod by default: eight of its zone and two of each other one.
const PROBERS: usize = 8 + 2 * (ZONES - 1);

/// Number of single changes of which a figure is the mean or the worst.
const CHANGES: u32 = 8;

/// Time without a change before and after a measurement: by then, changes are collected, and the
/// controller's pass and the minute's other work are over.
const CALM: Duration = Duration::from_secs(3);

/// Time for which processor time is measured without changes: half of the time after which each
/// agent comes back, because the kernel counts in steps of 10 ms.
const IDLE: Duration = Duration::from_secs(25);

pub async fn run(binary: &Path) -> anyhow::Result<()> {
    let (plane, client) = start().await?;
    let mut bench = Bench {
        client: client.clone(),
        plane,
        binary: binary.into(),
        webhook: free_address()?,
        members: Vec::new(),
    };
    let first = bench.operator("first").await?;
    serving::install(&client).await?;
    bench.nodes().await?;
    drop(first);
    let mut first = true;
    for count in rows() {
        print(&bench.measure(count).await?, &mut first);
    }
    bench.plane.stop().await
}

/// Returns the pods of each row; `PROBER_BENCH_ROWS=500,4000` replaces them. Each row adds to the
/// previous one.
fn rows() -> Vec<usize> {
    let asked = std::env::var("PROBER_BENCH_ROWS").unwrap_or_default();
    let asked: Vec<_> = asked.split(',').filter_map(|row| row.parse().ok()).collect();
    if asked.is_empty() { vec![250, 500, 1000, 2000] } else { asked }
}

struct Bench {
    client: Client,
    plane: ControlPlane,
    binary: PathBuf,
    webhook: SocketAddr,
    members: Vec<Member>,
}

impl Bench {
    async fn operator(&self, lease: &str) -> anyhow::Result<Serving> {
        let binary: &Path = &self.binary;
        Serving::start((binary, &self.plane), lease, self.webhook).await
    }

    async fn nodes(&self) -> anyhow::Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        for i in 0..NODES {
            let labels = json!({"topology.kubernetes.io/zone": format!("zone-{}", i % ZONES)});
            let node = json!({"metadata": {"name": node(i), "labels": labels}});
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        }
        Ok(())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates a pod, through the webhook.
    async fn create(&self, i: usize) -> anyhow::Result<Member> {
        let pod = serde_json::from_value(pod(&name(i), Some(&node(i))))?;
        let pod = self.pods().create(&PostParams::default(), &pod).await?;
        anyhow::ensure!(serving::has_agent(&pod), "a pod without agent");
        Member::of(&self.client, &pod).await
    }

    /// Sets the status that the kubelet sets on a running pod.
    async fn starts(&self, i: usize) -> anyhow::Result<()> {
        let ip = format!("10.1.{}.{}", i / 250, i % 250 + 1);
        let status = json!({"status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [{
                "name": "net-prober", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }],
        }});
        let params = PatchParams::default();
        self.pods().patch_status(&name(i), &params, &Patch::Merge(status)).await?;
        Ok(())
    }

    async fn series(&self, pods: usize) -> anyhow::Result<i64> {
        let probers = Api::<NetworkProber>::namespaced(self.client.clone(), NAMESPACE);
        let injected = i64::try_from(pods)?;
        wait("the status", async || {
            let status = probers.get(NAME).await.ok()?.status?;
            // Pods have probers only once all pods are known.
            (status.injected == injected && status.estimated_series > 0)
                .then_some(status.estimated_series)
        })
        .await
    }

    async fn measure(&mut self, count: usize) -> anyhow::Result<[Figure<String>; 19]> {
        let builder = self.operator(&format!("build-{count}")).await?;
        let (this, from) = (&*self, self.members.len());
        let new: Vec<_> = futures::stream::iter(from..count)
            .map(|i| async move {
                let member = this.create(i).await?;
                this.starts(i).await?;
                anyhow::Ok(member)
            })
            .buffered(16)
            .try_collect()
            .await?;
        self.members.extend(new);
        drop(builder);
        // A new process, so that its memory does not include the memory used to build the row.
        let serving = self.operator(&format!("row-{count}")).await?;
        let operator = &serving.operator;
        self.series(count).await?;
        tokio::time::sleep(CALM).await;
        let (series, (alone, _)) = (self.series(count).await?, operator.memory()?);
        let mut agents = Agents::new(&self.client, serving.pinglists).await?;
        let start = Instant::now();
        self.members.iter().cloned().for_each(|member| agents.add(member));
        wait("all lists", async || (agents.reported() >= count).then_some(())).await?;
        let all = start.elapsed();
        tokio::time::sleep(CALM).await;
        let held = serving.metric("traffic_operator_networkprober_pinglist_agents").await?;
        anyhow::ensure!(held > 0.9 * f64::from(u32::try_from(count)?), "only {held} agents wait");
        let ((waiting, _), (edges, bytes)) = (operator.memory()?, agents.sums());
        let cpu = operator.cpu()?;
        tokio::time::sleep(IDLE).await;
        let idle = (operator.cpu()? - cpu) / IDLE.as_secs_f64();
        let (cpu, since, start) = (operator.cpu()?, Timestamp::now(), Instant::now());
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..CHANGES {
            let (probers, own) = self.change(&mut agents).await?;
            times.0.push(probers);
            times.1.push(own);
        }
        let spent = operator.cpu()? - cpu - idle * start.elapsed().as_secs_f64();
        let writes = self.writes(since)?;
        let each = spent / f64::from(CHANGES);
        let (pods, kib) = (f64::from(u32::try_from(count)?), 1024.0);
        Ok([
            ("pods", count.to_string()),
            ("full-mesh pairs", (count * (count - 1)).to_string()),
            ("edges", edges.to_string()),
            ("edges/pod", format!("{:.1}", f64::from(u32::try_from(edges)?) / pods)),
            ("series", series.to_string()),
            ("series/pod", format!("{}", series / i64::try_from(count)?)),
            ("pinglists kB", (bytes / 1000).to_string()),
            ("B/pod", (bytes / count).to_string()),
            ("all lists s", format!("{:.1}", all.as_secs_f64())),
            // A handshake takes at most 5 s, and here thousands begin at once, in one process; an
            // agent that is cut off reconnects.
            ("requests failed", agents.failures().to_string()),
            ("RSS MiB", format!("{alone:.1}")),
            ("RSS MiB, agents waiting", format!("{waiting:.1}")),
            ("kB/agent", format!("{:.1}", (waiting - alone) * kib / pods)),
            ("idle CPU ms/s", format!("{idle:.1}")),
            ("CPU ms/change", format!("{each:.1}")),
            ("CPU us/change/pod", format!("{:.1}", each * 1000.0 / pods)),
            ("probers told ms (median, max)", spread(times.0)),
            ("own list ms (median, max)", spread(times.1)),
            ("writes/change", writes),
        ])
    }

    /// Adds one pod. Returns the time from its readiness until all of its probers know it, and
    /// until it knows its own peers.
    async fn change(&mut self, agents: &mut Agents) -> anyhow::Result<(Duration, Duration)> {
        let i = self.members.len();
        let (member, name) = (self.create(i).await?, name(i));
        self.members.push(member.clone());
        // Its agent runs before the pod is ready, and waits.
        agents.add(member);
        wait("an empty list", async || agents.has_list(&name).then_some(())).await?;
        tokio::time::sleep(CALM).await;
        let ready = Instant::now();
        self.starts(i).await?;
        let probers = async || agents.named(&name, PROBERS);
        let probers = wait("the probers", probers).await?.duration_since(ready);
        let own = async || agents.probes(&name);
        let own = wait("the new list", own).await?.duration_since(ready);
        tokio::time::sleep(CALM).await;
        Ok((probers, own))
    }

    /// Returns the operator's writes for each change, by resource, without leases.
    fn writes(&self, since: Timestamp) -> anyhow::Result<String> {
        let mut counts = BTreeMap::new();
        for event in self.plane.audit_since(since)? {
            let ours = event.is_write() && event.user_agent.starts_with("traffic-operator");
            if ours && !event.resource.starts_with("leases") {
                *counts.entry((event.resource, event.subresource)).or_insert(0_u32) += 1;
            }
        }
        let each = counts.into_iter().map(|((resource, sub), count)| {
            let resource = resource.split('.').next().unwrap_or_default().to_owned();
            let slash = if sub.is_empty() { "" } else { "/" };
            format!("{resource}{slash}{sub} {:.1}", f64::from(count) / f64::from(CHANGES))
        });
        Ok(each.collect::<Vec<_>>().join(", "))
    }
}

fn name(i: usize) -> String {
    format!("app-7c9f8d6b5-{i:05}")
}

fn node(i: usize) -> String {
    format!("ip-10-0-0-{}.eu-central-1.compute.internal", i % NODES)
}

/// Returns the median and the maximum, in milliseconds.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
    format!("{}, {}", ms(times.get(times.len() / 2)), ms(times.last()))
}
