//! Recordings replayed under several thresholds.
use serde_json::json;

use super::*;
use crate::prometheus::Class;

mod gaps;

fn watch() -> TrafficWatch {
    serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"maxBandwidthPercent": "60", "paused": true}
    }))
    .unwrap()
}

fn range(percents: &[&str]) -> Answer {
    let series = |measure: &str, value: &dyn Fn(usize) -> String| {
        let values: Vec<_> =
            (0..percents.len()).map(|i| json!([1000 + 10 * i, value(i)])).collect();
        json!({"metric": {"instance": "a:9100", "measure": measure, "device": "eth0"}, "values": values})
    };
    let result = json!([
        series("transmit_rate", &|i| percents[i].to_owned()),
        series("transmit_total", &|_| "1".into()),
        series("transmit_total_before", &|_| "1".into()),
        series("speed", &|_| "100".into()),
        series("age", &|_| "1".into()),
        series("age_before", &|_| "121".into()),
    ]);
    let body = json!({"status": "success", "data": {"resultType": "matrix", "result": result}});
    Answer {
        status: 200,
        content_type: "application/json".into(),
        body: body.to_string().into_bytes(),
    }
}

fn facts() -> Vec<NodeFacts> {
    ["a", "b"].map(|name| NodeFacts::named(name.into())).into()
}

#[test]
fn steps_make_the_states_that_the_operator_would_make() {
    use NodeState::{Fit, Unfit};
    let inquiry = Inquiry::of(&watch(), &Exporters::default()).unwrap();
    let identity = Identity::new(vec![("a".into(), &[]), ("b".into(), &[])]);
    let grid = Grid { start: 1_000_000, step: 10_000, len: 6 };
    let answer = range(&["70", "70", "58", "50", "50", "50"]);
    let recording = inquiry.record(0, &answer, &identity, grid).unwrap();
    let mut replay = Replay::new(&watch(), true);
    let states: Vec<_> = (0..grid.len)
        .map(|place| {
            let now = Timestamp::from_millisecond(grid.at(place)).unwrap();
            let reading = Ok(Arc::new(recording.at(place, &identity)));
            let step = replay.step(now, facts(), &[reading]).unwrap();
            // One of two nodes has data: that is enough.
            assert_eq!(step.evaluation, Evaluation::Ok);
            replay.states().next().unwrap().1
        })
        .collect();
    assert_eq!(states, [Fit, Unfit, Unfit, Unfit, Fit, Fit]);
    assert_eq!(replay.value("a"), Some(50.0));
    let nodes = replay.nodes();
    assert_eq!(
        (nodes[1].state, nodes[1].reason.as_deref()),
        (NodeState::Unknown, Some("NoSample"))
    );
}

#[test]
fn a_failed_query_is_reported_where_no_node_is_known() {
    let mut replay = Replay::new(&watch(), true);
    let error = QueryError::new(Class::Unreachable, "connection refused");
    let step = replay.step(Timestamp::UNIX_EPOCH, vec![], &[Err(error)]).unwrap();
    assert_eq!(step.evaluation, Evaluation::Failed);
    let metrics = step.conditions.iter().find(|one| one.type_ == "MetricsAvailable").unwrap();
    let found = (metrics.status, metrics.reason, &*metrics.message);
    assert_eq!(found, (Some(false), "PrometheusUnreachable", "connection refused"));
}

#[test]
fn a_moment_between_the_steps_is_an_error_and_one_outside_is_left_out() {
    let grid = Grid { start: 1_000_000, step: 10_000, len: 2 };
    for (seconds, place) in [(1000.0, Some(0)), (1010.0, Some(1)), (1020.0, None), (990.0, None)] {
        assert_eq!(grid.place(seconds), Ok(place), "{seconds}");
    }
    let error = grid.place(1005.0).unwrap_err();
    assert!(error.message.contains("1005 s is 5000 ms after one of them"), "{error}");
}
