//! The breaker: never so many unfit nodes that nothing is left to run on.

/// The largest share of the judged nodes that may be marked unfit, in percent.
const MAX_UNFIT_PERCENT: usize = 50;

/// The least number of judged nodes that stay fit.
const MIN_FIT: usize = 1;

/// One node before the limits.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its name, which breaks ties.
    pub name: &'a str,
    /// What hysteresis says: unfit or not; `None` if it never was judged.
    pub judged: Option<bool>,
    /// What its label says now.
    pub marked: Option<bool>,
    /// What was measured just now, if anything was.
    pub percent: Option<f64>,
}

/// How many of `nodes` may be marked unfit.
///
/// The share is rounded down, but two nodes or more may always lose one; a single node is never
/// marked.
#[must_use]
pub fn limit(nodes: usize) -> usize {
    let share = nodes * MAX_UNFIT_PERCENT / 100;
    let share = if nodes >= 2 { share.max(1) } else { share };
    share.min(nodes.saturating_sub(MIN_FIT))
}

/// The label of each node: unfit, fit, or none yet.
///
/// - Who is marked and still judged unfit keeps the mark, even above a limit that shrank.
/// - Free places go to the worst, ties to the smaller name; only to nodes with evidence now.
/// - Who is judged unfit and finds no place is marked fit (and shown as suppressed).
#[must_use]
pub fn mark(nodes: &[Candidate<'_>]) -> Vec<Option<bool>> {
    let keeps = |n: &Candidate<'_>| n.judged == Some(true) && n.marked == Some(true);
    let kept = nodes.iter().filter(|n| keeps(n)).count();
    let mut waiting: Vec<(usize, f64)> = nodes
        .iter()
        .enumerate()
        .filter(|(_, n)| n.judged == Some(true) && !keeps(n))
        .filter_map(|(i, n)| Some((i, n.percent?)))
        .collect();
    waiting.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(nodes[*a].name.cmp(nodes[*b].name)));
    waiting.truncate(limit(nodes.len()).saturating_sub(kept));
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

    #[test]
    fn half_of_the_nodes_at_most_and_one_stays() {
        for (nodes, expected) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (5000, 2500)] {
            assert_eq!(limit(nodes), expected, "{nodes} nodes");
        }
    }

    fn candidate(name: &str, marked: Option<bool>, percent: f64) -> Candidate<'_> {
        Candidate { name, judged: Some(true), marked, percent: Some(percent) }
    }

    #[test]
    fn the_worst_are_marked_first_and_who_is_marked_stays_so() {
        let fit = |name| Candidate { name, judged: Some(false), marked: None, percent: Some(1.0) };
        let nodes = [
            candidate("a", None, 70.0),
            candidate("b", None, 90.0),
            candidate("c", Some(true), 65.0),
            fit("d"),
        ];
        assert_eq!(mark(&nodes), [Some(false), Some(true), Some(true), Some(false)]);
        // Ties go by name.
        let nodes = [candidate("b", None, 70.0), candidate("a", None, 70.0)];
        assert_eq!(mark(&nodes), [Some(false), Some(true)]);
    }

    #[test]
    fn a_node_without_evidence_takes_no_place() {
        let mut blind = candidate("a", Some(false), 99.0);
        blind.percent = None;
        let never = Candidate { name: "c", judged: None, marked: None, percent: None };
        let nodes = [blind, candidate("b", Some(false), 61.0), never];
        assert_eq!(mark(&nodes), [Some(false), Some(true), None]);
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
                Candidate { name, judged: *judged, marked: *marked, percent: *percent }).collect();
            let marks = mark(&candidates);
            let newly = candidates.iter().zip(&marks)
                .filter(|(c, m)| **m == Some(true) && c.marked != Some(true)).count();
            let all = marks.iter().filter(|m| **m == Some(true)).count();
            prop_assert!(newly == 0 || all <= limit(nodes.len()));
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
