//! The text of each question.
use super::*;

fn promql(question: Question, exporters: &Exporters) -> String {
    Request { endpoint: "default".into(), question }.promql(exporters)
}

#[test]
fn measures_and_names_agree() {
    for (i, measure) in Measure::ALL.into_iter().enumerate() {
        assert_eq!(measure.index(), i);
        assert_eq!(Measure::from_name(measure.name()), Some(measure));
    }
    assert_eq!(Measure::from_name("other"), None);
}

#[test]
fn the_age_of_a_selected_sample_is_asked_for_with_it() {
    let ask = |text: &str| promql(Question::Own(text.into()), &Exporters::default());
    for text in
        [r#"loss:1m{prober="a/b"}"#, "loss # of links", "loss offset 1m", r#"{__name__="a"}"#]
    {
        let promql = ask(text);
        assert!(promql.starts_with(text) && promql.contains("timestamp("), "{promql}");
    }
    // Computed, at a fixed time, or perhaps of two names.
    for text in ["max by (node) (loss)", "loss > 1", "loss @ 1000", r#"{__name__=~"a|b"}"#, "-loss"]
    {
        assert_eq!(ask(text), text);
    }
}

#[test]
fn a_regex_cannot_leave_its_literal() {
    let question = Question::BuiltIn {
        devices: r#"eth0"} or vector(1) #"#.into(),
        direction: Direction::Transmit,
        window: Duration::from_mins(2),
    };
    let text = promql(question.clone(), &Exporters::any(&["node"]));
    assert!(!text.contains(r#"eth0"}"#), "{text}");
    assert!(text.contains(r#"device=~"eth0\"} or vector(1) #""#), "{text}");
}

#[test]
fn every_selector_of_the_built_in_query_names_what_is_believed() {
    for direction in [Direction::Transmit, Direction::Receive, Direction::Busiest] {
        let window = Duration::from_mins(2);
        let question = Question::BuiltIn { devices: DEFAULT_DEVICES.into(), direction, window };
        let believed = r#"job="node-exporter",namespace="monitoring""#;
        let exporters =
            Exporters { node_exporter: believed.parse().unwrap(), ..Exporters::any(&["node"]) };
        let text = promql(question.clone(), &exporters);
        let (asked, other) = text.split_once("\nor label_replace(topk(").unwrap();
        let selectors = asked.matches("node_network_").count() + asked.matches("(up{").count();
        assert_eq!(asked.matches(believed).count(), selectors, "{asked}");
        assert!(!asked.contains("(up ") && selectors >= 8, "{asked}");
        // Rejected series are counted by job, and only if none is accepted.
        assert_eq!(other.matches("node_network_").count(), 2, "{other}");
        assert!(other.contains("unless on () count(") && other.contains(believed), "{other}");
        let any = promql(question.clone(), &Exporters::any(&["node"]));
        assert!(!any.contains("job=") && !any.contains("count by (job)"), "{any}");
    }
}

#[test]
fn only_the_default_is_widened_and_narrowed() {
    assert_eq!(devices("device", "eth.*"), r#"device=~"eth.*""#);
    let text = devices("device", DEFAULT_DEVICES);
    assert!(text.starts_with(&format!("device=~\"{DEFAULT_DEVICES}|")), "{text}");
    assert!(text.contains("device!~"), "{text}");
}

#[test]
fn each_direction_that_counts_is_asked_for() {
    let text = |direction| {
        let (devices, window) = ("eth0".into(), Duration::from_secs(20));
        promql(Question::BuiltIn { devices, direction, window }, &Exporters::default())
    };
    let [transmit, receive, busiest] =
        [Direction::Transmit, Direction::Receive, Direction::Busiest].map(text);
    for name in ["rate", "total", "total_before", "total_earlier"] {
        let asks = |text: &str, of: &str| text.matches(&format!("\"{of}_{name}\"")).count();
        assert_eq!((asks(&transmit, "transmit"), asks(&transmit, "receive")), (1, 0), "{transmit}");
        assert_eq!((asks(&receive, "transmit"), asks(&receive, "receive")), (0, 1), "{receive}");
        assert_eq!((asks(&busiest, "transmit"), asks(&busiest, "receive")), (1, 1), "{busiest}");
    }
    // The status shows what a node has sent, whichever direction is judged.
    assert!(receive.contains("\"total\"") && !busiest.contains("\"total\""), "{receive}");
}
