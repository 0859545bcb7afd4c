//! The check for bytes that are counted by more than one series.
use std::collections::{BTreeMap, BTreeSet};

use super::{Asked, Check, QueryError, some};

/// Checks for devices with more than one series, and shows the labels in which these differ.
pub(super) fn check(asked: &Asked, node_labels: &[String], for_whom: &str) -> Check {
    let check = "duplicates";
    let found = match &asked.duplicates {
        Ok(found) => found,
        Err(error) => return failed(check, error),
    };
    if found.exporters == 0 {
        return Check::ok(check, format!("every device has one series ({for_whom})"));
    }
    let differ = differing(&found.series, node_labels);
    let details: Vec<_> = differ.values().flatten().map(ToString::to_string).collect();
    let labels: BTreeSet<_> = differ.keys().flatten().map(|name| (*name).to_owned()).collect();
    let labels = some(&labels.into_iter().collect::<Vec<_>>());
    let message = format!("{} exporters have devices with several series", found.exporters);
    let message = format!(
        "{message}, which differ in {labels} ({for_whom}): the built-in measurement counts each \
         device once, custom queries may not"
    );
    let fix = "scrape each exporter once, and deduplicate replicas: \
               docs/reference/prometheus.md, Duplicates";
    Check::warn(check, message, fix).with(details)
}

fn failed(name: &'static str, error: &QueryError) -> Check {
    Check::fail(name, format!("the query failed: {error}"), "see the log of Prometheus")
}

/// Returns the sets of labels in which series of one device differ, each with one example.
fn differing<'a>(
    series: &'a [BTreeMap<String, String>],
    node_labels: &[String],
) -> BTreeMap<BTreeSet<&'a str>, Option<String>> {
    let key = |labels: &'a BTreeMap<String, String>| -> Vec<Option<&'a str>> {
        let names = ["instance", "device"].into_iter();
        let names = names.chain(node_labels.iter().map(String::as_str));
        names.map(|name| labels.get(name).map(String::as_str)).collect()
    };
    let mut groups: BTreeMap<_, Vec<&BTreeMap<String, String>>> = BTreeMap::new();
    for labels in series {
        groups.entry(key(labels)).or_default().push(labels);
    }
    let mut found = BTreeMap::new();
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let names: BTreeSet<&str> =
            group.iter().flat_map(|l| l.keys()).map(String::as_str).collect();
        let differ: BTreeSet<_> = names
            .into_iter()
            .filter(|name| group.iter().any(|l| l.get(*name) != group[0].get(*name)))
            .collect();
        let example = || {
            let first = group.first()?;
            let values = differ.iter().map(|name| {
                let values: BTreeSet<_> =
                    group.iter().map(|l| l.get(*name).map_or("(none)", String::as_str)).collect();
                format!("{name}: {}", values.into_iter().collect::<Vec<_>>().join(", "))
            });
            let of = |name: &str| first.get(name).map_or("", String::as_str);
            let values = values.collect::<Vec<_>>().join("; ");
            Some(format!("instance={} device={}: {values}", of("instance"), of("device")))
        };
        found.entry(differ.clone()).or_insert_with(example);
    }
    found
}
