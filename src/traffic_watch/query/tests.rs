//! The text of each question.
use super::*;

#[test]
fn measures_and_names_agree() {
    for (i, measure) in Measure::ALL.into_iter().enumerate() {
        assert_eq!(measure.index(), i);
        assert_eq!(Measure::from_name(measure.name()), Some(measure));
    }
    assert_eq!(Measure::from_name("other"), None);
}

#[test]
fn n08_the_age_of_a_selected_sample_is_asked_for_with_it() {
    let ask = |text: &str| Question::Own(text.into()).promql(&Exporters::default());
    for text in
        [r#"loss:1m{prober="a/b"}"#, "loss # of links", "loss offset 1m", r#"{__name__="a"}"#]
    {
        let promql = ask(text);
        assert!(promql.starts_with(text) && promql.contains("timestamp("), "{promql}");
        crate::prometheus::promql::check_vector(&promql).unwrap();
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
        speed: false,
    };
    let text = question.promql(&Exporters::any(&["node"]));
    assert!(!text.contains(r#"eth0"}"#), "{text}");
    assert!(text.contains(r#"device=~"eth0\"} or vector(1) #""#), "{text}");
}

#[test]
fn t04_a_label_that_names_the_node_is_never_summed_away() {
    let question = Question::BuiltIn {
        devices: "eth0".into(),
        direction: Direction::Transmit,
        window: Duration::from_mins(2),
        speed: false,
    };
    assert!(question.promql(&Exporters::any(&["node"])).contains("without (pod, "));
    let text = question.promql(&Exporters::any(&["pod"]));
    assert!(text.contains("without (pod_name, "), "{text}");
}

#[test]
fn s04_every_selector_of_the_built_in_query_names_what_is_believed() {
    for direction in [Direction::Transmit, Direction::Receive, Direction::Busiest] {
        let window = Duration::from_mins(2);
        let (devices, speed) = (DEFAULT_DEVICES.into(), true);
        let question = Question::BuiltIn { devices, direction, window, speed };
        let believed = r#"job="node-exporter",namespace="monitoring""#;
        let exporters =
            Exporters { node_exporter: believed.parse().unwrap(), ..Exporters::any(&["node"]) };
        let text = question.promql(&exporters);
        let (asked, other) = text.split_once("\nor label_replace(topk(").unwrap();
        let selectors = asked.matches("node_network_").count() + asked.matches("(up{").count();
        assert_eq!(asked.matches(believed).count(), selectors, "{asked}");
        assert!(!asked.contains("(up ") && selectors >= 6, "{asked}");
        // Rejected series are counted by job, and only if none is accepted.
        assert_eq!(other.matches("node_network_").count(), 2, "{other}");
        assert!(other.contains("unless on () count(") && other.contains(believed), "{other}");
        crate::prometheus::promql::check_vector(&text).unwrap();
        let any = question.promql(&Exporters::any(&["node"]));
        assert!(!any.contains("job=") && !any.contains("count by (job)"), "{any}");
    }
}

#[test]
fn t05_only_the_default_is_widened_and_narrowed() {
    assert_eq!(devices("eth.*"), r#"device=~"eth.*""#);
    let text = devices(DEFAULT_DEVICES);
    assert!(text.starts_with(&format!("device=~\"{DEFAULT_DEVICES}|")), "{text}");
    assert!(text.contains("device!~"), "{text}");
}

#[test]
fn the_busiest_direction_is_never_a_sum_of_both() {
    let question = |direction| Question::BuiltIn {
        devices: "eth0".into(),
        direction,
        window: Duration::from_secs(20),
        speed: false,
    };
    let text = question(Direction::Busiest).promql(&Exporters::default());
    for name in ["transmit_percent", "receive_percent", "transmit_bytes", "receive_bytes"] {
        assert_eq!(text.matches(&format!("\"{name}\"")).count(), 1, "{text}");
    }
    assert!(!text.contains(" + "), "{text}");
    let receive = question(Direction::Receive).promql(&Exporters::default());
    assert!(!receive.contains("transmit_percent"), "{receive}");
}

#[test]
fn the_speed_itself_is_asked_for_only_where_something_depends_on_it() {
    let ask = |speed| {
        let (devices, direction) = ("eth0".into(), Direction::Transmit);
        let window = Duration::from_mins(2);
        let question = Question::BuiltIn { devices, direction, window, speed };
        question.promql(&Exporters::default())
    };
    assert_eq!(ask(false).matches("\"speed\"").count(), 0);
    assert_eq!(ask(true).matches("\"speed\"").count(), 1);
}

#[test]
fn what_is_only_shown_is_asked_for_apart_from_what_decides() {
    for direction in [Direction::Transmit, Direction::Receive, Direction::Busiest] {
        let (devices, window) = ("eth0".into(), Duration::from_mins(2));
        let question = Question::BuiltIn { devices, direction, window, speed: true };
        let parts = |text: String| text.split("\nor ").map(str::to_owned).collect::<Vec<_>>();
        let all = parts(question.promql(&Exporters::default()));
        let deciding = parts(question.deciding(&Exporters::default()));
        let (totals, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|part| part.contains("\"total\""));
        assert_eq!((totals.len(), rest), (1, deciding));
    }
    let own = Question::Own("loss".into());
    assert_eq!(own.promql(&Exporters::default()), own.deciding(&Exporters::default()));
}
