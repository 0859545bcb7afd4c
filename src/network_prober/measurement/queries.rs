//! The queries to Prometheus: PromQL about one `NetworkProber`, over the series that its rules
//! record.
use super::{RECENT, SILENT, Subject, WORST};
use crate::{
    network_prober::rules,
    prometheus::promql::{duration, string},
};

/// About one agent.
pub(super) fn of_agent(subject: &Subject, namespace: &str, pod: &str) -> String {
    let [job, namespace, pod] = [&*subject.prober, namespace, pod].map(string);
    let of = format!("{{job={job}, namespace={namespace}, pod={pod}}}");
    let recent = duration(RECENT.max(subject.period.saturating_mul(3)));
    let counted =
        |by: &str, metric: &str| format!("sum by ({by}) (increase({metric}{of}[{recent}]))");
    let parts = [
        ("list_age", format!("max(netprober_pinglist_age_seconds{of})")),
        ("peers", format!("max(netprober_peers{of})")),
        ("probes", counted("protocol, result", "netprober_probes_total")),
        ("failures", counted("protocol, reason", "netprober_failures_total")),
        ("skipped", counted("reason", "netprober_skipped_probes_total")),
    ];
    parts.map(|(figure, promql)| labeled(figure, &promql)).join(" or ")
}

/// Returns the query for everything but the matrix. A label identifies each part: names of series
/// are lost where vectors are combined.
pub(super) fn overview(subject: &Subject) -> String {
    let of = format!("{{prober={}}}", string(&subject.prober));
    let job = format!("job={}", string(&subject.prober));
    let agents = format!("group by (namespace, pod) (netprober_build_info{{{job}}})");
    let silent = format!(
        "(max by (namespace, pod) (netprober_peers{{{job}}}) and on (namespace, pod) ({}))",
        rules::silent_agents(&job, subject.period)
    );
    let loss = per_path(&format!("netprober:pair_loss:ratio5m{of}"));
    let p99 = per_path(&format!("netprober:pair_rtt_seconds:p99_5m{of}"));
    let (lossy, slow) = (format!("topk({WORST}, {loss} > 0)"), format!("topk({WORST}, {p99})"));
    let parts = [
        ("node_loss", format!("netprober:node_loss:ratio5m{of}")),
        ("node_p99", format!("netprober:node_rtt_seconds:p99_5m{of}")),
        ("pair_loss", lossy.clone()),
        ("pair_p99", slow.clone()),
        // The values of this figure for the worst ones by the other.
        ("also_loss", format!("{loss} and on (src_node, dst_node) {slow}")),
        ("also_p99", format!("{p99} and on (src_node, dst_node) {lossy}")),
        ("scraped", format!("count({agents})")),
        ("silent_agents", format!("count{silent}")),
        ("silent", format!("topk({SILENT}, {silent})")),
    ];
    let parts = parts.map(|(figure, promql)| labeled(figure, &promql));
    parts.join(" or ")
}

/// The worst value of each path: replicas of Prometheus record it again, and an agent may name many
/// zones. None of them displaces other paths.
fn per_path(series: &str) -> String {
    format!("topk by (src_node, dst_node) (1, {series})")
}

fn labeled(figure: &str, promql: &str) -> String {
    format!("label_replace({promql}, \"figure\", {}, \"\", \"\")", string(figure))
}

/// The paths between some nodes, or all.
pub(super) fn paths(subject: &Subject, nodes: Option<&Vec<String>>) -> String {
    let mut selector = format!("prober={}", string(&subject.prober));
    if let Some(nodes) = nodes {
        let any = nodes.iter().map(|node| literally(node)).collect::<Vec<_>>().join("|");
        let any = string(&any);
        selector = format!("{selector}, src_node=~{any}, dst_node=~{any}");
    }
    let loss = format!("netprober:pair_loss:ratio5m{{{selector}}}");
    let p99 = format!("netprober:pair_rtt_seconds:p99_5m{{{selector}}}");
    let parts = [("pair_loss", loss), ("pair_p99", p99)];
    parts.map(|(figure, series)| labeled(figure, &per_path(&series))).join(" or ")
}

/// A name as a regular expression that matches nothing else.
pub(super) fn literally(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if c.is_ascii_punctuation() {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
