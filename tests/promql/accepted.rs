//! The server judges PromQL: whatever it accepts, it also accepts as a query of the author's, to
//! which the request for its age may be added.
use std::{fs, path::Path};

use serde_json::Value;
use traffic_operator::{
    prometheus::Exporters,
    traffic_watch::query::{Question, Request},
};

use crate::server::{Prometheus, eventually};

/// The expressions of instant queries in the data of Prometheus' own tests.
fn expressions(folder: &Path) -> Vec<String> {
    let mut all = vec![];
    for file in fs::read_dir(folder).expect("Prometheus' test data") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("text");
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("eval instant at "));
        // The time is one word.
        all.extend(lines.filter_map(|rest| Some(rest.split_once(' ')?.1.trim().to_owned())));
    }
    all
}

#[test]
fn no_expression_that_the_server_accepts_is_refused() {
    let module = lab::tools::module_dir("lab/tools", "github.com/prometheus/prometheus");
    let folder = module.expect("the module").join("promql/promqltest/testdata");
    let features =
        "promql-experimental-functions,promql-duration-expr,promql-extended-range-selectors";
    let prometheus = Prometheus::with("accepted", &[&format!("--enable-feature={features}")]);
    eventually("an answer", || prometheus.ask("vector(1)"));
    let accepts = |query: &str| {
        let answer = prometheus.at(query, 3000).expect("an answer");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        answer["status"] == "success"
    };
    let (mut accepted, mut aged, mut refused) = (0, 0, vec![]);
    for text in expressions(&folder) {
        if !accepts(&text) {
            continue;
        }
        accepted += 1;
        let question = Question::Own(text.as_str().into());
        let asked = Request { endpoint: "default".into(), question }.promql(&Exporters::default());
        if asked != text {
            aged += 1;
            if !accepts(&asked) {
                refused.push(text);
            }
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    // The data is there, and selectors are among it.
    assert!(accepted > 1000 && aged > 20, "{accepted} accepted, {aged} of them with their age");
}
