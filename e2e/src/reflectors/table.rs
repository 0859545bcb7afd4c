//! The cost of each step, as a table. No IO.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;

use super::step::Step;
use crate::judge::operator_writes;
use lab::AuditEvent;
use lab::bgp::Outcome;

/// Paths of a node's own that no peer told it: its link, its pod, its block. The operator counts
/// those from peers.
const OWN_PATHS: usize = 3;

/// Returns the number of paths in a table that came from peers.
pub fn from_peers(paths: usize) -> usize {
    paths.saturating_sub(OWN_PATHS)
}

/// One step of the demo.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Row {
    pub step: String,
    pub took: Duration,
    /// Promoted, demoted, come, gone or touched by the demo.
    pub changed: BTreeSet<String>,
    /// Number of these that the step needs.
    pub needed: usize,
    /// Pairs of other nodes that had no route at some time, and the remarks about them.
    pub missing: usize,
    pub examples: String,
    /// Probes that got lost between other nodes.
    pub lost: u64,
    /// Pairs with a changed node that had no route at some time, and the longest such time.
    pub own: usize,
    pub blip: Duration,
    /// Ends of sessions that were closed.
    pub resets: usize,
    /// Those of other nodes that stay as they were.
    pub needless: Vec<(String, String)>,
    /// The most paths from peers in a table.
    pub paths: usize,
    /// The estimate of the operator.
    pub estimate: f64,
    /// Number of paths that a table holds twice while a BIRD restarts.
    pub twice: usize,
    /// The operator's BGPPeers at the end.
    pub peers: usize,
    pub writes: Writes,
}

/// The writes of the operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// BGPPeers.
    pub peers: usize,
    /// Number of writes to Nodes.
    pub nodes: usize,
    /// Number of writes to the mesh setting.
    pub mesh: usize,
    /// Statuses, events, its own certificates.
    pub other: usize,
}

impl Writes {
    /// Counts what was carried out in a time.
    pub fn of(events: &[AuditEvent], since: Timestamp, until: Timestamp) -> Self {
        let mut writes = Self::default();
        let within = |event: &&AuditEvent| (since..=until).contains(&event.time);
        for event in operator_writes(events).into_iter().filter(within) {
            if event.code >= 300 {
                continue;
            }
            let kind = event.resource.split('.').next().unwrap_or_default();
            match (kind, event.subresource.as_str()) {
                ("bgppeers", _) => writes.peers += 1,
                ("nodes", "") => writes.nodes += 1,
                ("bgpconfigurations", _) => writes.mesh += 1,
                _ => writes.other += 1,
            }
        }
        writes
    }

    /// Those that change the network.
    pub fn network(&self) -> usize {
        self.peers + self.nodes + self.mesh
    }
}

impl Row {
    pub fn new(step: &Step, took: Duration, outcome: Outcome) -> Self {
        let own = outcome.own();
        let others = &outcome.others;
        Self {
            step: step.name.clone(),
            took,
            missing: others.pairs().len(),
            examples: others.examples(),
            lost: others.losses(),
            needed: step.needed,
            own: own.pairs().len(),
            blip: own.longest(),
            resets: outcome.resets,
            needless: outcome.needless,
            paths: from_peers(outcome.paths),
            changed: outcome.changed,
            ..Self::default()
        }
    }

    /// Returns the violations.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.missing > 0 || self.lost > 0 {
            wrong.push(format!(
                "{}: {} pairs without a route, {} probes lost; {}",
                self.step, self.missing, self.lost, self.examples
            ));
        }
        if let Some((node, protocol)) = self.needless.first() {
            let more = self.needless.len() - 1;
            wrong.push(format!("{}: {node} closed {protocol} ({more} more)", self.step));
        }
        if self.changed.len() > self.needed {
            let (changed, needed) = (self.changed.len(), self.needed);
            wrong.push(format!(
                "{}: {changed} nodes changed, {needed} are enough: {:?}",
                self.step, self.changed
            ));
        }
        wrong
    }

    fn cells(&self) -> [String; 11] {
        [
            format!("{:.1}", self.took.as_secs_f64()),
            self.missing.to_string(),
            self.lost.to_string(),
            self.needless.len().to_string(),
            self.resets.to_string(),
            format!("{}/{}", self.changed.len(), self.needed),
            gap(self.own, self.blip),
            match self.twice {
                0 => format!("{}/{}", self.paths, self.estimate),
                twice => format!("{}/{}+{twice}", self.paths, self.estimate),
            },
            format!("{}/{}", self.peers, self.writes.peers),
            self.writes.nodes.to_string(),
            (self.writes.mesh + self.writes.other).to_string(),
        ]
    }

    /// The step in one line.
    pub fn line(&self) -> String {
        let [took, missing, lost, needless, resets, changed, own, paths, peers, nodes, other] =
            self.cells();
        format!(
            "{}: {took} s, {missing} pairs of others without a route, {lost} of their probes lost, {resets} session ends \
             closed, {needless} needlessly; {changed} nodes changed (own routes {own}); \
             paths {paths}, BGPPeers {peers}, \
             {nodes} nodes written, {other} others",
            self.step
        )
    }
}

/// Pairs without a route, and the longest time.
fn gap(pairs: usize, longest: Duration) -> String {
    if pairs == 0 {
        return "-".to_owned();
    }
    format!("{pairs}: {:.1} s", longest.as_secs_f64())
}

const HEAD: [&str; 11] = [
    "s",
    "missing",
    "lost",
    "resets",
    "all",
    "changed",
    "their blip",
    "paths",
    "peers",
    "nodes",
    "other",
];

/// Renders the steps.
pub(super) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.step.chars().count()).max().unwrap_or(0).max(10);
    let line = |name: &str, cells: [String; 11]| {
        let mut line = format!("  {name:width$}");
        for (head, cell) in HEAD.iter().zip(cells) {
            let wide = ["their blip", "paths"].contains(head);
            let _ = write!(line, "  {cell:>0$}", if wide { 11 } else { 7 });
        }
        line + "\n"
    };
    let mut text = line("step", HEAD.map(str::to_owned));
    for row in rows {
        text += &line(&row.step, row.cells());
    }
    text + "  missing: pairs of unchanged nodes without a route at any time; lost: their probes; resets: of sessions between them \
         that the plan keeps (all: of any session)\n  \
         changed: promoted, demoted, come, gone or broken / how many the step needs; their blip: pairs with one of them that \
         had no route, and the longest time\n  \
         paths: from peers in the fullest table / the operator's estimate + what came through a BIRD that starts again; \
         peers: the operator's BGPPeers / written; nodes, \
         other: writes (other: mesh, status, events)\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            step: "cordon".to_owned(),
            took: Duration::from_millis(12_340),
            own: 34,
            blip: Duration::from_millis(1650),
            paths: 32,
            estimate: 32.0,
            twice: 9,
            needed: 2,
            peers: 4,
            ..Row::default()
        }
    }

    #[test]
    fn what_must_not_be_is_said() {
        let needless = vec![("n1".to_owned(), "Node_1".to_owned())];
        let wrong = Row { missing: 2, lost: 7, needless, ..row() }.wrong();
        assert!(wrong[0].contains("2 pairs without a route, 7 probes lost"), "{wrong:?}");
        assert!(wrong[1].contains("n1 closed Node_1"), "{wrong:?}");
        let changed = ["a", "b", "c"].map(str::to_owned).into();
        let wrong = Row { changed, ..row() }.wrong();
        assert!(wrong[0].contains("3 nodes changed, 2 are enough"), "{wrong:?}");
    }

    #[test]
    fn writes_are_counted_by_what_they_change() {
        let event = |verb: &str, resource: &str, subresource: &str, code| AuditEvent {
            code,
            ..crate::judge::event(0, verb, resource, subresource, "x")
        };
        let events = [
            event("create", "bgppeers.crd.projectcalico.org", "", 201),
            event("create", "bgppeers.crd.projectcalico.org", "", 409),
            event("patch", "nodes", "", 200),
            event("get", "nodes", "", 200),
            event("patch", "bgpconfigurations.crd.projectcalico.org", "", 200),
            event("patch", "routereflectorsets.traffic.example.com", "status", 200),
            event("update", "leases.coordination.k8s.io", "", 200),
        ];
        let at = Timestamp::UNIX_EPOCH;
        let writes = Writes::of(&events, at, at);
        assert_eq!(writes, Writes { peers: 1, nodes: 1, mesh: 1, other: 1 });
        assert_eq!(writes.network(), 3);
    }
}
