//! Values of text fields beyond the schema: good ones, and bad ones that the rule of the field
//! refuses.
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};
use traffic_operator::api::traffic_watch::DEFAULT_DEVICES;

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
    /// What the refusal says beside the path.
    pub fix: &'static str,
}

/// A field about which the schema says everything.
pub const fn free(path: &'static str, good: fn(&mut Dice) -> Value) -> Form {
    Form { path, good, bad: || json!([]), fix: "" }
}

pub const ENDPOINT: &str = "must be the name of an endpoint in the operator's configuration (lower case letters, digits and '-'), e.g. \"default\"; a URL is not accepted";
const SHARE: &str = "must be a number from 0 to 2147483647 or a percentage from 0% to 100%, e.g.";

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
        bad: || {
            json!([
                "", "abc", "NaN", "Inf", "-1", "0", "1e-999", "100.1", "1e3", "60%", " 60", "0x10"
            ])
        },
        fix: "must be a number greater than 0 and at most 100, e.g. \"60\"",
    },
    Form {
        path: "maxBandwidth",
        good: bits,
        bad: not_whole_bits,
        fix: "maxBandwidth must be a quantity of bits per second greater than 0, without the suffix m (a thousandth), e.g. \"800M\"",
    },
    Form {
        path: "capacity",
        good: bits,
        bad: not_whole_bits,
        fix: "capacity must be a quantity of bits per second greater than 0, without the suffix m (a thousandth), e.g. \"10G\"",
    },
    Form {
        path: "label",
        good: |dice| {
            if dice.percent(10) {
                return json!(dice.draw("[a-z0-9]{233}"));
            }
            json!(dice.draw("[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?([.][a-z0-9]{1,9}){0,3}"))
        },
        bad: || json!(["Upper", "-a", "a-", "a/b", "a b", "a_b", "a..b", "ä", "."]),
        fix: "label must be a DNS subdomain",
    },
    Form {
        path: "devices",
        good: |dice| {
            let own = ["eth0", "eth[0-9]+|bond0", "(?i:ens.*)", "größe-.*", ".*"];
            json!(dice.one(&[own.as_slice(), &[DEFAULT_DEVICES]].concat()))
        },
        bad: || json!(["eth(", "(?=eth)", "*", "a{2000}", "[z-a]", "\\"]),
        fix: "RE2",
    },
    free("query", query),
    free("criteria[].query", query),
    Form {
        path: "criteria[].name",
        good: |dice| {
            let pattern =
                if dice.percent(10) { "[a-z0-9]{63}" } else { "[a-z]([-a-z0-9]{0,9}[0-9])?" };
            json!(dice.draw(pattern))
        },
        bad: || json!(["bandwidth", "Loss", "a.b", "a_b", "-a", "a-", "ü", "a b"]),
        fix: "name must be a DNS label (lower case letters, digits and '-', at most 63 characters)",
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
        fix: "max must be a quantity that is not negative, e.g. \"0.01\"",
    },
    Form {
        path: "interval",
        good: |dice| duration(dice, 1),
        bad: || not_duration("24h1s", "999ms"),
        fix: "interval must be a duration from 1s to 24h, e.g. \"10s\"",
    },
    Form {
        path: "window",
        good: |dice| duration(dice, 2),
        bad: || not_duration("25h", "1s"),
        fix: "window must be a duration from 2s to 24h and at least four scrape intervals",
    },
    Form {
        path: "maxSampleAge",
        good: |dice| duration(dice, 1),
        bad: || not_duration("25h", "999ms"),
        fix: "maxSampleAge must be a duration from 1s to 24h, e.g. \"90s\"",
    },
    Form {
        path: "onUnknown.after",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1ns"),
        fix: "after must be a duration of at most 168h, e.g. \"10m\"",
    },
    Form {
        path: "eviction.after",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1ns"),
        fix: "after must be a duration of at most 168h, e.g. \"10m\"",
    },
    Form { path: "maxUnfit", good: share, bad: not_share, fix: SHARE },
    Form { path: "minFit", good: share, bad: not_share, fix: SHARE },
    Form {
        path: "prometheus",
        good: |dice| json!(if dice.percent(85) { "default" } else { "no-such-endpoint" }),
        bad: || json!(["http://prometheus:9090", "Default", "a_b", "a.b", "-a", "ü"]),
        fix: ENDPOINT,
    },
    Form {
        path: "taint",
        good: |dice| json!(dice.one(&["PreferNoSchedule", "NoSchedule"])),
        bad: || json!(["NoExecute", "noSchedule", ""]),
        fix: "taint must be PreferNoSchedule or NoSchedule",
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
                format!("example.com/{}", "x".repeat(64)),
                format!("{}.example.com/x", "a".repeat(240))
            ])
        },
        fix: "resource must be the name of an extended resource with a prefix outside of kubernetes.io, e.g. \"traffic.example.com/egress-mbps\"",
    },
    Form {
        path: "reservation.unit",
        good: bits,
        bad: not_bits,
        fix: "unit must be a quantity of bits per second greater than 0, e.g. \"1M\"",
    },
    Form {
        path: "reservation.reserve",
        good: |dice| json!(format!("{}%", dice.below(100))),
        bad: || json!(["100%", "-1%", "5.5%", "10", "%", "", "05%"]),
        fix: "reserve must be a percentage from 0% to 99%, e.g. \"10%\"",
    },
    Form {
        path: "reservation.step",
        good: |dice| json!(format!("{}%", 1 + dice.below(99))),
        bad: || json!(["0%", "100%", "5.5%", "5", "%", "", "05%"]),
        fix: "step must be a percentage from 1% to 99%, e.g. \"5%\"",
    },
    free("nodeSelector.matchLabels{}", zone),
    free("nodeSelector.matchExpressions[].key", key),
    free("nodeSelector.matchExpressions[].operator", operator),
    free("nodeSelector.matchExpressions[].values[]", zone),
];

/// Keys of labels, of maps and expressions.
pub fn key(dice: &mut Dice) -> Value {
    json!(dice.one(&["zone", "zone", "zone", "kubernetes.io/os", "größe/ß"]))
}

/// The operator itself refuses one that does not exist.
pub fn operator(dice: &mut Dice) -> Value {
    json!(dice.one(&["In", "NotIn", "Exists", "DoesNotExist", "NotIn", "Near"]))
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
    json!(["", "1d", "10", "0", "-1s", "2 minutes", "1h 2m", "s", "1e3s", long, short])
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
