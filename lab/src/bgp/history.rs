//! Every configuration of the nodes, in order. No IO.

use std::collections::BTreeSet;
use std::time::Instant;

use super::sessions::{Session, Sessions, sessions};
use super::world::World;

/// The configuration from a moment on.
#[derive(Debug, Clone)]
pub struct Version {
    /// The time at which this began.
    pub at: Instant,
    pub world: World,
    /// The peerings between nodes.
    pub sessions: Sessions,
}

/// All versions so far; there is always one.
#[derive(Debug, Clone)]
pub struct History(Vec<Version>);

impl History {
    pub(super) fn new(world: World) -> Self {
        let mut history = Self(Vec::new());
        history.push(world);
        history
    }

    pub(super) fn push(&mut self, world: World) {
        let sessions = sessions(&world);
        self.0.push(Version { at: Instant::now(), world, sessions });
    }

    /// Returns the current configuration.
    ///
    /// # Panics
    ///
    /// Never: it is made with one.
    pub fn last(&self) -> &Version {
        self.0.last().expect("a history is made with a version")
    }

    /// Returns the configuration at a moment, and all later ones.
    pub fn since(&self, moment: Instant) -> &[Version] {
        let later = self.0.partition_point(|version| version.at <= moment);
        &self.0[later.saturating_sub(1)..]
    }
}

/// The nodes that were promoted, demoted or given another cluster id, and those that came or went.
pub fn changed(versions: &[Version]) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for pair in versions.windows(2) {
        let [old, new] = [&pair[0].world.nodes, &pair[1].world.nodes];
        for name in old.keys().chain(new.keys()) {
            let [before, after] = [old, new]
                .map(|nodes| nodes.get(name).map(|node| (node.speakers.clone(), node.cluster_id)));
            if before != after {
                changed.insert(name.clone());
            }
        }
    }
    changed
}

/// The ends of sessions that are the same before and after, at nodes that are not in `changed`.
///
/// Both ends are: a session whose other end is another one afterwards is not kept.
pub fn kept<'a>(
    versions: &'a [Version],
    changed: &BTreeSet<String>,
) -> BTreeSet<(&'a str, &'a str)> {
    let (Some(first), Some(last)) = (versions.first(), versions.last()) else {
        return BTreeSet::new();
    };
    let same = |node: &str, session: &Session, protocol: &str| {
        let after = last.sessions.get(node).and_then(|ends| ends.get(protocol));
        after == Some(session) && !changed.contains(node)
    };
    let back = |node: &str, there: &Session| {
        let ends = first.sessions.get(&there.peer).into_iter().flatten();
        let mut ends = ends.filter(|(_, end)| end.peer == node && end.family() == there.family());
        ends.next().is_some_and(|(protocol, end)| same(&there.peer, end, protocol))
    };
    let all = first.sessions.iter().flat_map(|(node, ends)| ends.iter().map(move |e| (node, e)));
    all.filter(|(node, (protocol, end))| same(node, end, protocol) && back(node, end))
        .map(|(node, (protocol, _))| (node.as_str(), protocol.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::states;
    use super::*;

    fn versions(worlds: &[World]) -> Vec<Version> {
        let mut history = History::new(worlds[0].clone());
        worlds[1..].iter().for_each(|world| history.push(world.clone()));
        history.0
    }

    #[test]
    fn promoted_demoted_renumbered_new_and_gone_are_changed() {
        let before = states::reflectors(&states::mesh(6), states::one, 1);
        let mut after = before.clone();
        states::promote(&mut after, "bgp-01", "224.0.0.1");
        states::demote(&mut after, "bgp-02");
        states::promote(&mut after, "bgp-04", "224.0.0.9");
        after.nodes.remove("bgp-05");
        after.nodes.get_mut("bgp-03").unwrap().labels.insert("group".to_owned(), "x".to_owned());
        let found = changed(&versions(&[before.clone(), after.clone(), before]));
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["bgp-01", "bgp-02", "bgp-04", "bgp-05"]);
    }

    #[test]
    fn a_session_is_kept_if_both_ends_are() {
        // Two of six are reflectors of all; a third one is promoted.
        let mut before = states::simple(World { mesh: false, ..states::mesh(6) });
        states::promote(&mut before, "bgp-00", "224.0.0.1");
        states::promote(&mut before, "bgp-01", "224.0.0.1");
        let mut after = before.clone();
        states::promote(&mut after, "bgp-02", "224.0.0.1");
        let versions = versions(&[before, after]);
        let kept = kept(&versions, &changed(&versions));
        // 2 x 3 clients that stay and the two reflectors themselves, each with two ends.
        assert_eq!(kept.len(), 14, "{kept:?}");
        assert!(
            kept.iter().all(|(node, protocol)| *node != "bgp-02" && !protocol.ends_with("_12"))
        );
    }

    #[test]
    fn the_version_of_a_moment_is_the_last_before_it() {
        let mut history = History::new(states::mesh(2));
        let first = history.last().at;
        history.push(states::mesh(3));
        let between = history.last().at;
        history.push(states::mesh(4));
        assert_eq!(history.since(first).len(), 3);
        assert_eq!(history.since(between)[0].world.nodes.len(), 3);
        assert_eq!(history.since(Instant::now())[0].world.nodes.len(), 4);
    }
}
