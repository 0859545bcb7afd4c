//! The limit: never mark as many nodes unfit that nothing is left to run on.

/// A part of some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// An absolute number.
    Nodes(usize),
    /// Percent of them.
    Percent(usize),
}

impl Share {
    /// As a ceiling of `nodes`: rounded down, but a percentage above zero leaves room for one node.
    #[must_use]
    pub fn at_most(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(n) => n,
            Self::Percent(0) => 0,
            Self::Percent(percent) => (nodes * percent / 100).max(1),
        }
    }

    /// As a floor of `nodes`: rounded up.
    #[must_use]
    pub fn at_least(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(n) => n,
            Self::Percent(percent) => (nodes * percent).div_ceil(100),
        }
    }

    /// Reports whether it allows none at all.
    #[must_use]
    pub fn is_none(self) -> bool {
        matches!(self, Self::Nodes(0) | Self::Percent(0))
    }
}

/// A whole number of nodes, or a percentage (`50%`).
impl std::str::FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percent = text.strip_suffix('%');
        let number = percent.unwrap_or(text).parse().ok().filter(|n| i32::try_from(*n).is_ok());
        match (percent, number) {
            (Some(_), Some(percent)) if percent <= 100 => Ok(Self::Percent(percent)),
            (None, Some(nodes)) => Ok(Self::Nodes(nodes)),
            _ => Err("must be a number from 0 to 2147483647 or a percentage from 0% to 100%"),
        }
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A ceiling of unfit nodes and a floor of fit ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of nodes marked unfit.
    pub max_unfit: Share,
    /// Minimum number of nodes that stay fit.
    pub min_fit: Share,
}

impl Limits {
    /// Returns the maximum number of `nodes` to mark unfit, if each of them can take the pods and
    /// has evidence.
    #[must_use]
    pub fn of(&self, nodes: usize) -> usize {
        let floor = self.min_fit.at_least(nodes);
        self.max_unfit.at_most(nodes).min(nodes.saturating_sub(floor))
    }
}

/// Number of further nodes that the operator may mark, for all objects together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Of the nodes that can take ordinary pods.
    pub open: usize,
    /// Of all nodes: what counts for those that can not.
    pub all: usize,
    /// True if the operator marks no node at all: existing marks are removed.
    pub none: bool,
    /// What the object's namespace has more than its share of, while others wait for it.
    pub owed: Option<Owed>,
}

/// Number of marks to remove, so that others find a place. Each further mark takes a place now, also
/// on a node that another object marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// Of the nodes that can take ordinary pods.
    pub open: usize,
    /// Of all nodes.
    pub all: usize,
}

impl Headroom {
    /// No limit.
    pub const UNLIMITED: Self = Self { open: usize::MAX, all: usize::MAX, none: false, owed: None };

    fn take(&mut self, node: &Candidate<'_>) -> bool {
        if node.counted && self.owed.is_none() {
            return true;
        }
        let pool = if node.open { &mut self.open } else { &mut self.all };
        let Some(left) = pool.checked_sub(1) else { return false };
        *pool = left;
        true
    }
}

/// One node before the limits.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one node")]
pub struct Candidate<'a> {
    /// Its name, which breaks ties.
    pub name: &'a str,
    /// The verdict after hysteresis: unfit or not; `None` if it was never judged.
    pub judged: Option<bool>,
    /// The mark from the last judgment.
    pub marked: Option<bool>,
    /// The factor by which it exceeds its thresholds (1 is at a threshold), if currently known.
    pub severity: Option<f64>,
    /// True if it is where it recovers now, in every measure that judges it unfit: only the number
    /// of judgments is missing.
    pub recovering: bool,
    /// True if it can take the pods in question.
    pub takes_pods: bool,
    /// True if there is currently no evidence about it. Its mark stays, and takes no place.
    pub blind: bool,
    /// True if it can take ordinary pods: where the operator-wide ceiling counts it.
    pub open: bool,
    /// True if the operator-wide ceiling counts it already: it carries some mark.
    pub counted: bool,
    /// True if its label marks it, and the write that is to change that has failed.
    pub stuck: bool,
}

/// The effect of the limits on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkDecision {
    /// The mark of each node: unfit, fit, or none yet.
    pub marks: Vec<Option<bool>>,
    /// Maximum number of marked nodes that can take the pods.
    pub limit: usize,
    /// The number of nodes that can take the pods.
    pub room: usize,
    /// The nodes that only the operator-wide ceiling keeps from being marked, by place, sorted.
    pub above_ceiling: Vec<usize>,
}

/// Some of the nodes, and how many of them are marked.
struct Scope {
    ceiling: usize,
    floor: usize,
    /// Marked ones that take a place.
    marked: usize,
    unmarked: usize,
}

impl Scope {
    fn of(limits: &Limits, nodes: &[Candidate<'_>], marks: &[Option<bool>], all: bool) -> Self {
        let inside = |n: &Candidate<'_>| all || n.takes_pods;
        let (mut total, mut held, mut marked) = (0, 0, 0);
        for (node, mark) in nodes.iter().zip(marks).filter(|(node, _)| inside(node)) {
            total += 1;
            match mark {
                Some(true) if node.blind => held += 1,
                Some(true) => marked += 1,
                // Its place is free once the label is gone.
                _ if node.stuck && node.judged != Some(true) => marked += 1,
                _ => {}
            }
        }
        Self {
            ceiling: limits.max_unfit.at_most(total - held),
            floor: limits.min_fit.at_least(total),
            marked,
            unmarked: total - held - marked,
        }
    }

    fn has_place(&self) -> bool {
        self.marked < self.ceiling && self.unmarked > self.floor
    }

    fn mark(&mut self) {
        self.marked += 1;
        self.unmarked -= 1;
    }
}

/// The mark of each node.
///
/// - Limits count nodes that can take the pods in question; a node that cannot is limited by the
///   same shares of all judged nodes.
/// - A node that is marked and still judged unfit keeps its mark above a ceiling that shrank. Marks
///   go, the least severe first and those without evidence last, while fewer nodes than the floor
///   are unmarked; all go when none is allowed.
/// - A mark without evidence takes no place. A label that could not be removed takes one.
/// - Free places go to the worst, ties to the smaller name; only to nodes with evidence now, and
///   not to those that are about to recover: their verdict may be as old as the last restart.
/// - A node that is judged unfit and finds no place is marked fit (and shown as suppressed).
/// - Marks that are owed to other namespaces go, the least severe first.
#[must_use]
pub fn mark(nodes: &[Candidate<'_>], limits: &Limits, mut headroom: Headroom) -> MarkDecision {
    let none = limits.max_unfit.is_none() || headroom.none;
    let kept = |n: &Candidate<'_>| n.judged == Some(true) && n.marked == Some(true) && !none;
    let mut marks: Vec<_> = nodes
        .iter()
        .map(|n| if n.judged == Some(true) { Some(kept(n)) } else { n.judged })
        .collect();
    release(nodes, limits, &mut marks);
    let mut above_ceiling = give_back(nodes, headroom.owed, &mut marks);

    let mut waiting: Vec<(usize, f64)> = nodes
        .iter()
        .enumerate()
        .filter(|(i, n)| n.judged == Some(true) && marks[*i] != Some(true) && !n.recovering)
        .filter(|(i, _)| !above_ceiling.contains(i))
        .filter_map(|(i, n)| Some((i, n.severity?)))
        .collect();
    waiting.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(nodes[*a].name.cmp(nodes[*b].name)));
    let mut room = Scope::of(limits, nodes, &marks, false);
    let mut all = Scope::of(limits, nodes, &marks, true);
    let limit = room.ceiling.min((room.marked + room.unmarked).saturating_sub(room.floor));
    for (i, _) in waiting {
        let node = &nodes[i];
        let scope = if node.takes_pods { &room } else { &all };
        if none || !scope.has_place() {
            // The reason is an operator that marks none, regardless of the object.
            if headroom.none && !limits.max_unfit.is_none() {
                above_ceiling.push(i);
            }
            continue;
        }
        if !headroom.take(node) {
            above_ceiling.push(i);
            continue;
        }
        marks[i] = Some(true);
        all.mark();
        if node.takes_pods {
            room.mark();
        }
    }
    above_ceiling.sort_unstable();
    let room = nodes.iter().filter(|node| node.takes_pods).count();
    MarkDecision { marks, limit, room, above_ceiling }
}

/// Removes marks while fewer nodes than the floor could take the pods.
fn release(nodes: &[Candidate<'_>], limits: &Limits, marks: &mut [Option<bool>]) {
    let places = |marked: bool| {
        let marks = &marks;
        (0..nodes.len()).filter(move |&i| nodes[i].takes_pods && (marks[i] == Some(true)) == marked)
    };
    let floor = limits.min_fit.at_least(nodes.iter().filter(|node| node.takes_pods).count());
    let missing = floor.saturating_sub(places(false).count());
    if missing == 0 {
        return;
    }
    let marked = places(true).collect();
    remove(nodes, marked, missing, marks);
}

/// Removes marks that are owed to others; returns their nodes.
fn give_back(
    nodes: &[Candidate<'_>],
    owed: Option<Owed>,
    marks: &mut [Option<bool>],
) -> Vec<usize> {
    let Some(Owed { open, all }) = owed else { return vec![] };
    let marked = |marks: &[Option<bool>], only_open: bool| {
        let takes_place = |i: &usize| marks[*i] == Some(true) && (nodes[*i].open || !only_open);
        (0..nodes.len()).filter(takes_place).collect::<Vec<_>>()
    };
    let mut given = remove(nodes, marked(marks, true), open, marks);
    let more = all.saturating_sub(given.len());
    given.extend(remove(nodes, marked(marks, false), more, marks));
    given
}

/// Removes that many marks, the least severe first and those without evidence last; returns their
/// nodes.
fn remove(
    nodes: &[Candidate<'_>],
    mut marked: Vec<usize>,
    count: usize,
    marks: &mut [Option<bool>],
) -> Vec<usize> {
    let severity = |i: usize| nodes[i].severity.unwrap_or(f64::INFINITY);
    marked.sort_by(|&a, &b| {
        let known = severity(a).total_cmp(&severity(b));
        known.then(nodes[b].name.cmp(nodes[a].name))
    });
    marked.truncate(count);
    for &i in &marked {
        marks[i] = Some(false);
    }
    marked
}

#[cfg(test)]
mod tests;
