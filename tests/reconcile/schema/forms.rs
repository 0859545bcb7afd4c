//! Values of the text fields of all kinds: good ones, and bad ones that the rule of the field
//! refuses.
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};
use traffic_operator::api::traffic_watch::DEFAULT_DEVICES;

/// The queries of generated specs; the scripted Prometheus answers each of them.
const QUERIES: [&str; 4] = [
    "loss",
    "sum by (node) (rate(node_netstat_Tcp_RetransSegs[2m]))",
    "max by (instance) (errors{zone=\"größte Zone – 東京 🚦\", job=~\"a.*|b\"}) # Ende",
    "100 * sum by (node) (a)\n  / on (node) sum by (node) (b) > 0 or load{x='y'}",
];

/// Any number will do; another number makes another test.
const SEED: u64 = 20_261_120;

/// Returns the seed: `SCHEMA_SEED`, else always the same.
///
/// `SCHEMA_SEED=7 SCHEMA_STEPS=200 cargo test --test reconcile -- schema:: --nocapture` plays other
/// and longer walks; every failure names its seed and case.
fn seed() -> u64 {
    number("SCHEMA_SEED").unwrap_or(SEED)
}

pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Names a case so that it can be played again.
pub fn named(case: impl std::fmt::Display) -> String {
    format!("seed {}, case {case}", seed())
}

/// Draws from proptest's strategies, with the same result for the same seed and case.
pub struct Dice(TestRunner);

impl Dice {
    pub fn new(case: u64) -> Self {
        let seed = seed();
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&case.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self(TestRunner::new_with_rng(Config::default(), rng))
    }

    pub fn draw<S: Strategy>(&mut self, strategy: S) -> S::Value {
        strategy.new_tree(&mut self.0).expect("a value").current()
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.draw(0..end)
    }

    pub fn percent(&mut self, percent: u32) -> bool {
        self.draw(0..100_u32) < percent
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// The values of one field; `{}` in its path is any key.
pub struct Form {
    path: &'static str,
    good: Good,
    bad: Bad,
}

enum Good {
    OneOf(&'static [&'static str]),
    /// A duration of at least this many seconds.
    Duration(usize),
    Made(fn(&mut Dice) -> Value),
}

/// Values that a rule refuses; the schema defines types, lengths and ranges.
enum Bad {
    Each(&'static [&'static str]),
    /// No durations, one that is too long, and one that is too short.
    Durations([&'static str; 2]),
    Made(fn() -> Value),
}

impl Form {
    /// The form of the field at this path.
    pub fn of(path: &str) -> Option<&'static Self> {
        let own = FORMS.iter().find(|form| form.path == path);
        own.or_else(|| SHARED.iter().find(|form| path.ends_with(form.path)))
    }

    pub fn good(&self, dice: &mut Dice) -> Value {
        match self.good {
            Good::OneOf(texts) => json!(dice.one(texts)),
            Good::Duration(least) => duration(dice, least),
            Good::Made(make) => make(dice),
        }
    }

    pub fn bad(&self) -> Vec<Value> {
        const NONE: [&str; 9] = ["", "1d", "10", "0", "-1s", "2 minutes", "1h 2m", "s", "1e3s"];
        match self.bad {
            Bad::Each(texts) => texts.iter().map(|&text| json!(text)).collect(),
            Bad::Durations(ends) => NONE.into_iter().chain(ends).map(|text| json!(text)).collect(),
            Bad::Made(make) => make().as_array().cloned().unwrap_or_default(),
        }
    }
}

/// A field about which the schema says everything.
const fn free(path: &'static str, good: &'static [&'static str]) -> Form {
    words(path, good, &[])
}

type Texts = &'static [&'static str];

const fn words(path: &'static str, good: Texts, bad: Texts) -> Form {
    Form { path, good: Good::OneOf(good), bad: Bad::Each(bad) }
}

const fn made(path: &'static str, good: fn(&mut Dice) -> Value, bad: fn() -> Value) -> Form {
    Form { path, good: Good::Made(good), bad: Bad::Made(bad) }
}

const fn drawn(path: &'static str, good: fn(&mut Dice) -> Value, bad: Texts) -> Form {
    Form { path, good: Good::Made(good), bad: Bad::Each(bad) }
}

const fn time(path: &'static str, least: usize, ends: [&'static str; 2]) -> Form {
    Form { path, good: Good::Duration(least), bad: Bad::Durations(ends) }
}

const fn times(path: &'static str, good: Texts, ends: [&'static str; 2]) -> Form {
    Form { path, good: Good::OneOf(good), bad: Bad::Durations(ends) }
}

const WEEK: [&str; 2] = ["169h", "-1ns"];
const DAY: [&str; 2] = ["25h", "999ms"];
const MINUTES: Texts = &["60s", "5m", "1h2m3s", "24h", "90.5s"];
const NAMES: Texts = &["w", "web", "a.b", "web-1"];
const NO_LABELS: Texts = &["Upper", "a.b", "a_b", "-a", "a/b"];
const NO_NAMES: Texts = &["Upper", "a_b", "-a", "a/b", "a b"];

/// The known texts of all kinds; the test fails for any other one.
const FORMS: &[Form] = &[
    // TrafficWatch.
    drawn("maxBandwidthPercent", percentage, NO_PERCENTAGES),
    made("maxBandwidth", bits, not_whole_bits),
    made("capacity", bits, not_whole_bits),
    drawn("label", label, &["Upper", "-a", "a-", "a/b", "a b", "a_b", "a..b", "ä", "."]),
    words(
        "devices",
        &["eth0", "eth[0-9]+|bond0", "(?i:ens.*)", "größe-.*", ".*", DEFAULT_DEVICES],
        &["eth(", "(?=eth)", "*", "a{2000}", "[z-a]", "\\"],
    ),
    drawn(
        "criteria[].name",
        |dice| {
            let long = dice.percent(10);
            json!(dice.draw(if long { "[a-z0-9]{63}" } else { "[a-z]([-a-z0-9]{0,9}[0-9])?" }))
        },
        &["bandwidth", "Loss", "a.b", "a_b", "-a", "a-", "ü", "a b"],
    ),
    made("criteria[].max", amount, || json!(["-1", -1, "much", "1GB", "", "-1m", "1 "])),
    time("interval", 1, ["24h1s", "999ms"]),
    time("window", 2, ["25h", "1s"]),
    time("maxSampleAge", 1, DAY),
    time("onUnknown.after", 0, WEEK),
    time("eviction.after", 0, WEEK),
    made("maxUnfit", share, not_share),
    made("minFit", share, not_share),
    words("taint", &["PreferNoSchedule", "NoSchedule"], &["NoExecute", "noSchedule", ""]),
    made("reservation.resource", resource, not_a_resource),
    made("reservation.unit", bits, not_bits),
    drawn(
        "reservation.reserve",
        |dice| json!(format!("{}%", dice.below(100))),
        &["100%", "-1%", "5.5%", "10", "%", "", "05%"],
    ),
    drawn(
        "reservation.step",
        |dice| json!(format!("{}%", 1 + dice.below(99))),
        &["0%", "100%", "5.5%", "5", "%", "", "05%"],
    ),
    // NetworkProber. Each period is longer than each timeout.
    words("agentImage", &["registry/agent:1", "a@sha256:0", "agent"], &["a b", "a\tb", "a\n"]),
    words("delivery", &["Pull", "ConfigMap"], &["Push", "pull", ""]),
    made("httpPort", |dice| dice.one(&[json!(8080), json!("8080"), json!("80")]), not_a_port),
    made("httpPrometheusPort", |dice| dice.one(&[json!(2112), json!("65535")]), not_a_port),
    times("monitoring.interval", &["1s", "30s", "10m", "1.5m", "1m30s"], ["11m", "999ms"]),
    free("monitoring.labels{}", ZONES),
    times("pollingPeriod", &["10s", "1m", "30.5s", "1h", "2m3s"], ["61m", "99ms"]),
    drawn(
        "targets[].name",
        |dice| json!(dice.draw("[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?")),
        &["Upper", "a.b", "a_b", "-a", "a-", "ü", "a b"],
    ),
    words(
        "targets[].dns",
        &["kubernetes.default", "example.com.", "_sip.a_b", "x"],
        &["a..b", ".", "-a", "a b", "a/b", "10.0.0.1", "ä"],
    ),
    words("targets[].service.name", &["web", "web-1"], NO_LABELS),
    words("targets[].service.namespace", &["default", "team-a"], NO_LABELS),
    words(
        "targets[].url",
        &[
            "http://web",
            "https://a.example:8443/healthz?x=1",
            "http://[fd00::1]:80/",
            "https://10.0.0.1/",
        ],
        &[
            "ftp://a/",
            "http://",
            "http:///",
            "http://a b/",
            "http://me@a/",
            "http://a/#x",
            "http://a:0/",
            "a",
        ],
    ),
    times("timeout", &["1s", "500ms", "1ms", "9.5s"], ["61m", "999us"]),
    // Swarm.
    time("autoscale.cooldown", 0, WEEK),
    made("autoscale.maxWeightPerWorker", amount_above_0, || json!(["fast", "0", "-1", 0, -5, ""])),
    words(
        "configMap.key",
        &["config.yml", "a_b.C-1"],
        &["handover.yml", "acknowledge.key", "a/b", "a b", "ä"],
    ),
    words("configMap.name", NAMES, NO_NAMES),
    drawn("jobs[]", stream, &[]),
    words("refresh.path", &["/internal/version", "/v?x=1", "/"], &["v", "/a b", "http://a/"]),
    words("refresh.strategy", &["DeletePod", "HotReload", "None"], &["Recreate", "deletepod", ""]),
    time("refresh.timeout", 1, DAY),
    drawn("streams[].id", stream, &[]),
    free("streams[].pin", &["w-0", "w-1"]),
    words("streamsFrom.configMapKeyRef.name", NAMES, NO_NAMES),
    words("streamsFrom.configMapKeyRef.key", &["config.yml", "list"], &["a/b", "a b", "ä"]),
    time("weights.for", 0, WEEK),
    time("weights.interval", 1, DAY),
    made(
        "weights.rebalanceAbove",
        |dice| dice.one(&[json!("1.3"), json!(2), json!("1"), json!("1500m")]),
        || json!(["0.9", 0, "much", "", "-2"]),
    ),
    words("workload.name", NAMES, NO_NAMES),
    // RouteReflectorSet.
    time("candidates.demoteAfter", 0, WEEK),
    time("candidates.replaceAfter", 0, WEEK),
    words("candidates.fitnessRef.name", &["web", "a.b"], NO_NAMES),
    words(
        "candidates.fitnessRef.namespace",
        &["default", "team-a"],
        &["Upper", "a.b", "-a", "a/b"],
    ),
    free("candidates.tolerations[].effect", &["", "NoSchedule", "NoExecute"]),
    free("candidates.tolerations[].key", ZONES),
    free("candidates.tolerations[].operator", &["Exists", "Equal"]),
    free("candidates.tolerations[].value", ZONES),
    words(
        "clusterID.pool",
        &["224.0.0.0/16", "10.0.0.0/24", "1.2.3.4", "224.0.0.0/8"],
        &["224.0.0.256", "fd00::/64", "224.0.0.0/33", "no address"],
    ),
    words(
        "count.ratio",
        &["0.005", ".01", "1", "0.5", "1.0"],
        &["0", "0.000", "2", "-0.1", "1.1", "a few", "5e-3"],
    ),
    // Nothing listens there.
    free("datastore.etcd.endpoints[]", &["http://127.0.0.1:1", "https://127.0.0.1:1"]),
    words(
        "nodeLabel",
        &["calico-route-reflector", "rr=", "a.b/c=d", "rr"],
        &["a b", "rr=a b", "a/b/c", "=x"],
    ),
    times("transition.timeout", MINUTES, ["25h", "59s"]),
    times("transition.wait", MINUTES, ["25h", "59s"]),
    words("zoneLabel", &["topology.kubernetes.io/zone", "zone"], &["a/b/c", "a b", "-"]),
];

/// The forms of fields that several kinds have, by how their paths end.
const SHARED: &[Form] = &[
    free("query", &QUERIES),
    drawn(
        "prometheus",
        |dice| json!(if dice.percent(85) { "default" } else { "no-such-endpoint" }),
        &["http://prometheus:9090", "Default", "a_b", "a.b", "-a", "ü"],
    ),
    free("matchLabels{}", ZONES),
    free("matchExpressions[].key", KEYS),
    // The operator itself refuses one that does not exist.
    free(
        "matchExpressions[].operator",
        &["In", "NotIn", "Exists", "DoesNotExist", "NotIn", "Near"],
    ),
    free("matchExpressions[].values[]", ZONES),
    drawn("limits{}", amount_above_0, &[]),
    drawn("requests{}", amount_above_0, &[]),
];

/// Keys of labels, of maps and expressions.
pub const KEYS: Texts = &["zone", "zone", "zone", "kubernetes.io/os", "größe/ß"];
const ZONES: Texts = &["a", "a", "b", "linux", "東京"];

fn percentage(dice: &mut Dice) -> Value {
    match dice.below(4) {
        0 => json!(dice.one(&["60", "1.5e-03", ".5", "5.", "+7", "100", "1e2", "0.000001"])),
        1 => json!(format!("{}.{}", dice.below(100), 1 + dice.below(9))),
        2 => json!(format!("{}e-1", 1 + dice.below(1000))),
        _ => json!((1 + dice.below(100)).to_string()),
    }
}

const NO_PERCENTAGES: Texts =
    &["", "abc", "NaN", "Inf", "-1", "0", "1e-999", "100.1", "1e3", "60%", " 60", "0x10"];

fn label(dice: &mut Dice) -> Value {
    let long = dice.percent(10);
    let name = "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?([.][a-z0-9]{1,9}){0,3}";
    json!(dice.draw(if long { "[a-z0-9]{233}" } else { name }))
}

fn amount(dice: &mut Dice) -> Value {
    let number = dice.below(100_000);
    dice.one(&[json!(number), json!("0.01"), json!("200m"), json!(0), json!("1.5G"), json!("1e-3")])
}

fn amount_above_0(dice: &mut Dice) -> Value {
    dice.one(&[json!(1), json!("50M"), json!(100), json!("1.5"), json!("64Mi"), json!("100m")])
}

fn resource(dice: &mut Dice) -> Value {
    let long = dice.percent(10);
    let name = dice.draw(if long { "[A-Za-z0-9]{63}" } else { "[a-z]([-._A-Z]{0,9}[0-9])?" });
    // The admission policy of a real installation allows these prefixes.
    let prefix = dice.one(&["", "team-a.", "a.b-c.9."]);
    json!(format!("{prefix}traffic.example.com/{name}"))
}

fn not_a_resource() -> Value {
    json!([
        "cpu",
        "kubernetes.io/x",
        "node.kubernetes.io/x",
        "Upper.example.com/x",
        "a b/c",
        "example.com/",
        "/mbps",
        "example.com/a/b",
        "example.com/-x",
        "requests.example.com/x",
        "exa_mple.com/x",
        format!("example.com/{}", "x".repeat(64)),
        format!("{}.example.com/x", "a".repeat(240))
    ])
}

fn not_a_port() -> Value {
    json!(["http", 0, -1, 65_536, "65536", "08", "-1", "", " 80", "8080/tcp"])
}

fn stream(dice: &mut Dice) -> Value {
    json!(dice.draw("[a-z]{1,4}:[0-9]{1,6}"))
}

fn bits(dice: &mut Dice) -> Value {
    let number = 1 + dice.below(1000);
    match dice.below(4) {
        0 => json!(number * 1_000_000),
        1 => json!(dice.one(&["2.5G", "1e9", "1E9", ".5Gi", "+1T", "9007199254740993"])),
        _ => json!(format!("{number}{}", dice.one(&["M", "G", "T", "Mi", "Gi", "k", ""]))),
    }
}

const NOT_BITS: [&str; 7] = ["fast", "0", "-1G", "1GB", "", "1 G", "NaN"];

fn not_bits() -> Value {
    NOT_BITS.iter().map(|&text| json!(text)).chain([json!(0), json!(-5)]).collect()
}

fn not_whole_bits() -> Value {
    json!([not_bits().as_array().expect("a list").as_slice(), &[json!("10m")]].concat())
}

fn duration(dice: &mut Dice, least: usize) -> Value {
    let number = least.max(1) + dice.below(20);
    match dice.below(5) {
        0 => json!(dice.one(&["1h2m3s", "1.5h", "2500ms", "24h", "90s", "2s1ns"])),
        1 => json!(format!("{number}m")),
        2 => json!(format!("{number}.5s")),
        _ => json!(format!("{}s", least.max(1))),
    }
}

fn share(dice: &mut Dice) -> Value {
    match dice.below(3) {
        0 => json!(dice.below(5)),
        1 => json!(dice.one(&[json!(i32::MAX), json!("0%"), json!("100%"), json!(0)])),
        _ => json!(format!("{}%", dice.below(101))),
    }
}

fn not_share() -> Value {
    json!([-1, "101%", "half", "50", "-1%", "5.5%", "%", "", "050%", 2_147_483_648_u32])
}
