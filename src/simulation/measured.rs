//! The simulated Prometheus: it answers the built-in query from a table of loads, as they were
//! when each node was last scraped.
use std::{collections::BTreeMap, time::Duration};

use futures::FutureExt;
use serde_json::{Value, json};

use super::{
    dice::{Dice, number},
    faults::Fault,
    loads::{Exporter, SCRAPE, millis},
    oracle::Ask,
    weakened::Weakened,
    world::World,
};
use crate::{
    clock,
    prometheus::{Class, QueryError, simulated::Answer},
};

/// Bytes per second of each link: one gigabit.
const LINK: f64 = 125e6;

/// The default of `spec.window`, in seconds.
const WINDOW: f64 = 120.0;

/// A sample of one node, evaluated now.
fn element(node: &str, measure: &str, value: &Value) -> Value {
    let metric = json!({
        "instance": format!("{node}:9100"), "node": node, "device": "eth0", "measure": measure,
    });
    json!({"metric": metric, "value": [clock::timestamp().as_duration().as_secs_f64(), value]})
}

struct Outcome {
    after: Duration,
    code: u16,
    body: Option<String>,
}

impl World {
    pub fn answer(&self, promql: &str) -> Answer {
        assert!(promql.contains("transmit_rate"), "another query: {promql}");
        let outcome = self.measure();
        async move {
            tokio::time::sleep(outcome.after).await;
            let Some(body) = outcome.body else {
                return Err(QueryError::new(Class::Unreachable, "no connection"));
            };
            let response = http::Response::builder().status(outcome.code);
            let response = response.header("content-type", "application/json");
            Ok(response.body(body).unwrap().into())
        }
        .boxed()
    }

    fn measure(&self) -> Outcome {
        let now = self.now();
        let mut state = self.state();
        state.loads.asked += 1;
        let mut dice = Dice::of(&[self.seed(), number(b"prometheus"), state.loads.asked]);
        let mut after = Duration::from_millis(dice.between(1, 30));
        let (mut partial, mut empty, mut failed) = (100, false, None);
        let mut is_certain = true;
        for fault in state.faults(now) {
            match fault {
                Fault::Unreachable => failed = Some((200, None)),
                Fault::Answers(code) => failed = Some((code, Some("trouble".to_owned()))),
                Fault::Silent => after = Duration::from_hours(1),
                Fault::Late(most) => {
                    after += Duration::from_millis(dice.below(most));
                    is_certain = false;
                }
                Fault::Partial(percent) => partial = percent,
                Fault::Empty => empty = true,
                _ => continue,
            }
            state.tally.faults += 1;
        }
        let never = after > Duration::from_mins(1);
        if never || failed.is_some() {
            state.oracle.asked(Ask { at: now, values: None, is_certain });
            let (code, body) = failed.unwrap_or_default();
            return Outcome { after, code, body };
        }
        let names: Vec<_> = state.loads.nodes.keys().cloned().collect();
        let (mut result, mut values) = (vec![], BTreeMap::new());
        for node in names {
            if empty || !dice.percent(partial) {
                continue;
            }
            let exporter = state.loads.exporters.get(&node).copied().unwrap_or_default();
            let invents = state.weakened == Weakened::Absence && exporter != Exporter::Up;
            let Some((percent, at)) = state.loads.scraped(&node, exporter, millis(now)) else {
                continue;
            };
            let percent = if invents { 0.0 } else { percent };
            if exporter == Exporter::Missing && !invents {
                continue;
            }
            let at = if invents { millis(now) / SCRAPE * SCRAPE } else { at };
            let age = Duration::from_millis(millis(now) - at).as_secs_f64();
            // As `rate` shows it: a target that is down has none.
            let is_down = age > 15.0;
            let odd = exporter == Exporter::Odd && !invents;
            let shown = |value: f64| json!(if odd { "NaN".into() } else { value.to_string() });
            let times = if exporter == Exporter::Twice && !invents { 2 } else { 1 };
            for _ in 0..times {
                if !is_down {
                    let bytes = percent / 100.0 * LINK;
                    result.push(element(&node, "transmit_rate", &shown(bytes)));
                    result.push(element(&node, "transmit_total", &json!((at * 1000).to_string())));
                }
                for (measure, value) in [
                    ("transmit_total_before", json!((at * 1000).to_string())),
                    ("speed", json!(LINK.to_string())),
                    ("age", json!(age.to_string())),
                    ("age_before", json!((age + WINDOW).to_string())),
                ] {
                    result.push(element(&node, measure, &value));
                }
            }
            let is_evidence = matches!(exporter, Exporter::Up | Exporter::Stale(_)) && !is_down;
            if is_evidence {
                values.insert(node, (percent, at));
            }
        }
        let scrapes = json!({"metric": {"measure": "scrapes"}, "value": [0, "24"]});
        if !result.is_empty() {
            result.push(scrapes);
        }
        let data = json!({"resultType": "vector", "result": result});
        let body = json!({"status": "success", "data": data}).to_string();
        state.oracle.asked(Ask { at: now, values: Some(values), is_certain });
        Outcome { after, code: 200, body: Some(body) }
    }
}
