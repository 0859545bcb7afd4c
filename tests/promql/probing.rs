//! The rules of a `NetworkProber`, evaluated by promtool on agents with a known network.
use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::{Value, json};
use traffic_operator::{
    agent::metrics::RTT_BOUNDS,
    network_prober::rules::{Pace, rules},
    prometheus::Exporters,
    traffic_watch::query::{OWN_AGE, Question, Request},
};

const PROBER: &str = "shop/web";
const JOB: &str = r#"job="shop/web",namespace="shop""#;

/// A scrape every 30 seconds and a probe every 10, as by default.
const PACE: Pace = Pace {
    period: Duration::from_secs(10),
    timeout: Duration::from_secs(1),
    interval: Duration::from_secs(30),
};
/// The number of probes from one scrape to the next.
const PROBES: u32 = 3;

/// Series by name, and their values in promtool's notation: one a scrape.
#[derive(Default)]
struct Series(Vec<Value>);

impl Series {
    fn add(&mut self, name: &str, labels: &str, values: impl Into<String>) {
        let series = format!("{name}{{{JOB}{labels}}}");
        self.0.push(json!({"series": series, "values": values.into()}));
    }

    /// Probes of one path, `good` and `bad` as values.
    fn probes(&mut self, (from, to): (&str, &str), more: &str, good: &str, bad: &str) {
        let path = format!(r#",src_node="{from}",dst_node="{to}",protocol="udp"{more}"#);
        self.add("netprober_probes_total", &format!(r#"{path},result="success""#), good);
        self.add("netprober_probes_total", &format!(r#"{path},result="failure""#), bad);
    }

    /// Answers of one path that each take this many seconds.
    fn answers(&mut self, (from, to): (&str, &str), seconds: f64) {
        let path = format!(r#",pod="on-{from}",src_node="{from}",dst_node="{to}",protocol="udp""#);
        let all = format!("0+{PROBES}x80");
        for bound in RTT_BOUNDS {
            let values = if seconds <= bound { all.as_str() } else { "0x80" };
            let labels = format!(r#"{path},le="{bound}""#);
            self.add("netprober_rtt_seconds_bucket", &labels, values);
        }
        self.add("netprober_rtt_seconds_bucket", &format!(r#"{path},le="+Inf""#), all.as_str());
        self.add("netprober_rtt_seconds_count", &path, all.as_str());
    }

    /// The series of an agent: the first scrape, the number of scrapes, the number of
    /// peers, and a list of this age.
    fn agent(&mut self, pod: &str, (first, scrapes): (u32, u32), peers: &str, age: u32) {
        let labels = format!(r#",pod="{pod}""#);
        let mut add = |name: &str, value: &str| {
            let absent = if first == 0 { String::new() } else { format!("_x{} ", first - 1) };
            self.add(name, &labels, format!("{absent}{value}x{scrapes}"));
        };
        add("netprober_build_info", "1");
        add("netprober_process_start_time_seconds", &(first * 30).to_string());
        add("netprober_peers", peers);
        add("netprober_pinglist_age_seconds", &age.to_string());
    }
}

/// Expected alerts: minutes, the alert, and its subjects (nodes, or none).
type Fires<'a> = (u32, &'a str, &'a [&'a str]);

/// Lets promtool evaluate the rules over these series and compare the results.
fn check(name: &str, pace: Pace, series: &Series, fires: &[Fires<'_>]) -> Result<(), String> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probing").join(name);
    fs::create_dir_all(&scratch).expect("a directory for promtool");
    let write = |file: &str, value: &Value| {
        let text = serde_yaml::to_string(value).expect("YAML of JSON");
        fs::write(scratch.join(file), text).expect(file);
    };
    write("rules.yml", &rules(PROBER, pace, None));
    // Only which alerts fire for which node: their texts are tested elsewhere.
    let tests: Vec<_> = fires
        .iter()
        .map(|(minutes, alert, nodes)| {
            let firing = format!(r#"alertname="{alert}",alertstate="firing""#);
            let expr = format!("count by (node) (ALERTS{{{firing}}})");
            let samples: Vec<_> = nodes
                .iter()
                .map(|node| match *node {
                    "" => json!({"labels": "{}", "value": 1}),
                    node => json!({"labels": format!("{{node=\"{node}\"}}"), "value": 1}),
                })
                .collect();
            json!({"eval_time": format!("{minutes}m"), "expr": expr, "exp_samples": samples})
        })
        .collect();
    write(
        "test.yml",
        &json!({
            "rule_files": ["rules.yml"], "evaluation_interval": "30s",
            "tests": [{
                "name": name, "interval": "30s",
                "input_series": series.0, "promql_expr_test": tests,
            }],
        }),
    );
    let promtool = lab::tools::ensure("promtool").unwrap_or_else(|error| panic!("{error:#}"));
    let output = Command::new(promtool)
        .args(["test", "rules"])
        .arg(scratch.join("test.yml"))
        .output()
        .expect("promtool");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn checked(name: &str, pace: Pace, series: &Series, fires: &[Fires<'_>]) {
    check(name, pace, series, fires).unwrap_or_else(|said| panic!("{name}: {said}"));
}

/// All paths between these nodes, with what `each` adds for one.
fn paths(nodes: &[&'static str], mut each: impl FnMut((&'static str, &'static str))) {
    for from in nodes {
        for to in nodes.iter().filter(|to| *to != from) {
            each((*from, *to));
        }
    }
}

/// A limit of 100 ms fired at 52 ms: between two bounds a percentile is an estimate.
#[test]
fn an_alert_on_latency_never_fires_below_its_limit_and_always_above() {
    for (timeout, limit) in [(1000, 0.1), (100, 0.05), (20, 0.01)] {
        let pace = Pace { timeout: Duration::from_millis(timeout), ..PACE };
        for (share, fires) in [(0.51, false), (0.99, false), (1.01, true), (1.9, true)] {
            let mut series = Series::default();
            paths(&["a", "b", "c"], |path| {
                series.answers(
                    path,
                    if path.0 == "c" || path.1 == "c" { limit * share } else { 1e-4 },
                );
            });
            let slow: &[&str] = if fires { &["c"] } else { &[] };
            let name = format!("n06-{timeout}-{share}");
            checked(&name, pace, &series, &[(20, "NetworkProberLatencyHigh", slow)]);
        }
    }
}

/// Thresholds that users copy: a limit on a percentile must be the bound of a bucket.
#[test]
fn samples_and_documentation_have_limits_on_bounds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = 0;
    for file in [
        "deploy/samples/fitness-by-network.yaml",
        "docs/reference/networkprober.md",
        "e2e/manifests/prober/watch.yaml",
        "README.md",
        "docs/concepts/judging.md",
        "docs/tutorials/measure-between-pods.md",
        "docs/reference/policies.md",
        "docs/reference/trafficwatch.md",
    ] {
        let text = fs::read_to_string(root.join(file)).expect(file);
        let lines: Vec<_> = text.lines().collect();
        for (place, _) in lines
            .iter()
            .enumerate()
            .filter(|(_, l)| l.contains("query:") && l.contains("rtt_seconds:p99"))
        {
            let max = lines[place..].iter().find_map(|line| line.trim().strip_prefix("max:"));
            let max = max.and_then(|max| max.split('"').nth(1)).expect(file);
            let max: f64 = max.parse().expect(file);
            assert!(RTT_BOUNDS.contains(&max), "{file}: {max} is no bound");
            found += 1;
        }
    }
    assert!(found >= 3, "{found} thresholds");
}

/// The lists of all agents are empty, so each agent considers itself alone.
#[test]
fn many_agents_without_peers_are_no_lone_agents() {
    let silent = "NetworkProberSilent";
    let mut outage = Series::default();
    for pod in ["a", "b", "c"] {
        outage.agent(pod, (0, 100), "0", 5);
    }
    checked("n02-outage", PACE, &outage, &[(10, silent, &[]), (17, silent, &[""])]);
    // With peers again it resolves.
    let mut mended = Series::default();
    for pod in ["a", "b"] {
        mended.agent(pod, (0, 40), "0", 5);
        let path = format!(r#",pod="{pod}",src_node="{pod}",dst_node="x",protocol="udp""#);
        let labels = format!(r#"{path},result="success""#);
        mended.add("netprober_probes_total", &labels, "0x40 0+3x40");
    }
    checked("n02-mended", PACE, &mended, &[(17, silent, &[""]), (25, silent, &[])]);

    let mut alone = Series::default();
    alone.agent("a", (0, 100), "0", 5);
    checked("n02-alone", PACE, &alone, &[(17, silent, &[]), (40, silent, &[])]);
    // An agent without peers may be silent while others probe.
    let mut idle = Series::default();
    idle.agent("a", (0, 100), "0", 5);
    idle.agent("b", (0, 100), "1", 5);
    idle.add("netprober_probes_total", r#",pod="b",result="success""#, "0+3x100");
    checked("n02-idle", PACE, &idle, &[(17, silent, &[]), (40, silent, &[])]);
    // One of two agents starts late, and has probed nothing yet.
    let mut late = Series::default();
    late.agent("a", (0, 100), "0", 5);
    late.agent("b", (60, 9), "0", 5);
    checked("n02-late", PACE, &late, &[(33, silent, &[]), (40, silent, &[])]);
}

/// Its peers keep probing it for ten minutes: long enough for the alert, including its `for`.
#[test]
fn the_loss_of_a_dead_node_stays_until_the_alert_fires() {
    let mut series = Series::default();
    paths(&["a", "b", "c"], |path| match path {
        // It dies after ten minutes; its own series end.
        ("c", _) => series.probes(path, "", "0+3x20", "0x20"),
        // It leaves the lists ten minutes later.
        (_, "c") => series.probes(path, "", "0+3x20 60x20", "0x20 3+3x19"),
        _ => series.probes(path, "", "0+3x80", "0x80"),
    });
    let loss = "NetworkProberLossHigh";
    checked("n02-dead", PACE, &series, &[(10, loss, &[]), (16, loss, &["c"]), (19, loss, &["c"])]);
}

/// Agents of all nodes are replaced one after the other. While one is away, the others' probes of
/// it fail.
#[test]
fn a_rollout_of_all_agents_fires_nothing() {
    let nodes = ["a", "b", "c", "d"];
    let mut series = Series::default();
    // One every two minutes from the tenth on; a minute without it, in which its peers lose one
    // probe.
    let restart = |node: &str| {
        20 + 4 * u32::try_from(nodes.iter().position(|n| *n == node).unwrap()).unwrap()
    };
    for node in nodes {
        let at = restart(node);
        series.agent(&format!("old-{node}"), (0, at), "3", 5);
        series.agent(&format!("new-{node}"), (at + 2, 100), "3", 5);
    }
    paths(&nodes, |(from, to)| {
        let (own, other) = (restart(from), restart(to));
        for (pod, first, last) in [("old", 0, own), ("new", own + 2, 100)] {
            // Values by scrape: the counter of this pod, its failures while the other is away.
            let (mut good, mut bad) = (0, 0);
            let (mut all_good, mut all_bad) = (Vec::new(), Vec::new());
            for scrape in 0..100 {
                if scrape < first || scrape > last {
                    all_good.push("_".to_owned());
                    all_bad.push("_".to_owned());
                    continue;
                }
                if scrape > first {
                    // Deleted pods leave the lists at once; one probe may be in flight.
                    let lost = u32::from(scrape == other + 1);
                    (good, bad) = (good + PROBES - lost, bad + lost);
                }
                all_good.push(good.to_string());
                all_bad.push(bad.to_string());
            }
            let more = format!(r#",pod="{pod}-{from}""#);
            series.probes((from, to), &more, &all_good.join(" "), &all_bad.join(" "));
        }
    });
    let mut never = Vec::new();
    for minute in 5..40 {
        for alert in ["LossHigh", "LatencyHigh", "Starved", "Silent"] {
            never.push((minute, format!("NetworkProber{alert}")));
        }
    }
    let never: Vec<Fires<'_>> =
        never.iter().map(|(m, alert)| (*m, alert.as_str(), &[][..])).collect();
    checked("n02-rollout", PACE, &series, &never);
}

/// In a large cluster some agent has always just started and has no rate yet.
#[test]
fn a_long_rollout_fires_nothing() {
    let mut series = Series::default();
    for number in 0..40 {
        let (pod, first) = (format!("new-{number}"), 20 + number);
        series.agent(&pod, (first, 100), "3", 5);
        let labels = format!(r#",pod="{pod}",src_node="{pod}",dst_node="x",result="success""#);
        let values = format!("_x{} 0+{PROBES}x100", first - 1);
        series.add("netprober_probes_total", &labels, values);
    }
    let never: Vec<Fires<'_>> =
        (10..40).map(|minute| (minute, "NetworkProberSilent", &[][..])).collect();
    checked("n02-long-rollout", PACE, &series, &never);
}

/// An agent that names many zones still counts once.
#[test]
fn an_agent_that_lies_counts_for_its_own_node_only() {
    let mut series = Series::default();
    paths(&["a", "b", "c", "d"], |path| series.probes(path, "", "0+3x80", "0x80"));
    for zone in 0..20 {
        let more = format!(r#",src_zone="z{zone}",dst_zone="z{zone}""#);
        for to in ["b", "c", "d"] {
            series.probes(("a", to), &more, "0x80", "0+3x80");
        }
    }
    checked("s04-zones", PACE, &series, &[(20, "NetworkProberLossHigh", &["a"])]);
}

/// `a`, whose host has no port left; `b`, which gets no processor time; and `c`, which is healthy.
#[test]
fn agents_that_cannot_send_are_an_alert_and_no_loss() {
    let mut series = Series::default();
    for (node, reason, sent) in [("a", "local", 0), ("b", "starved", 0), ("c", "local", PROBES)] {
        series.agent(node, (0, 100), "2", 5);
        let skipped = format!(r#",pod="{node}",reason="{reason}""#);
        let all = 2 * PROBES;
        let values = if sent == 0 { format!("0+{all}x80") } else { "0x80".into() };
        series.add("netprober_skipped_probes_total", &skipped, values);
        for to in ["a", "b", "c"].into_iter().filter(|to| *to != node) {
            let pod = format!(r#",pod="{node}""#);
            series.probes((node, to), &pod, &format!("0+{sent}x80"), "0x80");
        }
    }
    let (skips, starved) = ("NetworkProberSkipsProbes", "NetworkProberStarved");
    let fires = [
        (8, skips, &[][..]),
        (18, skips, &[""]),
        (18, starved, &[""]),
        (30, "NetworkProberLossHigh", &[]),
    ];
    checked("n04-local", PACE, &series, &fires);
    // One of them with time and ports alone.
    let mut well = Series::default();
    well.add("netprober_skipped_probes_total", r#",pod="c",reason="local""#, "0x80");
    well.probes(("c", "a"), r#",pod="c""#, &format!("0+{PROBES}x80"), "0x80");
    checked("n04-well", PACE, &well, &[(30, skips, &[]), (30, starved, &[])]);
}

/// The values of a rule that is evaluated every 30 seconds, between two evaluations.
#[test]
fn prometheus_says_how_old_a_recorded_value_is() {
    let text = r#"netprober:node_loss:ratio1m{prober="shop/web"} # loss"#;
    let question = Question::Own(text.into());
    let request = Request { endpoint: "default".into(), question };
    let query = request.promql(&Exporters::any(&["node"]));
    let name = "n08-age";
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probing").join(name);
    fs::create_dir_all(&scratch).expect("a directory for promtool");
    let series = r#"netprober:node_loss:ratio1m{prober="shop/web",node="a"}"#;
    let own = json!({"labels": series, "value": 0.25});
    let aged = |age: u32| {
        let (label, value) = OWN_AGE;
        let labels = format!(r#"{{prober="shop/web",node="a",{label}="{value}"}}"#);
        json!({"labels": labels, "value": age})
    };
    let at = |time: &str, age: u32| json!({"eval_time": time, "expr": query, "exp_samples": [own, aged(age)]});
    let file = scratch.join("test.yml");
    let test = json!({"evaluation_interval": "30s", "tests": [{
        "name": name, "interval": "30s",
        "input_series": [{"series": series, "values": "0.25x20"}],
        "promql_expr_test": [at("60s", 0), at("70s", 10), at("80s", 20), at("90s", 0)],
    }]});
    fs::write(&file, serde_yaml::to_string(&test).expect("YAML")).expect("a file");
    let promtool = lab::tools::ensure("promtool").unwrap_or_else(|error| panic!("{error:#}"));
    let output = Command::new(promtool).args(["test", "rules"]).arg(file).output();
    let output = output.expect("promtool");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
