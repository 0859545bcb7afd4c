//! The panels of Grafana dashboards: what they ask Prometheus for.

use std::cmp::Reverse;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cluster::Cluster;

#[derive(Debug)]
pub struct Panel {
    pub title: String,
    /// The text that the panel shows instead of data; none = it always has data.
    pub no_value: Option<String>,
    /// Its expressions, with all values for every variable, or the one that is entered.
    pub queries: Vec<String>,
}

/// Returns the panels of a dashboard, those of folded rows included.
pub fn panels(file: &Path, rate_interval: &str, range: &str) -> Result<Vec<Panel>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut values = vec![("__rate_interval".into(), rate_interval.to_owned())];
    values.push(("__range".into(), range.to_owned()));
    for variable in list(&dashboard["templating"]["list"]) {
        let entered = variable["current"]["value"].as_str().filter(|_| variable["type"] != "query");
        let value = entered.or(variable["allValue"].as_str()).unwrap_or(".*");
        values.push((variable["name"].as_str().context("name")?.to_owned(), value.to_owned()));
    }
    // $name is the beginning of $namespace.
    values.sort_by_key(|(name, _): &(String, _)| Reverse(name.len()));
    let substitute = |query: &str| {
        values.iter().fold(query.to_owned(), |text, (name, value)| {
            text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
        })
    };
    let rows = list(&dashboard["panels"]);
    let panels =
        rows.into_iter().flat_map(|row| [vec![row.clone()], list(&row["panels"])].concat());
    panels
        .map(|panel| {
            let targets = list(&panel["targets"]);
            let queries =
                targets.iter().map(|t| t["expr"].as_str().map(substitute).context("expr"));
            Ok(Panel {
                title: panel["title"].as_str().context("title")?.to_owned(),
                no_value: panel["fieldConfig"]["defaults"]["noValue"].as_str().map(str::to_owned),
                queries: queries.collect::<Result<_>>()?,
            })
        })
        .collect()
}

/// Returns the titles of panels for which the cluster's Prometheus had no data in the last minutes,
/// apart from those that have a text for that.
pub async fn without_data(cluster: &Cluster, file: &Path, minutes: u64) -> Result<Vec<String>> {
    let mut empty = Vec::new();
    // Four scrapes of the operator and of agents.
    for panel in panels(file, "1m", &format!("{minutes}m"))? {
        let mut data = panel.queries.is_empty();
        for query in panel.queries {
            // A quantile of nothing is NaN, for which no comparison holds.
            let query = format!("last_over_time((({query}) > -Inf)[{minutes}m:5s])");
            data |= !cluster.query(&query).await.with_context(|| panel.title.clone())?.is_empty();
        }
        if !data && panel.no_value.is_none() {
            empty.push(panel.title);
        }
    }
    Ok(empty)
}
