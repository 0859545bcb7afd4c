//! Conversion of the answers: untrusted labels and values become figures.
use std::collections::{BTreeMap, HashMap};

use super::{
    Blame, LARGEST_MATRIX, LONGEST_NAME, Limits, Measurement, NodeFigures, PathFigures, Silent,
    WORST,
};
use crate::prometheus::decode;

/// One element of an answer.
#[derive(Debug)]
pub(super) struct Row {
    pub figure: String,
    pub labels: BTreeMap<&'static str, String>,
    pub value: f64,
}

impl Row {
    /// `None` for a value that is not a figure.
    pub fn of(series: &decode::Series<'_>) -> Option<Self> {
        let value = series.value.filter(|value| value.is_finite() && *value >= 0.0)?;
        let names = [
            "node",
            "src_node",
            "src_zone",
            "dst_node",
            "dst_zone",
            "namespace",
            "pod",
            "protocol",
            "result",
            "reason",
        ];
        let mut labels = BTreeMap::new();
        for name in names {
            let text = series.labels.get(name).unwrap_or_default();
            if text.len() > LONGEST_NAME {
                return None;
            }
            labels.insert(name, text.to_owned());
        }
        Some(Self { figure: series.labels.get("figure")?.to_owned(), labels, value })
    }

    pub fn label(&self, name: &str) -> String {
        self.labels.get(name).cloned().unwrap_or_default()
    }

    fn ends(&self) -> (String, String) {
        (self.label("src_node"), self.label("dst_node"))
    }

    pub fn count(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of series, finite and not negative; `as` saturates"
        )]
        let count = self.value as u64;
        count
    }
}

/// The first answer, sorted.
#[derive(Debug)]
pub(super) struct Overview {
    limits: Limits,
    scraped: u64,
    silent_agents: u64,
    silent: Vec<Silent>,
    pub nodes: BTreeMap<String, NodeFigures>,
    worst: BTreeMap<(String, String), PathFigures>,
}

impl Overview {
    pub fn of(rows: Vec<Row>, limits: Limits) -> Self {
        let mut found = Self {
            limits,
            scraped: 0,
            silent_agents: 0,
            silent: vec![],
            nodes: BTreeMap::new(),
            worst: BTreeMap::new(),
        };
        for row in rows {
            match row.figure.as_str() {
                "node_loss" => worse(&mut found.node(&row).loss, row.value),
                "node_p99" => worse(&mut found.node(&row).p99, row.value),
                "pair_loss" | "also_loss" => worse(&mut found.path(&row).loss, row.value),
                "pair_p99" | "also_p99" => worse(&mut found.path(&row).p99, row.value),
                "scraped" => found.scraped = row.count(),
                "silent_agents" => found.silent_agents = row.count(),
                "silent" => found.silent.push(Silent {
                    namespace: row.label("namespace"),
                    pod: row.label("pod"),
                    peers: row.count(),
                }),
                _ => {}
            }
        }
        found.silent.sort_by(|a, b| (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod)));
        for node in found.nodes.values_mut() {
            node.bad = limits.exceeded(node.loss, node.p99);
        }
        let nodes = &found.nodes;
        let bad = |name: &str| nodes.get(name).is_some_and(|node| node.bad);
        for path in found.worst.values_mut() {
            path.bad = limits.exceeded(path.loss, path.p99);
            path.blame = Blame::of(bad(&path.from), bad(&path.to));
        }
        found
    }

    fn node(&mut self, row: &Row) -> &mut NodeFigures {
        let node = row.label("node");
        let new = || NodeFigures { node, zone: String::new(), loss: None, p99: None, bad: false };
        self.nodes.entry(row.label("node")).or_insert_with(new)
    }

    fn path(&mut self, row: &Row) -> &mut PathFigures {
        self.worst.entry(row.ends()).or_insert_with(|| path_of(row))
    }

    /// The names of the nodes of the matrix.
    pub fn chosen(&self) -> Vec<String> {
        let mut nodes: Vec<_> = self.nodes.values().collect();
        if nodes.len() > LARGEST_MATRIX {
            nodes.sort_by(|a, b| {
                let key = |n: &NodeFigures| (n.loss.unwrap_or(0.0), n.p99.unwrap_or(0.0));
                let ((x, y), (v, w)) = (key(b), key(a));
                x.total_cmp(&v).then(y.total_cmp(&w)).then_with(|| a.node.cmp(&b.node))
            });
            nodes.truncate(LARGEST_MATRIX);
        }
        nodes.into_iter().map(|node| node.node.clone()).collect()
    }

    pub fn measurement(&self, chosen: &[String], rows: Vec<Row>) -> Measurement {
        let mut zones = HashMap::new();
        for row in &rows {
            for (node, zone) in [("src_node", "src_zone"), ("dst_node", "dst_zone")] {
                zones.insert(row.label(node), row.label(zone));
            }
        }
        let mut nodes: Vec<_> = chosen.iter().filter_map(|name| self.nodes.get(name)).collect();
        let zone = |node: &NodeFigures| zones.get(&node.node).cloned().unwrap_or_default();
        nodes.sort_by_cached_key(|node| (zone(node), node.node.clone()));
        let places: HashMap<_, _> =
            nodes.iter().enumerate().map(|(i, node)| (node.node.clone(), i)).collect();
        let empty = || vec![vec![None; nodes.len()]; nodes.len()];
        let (mut loss, mut p99) = (empty(), empty());
        for row in rows {
            let (from, to) = row.ends();
            let (Some(&from), Some(&to)) = (places.get(&from), places.get(&to)) else { continue };
            match row.figure.as_str() {
                "pair_loss" => worse(&mut loss[from][to], row.value),
                "pair_p99" => worse(&mut p99[from][to], row.value),
                _ => {}
            }
        }
        Measurement {
            scraped: self.scraped,
            silent_agents: self.silent_agents,
            silent: self.silent.clone(),
            lossy: self.limits.lossy,
            slow: self.limits.slow,
            measured_nodes: self.nodes.len(),
            nodes: nodes.into_iter().map(|n| NodeFigures { zone: zone(n), ..n.clone() }).collect(),
            loss,
            p99,
            worst: self.worst(),
        }
    }

    /// Those that lose anything, by loss; then the slowest.
    fn worst(&self) -> Vec<PathFigures> {
        let mut worst: Vec<_> = self.worst.values().cloned().collect();
        worst.sort_by(|a, b| {
            let key = |p: &PathFigures| (p.loss.unwrap_or(0.0), p.p99.unwrap_or(0.0));
            let ((x, y), (v, w)) = (key(b), key(a));
            x.total_cmp(&v)
                .then(y.total_cmp(&w))
                .then_with(|| (&a.from, &a.to).cmp(&(&b.from, &b.to)))
        });
        worst.truncate(WORST);
        worst
    }
}

/// Of two values of one subject, as replicas of Prometheus have them, the worse one counts.
fn worse(known: &mut Option<f64>, value: f64) {
    *known = Some(known.map_or(value, |known| known.max(value)));
}

fn path_of(row: &Row) -> PathFigures {
    PathFigures {
        from: row.label("src_node"),
        from_zone: row.label("src_zone"),
        to: row.label("dst_node"),
        to_zone: row.label("dst_zone"),
        ..PathFigures::default()
    }
}
