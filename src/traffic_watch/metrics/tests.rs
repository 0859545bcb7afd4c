use k8s_openapi::jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeMetric, text},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use serde_json::json;

use super::*;
use crate::{
    api::TrafficWatch,
    metrics::{CHUNK, Metrics},
    traffic_watch::{
        memory::{Decided, Facts, NodeTable, Reason, Sample},
        reading::NoEvidence,
        settings::Settings,
    },
};

/// An object with this number of nodes in each state.
fn decided(nodes: usize, state: impl Fn(usize) -> NodeState) -> Decided {
    let watch: TrafficWatch = serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web"}, "spec": {"maxBandwidthPercent": "60"},
    }))
    .unwrap();
    let criteria: Arc<[_]> = Settings::of(&watch).unwrap().criteria.into();
    let names = (0..nodes).map(|number| format!("worker-{number:05}.cluster.example.com").into());
    let memory = |number| {
        let mut node = NodeMemory::from_status(&criteria, None, None, 0, Timestamp::UNIX_EPOCH);
        node.state = state(number);
        for side in node.sides_mut() {
            let (value, age) = (10.5, 3.2);
            let sample = Sample { value, percent: value, total: 1, time: 1, age, device: None };
            side.last = Some(sample);
        }
        node
    };
    let table = NodeTable::sorted(names, (0..nodes).map(memory).collect());
    let memory = Memory { tick: Some(1), nodes: table, criteria, ..Memory::default() };
    Decided { memory, facts: Facts::default(), transitions: vec![], evaluation: None }
}

fn page(memories: &Memories, most: usize) -> String {
    #[derive(Debug)]
    struct Limited(Gauges, usize);
    impl Collector for Limited {
        fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
            self.0.encode_pairs(&mut encoder, self.1)
        }
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Limited(Gauges(memories.clone()), most)));
    let mut page = String::new();
    text::encode_registry(&mut page, &registry).unwrap();
    page
}

fn put(memories: &Memories, name: &str, decided: Decided) {
    memories.change(&("ns".into(), name.into()), |entry| entry.decided(decided));
}

fn series<'a>(page: &'a str, family: &str) -> Vec<&'a str> {
    let family = format!("traffic_operator_trafficwatch_{family}{{");
    page.lines().filter(|line| line.starts_with(&family)).collect()
}

#[test]
fn a_fit_node_has_its_value_only_and_series_go_with_their_object() {
    let memories = Memories::default();
    put(&memories, "web", decided(2, |n| [NodeState::Unfit, NodeState::Fit][n]));
    let before = page(&memories, PAIRS);
    let states = series(&before, "node_state");
    assert_eq!(states.len(), 1, "{states:?}");
    assert!(states[0].contains("worker-00000") && states[0].ends_with("state=\"Unfit\"} 1.0"));
    for (family, count) in
        [("node_value", 2), ("node_threshold", 1), ("node_sample_age_seconds", 1), ("threshold", 1)]
    {
        assert_eq!(series(&before, family).len(), count, "{family}");
    }
    memories.forget(&("ns".into(), "web".into()));
    assert_eq!(page(&memories, PAIRS), "");
}

#[test]
fn a_node_that_is_not_fit_has_a_series_with_the_reason_and_one_with_the_time() {
    let states = [
        NodeState::Fit,
        NodeState::Unfit,
        NodeState::Suppressed,
        NodeState::Unknown,
        NodeState::Unfit,
    ];
    let mut web = decided(5, |n| states[n]);
    web.facts.interval = Duration::from_secs(30);
    let edited = web.memory.nodes.iter().map(|(name, node)| {
        let mut node = node.clone();
        node.since = Timestamp::from_second(1_767_225_600).unwrap();
        let state = node.state;
        for side in node.sides_mut() {
            side.judged = Some(matches!(state, NodeState::Unfit | NodeState::Suppressed));
            side.missing = (state == NodeState::Unknown).then_some(NoEvidence::NoSample);
            side.last.as_mut().unwrap().device = Some("eth0".into());
        }
        node.reason = match state {
            NodeState::Suppressed => Some(Reason::LimitReached),
            NodeState::Unknown => Some(Reason::NoEvidence(NoEvidence::NoSample)),
            _ => None,
        };
        // Its label was set by a measure that is not there any more.
        if name.contains("worker-00004") {
            node.sides_mut().for_each(|side| side.judged = None);
        }
        (Arc::clone(name), node)
    });
    let (names, nodes): (Vec<_>, _) = edited.unzip();
    web.memory.nodes = NodeTable::sorted(names.into_iter(), nodes);
    let memories = Memories::default();
    put(&memories, "web", web);
    let page = page(&memories, PAIRS);
    let own = |number: usize| {
        format!("namespace=\"ns\",name=\"web\",node=\"worker-{number:05}.cluster.example.com\"")
    };
    let infos = series(&page, "node_info");
    let expected = [
        (1, "Unfit", "bandwidth", "Measured", "eth0"),
        (4, "Unfit", "", "", ""),
        (2, "Suppressed", "bandwidth", "LimitReached", "eth0"),
        (3, "Unknown", "bandwidth", "NoSample", "eth0"),
    ];
    let expected = expected.map(|(number, state, criterion, reason, device)| {
        format!(
            "traffic_operator_trafficwatch_node_info{{{},state=\"{state}\",criterion=\"{criterion}\",\
             reason=\"{reason}\",device=\"{device}\"}} 1.0",
            own(number)
        )
    });
    assert_eq!(infos, expected);
    let times = series(&page, "node_state_since_timestamp_seconds");
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(times[0].contains(&own(1)) && times[0].ends_with("} 1767225600.0"), "{times:?}");
    let interval =
        "traffic_operator_trafficwatch_interval_seconds{namespace=\"ns\",name=\"web\"} 30.0";
    assert_eq!(series(&page, "interval_seconds"), [interval]);
}

#[test]
fn of_several_measures_the_worst_names_the_reason_of_a_node() {
    let mut web = decided(1, |_| NodeState::Unfit);
    let load = Criterion { name: "load".into(), max: 5.0, ..web.memory.criteria[0].clone() };
    let new: Arc<[_]> = [web.memory.criteria[0].clone(), load].into();
    let edited = web.memory.nodes.iter().map(|(name, node)| {
        let mut node = node.clone().with_criteria(&web.memory.criteria, &new);
        for (side, value) in node.sides_mut().zip([70.0, 20.0]) {
            let (percent, age) = (f64::NAN, f64::NAN);
            let sample = Sample { value, percent, total: 0, time: 1, age, device: None };
            (side.judged, side.last) = (Some(true), Some(sample));
        }
        (Arc::clone(name), node)
    });
    let (names, nodes): (Vec<_>, _) = edited.unzip();
    web.memory.nodes = NodeTable::sorted(names.into_iter(), nodes);
    web.memory.criteria = new;
    let memories = Memories::default();
    put(&memories, "web", web);
    let page = page(&memories, PAIRS);
    let infos = series(&page, "node_info");
    // 70 of 60 percent, and four times the load.
    assert!(infos.len() == 1 && infos[0].contains("criterion=\"load\""), "{infos:?}");
}

#[test]
fn no_lock_is_held_and_no_piece_is_large_while_100_000_pairs_are_encoded() {
    const OBJECTS: usize = 20;
    let (memories, metrics) = (Memories::default(), Metrics::new());
    for number in 0..OBJECTS {
        put(&memories, &format!("watch-{number}"), decided(5_000, |_| NodeState::Fit));
    }
    metrics.register_streaming(Box::new(Gauges(memories.clone())));
    let (mut pieces, mut total) = (0_usize, 0);
    metrics
        .stream(|piece| {
            // Passes and new collectors need the lock meanwhile. If it were held, this would wait
            // for ever.
            memories.change(&("ns".into(), "watch-0".into()), |_| ());
            if pieces == 0 {
                metrics.register(Box::new(Gauges(Memories::default())));
            }
            metrics.reconciled("trafficwatch", "", std::time::Duration::ZERO, Some("new label"));
            assert!(piece.len() <= CHUNK && piece.capacity() <= CHUNK, "{}", piece.capacity());
            (pieces, total) = (pieces + 1, total + piece.len());
            Ok(())
        })
        .unwrap();
    println!("{total} bytes in {pieces} pieces of at most {CHUNK}");
    assert!(total > 1 << 20, "{total}: too small to prove anything");
    assert!(total <= 2_000_000, "{total}: the page has its limit");
}

#[test]
fn above_the_limit_every_object_keeps_a_share_and_the_nodes_that_need_attention() {
    let memories = Memories::default();
    // The last ones by name need attention.
    let states = |n: usize| match n {
        97 => NodeState::Unknown,
        98 => NodeState::Suppressed,
        99 => NodeState::Unfit,
        _ => NodeState::Fit,
    };
    put(&memories, "large", decided(100, states));
    put(&memories, "small", decided(3, |_| NodeState::Fit));
    let page = page(&memories, 10);
    let of = |family: &str, name: &str| {
        let all = series(&page, family).into_iter();
        all.filter(|line| line.contains(&format!("name=\"{name}\""))).collect::<Vec<_>>()
    };
    assert_eq!(of("node_value", "small").len(), 3, "the large one does not take its share");
    let large = of("node_value", "large");
    assert_eq!(large.len(), 7);
    for node in ["worker-00097", "worker-00098", "worker-00099", "worker-00000", "worker-00003"] {
        assert!(large.iter().any(|line| line.contains(node)), "{node} is not in {large:?}");
    }
    for family in ["node_state", "node_threshold", "node_sample_age_seconds"] {
        assert_eq!(of(family, "large").len(), 3, "{family}");
    }
    // Omitted nodes are counted, and the figures of the object as a whole are exported.
    assert!(of("nodes_not_exported", "large")[0].ends_with(" 93.0"));
    assert!(of("nodes_not_exported", "small")[0].ends_with(" 0.0"));
    assert_eq!(of("nodes", "large").len(), NodeState::ALL.len());
}

#[test]
fn a_reader_that_went_away_ends_the_encoding() {
    let (memories, metrics) = (Memories::default(), Metrics::new());
    put(&memories, "web", decided(5_000, |_| NodeState::Fit));
    metrics.register_streaming(Box::new(Gauges(memories)));
    let mut asked = 0;
    let result = metrics.stream(|_| {
        asked += 1;
        Err(fmt::Error)
    });
    assert!(result.is_err() && asked == 1, "{asked}");
}

/// An alert about requests that failed before the pause would last for an hour.
#[test]
fn an_object_that_is_paused_has_no_interval() {
    let memories = Memories::default();
    let mut web = decided(1, |_| NodeState::Fit);
    web.facts.interval = Duration::from_secs(30);
    let paused = Facts { paused: true, ..web.facts.clone() };
    put(&memories, "web", web);
    assert_eq!(series(&page(&memories, PAIRS), "interval_seconds").len(), 1);
    memories.change(&("ns".into(), "web".into()), |entry| entry.pause(paused));
    assert_eq!(series(&page(&memories, PAIRS), "interval_seconds").len(), 0);
}

#[test]
fn marked_nodes_have_a_figure_of_their_own_because_they_may_be_unknown() {
    let memories = Memories::default();
    let mut web = decided(3, |_| NodeState::Unknown);
    web.memory.summary.marked = 2;
    put(&memories, "web", web);
    let marked = "traffic_operator_trafficwatch_marked{namespace=\"ns\",name=\"web\"} 2.0";
    assert_eq!(series(&page(&memories, PAIRS), "marked"), [marked]);
}

#[test]
fn a_share_is_never_more_than_there_is_and_leaves_nothing_that_someone_could_use() {
    for (sizes, most, expected) in [
        (vec![], 10, usize::MAX),
        (vec![3, 4], 10, usize::MAX),
        (vec![3, 100], 10, 7),
        (vec![100, 100], 10, 5),
        (vec![1, 100, 1, 100], 10, 4),
        (vec![100, 100, 100], 2, 0),
    ] {
        let share = share(&mut sizes.clone(), most);
        assert_eq!(share, expected, "{sizes:?}");
        let used: usize = sizes.iter().map(|size| share.min(*size)).sum();
        assert!(used <= most, "{sizes:?}");
    }
}

/// The same series twice: once with each label by itself, once as here.
#[derive(Debug)]
struct Twice([&'static str; 4]);

impl Collector for Twice {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let [namespace, node, criterion, unit] = self.0;
        let mut family = encoder.encode_descriptor("a", "b", None, MetricType::Gauge)?;
        let each =
            [("namespace", namespace), ("node", node), ("criterion", criterion), ("unit", unit)];
        ConstGauge::new(1.5).encode(family.encode_family(&each)?)?;
        let before = joined(&each[..1], "node");
        let last = joined(&each[2..3], "unit");
        let labels = NodeLabels { before: &before, node, last: (&last, unit) };
        ConstGauge::new(1.5).encode(family.encode_family(&labels)?)
    }
}

#[test]
fn labels_are_written_as_the_encoder_writes_each_by_itself() {
    for values in [["default", "worker-1", "bandwidth", "percent"], ["a\"", "b\\", "c\n", ""]] {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Twice(values)));
        let mut page = String::new();
        text::encode_registry(&mut page, &registry).unwrap();
        let series: Vec<_> = page.lines().filter(|line| line.starts_with("a{")).collect();
        assert_eq!(series.len(), 2, "{page}");
        assert_eq!(series[0], series[1]);
    }
}
