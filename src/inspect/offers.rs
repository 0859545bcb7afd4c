//! Offers of nodes to pods, and how many pods would fit: part of `evaluate` and `backtest`.
use std::{fmt::Write, num::NonZeroU64};

use serde::Serialize;

use crate::{text::table, traffic_watch::replay::Replay};

/// Offers of all nodes after one judgment, as if no pod requested any of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offers {
    /// Name of the extended resource.
    pub resource: String,
    /// Sum over all nodes, in units.
    pub offered: u64,
    /// The pods that would fit.
    pub room: Option<Room>,
    /// The nodes by name.
    pub nodes: Vec<NodeOffer>,
}

/// Offer of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeOffer {
    /// Name of the node.
    pub node: String,
    /// The amount, in units.
    pub offered: u64,
    /// The number of pods that would fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<u64>,
}

/// The number of pods of one size that would fit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// The units that each of them requests.
    pub pod_request: u64,
    /// Their number.
    pub pods: u64,
}

/// Offers of all nodes over a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OffersRun {
    /// Name of the extended resource.
    pub resource: String,
    /// Number of changes of one node's offer.
    pub changes: u64,
    /// The smallest sum over all nodes, in units.
    pub least: u64,
    /// The largest sum over all nodes, in units.
    pub most: u64,
    /// The pods that would have fit when the least was offered.
    pub least_room: Option<Room>,
    /// The pods that would have fit when the most was offered.
    pub most_room: Option<Room>,
}

impl Offers {
    /// Returns the offers of a judgment; none if the spec offers nothing.
    #[must_use]
    pub fn of(replay: &Replay, pod_request: Option<NonZeroU64>) -> Option<Self> {
        let (resource, amounts) = replay.offers()?;
        let nodes: Vec<_> = amounts
            .into_iter()
            .map(|(node, offered)| NodeOffer {
                node: node.to_string(),
                offered,
                pods: pod_request.map(|request| offered / request),
            })
            .collect();
        let room = pod_request.map(|request| Room {
            pod_request: request.get(),
            pods: nodes.iter().filter_map(|node| node.pods).sum(),
        });
        let offered = nodes.iter().map(|node| node.offered).fold(0, u64::saturating_add);
        Some(Self { resource: resource.to_string(), offered, room, nodes })
    }

    /// Returns the offers as text: a table of the nodes, and the sum.
    #[must_use]
    pub fn text(&self) -> String {
        let row = |node: &NodeOffer| {
            let pods = node.pods.map_or("-".to_owned(), |pods| pods.to_string());
            [node.node.clone(), node.offered.to_string(), pods]
        };
        let rows: Vec<_> = self.nodes.iter().map(row).collect();
        let mut text = table(["NODE", "OFFERED", "PODS"], &rows);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {} offered{}", self.offered, self.resource, room(self.room));
        text
    }
}

impl OffersRun {
    /// Adds the offers after one judgment, which changed those of some nodes.
    pub fn add(run: &mut Option<Self>, offers: &Offers, changed: usize) {
        let run = run.get_or_insert_with(|| Self {
            resource: offers.resource.clone(),
            changes: 0,
            least: offers.offered,
            most: offers.offered,
            least_room: offers.room,
            most_room: offers.room,
        });
        run.changes = run.changes.saturating_add(u64::try_from(changed).unwrap_or(u64::MAX));
        if offers.offered < run.least {
            (run.least, run.least_room) = (offers.offered, offers.room);
        }
        if offers.offered > run.most {
            (run.most, run.most_room) = (offers.offered, offers.room);
        }
    }

    /// Returns the run in one line.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "{}: {} offered at least{}, {} at most{}; {} changes\n",
            self.resource,
            self.least,
            room(self.least_room),
            self.most,
            room(self.most_room),
            self.changes
        )
    }
}

fn room(room: Option<Room>) -> String {
    room.map(|room| format!(" (room for {} pods with {} each)", room.pods, room.pod_request))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(amounts: &[u64], request: u64) -> Offers {
        let nodes = amounts.iter().enumerate().map(|(i, offered)| NodeOffer {
            node: format!("node-{i}"),
            offered: *offered,
            pods: Some(offered / request),
        });
        let nodes: Vec<_> = nodes.collect();
        let pods = nodes.iter().filter_map(|node| node.pods).sum();
        Offers {
            resource: "example.com/mbps".into(),
            offered: amounts.iter().sum(),
            room: Some(Room { pod_request: request, pods }),
            nodes,
        }
    }

    #[test]
    fn a_pod_does_not_fit_on_what_is_left_of_two_nodes() {
        let text = offers(&[500, 300, 150], 200).text();
        let expected = "\
NODE    OFFERED  PODS
node-0  500      2
node-1  300      1
node-2  150      0
950 example.com/mbps offered (room for 3 pods with 200 each)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_history_has_its_least_and_its_most() {
        let mut run = None;
        for (amounts, changed) in [([500, 300], 2), ([500, 100], 1), ([700, 400], 2)] {
            OffersRun::add(&mut run, &offers(&amounts, 200), changed);
        }
        let text = run.unwrap().text();
        assert_eq!(
            text,
            "example.com/mbps: 600 offered at least (room for 2 pods with 200 each), 1100 at most \
             (room for 5 pods with 200 each); 5 changes\n"
        );
    }
}
