//! Results of the page and of `explain prober` for agents with a known network: a real Prometheus
//! scrapes them, evaluates the rules of their `NetworkProber` and answers the queries.
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use traffic_operator::{
    agent::{
        metrics::{Metrics, RTT_BOUNDS, Skipped},
        pinglist::Protocol,
        reason::Reason,
        target::{self, Pair},
    },
    api::NetworkProber,
    network_prober::measurement::{
        AgentFigures, Blame, LARGEST_MATRIX, Measurement, PathFigures, Querier, Subject, WORST,
        agent, measure,
    },
    prometheus::{Client, DEFAULT, Endpoints, EndpointsConfig},
};

use crate::{
    monitor::{Target, prober, rules, scrape},
    server::{Prometheus, eventually, serve},
};

/// Probes of one path by one protocol, from one scrape to the next: more than ten, because a pair
/// with fewer has no value.
#[derive(Clone, Copy)]
struct Probes {
    lost: u32,
    of: u32,
    /// The round-trip time of an answer.
    rtt: Duration,
}

const GOOD: Probes = Probes { lost: 0, of: 20, rtt: Duration::from_micros(1500) };
/// Loses a quarter of the probes, and delays the rest.
const BAD: Probes = Probes { lost: 5, of: 20, rtt: Duration::from_millis(300) };

/// An agent that counts and exposes as real agents do.
struct Agent {
    node: String,
    metrics: Metrics,
    series: Vec<(traffic_operator::agent::metrics::Series, Probes)>,
}

impl Agent {
    fn of(node: &str, peers: usize) -> Self {
        let metrics = Metrics::new();
        metrics.set_list(peers, Duration::from_secs(10));
        Self { node: node.into(), metrics, series: vec![] }
    }

    fn path(mut self, (src_zone, to, dst_zone): (&str, &str, &str), probes: [Probes; 2]) -> Self {
        let pair = Pair {
            src_node: self.node.clone(),
            src_zone: src_zone.into(),
            dst_node: to.into(),
            dst_zone: dst_zone.into(),
        };
        for (protocol, probes) in [Protocol::Tcp, Protocol::Udp].into_iter().zip(probes) {
            let series = self.metrics.series(&target::Target {
                protocol,
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
                identity: String::new(),
                pair: pair.clone(),
                original: None,
            });
            self.series.push((series, probes));
        }
        self
    }

    /// Counts the probes since the last scrape, and returns the page.
    fn scraped(&self) -> String {
        for (series, probes) in &self.series {
            (0..probes.lost).for_each(|_| series.failure(Reason::Timeout));
            (probes.lost..probes.of).for_each(|_| series.success(probes.rtt, None));
        }
        self.metrics.skipped(Skipped::Local, 3);
        let mut text = String::new();
        let encode = |registry: &_| prometheus_client::encoding::text::encode(&mut text, registry);
        self.metrics.encode_with(encode).expect("text");
        // This process has just started; an agent has run for longer.
        let started = "netprober_process_start_time_seconds ";
        let lines = text.lines().map(|line| match line.strip_prefix(started) {
            Some(_) => format!("{started}1000\n"),
            None => format!("{line}\n"),
        });
        lines.collect()
    }

    fn serve(self, prober: &str) -> Target {
        let pod = format!("on-{}", self.node);
        let (node, agent) = (self.node.clone(), Arc::new(Mutex::new(self)));
        let address = serve(move || agent.lock().expect("an agent").scraped());
        Target { address, pod, node, injected_by: Some(format!("shop/{prober}")) }
    }
}

/// A Prometheus that scrapes these agents, and the client that queries it.
struct Stage {
    _prometheus: Prometheus,
    querier: Querier,
    runtime: tokio::runtime::Runtime,
}

impl Stage {
    fn of(name: &str, probers: Vec<(NetworkProber, Vec<Agent>)>) -> Self {
        let (mut scrapes, mut recorded) = (vec![], vec![]);
        for (prober, agents) in probers {
            let name = prober.metadata.name.clone().expect("a name");
            let agents: Vec<_> = agents.into_iter().map(|agent| agent.serve(&name)).collect();
            scrapes.push(scrape(&prober, &agents));
            recorded.push(rules(&prober));
        }
        let prometheus = Prometheus::start(name, &scrapes, &recorded);
        // Another test may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://{}", prometheus.address);
        let config = EndpointsConfig::load(None, Some(&url), Duration::from_secs(10));
        let metrics = traffic_operator::metrics::Metrics::new();
        let endpoints = Endpoints::new(&config.expect("an endpoint"), metrics).expect("a client");
        let querier = Querier::Command(Client::clone(endpoints.get(DEFAULT).expect("the default")));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self { _prometheus: prometheus, querier, runtime: runtime.expect("a runtime") }
    }

    /// Returns the figures of a prober, once this many agents are scraped and the matrix has this
    /// many fields. The worst paths come from an earlier query than the matrix, and may lag behind
    /// it; a path may have its percentile before its loss, which another rule records.
    fn figures(&self, prober: &NetworkProber, agents: u64, paths: usize) -> Measurement {
        let subject = Subject::of(prober);
        eventually("figures of all nodes", || {
            let found = self.runtime.block_on(measure(&self.querier, &subject));
            let fields = |matrix: &[Vec<Option<f64>>]| matrix.iter().flatten().flatten().count();
            found.ok().filter(|found| {
                found.scraped == agents
                    && [fields(&found.loss), fields(&found.p99)] == [paths, paths]
                    && found.worst.len() == paths.min(WORST)
                    && found.worst.iter().all(is_complete)
            })
        })
    }

    /// Returns the same for a large cluster, once this many of its nodes and paths are bad and all
    /// have figures. A node may have its figure before its paths: other agents report the probes to
    /// it.
    fn of_many(
        &self,
        prober: &NetworkProber,
        nodes: usize,
        (bad, bad_paths): (usize, usize),
    ) -> Measurement {
        let subject = Subject::of(prober);
        eventually("figures of all nodes", || {
            let found = self.runtime.block_on(measure(&self.querier, &subject)).ok()?;
            let is_bad = found.nodes.iter().filter(|node| node.bad).count();
            let complete = found.worst.len() == WORST
                && found.worst.iter().all(is_complete)
                && found.worst.iter().filter(|path| path.bad).count() == bad_paths;
            let all = usize::try_from(found.scraped) == Ok(nodes) && found.measured_nodes == nodes;
            (all && complete && is_bad == bad).then_some(found)
        })
    }

    fn agent(&self, prober: &NetworkProber, pod: &str) -> AgentFigures {
        let subject = Subject::of(prober);
        let asked = agent(&self.querier, &subject, ("shop", pod));
        self.runtime.block_on(asked).expect("figures of an agent")
    }
}

fn is_complete(path: &PathFigures) -> bool {
    path.loss.is_some() && path.p99.is_some()
}

/// Reports whether a percentile lies in the bucket of this time.
fn in_bucket_of(rtt: Duration, p99: Option<f64>) -> bool {
    let rtt = rtt.as_secs_f64();
    let above = RTT_BOUNDS.iter().position(|bound| rtt <= *bound).expect("a bucket");
    p99.is_some_and(|p99| p99 > RTT_BOUNDS[above - 1] && p99 <= RTT_BOUNDS[above])
}

/// Reports whether a loss is about this share.
fn is(share: f64, loss: Option<f64>) -> bool {
    loss.is_some_and(|loss| (loss - share).abs() < 0.01)
}

/// Nodes `a` and `b` in one zone, `c` in another: most paths of `c` are bad, namely those by UDP.
fn small() -> Vec<Agent> {
    let zone = |node: &str| if node == "c.example" { "z2" } else { "z1" };
    let nodes = ["a-1", "b_1", "c.example"];
    let mut agents: Vec<_> = nodes
        .into_iter()
        .map(|from| {
            let peers = nodes.into_iter().filter(|to| *to != from);
            peers.fold(Agent::of(from, 2), |agent, to| {
                let bad = [from, to].contains(&"c.example");
                agent.path((zone(from), to, zone(to)), [GOOD, if bad { BAD } else { GOOD }])
            })
        })
        .collect();
    // This agent has peers and probes none of them.
    agents.push(Agent::of("idle", 20));
    agents
}

#[test]
fn the_page_of_a_small_cluster_shows_its_matrix_its_bad_node_and_its_silent_agent() {
    let (web, other) = (prober("web"), prober("other"));
    // Its series have the same nodes as those of the first.
    let others = vec![
        Agent::of("a-1", 1).path(("", "b_1", ""), [BAD, BAD]),
        Agent::of("b_1", 1).path(("", "a-1", ""), [BAD, BAD]),
    ];
    let stage = Stage::of("small", vec![(web.clone(), small()), (other.clone(), others)]);
    let found = stage.figures(&web, 4, 6);
    let nodes: Vec<_> = found.nodes.iter().map(|n| (&*n.zone, &*n.node, n.bad)).collect();
    let all = [("z1", "a-1", false), ("z1", "b_1", false), ("z2", "c.example", true)];
    assert_eq!(nodes, all, "{found:#?}");
    assert_eq!((found.lossy, found.slow), (0.05, 0.1));
    for (from, row) in found.nodes.iter().zip(found.loss.iter().zip(&found.p99)) {
        for (to, (loss, p99)) in found.nodes.iter().zip(row.0.iter().zip(row.1)) {
            let path = format!("{} → {}: {loss:?} {p99:?}", from.node, to.node);
            if from.node == to.node {
                assert_eq!((*loss, *p99), (None, None), "{path}");
                continue;
            }
            let (share, rtt) = if from.bad || to.bad { (0.25, BAD.rtt) } else { (0.0, GOOD.rtt) };
            assert!(is(share, *loss) && in_bucket_of(rtt, *p99), "{path}");
        }
    }
    let worst: Vec<_> = found.worst.iter().map(|p| (&*p.from, &*p.to, p.bad, p.blame)).collect();
    let mut bad = worst[..4].to_vec();
    bad.sort_by_key(|(from, to, ..)| (*from, *to));
    let expected = [
        ("a-1", "c.example", true, Blame::To),
        ("b_1", "c.example", true, Blame::To),
        ("c.example", "a-1", true, Blame::From),
        ("c.example", "b_1", true, Blame::From),
    ];
    assert_eq!(bad, expected);
    // Good ones follow: with few paths, even lossless ones are among the slowest.
    assert_eq!(worst.len(), 6, "{worst:?}");
    assert!(is(0.25, found.worst[0].loss) && found.worst[0].from_zone.starts_with('z'));
    assert_eq!(found.silent_agents, 1, "{found:#?}");
    let silent = &found.silent[0];
    assert_eq!((&*silent.namespace, &*silent.pod, silent.peers), ("shop", "on-idle", 20));
    // The other prober has its own two nodes, and nothing of the third.
    let found = stage.figures(&other, 2, 2);
    assert_eq!(found.silent_agents, 0);
    assert!(is(0.25, found.loss[0][1]) && is(0.25, found.loss[1][0]), "{found:#?}");

    let one = stage.agent(&web, "on-c.example");
    assert_eq!(one.peers, Some(2));
    assert!(one.list_age.is_some_and(|age| age < 120.0), "{one:?}");
    let count = |protocol: &str, result: &str, reason: &str| {
        let mut of = one.probes.iter();
        let of = of.find(|p| (&*p.protocol, &*p.result, &*p.reason) == (protocol, result, reason));
        of.map_or(0.0, |probes| probes.count)
    };
    let (lost, answered) = (count("udp", "failure", "timeout"), count("udp", "success", ""));
    assert!(lost > 0.0 && (lost / (lost + answered) - 0.25).abs() < 0.01, "{one:?}");
    assert!(count("tcp", "success", "") > 0.0 && count("tcp", "failure", "timeout") == 0.0);
    assert!(one.skipped.keys().eq(["local"]), "{one:?}");
    // An agent that is not scraped has no figures, and that is not an error.
    assert_eq!(stage.agent(&web, "on-nothing"), AgentFigures::default());
}

#[test]
fn the_page_of_a_large_cluster_shows_its_worst_nodes_and_asks_for_their_paths_only() {
    let nodes: Vec<_> = (0..LARGEST_MATRIX + 6).map(|i| format!("n.{i:02}-x_y")).collect();
    // Three bad nodes, of which no other node probes two, and no two of which probe one node: no
    // other node can be blamed.
    let bad = |node: &str| [5, 40, 66].into_iter().any(|bad| nodes[bad] == node);
    let agents = nodes.iter().enumerate().map(|(i, from)| {
        [1, 11, 29].into_iter().fold(Agent::of(from, 3), |agent, step| {
            let to = &nodes[(i + step) % nodes.len()];
            let probes = if bad(from) || bad(to) { BAD } else { GOOD };
            agent.path(("z", to, "z"), [GOOD, probes])
        })
    });
    let large = prober("large");
    let stage = Stage::of("large", vec![(large.clone(), agents.collect())]);
    let found = stage.of_many(&large, nodes.len(), (3, 18));
    assert_eq!((found.nodes.len(), found.loss.len()), (LARGEST_MATRIX, LARGEST_MATRIX));
    let shown: Vec<_> = found.nodes.iter().map(|node| &*node.node).collect();
    for node in nodes.iter().filter(|node| bad(node)) {
        let row = shown.iter().position(|shown| shown == node).expect("a bad node is shown");
        assert!(found.nodes[row].bad && is(0.25, found.nodes[row].loss), "{node}");
        let fields = found.loss[row].iter().zip(&found.p99[row]);
        let measured: Vec<_> = fields.filter(|(loss, _)| loss.is_some()).collect();
        assert!(!measured.is_empty(), "{node} has no field");
        assert!(
            measured.iter().all(|(loss, p99)| is(0.25, **loss) && in_bucket_of(BAD.rtt, **p99))
        );
    }
    assert!(found.nodes.iter().all(|node| node.zone == "z"));
    // Nine from them and nine to them; then the slowest of the good ones.
    assert_eq!(found.worst.len(), WORST);
    let (bad, good) = found.worst.split_at(18);
    assert!(bad.iter().all(|path| path.bad && is(0.25, path.loss)), "{bad:#?}");
    assert!(good.iter().all(|path| !path.bad), "{good:#?}");
}

/// An agent may write any zones into its series.
#[test]
fn an_agent_that_names_many_zones_has_one_of_the_worst_paths() {
    let zones: Vec<_> = (0..2 * WORST).map(|i| format!("z{i}")).collect();
    let liar = zones.iter().fold(Agent::of("a", 3), |agent, zone| {
        agent.path((zone, "b", zone), [Probes { lost: 20, ..BAD }, BAD])
    });
    let agents = vec![
        liar,
        Agent::of("b", 3).path(("", "c", ""), [BAD, BAD]).path(("", "d", ""), [GOOD, GOOD]),
        Agent::of("c", 3).path(("", "d", ""), [GOOD, GOOD]),
        Agent::of("d", 3).path(("", "c", ""), [GOOD, GOOD]),
    ];
    let lied = prober("lied");
    let stage = Stage::of("lied", vec![(lied.clone(), agents)]);
    let found = stage.figures(&lied, 4, 5);
    let worst: Vec<_> = found.worst.iter().map(|p| (&*p.from, &*p.to)).collect();
    assert_eq!(worst[..2], [("a", "b"), ("b", "c")], "{worst:?}");
    assert_eq!(worst.len(), 5, "{worst:?}");
    assert!(is(1.0, found.worst[0].loss) && is(0.25, found.worst[1].loss), "{:#?}", found.worst);
}
