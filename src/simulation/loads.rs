//! The loads of nodes, and what their exporters make of them.
use std::{collections::BTreeMap, time::Duration};

use super::dice::number;

/// The time between two scrapes of a node.
pub const SCRAPE: u64 = 5_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exporter {
    #[default]
    Up,
    /// It has no series.
    Missing,
    /// It was last scraped then, in milliseconds.
    Stale(u64),
    /// Its values are no numbers.
    Odd,
    Twice,
}

/// The loads of all nodes in percent of their links, each since when (in milliseconds), and their
/// exporters.
#[derive(Default)]
pub struct Loads {
    pub nodes: BTreeMap<String, Vec<(u64, f64)>>,
    pub exporters: BTreeMap<String, Exporter>,
    /// The number of questions so far.
    pub asked: u64,
}

impl Loads {
    pub fn set(&mut self, node: &str, now: Duration, percent: f64) {
        self.nodes.entry(node.into()).or_default().push((millis(now), percent));
    }

    pub fn exporter(&mut self, node: &str, exporter: Exporter) {
        self.exporters.insert(node.into(), exporter);
    }

    pub fn load(&self, node: &str) -> f64 {
        self.nodes.get(node).and_then(|loads| loads.last()).map_or(0.0, |(_, percent)| *percent)
    }

    /// Returns the load as it was scraped, and when.
    pub fn scraped(&self, node: &str, exporter: Exporter, now: u64) -> Option<(f64, u64)> {
        let until = if let Exporter::Stale(since) = exporter { since } else { now };
        // Nodes are not scraped at the same time.
        let phase = number(node.as_bytes()) % SCRAPE;
        let at = (until.checked_sub(phase)? / SCRAPE) * SCRAPE + phase;
        let loads = self.nodes.get(node)?;
        let load = loads.iter().rev().find(|(since, _)| *since <= at)?;
        Some((load.1, at))
    }
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}
