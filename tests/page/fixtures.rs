//! Data for the page: invented states of invented clusters, at a fixed time.
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use traffic_operator::{
    api::traffic_watch::{Mode, NodeState, Summary},
    traffic_watch::overview::{
        Filter, MeasureView, NodeView, Overview, TransitionView, ValueView, WatchView,
    },
};

/// A name as bad as any source may produce: the page does not rely on the API server's rules.
pub const SCRIPT: &str = "<script>document.title='injected'</script><img src=x onerror=alert(1)>";

pub fn now() -> Timestamp {
    "2026-03-01T03:04:05.123456789Z".parse().expect("a time")
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub fn view(watches: Vec<WatchView>) -> Overview {
    Overview {
        leader: true,
        identity: "traffic-operator-6c9f7d5b4-x2x8q".into(),
        version: "0.1.0".into(),
        now: now(),
        started: ago(93_600),
        watches,
    }
}

pub fn follower() -> Overview {
    Overview {
        leader: false,
        identity: "traffic-operator-6c9f7d5b4-k7m2p".into(),
        ..view(Vec::new())
    }
}

/// Filters a view as the source does: the page relies on nothing else.
pub fn filtered(mut view: Overview, filter: &Filter) -> Overview {
    view.watches.retain(|watch| filter.admits_watch(&watch.namespace, &watch.name));
    for watch in &mut view.watches {
        watch.nodes.retain(|node| filter.admits_node(&node.name));
        watch.nodes_truncated |= watch.nodes.len() > filter.limit;
        watch.nodes.truncate(filter.limit);
    }
    view
}

pub fn percent(max: f64) -> MeasureView {
    MeasureView {
        name: "bandwidth".into(),
        unit: "percent".into(),
        max,
        recover: max * 0.9,
        endpoint: "default".into(),
        query: "max by (instance) (rate(node_network_transmit_bytes_total[2m]) / (node_network_speed_bytes > 0)) * 100".into(),
        problem: None,
    }
}

pub fn own(name: &str, unit: &str, max: f64, recover: f64) -> MeasureView {
    let query = format!("{name}:by_node");
    MeasureView { name: name.into(), unit: unit.into(), max, recover, query, ..percent(max) }
}

pub fn value(measure: &str, value: f64, unfit: bool) -> ValueView {
    ValueView {
        measure: measure.into(),
        value: Some(value),
        device: None,
        unfit: Some(unfit),
        streak: 0,
        needed: 2,
        reason: None,
    }
}

pub fn on(device: &str, value: ValueView) -> ValueView {
    ValueView { device: Some(device.into()), ..value }
}

pub fn streak(streak: u32, value: ValueView) -> ValueView {
    ValueView { streak, ..value }
}

pub fn without(measure: &str, reason: &str) -> ValueView {
    ValueView {
        value: None,
        unfit: None,
        reason: Some(reason.into()),
        ..value(measure, 0.0, false)
    }
}

pub fn node(
    name: &str,
    state: NodeState,
    reason: &str,
    since: i64,
    values: Vec<ValueView>,
) -> NodeView {
    NodeView {
        name: name.into(),
        state,
        reason: (!reason.is_empty()).then(|| reason.into()),
        since: ago(since),
        unfit: state == NodeState::Unfit,
        age_seconds: Some(4.0),
        reservation: None,
        values,
    }
}

pub fn transition(
    at: i64,
    node: &str,
    from: NodeState,
    to: NodeState,
    why: &str,
) -> TransitionView {
    TransitionView { at: ago(at), node: node.into(), from, to, reason: why.into() }
}

pub fn watch(
    namespace: &str,
    name: &str,
    measures: Vec<MeasureView>,
    nodes: Vec<NodeView>,
) -> WatchView {
    let count = |state| {
        let of_state = nodes.iter().filter(|node| node.state == state).count();
        u32::try_from(of_state).expect("few")
    };
    let all = u32::try_from(nodes.len()).expect("few");
    WatchView {
        namespace: namespace.into(),
        name: name.into(),
        label: format!("{name}.traffic.example.com/unfit"),
        mode: Mode::Enforce,
        paused: false,
        interval_seconds: Duration::from_secs(10).as_secs_f64(),
        summary: Summary {
            nodes: all,
            fit: count(NodeState::Fit),
            unfit: count(NodeState::Unfit),
            unknown: count(NodeState::Unknown),
            suppressed: count(NodeState::Suppressed),
            marked: count(NodeState::Unfit),
        },
        limit: all / 2,
        room: all,
        last_success: Some(ago(4)),
        measures,
        nodes,
        nodes_truncated: false,
        transitions: Vec::new(),
    }
}

/// An ordinary night: the view in the pictures of the documentation.
pub fn night() -> Overview {
    use NodeState::{Fit, Suppressed, Unfit, Unknown};
    let bandwidth = |percent, unfit| on("eth0", value("bandwidth", percent, unfit));
    let loss = |ratio, unfit| value("loss", ratio, unfit);
    let mut web = watch(
        "shop",
        "web",
        vec![percent(60.0), own("loss", "", 0.01, 0.008)],
        vec![
            node(
                "node-2",
                Unfit,
                "bandwidth",
                754,
                vec![bandwidth(81.237, true), loss(0.0004, false)],
            ),
            node(
                "node-5",
                Unfit,
                "loss",
                161,
                vec![bandwidth(31.9, false), streak(1, loss(0.0074, true))],
            ),
            node(
                "node-7",
                Suppressed,
                "bandwidth",
                48,
                vec![on("enp3s0", value("bandwidth", 66.02, true)), loss(0.0, false)],
            ),
            node(
                "node-4",
                Unknown,
                "SpeedUnknown",
                5400,
                vec![without("bandwidth", "SpeedUnknown"), loss(0.0011, false)],
            ),
            node(
                "node-1",
                Fit,
                "",
                176_400,
                vec![streak(1, bandwidth(62.4, false)), loss(0.0002, false)],
            ),
            node("node-3", Fit, "", 2400, vec![bandwidth(12.51, false), loss(0.0, false)]),
            node("node-6", Fit, "", 176_400, vec![bandwidth(0.0421, false), loss(0.0, false)]),
        ],
    );
    web.limit = 2;
    web.transitions = vec![
        transition(48, "node-7", Fit, Suppressed, "bandwidth"),
        transition(161, "node-5", Fit, Unfit, "loss"),
        transition(754, "node-2", Fit, Unfit, "bandwidth"),
        transition(2400, "node-3", Unfit, Fit, "Measured"),
    ];
    let uplink = |bits, unfit| on("bond0", value("bandwidth", bits, unfit));
    let mut backup = watch(
        "infra",
        "backup",
        vec![own("bandwidth", "bits_per_second", 8e9, 7.2e9)],
        vec![
            node("node-2", Fit, "", 176_400, vec![uplink(812_000_000.0, false)]),
            node("node-3", Fit, "", 176_400, vec![uplink(5_251_000_000.0, false)]),
            node("node-6", Fit, "", 176_400, vec![uplink(930.0, false)]),
        ],
    );
    backup.mode = Mode::Observe;
    view(vec![backup, web])
}

/// Everything that may break a page: names, sizes, missing values.
pub fn hard() -> Overview {
    use NodeState::{Fit, Suppressed, Unfit, Unknown};
    let long = "n".repeat(253);
    let mut odd = watch(
        "täst",
        SCRIPT,
        vec![MeasureView { problem: Some(format!("timeout {SCRIPT}")), ..percent(60.0) }],
        vec![
            node(&long, Unfit, SCRIPT, 5, vec![on(&long, value("bandwidth", 99.0, true))]),
            node("узел-1", Suppressed, "", 5, vec![value("bandwidth", 61.0, true)]),
            node(
                SCRIPT,
                Unknown,
                "NoSample",
                5,
                vec![ValueView {
                    reason: Some("NoSample".into()),
                    ..value("bandwidth", 20.0, false)
                }],
            ),
            node("bare", Fit, "", 5, Vec::new()),
        ],
    );
    odd.label = format!("{}.traffic.example.com/unfit", "l".repeat(233));
    odd.transitions =
        vec![transition(9, SCRIPT, Fit, Unknown, SCRIPT), transition(9, &long, Fit, Unfit, "x")];
    let mut paused = watch("a", &"w".repeat(253), vec![percent(0.0015)], Vec::new());
    paused.paused = true;
    paused.last_success = None;
    view(vec![
        odd,
        paused,
        fleet(200),
        watch(
            "a",
            "second",
            vec![own("rtt", "", 25.0, 20.0)],
            vec![node("n1", Fit, "", 5, vec![value("rtt", 24.5, false)])],
        ),
    ])
}

/// A large cluster, mostly quiet.
pub fn fleet(count: u32) -> WatchView {
    let nodes = (0..count).map(|i| {
        let state = match i {
            0..3 => NodeState::Unfit,
            3..5 => NodeState::Unknown,
            _ => NodeState::Fit,
        };
        let percent = f64::from(i % 60);
        node(
            &format!("worker-{i:04}"),
            state,
            "",
            i64::from(i),
            vec![value("bandwidth", percent, false)],
        )
    });
    watch("fleet", "all", vec![percent(60.0)], nodes.collect())
}
