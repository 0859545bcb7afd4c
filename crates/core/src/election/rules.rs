//! A validated spec.
use std::{sync::Arc, time::Duration};

use super::{Count, Pool, Refusal};
use crate::election::{IdScope, Topology};

/// The rules of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The peerings between nodes.
    pub topology: Topology,
    /// The number of reflectors.
    pub count: Count,
    /// Number of reflectors of each client; topology Multi only.
    pub peers_per_client: usize,
    /// Cluster ids.
    pub ids: Ids,
    /// The key of the label of reflectors.
    pub key: Arc<str>,
    /// The key of the label with a node's zone, for texts; "" if zones do not count.
    pub zone_label: Arc<str>,
    /// The time for which a reflector must have been unfit to be replaced.
    pub demote_after: Duration,
    /// The time for which a reflector must not have been ready to be replaced.
    pub replace_after: Duration,
}

/// The source of cluster ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The addresses.
    pub pool: Pool,
    /// The reflectors that share an id; `None` selects the default of the topology.
    pub per: Option<IdScope>,
}

impl Rules {
    /// Checks for errors that do not depend on the nodes.
    ///
    /// # Errors
    /// The path of the field and what is wrong with it.
    pub fn check(&self) -> Result<(), Refusal> {
        self.count.check()?;
        // Selectors contain the key.
        let letter = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if self.key.is_empty() || !self.key.chars().all(letter) {
            return Err(Refusal::Key { key: self.key.clone() });
        }
        match self.topology {
            Topology::Multi if self.peers_per_client < 2 => Err(Refusal::PeersPerClient),
            Topology::Zonal if self.zone_label.is_empty() => Err(Refusal::NoZoneLabel),
            Topology::Zonal if self.ids.per == Some(IdScope::Set) => Err(Refusal::OneIdForZones),
            _ => Ok(()),
        }
    }

    /// Returns the reflectors that share a cluster id in this topology.
    pub(super) fn id_scope(&self, topology: Topology) -> IdScope {
        let usual = if topology == Topology::Simple { IdScope::Set } else { IdScope::Zone };
        self.ids.per.unwrap_or(usual)
    }
}
