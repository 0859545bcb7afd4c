//! Values of text fields beyond the schema: good ones, and bad ones that the rule of the field
//! refuses.
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

/// The queries of generated specs; the scripted Prometheus answers each of them.
pub const QUERIES: [&str; 4] = [
    "loss",
    "sum by (node) (rate(node_netstat_Tcp_RetransSegs[2m]))",
    "max by (instance) (errors{zone=\"größte Zone – 東京 🚦\", job=~\"a.*|b\"}) # Ende",
    "100 * sum by (node) (a)\n  / on (node) sum by (node) (b) > 0 or load{x='y'}",
];

/// Draws from proptest's strategies, with the same result for the same seed and case.
pub struct Dice(TestRunner);

impl Dice {
    pub fn new(seed: u64, case: u64) -> Self {
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

/// The values of one field.
pub struct Form {
    /// The path of the field in the spec: `criteria[].max`; `{}` is any key.
    pub path: &'static str,
    pub good: fn(&mut Dice) -> Value,
    /// Values that a rule refuses; the schema defines types, lengths and ranges.
    pub bad: fn() -> Value,
}

/// The known fields of a `TrafficWatch`; the test fails for any other one.
pub const FORMS: &[Form] = &[
    Form {
        path: "maxBandwidthPercent",
        good: |dice| match dice.below(4) {
            0 => json!(dice.one(&["60", "1.5e-03", ".5", "5.", "+7", "100", "1e2", "0.000001"])),
            1 => json!(format!("{}.{}", dice.below(100), 1 + dice.below(9))),
            2 => json!(format!("{}e-1", 1 + dice.below(1000))),
            _ => json!((1 + dice.below(100)).to_string()),
        },
        bad: || json!(["", "abc", "NaN", "Inf", "-1", "0", "100.1", "1e3", "60%", " 60", "0x10"]),
    },
    Form { path: "maxBandwidth", good: bits, bad: not_bits },
    Form { path: "capacity", good: bits, bad: not_bits },
    Form {
        path: "label",
        good: |dice| {
            if dice.percent(10) {
                return json!(dice.draw("[a-z0-9]{233}"));
            }
            json!(dice.draw("[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?([.][a-z0-9]{1,9}){0,3}"))
        },
        bad: || json!(["Upper", "-a", "a-", "a/b", "a b", "a_b", "a..b", "ä", "."]),
    },
    Form {
        path: "devices",
        good: |dice| json!(dice.one(&["eth0", "eth[0-9]+|bond0", "(?i:ens.*)", "größe-.*", ".*"])),
        bad: || json!(["eth(", "(?=eth)", "*", "a{2000}", "[z-a]", "\\"]),
    },
    Form { path: "query", good: query, bad: || json!([]) },
    Form { path: "criteria[].query", good: query, bad: || json!([]) },
    Form {
        path: "criteria[].name",
        good: |dice| {
            let pattern =
                if dice.percent(10) { "[a-z0-9]{63}" } else { "[a-z]([-a-z0-9]{0,9}[0-9])?" };
            json!(dice.draw(pattern))
        },
        bad: || json!(["bandwidth", "Loss", "a.b", "a_b", "-a", "a-", "ü", "a b"]),
    },
    Form {
        path: "criteria[].max",
        good: |dice| {
            let number = dice.below(100_000);
            dice.one(&[
                json!(number),
                json!("0.01"),
                json!("200m"),
                json!(0),
                json!("1.5G"),
                json!("1e-3"),
            ])
        },
        bad: || json!(["-1", -1, "much", "1GB", "", "-1m", "1 "]),
    },
    Form {
        path: "interval",
        good: |dice| duration(dice, 1),
        bad: || not_duration("24h1s", "999ms"),
    },
    Form { path: "window", good: |dice| duration(dice, 2), bad: || not_duration("25h", "1s") },
    Form {
        path: "maxSampleAge",
        good: |dice| duration(dice, 1),
        bad: || not_duration("25h", "0s"),
    },
    Form {
        path: "onUnknown.after",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1s"),
    },
    Form {
        path: "eviction.after",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1s"),
    },
    Form { path: "maxUnfit", good: share, bad: not_share },
    Form { path: "minFit", good: share, bad: not_share },
    Form {
        path: "prometheus",
        good: |dice| json!(if dice.percent(85) { "default" } else { "no-such-endpoint" }),
        bad: || json!(["http://prometheus:9090", "Default", "a_b", "a.b", "-a", "ü"]),
    },
    Form {
        path: "taint",
        good: |dice| json!(dice.one(&["PreferNoSchedule", "NoSchedule"])),
        bad: || json!(["NoExecute", "noSchedule", ""]),
    },
    Form {
        path: "reservation.resource",
        good: |dice| {
            // The admission policy of a real installation allows these prefixes.
            let name =
                if dice.percent(10) { "[A-Za-z0-9]{63}" } else { "[a-z]([-._A-Z]{0,9}[0-9])?" };
            let prefix = dice.one(&["", "team-a.", "a.b-c.9."]);
            json!(format!("{prefix}traffic.example.com/{}", dice.draw(name)))
        },
        bad: || {
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
                format!("example.com/{}", "x".repeat(64))
            ])
        },
    },
    Form { path: "reservation.unit", good: bits, bad: not_bits },
    Form {
        path: "reservation.reserve",
        good: |dice| json!(format!("{}%", dice.below(100))),
        bad: || json!(["100%", "-1%", "5.5%", "10", "%", "", "05%"]),
    },
    Form {
        path: "reservation.step",
        good: |dice| json!(format!("{}%", 1 + dice.below(99))),
        bad: || json!(["0%", "100%", "5.5%", "5", "%", "", "05%"]),
    },
    Form { path: "nodeSelector.matchLabels{}", good: zone, bad: || json!([]) },
    Form { path: "nodeSelector.matchExpressions[].key", good: key, bad: || json!([]) },
    Form {
        path: "nodeSelector.matchExpressions[].operator",
        good: |dice| json!(dice.one(&["In", "NotIn", "Exists", "DoesNotExist", "NotIn", "Near"])),
        bad: || json!([]),
    },
    Form { path: "nodeSelector.matchExpressions[].values[]", good: zone, bad: || json!([]) },
];

/// Keys of labels, of maps and expressions.
pub fn key(dice: &mut Dice) -> Value {
    json!(dice.one(&["zone", "zone", "zone", "kubernetes.io/os", "größe/ß"]))
}

pub fn zone(dice: &mut Dice) -> Value {
    json!(dice.one(&["a", "a", "b", "linux", "東京"]))
}

pub fn query(dice: &mut Dice) -> Value {
    json!(dice.one(&QUERIES))
}

fn bits(dice: &mut Dice) -> Value {
    let number = 1 + dice.below(1000);
    match dice.below(4) {
        0 => json!(number * 1_000_000),
        1 => json!(dice.one(&["2.5G", "1e9", "1E9", ".5Gi", "+1T", "9007199254740993", "1m"])),
        _ => json!(format!("{number}{}", dice.one(&["M", "G", "T", "Mi", "Gi", "k", ""]))),
    }
}

fn not_bits() -> Value {
    json!(["fast", "0", "-1G", "1GB", 0, -5, "", "1 G", "NaN"])
}

pub fn duration(dice: &mut Dice, least: usize) -> Value {
    let number = least.max(1) + dice.below(20);
    match dice.below(5) {
        0 => json!(dice.one(&["1h2m3s", "1.5h", "2500ms", "24h", "90s", "2s1ns"])),
        1 => json!(format!("{number}m")),
        2 => json!(format!("{number}.5s")),
        _ => json!(format!("{}s", least.max(1))),
    }
}

pub fn not_duration(long: &str, short: &str) -> Value {
    json!(["", "1d", "10", "2 minutes", "1h 2m", "s", "1e3s", long, short])
}

fn share(dice: &mut Dice) -> Value {
    match dice.below(3) {
        0 => json!(dice.below(5)),
        1 => json!(dice.one(&[json!(i32::MAX), json!("0%"), json!("100%"), json!(0)])),
        _ => json!(format!("{}%", dice.below(101))),
    }
}

fn not_share() -> Value {
    json!([-1, "101%", "50", "-1%", "5.5%", "%", "", "050%", 2_147_483_648_u32])
}
