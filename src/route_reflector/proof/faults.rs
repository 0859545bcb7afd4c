//! The faults of an established layout, and the properties that must hold in the end.
use std::{collections::BTreeSet, fmt};

use super::{
    layout::Layout,
    network::Network,
    play::{End, Play, Way},
};
use crate::{
    api::route_reflector_set::{Mesh, Topology},
    nodes::{Readiness, Speaker},
    route_reflector::datastore::Pool,
};

/// A fault that is played on a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A reflector's node dies.
    Dead(String),
    /// It is cordoned.
    Leaving(String),
    /// All reflectors of a zone die.
    ZoneDead(String),
    /// One reflector more.
    Grow,
    /// One less.
    Shrink,
    /// Another topology; a reflector may die after this many thirds of the way.
    Change(Topology, Option<(String, usize)>),
    /// Felix programs the routes and everything retires, from beside a mesh or without one; after
    /// this many thirds of the way, a pool needs BGP.
    Retire(bool, usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dead(node) => write!(f, "{node} dead"),
            Self::Leaving(node) => write!(f, "{node} leaving"),
            Self::ZoneDead(zone) => write!(f, "reflectors of zone {zone} dead"),
            Self::Grow => f.write_str("one reflector more"),
            Self::Shrink => f.write_str("one reflector less"),
            Self::Change(to, None) => write!(f, "to {}", to.as_str()),
            Self::Change(to, Some((node, third))) => {
                write!(f, "to {}, {node} dead after {third}/3", to.as_str())
            }
            Self::Retire(mesh, third) => {
                let beside = if *mesh { " beside a mesh" } else { "" };
                write!(f, "retires{beside}, BGP needed after {third}/3")
            }
        }
    }
}

/// The course of events.
pub struct Outcome {
    pub steps: usize,
    /// Interruptions of nodes that neither began nor ceased to reflect.
    pub needless: usize,
    /// The sentence, if the request was refused.
    pub refused: Option<String>,
    pub failures: Vec<String>,
    pub words: Vec<String>,
}

impl Fault {
    /// Everything that can happen to a layout, as described in `play`.
    pub fn all(layout: &Layout, play: &Play) -> Vec<Self> {
        let reflectors = play.reflectors();
        let mut all: Vec<Self> = reflectors.iter().cloned().map(Self::Dead).collect();
        all.extend(reflectors.iter().cloned().map(Self::Leaving));
        let zones: BTreeSet<String> =
            reflectors.iter().filter_map(|node| play.zone(node)).collect();
        all.extend(zones.iter().cloned().map(Self::ZoneDead));
        all.push(Self::Grow);
        if layout.reflectors > 1 {
            all.push(Self::Shrink);
        }
        all.extend((0..8).map(|way| Self::Retire(way % 2 > 0, way / 2)));
        let kinds = [Topology::Auto, Topology::Simple, Topology::Zonal, Topology::Multi];
        for to in kinds.into_iter().filter(|to| *to != layout.topology) {
            all.push(Self::Change(to, None));
            // The first and the last of each zone: of a bridge, and not.
            for zone in &zones {
                let of_zone =
                    || reflectors.iter().filter(|node| play.zone(node).as_ref() == Some(zone));
                let ends: BTreeSet<_> =
                    of_zone().next().into_iter().chain(of_zone().next_back()).collect();
                let dead =
                    ends.into_iter().flat_map(|node| (0..3).map(|third| (node.clone(), third)));
                all.extend(dead.map(|dead| Self::Change(to, Some(dead))));
            }
        }
        all
    }

    /// Its kind.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Dead(_) => "dead",
            Self::Leaving(_) => "leaving",
            Self::ZoneDead(_) => "zone dead",
            Self::Grow => "grow",
            Self::Shrink => "shrink",
            Self::Change(_, None) => "change",
            Self::Change(_, Some(_)) => "change, one dead",
            Self::Retire(..) => "retire",
        }
    }

    /// Reports whether one node takes the place of another, and nothing else changes.
    fn replaces(&self) -> bool {
        matches!(self, Self::Dead(_) | Self::Leaving(_) | Self::ZoneDead(_))
    }

    /// Applies the fault to a layout that is in place, and lets the operator respond. `length` is
    /// the number of steps that the change alone takes.
    pub fn play(&self, layout: &Layout, mut play: Play, length: usize) -> Outcome {
        let mut aim = *layout;
        match self {
            Self::Retire(mesh, third) => return retire(layout, play, *mesh, *third),
            Self::Dead(node) => play.kill(node),
            Self::Leaving(node) => play.cordon(node),
            Self::ZoneDead(zone) => {
                let of_zone = |node: &String| play.zone(node).as_ref() == Some(zone);
                let nodes: Vec<_> = play.reflectors().into_iter().filter(of_zone).collect();
                for node in &nodes {
                    play.kill(node);
                }
            }
            Self::Grow => aim.reflectors += 1,
            Self::Shrink => aim.reflectors -= 1,
            Self::Change(to, _) => {
                aim.topology = *to;
                // Ids that may be shared in one topology may not be in another.
                aim.ids = None;
            }
        }
        play.set.spec = aim.set().spec;
        let mut way = match self {
            Self::Change(_, Some((node, third))) => {
                let mut way = play.go(length * third / 3);
                if way.end == End::Paused {
                    play.kill(node);
                    way = way.then(play.go(usize::MAX));
                }
                way
            }
            _ => play.go(usize::MAX),
        };
        let refused = match &way.end {
            End::Refused(text) | End::Kept(text) => Some(text.clone()),
            _ => None,
        };
        let mut failures = std::mem::take(&mut way.harm);
        // Another size or topology is requested: the existing one stays, and is repaired.
        if let Some(text) = &refused
            && !self.replaces()
        {
            failures.extend(unhelpful(&aim, text));
        }
        if self.replaces() || !matches!(way.end, End::Refused(_)) {
            failures.extend(judge(&aim, &play, &way));
        } else {
            failures.extend(still(&play));
        }
        let needless = way.needless();
        if self.replaces() && needless > 0 {
            failures.push(format!("needless: {needless} interruptions by a replacement"));
        }
        Outcome { steps: way.steps, needless, refused, failures, words: way.words }
    }
}

/// Lets everything retire for some thirds of the way, and then a pool needs BGP: all routes are, or
/// come, back.
fn retire(layout: &Layout, mut play: Play, mesh: bool, third: usize) -> Outcome {
    let before = (play.reflectors(), play.stage.snapshot.peers.len());
    play.set.spec.mesh = Mesh::Retire;
    play.stage.snapshot.mesh = mesh;
    play.stage.snapshot.routing.pools =
        vec![Pool { vxlan_mode: Some("Always".into()), ..Pool::default() }];
    let whole = play.clone().go(usize::MAX);
    let mut failures = vec![];
    let mut way = play.go(whole.steps * third / 3);
    if third == 3 {
        way = way.then(play.go(usize::MAX));
        let stage = &play.stage.snapshot;
        if way.end != End::Done
            || !play.reflectors().is_empty()
            || !stage.peers.is_empty()
            || stage.mesh
        {
            failures.push(format!("retired: {:?}, not all is gone", way.end));
        }
    }
    play.stage.snapshot.routing.pools.push(Pool::default());
    way = way.then(play.go(usize::MAX));
    failures.append(&mut way.harm);
    let refused = match &way.end {
        End::Refused(text) | End::Kept(text) => Some(text.clone()),
        _ => None,
    };
    if refused.is_none() {
        failures.push(format!("needed: {:?}", way.end));
    }
    let missing = Network::of(&play.stage).missing();
    if missing > 0 || play.stage.snapshot.mesh != mesh {
        failures.push(format!("needed: {missing} pairs miss a route, mesh {mesh}"));
    }
    if third == 0 && before != (play.reflectors(), play.stage.snapshot.peers.len()) {
        failures.push(format!("needed: {layout} has changed"));
    }
    Outcome { steps: way.steps, needless: 0, refused, failures, words: way.words }
}

impl Way {
    pub fn then(mut self, next: Self) -> Self {
        self.steps += next.steps;
        self.moved.extend(next.moved);
        self.harm.extend(next.harm);
        self.words.extend(next.words);
        for (node, times) in next.interrupted {
            *self.interrupted.entry(node).or_default() += times;
        }
        Self { end: next.end, ..self }
    }

    fn needless(&self) -> usize {
        let others = self.interrupted.iter().filter(|(node, _)| !self.moved.contains(*node));
        others.map(|(_, times)| times).sum()
    }
}

/// Returns the nodes that should not reflect but do.
fn still(play: &Play) -> impl Iterator<Item = String> {
    let out = |speaker: &&Speaker| speaker.cordoned || speaker.readiness != Readiness::Ready;
    let reflectors = play.reflectors();
    let out = play.stage.speakers.iter().filter(out);
    out.filter(move |speaker| reflectors.iter().any(|name| **name == *speaker.name))
        .map(|speaker| format!("reflects: {} still does", speaker.name))
}

/// Returns the violated properties at the end.
pub fn judge(layout: &Layout, play: &Play, way: &Way) -> Vec<String> {
    let mut failures = vec![];
    match &way.end {
        End::Done | End::Kept(_) => {}
        End::Stuck(text) => failures.push(format!("stuck: {text}")),
        End::Refused(text) => failures.push(format!("refused: {text}")),
        End::Paused => failures.push("paused".into()),
    }
    if !failures.is_empty() {
        return failures;
    }
    let reflectors = play.reflectors();
    if way.end == End::Done && reflectors.len() != layout.reflectors {
        let wanted = layout.reflectors;
        failures.push(format!("count: {} reflectors instead of {wanted}", reflectors.len()));
    }
    failures.extend(still(play));
    if play.stage.snapshot.mesh {
        failures.push("mesh: still on".into());
    }
    let network = Network::of(&play.stage);
    let missing = network.missing();
    if missing > 0 {
        failures.push(format!("missing: {missing} pairs in the end"));
    }
    if reflectors.len() > 1
        && let Some((reflector, pairs)) = network.worst_without_one()
    {
        failures.push(format!("fragile: without {reflector} {pairs} pairs miss a route"));
    }
    if network.is_small() || !failures.is_empty() {
        failures.extend(network.disagreement());
    }
    failures
}

/// Goes from the mesh to a layout; the sentence if there is no such layout.
///
/// # Errors
/// The violation.
pub fn build(layout: &Layout) -> Result<Result<(Play, Way), String>, Vec<String>> {
    let mut play = Play::new(layout.set(), layout.stage());
    let mut way = play.go(usize::MAX);
    if let End::Refused(text) = &way.end {
        let wrong = unhelpful(layout, text);
        return if wrong.is_none() {
            Ok(Err(text.clone()))
        } else {
            Err(wrong.into_iter().collect())
        };
    }
    let mut failures = std::mem::take(&mut way.harm);
    failures.extend(judge(layout, &play, &way));
    if let End::Kept(text) = &way.end
        && failures.is_empty()
    {
        let wrong = unhelpful(layout, text);
        return if wrong.is_none() {
            Ok(Err(text.clone()))
        } else {
            Err(wrong.into_iter().collect())
        };
    }
    if failures.is_empty() { Ok(Ok((play, way))) } else { Err(failures) }
}

/// Why a refusal is no help: it names no size or topology, or none that works.
fn unhelpful(layout: &Layout, text: &str) -> Option<String> {
    let advised = advised(layout, text);
    if advised.is_empty() {
        return Some(format!("names nothing that works: {text}"));
    }
    // The text of a refusal; empty for one that works.
    let refusal = |layout: &Layout| {
        let mut play = Play::new(layout.set(), layout.stage());
        let way = play.go(usize::MAX);
        if let End::Refused(text) = way.end {
            return Some(text);
        }
        (way.harm.is_empty() && judge(layout, &play, &way).is_empty()).then(String::new)
    };
    let works = |layout: &Layout| match refusal(layout) {
        None => false,
        Some(text) if text.is_empty() => true,
        // It may need one more change, which its own refusal names.
        Some(text) => {
            let next = self::advised(layout, &text);
            !next.is_empty()
                && next.iter().all(|layout| refusal(layout).is_some_and(|t| t.is_empty()))
        }
    };
    let mut failing = advised.iter().filter(|layout| !works(layout));
    failing.next().map(|layout| format!("advises {layout}, which does not work: {text}"))
}

/// The layouts that a refusal names.
fn advised(layout: &Layout, text: &str) -> Vec<Layout> {
    let after = |marker: &str| -> Vec<&str> {
        let rest = text.split(marker).skip(1);
        rest.filter_map(|rest| rest.split([' ', ',', ';', '.', ')']).next()).collect()
    };
    let mut all = vec![];
    for topology in [Topology::Auto, Topology::Simple, Topology::Zonal, Topology::Multi] {
        let used = text.contains(&format!("topology {} is used", topology.as_str()));
        if used || after("use topology ").contains(&topology.as_str()) {
            all.push(Layout { topology, ids: None, ..*layout });
        }
    }
    for marker in ["count.min to ", "count.max to "] {
        let sizes = after(marker).into_iter().filter_map(|size| size.parse().ok());
        all.extend(sizes.map(|reflectors| Layout { reflectors, ..*layout }));
    }
    all
}
