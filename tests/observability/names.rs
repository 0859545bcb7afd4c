//! The names of all metrics that rules, panels and documents may query.
use traffic_operator::{agent, metrics, network_prober::rules};

/// Returns every name that can be queried: exported by the operator, by an agent or by a worker, or
/// recorded.
pub fn all() -> impl Iterator<Item = &'static str> {
    [metrics::NAMES, agent::metrics::NAMES, agent::worker::metrics::NAMES, rules::NAMES]
        .into_iter()
        .flatten()
        .copied()
}

/// Reports whether such a series exists, including the parts of a histogram.
pub fn is_known(name: &str) -> bool {
    let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    // Units are at the end of a family's name; the original agent abbreviated its seconds.
    let histogram = family.filter(|f| f.ends_with("_seconds") || f.ends_with("_latency_s"));
    all().any(|known| known == name || histogram == Some(known))
}
