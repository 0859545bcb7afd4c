//! Reading metrics as a process exposes them (Prometheus' text format). No IO.

use std::collections::BTreeMap;

/// Returns the samples of one metric: labels and value.
pub fn samples(text: &str, name: &str) -> Vec<(BTreeMap<String, String>, f64)> {
    text.lines().filter_map(|line| sample(line.strip_prefix(name)?)).collect()
}

/// Returns the value of a metric without labels, or the sum of those with.
pub fn sum(text: &str, name: &str) -> f64 {
    samples(text, name).iter().map(|(_, value)| value).sum()
}

/// Reads the text after a metric's name; none if the name continues.
fn sample(rest: &str) -> Option<(BTreeMap<String, String>, f64)> {
    if let Some(value) = rest.strip_prefix(' ') {
        return Some((BTreeMap::new(), value.trim().parse().ok()?));
    }
    // The operator's label values hold neither quotes nor braces.
    let (labels, value) = rest.strip_prefix('{')?.rsplit_once('}')?;
    let labels = labels.split("\",").filter_map(|pair| {
        let (key, value) = pair.split_once("=\"")?;
        Some((key.to_owned(), value.trim_end_matches('"').to_owned()))
    });
    Some((labels.collect(), value.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE a gauge\na{node=\"node-1\",state=\"Fit\"} 1.0\na{node=\"node-2\",state=\"Fit\"} 0.5\nab 7\nb 2e3\n";

    #[test]
    fn labels_and_values_are_read() {
        let found = samples(TEXT, "a");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].0["node"], "node-2");
        assert!((found[1].1 - 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn a_longer_name_is_another_metric() {
        assert!((sum(TEXT, "a") - 1.5).abs() < f64::EPSILON);
        assert!((sum(TEXT, "b") - 2000.0).abs() < f64::EPSILON);
        assert!(sum(TEXT, "c").abs() < f64::EPSILON);
    }
}
