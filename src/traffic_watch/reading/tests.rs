//! Answers, sorted by node.
use super::*;
use crate::prometheus::Class;

/// The number of the first link.
fn number(node: &NodeMeasurement, measure: Measure) -> Result<Option<f64>, NoEvidence> {
    node.links()?.first().map_or(Ok(None), |link| link.number(measure))
}

fn read(result: &serde_json::Value) -> Result<Measurement, QueryError> {
    let addresses = [Arc::from("10.0.0.1")];
    let identity = Identity::new(vec![("node-1".into(), &addresses)]);
    let body = serde_json::json!({
        "status": "success", "data": {"resultType": "vector", "result": result}
    });
    let question = Question::BuiltIn {
        devices: "eth0".into(),
        direction: crate::api::traffic_watch::Direction::Transmit,
        window: std::time::Duration::from_secs(20),
    };
    let names = Names { identity: &identity, labels: &[] };
    Measurement::read(200, "application/json", body.to_string().as_bytes(), &question, names)
}

fn series(instance: &str, measure: &str, value: &str) -> serde_json::Value {
    serde_json::json!({
        "metric": {"instance": instance, "measure": measure, "device": "eth0"}, "value": [12.5, value]
    })
}

#[test]
fn sorts_by_node_and_names_what_belongs_to_none() {
    let reading = read(&serde_json::json!([
        series("10.0.0.1:9100", "transmit_rate", "8"),
        series("node-1", "age", "1"),
        series("10.0.0.9:9100", "age", "1"),
        series("10.0.0.9:9100", "transmit_total", "1"),
    ]))
    .unwrap();
    let node = reading.get("node-1").unwrap();
    let [link] = node.links().unwrap() else { panic!("{node:?}") };
    assert_eq!(link.device.as_deref(), Some("eth0"));
    assert_eq!(number(node, Measure::TransmitRate), Ok(Some(8.0)));
    assert_eq!(number(node, Measure::TransmitTotal), Ok(None));
    assert_eq!(reading.unmapped, (1, vec!["instance=10.0.0.9:9100".into()]));
    assert_eq!(reading.evaluated, Some(12.5));
}

#[test]
fn a_machine_of_another_domain_is_not_our_node() {
    // Our exporter is down but for its age.
    let reading = read(&serde_json::json!([
        series("node-1.other.example:9100", "transmit_rate", "90"),
        series("node-1.other.example:9100", "age", "1"),
        series("10.0.0.1:9100", "age", "70"),
    ]))
    .unwrap();
    let node = reading.get("node-1").unwrap();
    assert_eq!(number(node, Measure::TransmitRate), Ok(None));
    assert_eq!(number(node, Measure::Age), Ok(Some(70.0)));
    assert_eq!(reading.unmapped, (1, vec!["node-1.other.example".into()]));
    // Alone it is ours: exporters may know nodes by their full names only.
    let alone = serde_json::json!([series("node-1.our.example", "transmit_rate", "8")]);
    let reading = read(&alone).unwrap();
    assert_eq!(number(reading.get("node-1").unwrap(), Measure::TransmitRate), Ok(Some(8.0)));
}

#[test]
fn two_series_for_one_number_are_none() {
    let reading = read(&serde_json::json!([
        series("10.0.0.1:9100", "transmit_rate", "8"),
        series("node-1", "transmit_rate", "9"),
    ]))
    .unwrap();
    let value = number(reading.get("node-1").unwrap(), Measure::TransmitRate);
    assert_eq!(value, Err(NoEvidence::InvalidSample));
}

#[test]
fn names_of_a_hostile_server_are_short() {
    let long = "x".repeat(1 << 20);
    let mut named = series("node-1", "transmit_rate", "8");
    named["metric"]["device"] = long.as_str().into();
    let reading = read(&serde_json::json!([named, series(&long, "age", "1")])).unwrap();
    let device = reading.get("node-1").unwrap().links().unwrap()[0].device.as_ref().unwrap();
    assert!(device.len() < 100, "{}", device.len());
    assert!(reading.unmapped.1[0].len() < 120);
    let error = read(&serde_json::json!([series(&long, &long, "1")])).unwrap_err();
    assert!(error.message.len() < 1100);
}

#[test]
fn jobs_that_nobody_believes_are_named_and_are_about_no_node() {
    let job = |name: &str| {
        serde_json::json!({
            "metric": {"job": name, "measure": "other_job"}, "value": [0, "4"]
        })
    };
    let reading = read(&serde_json::json!([job("node"), job("a"), job("")])).unwrap();
    assert_eq!(reading.other_jobs, ["(no label job)", "a", "node"]);
    assert_eq!(reading.unmapped.0, 0);
    assert!(reading.get("node-1").is_some_and(NodeMeasurement::is_empty));
}

#[test]
fn a_series_nobody_asked_for_spoils_the_answer() {
    let error = read(&serde_json::json!([series("node-1", "other", "8")])).unwrap_err();
    assert_eq!(error.class, Class::BadAnswer);
}
