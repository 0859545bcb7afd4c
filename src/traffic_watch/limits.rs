//! The breaker: never so many unfit nodes that nothing is left to run on.

/// A part of the judged nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// That many.
    Nodes(usize),
    /// Percent of them.
    Percent(usize),
}

/// A ceiling of unfit nodes and a floor of fit ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many may be marked unfit.
    pub max_unfit: Share,
    /// How many stay fit.
    pub min_fit: Share,
}

impl Limits {
    /// How many of `nodes` may be marked unfit.
    ///
    /// A percentage of unfit nodes is rounded down, but one that is more than zero leaves room for one
    /// node; a percentage of fit nodes is rounded up.
    #[must_use]
    pub fn of(&self, nodes: usize) -> usize {
        let ceiling = match self.max_unfit {
            Share::Nodes(n) => n,
            Share::Percent(0) => 0,
            Share::Percent(percent) => (nodes * percent / 100).max(1),
        };
        let floor = match self.min_fit {
            Share::Nodes(n) => n,
            Share::Percent(percent) => (nodes * percent).div_ceil(100),
        };
        ceiling.min(nodes.saturating_sub(floor))
    }
}

/// One node before the limits.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its name, which breaks ties.
    pub name: &'a str,
    /// What hysteresis says: unfit or not; `None` if it never was judged.
    pub judged: Option<bool>,
    /// What its label says now.
    pub marked: Option<bool>,
    /// How far it is above its thresholds (1 is at one of them), if that is known now.
    pub severity: Option<f64>,
}

/// The label of each node: unfit, fit, or none yet.
///
/// - Who is marked and still judged unfit keeps the mark, even above a limit that shrank.
/// - Free places go to the worst, ties to the smaller name; only to nodes with evidence now.
/// - Who is judged unfit and finds no place is marked fit (and shown as suppressed).
#[must_use]
pub fn mark(nodes: &[Candidate<'_>], limit: usize) -> Vec<Option<bool>> {
    let keeps = |n: &Candidate<'_>| n.judged == Some(true) && n.marked == Some(true);
    let kept = nodes.iter().filter(|n| keeps(n)).count();
    let mut waiting: Vec<(usize, f64)> = nodes
        .iter()
        .enumerate()
        .filter(|(_, n)| n.judged == Some(true) && !keeps(n))
        .filter_map(|(i, n)| Some((i, n.severity?)))
        .collect();
    waiting.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(nodes[*a].name.cmp(nodes[*b].name)));
    waiting.truncate(limit.saturating_sub(kept));
    let mut marks: Vec<_> = nodes
        .iter()
        .map(|n| match n.judged {
            Some(true) => Some(keeps(n)),
            other => other,
        })
        .collect();
    for (i, _) in waiting {
        marks[i] = Some(true);
    }
    marks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: Limits = Limits { max_unfit: Share::Percent(50), min_fit: Share::Nodes(1) };

    #[test]
    fn half_of_the_nodes_at_most_and_one_stays() {
        for (nodes, expected) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (5000, 2500)] {
            assert_eq!(DEFAULT.of(nodes), expected, "{nodes} nodes");
        }
    }

    #[test]
    fn ceiling_and_floor_hold_together() {
        use Share::{Nodes, Percent};
        for (max_unfit, min_fit, nodes, expected) in [
            // A single node is never marked, unless the author says that none needs to stay.
            (Percent(50), Nodes(0), 1, 1),
            (Percent(100), Nodes(1), 1, 0),
            (Percent(100), Nodes(0), 7, 7),
            (Percent(34), Nodes(1), 3, 1),
            (Percent(1), Nodes(1), 3, 1),
            (Percent(0), Nodes(0), 3, 0),
            (Nodes(2), Nodes(1), 10, 2),
            (Nodes(9), Nodes(3), 10, 7),
            (Percent(100), Percent(34), 3, 1),
            (Nodes(5), Nodes(20), 10, 0),
        ] {
            let limits = Limits { max_unfit, min_fit };
            assert_eq!(limits.of(nodes), expected, "{limits:?} of {nodes}");
        }
    }

    fn candidate(name: &str, marked: Option<bool>, percent: f64) -> Candidate<'_> {
        Candidate { name, judged: Some(true), marked, severity: Some(percent) }
    }

    #[test]
    fn the_worst_are_marked_first_and_who_is_marked_stays_so() {
        let fit = |name| Candidate { name, judged: Some(false), marked: None, severity: Some(1.0) };
        let nodes = [
            candidate("a", None, 70.0),
            candidate("b", None, 90.0),
            candidate("c", Some(true), 65.0),
            fit("d"),
        ];
        assert_eq!(
            mark(&nodes, DEFAULT.of(nodes.len())),
            [Some(false), Some(true), Some(true), Some(false)]
        );
        // Ties go by name.
        let nodes = [candidate("b", None, 70.0), candidate("a", None, 70.0)];
        assert_eq!(mark(&nodes, DEFAULT.of(nodes.len())), [Some(false), Some(true)]);
    }

    #[test]
    fn a_node_without_evidence_takes_no_place() {
        let mut blind = candidate("a", Some(false), 99.0);
        blind.severity = None;
        let never = Candidate { name: "c", judged: None, marked: None, severity: None };
        let nodes = [blind, candidate("b", Some(false), 61.0), never];
        assert_eq!(mark(&nodes, DEFAULT.of(nodes.len())), [Some(false), Some(true), None]);
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit_beside_who_was_marked(
            nodes in proptest::collection::vec(
                (proptest::option::of(any::<bool>()), proptest::option::of(any::<bool>()),
                 proptest::option::of(0.0..200.0f64)), 0..40),
        ) {
            let names: Vec<_> = (0..nodes.len()).map(|i| format!("n{i}")).collect();
            let candidates: Vec<_> = nodes.iter().zip(&names).map(|((judged, marked, percent), name)|
                Candidate { name, judged: *judged, marked: *marked, severity: *percent }).collect();
            let marks = mark(&candidates, DEFAULT.of(nodes.len()));
            let newly = candidates.iter().zip(&marks)
                .filter(|(c, m)| **m == Some(true) && c.marked != Some(true)).count();
            let all = marks.iter().filter(|m| **m == Some(true)).count();
            prop_assert!(newly == 0 || all <= DEFAULT.of(nodes.len()));
            for (c, m) in candidates.iter().zip(&marks) {
                match c.judged {
                    None => prop_assert_eq!(*m, None),
                    Some(false) => prop_assert_eq!(*m, Some(false)),
                    Some(true) if c.marked == Some(true) => prop_assert_eq!(*m, Some(true)),
                    Some(true) => prop_assert!(m.is_some()),
                }
            }
        }
    }
}
