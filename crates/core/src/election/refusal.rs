//! Requests of the rules that the nodes do not allow.
use std::sync::Arc;

use super::pool::{MOST_IDS, Pool};
use crate::election::{IdScope, Topology};

/// The reason why there is no target. The text names the field that can change it; nothing is
/// written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No number satisfies both.
    #[error("spec.count.min: {min} is greater than spec.count.max ({max})")]
    MinAboveMax {
        /// The configured minimum.
        min: usize,
        /// The configured maximum.
        max: usize,
    },
    /// Without a reflector there are no routes.
    #[error("spec.count.min: must be at least 1")]
    NoMin,
    /// Not a share.
    #[error("spec.count.ratio: \"{text}\": {}", super::InvalidRatio)]
    Ratio {
        /// The configured text.
        text: String,
    },
    /// Two numbers for one.
    #[error("spec.count.steps: {nodes} nodes stand there twice")]
    StepTwice {
        /// Maximum number of nodes of the entry.
        nodes: usize,
    },
    /// Fewer reflectors for more nodes.
    #[error(
        "spec.count.steps: {many} nodes have fewer reflectors ({after}) than {few} nodes ({before})"
    )]
    StepDown {
        /// Maximum number of nodes of an entry …
        few: usize,
        /// … with this many reflectors.
        before: usize,
        /// Maximum number of nodes of an entry …
        many: usize,
        /// … with this many reflectors.
        after: usize,
    },
    /// A selector could not contain it.
    #[error("spec.nodeLabel: \"{key}\" is not a label key")]
    Key {
        /// The configured key.
        key: Arc<str>,
    },
    /// One reflector is no redundancy.
    #[error("spec.peersPerClient: must be at least 2")]
    PeersPerClient,
    /// No label defines the zones.
    #[error("spec.zoneLabel: required for topology Zonal")]
    NoZoneLabel,
    /// No node has the zone label.
    #[error(
        "spec.zoneLabel: topology Zonal needs zones, and no node has the label {label}; label the nodes, or use topology Simple"
    )]
    NoZones {
        /// The key.
        label: Arc<str>,
    },
    /// A zone without redundancy.
    #[error(
        "spec.topology: Zonal needs two eligible nodes in each zone (ready, schedulable, selected by spec.candidates), and zone \"{zone}\" has {}; use topology Simple", few(*.candidates)
    )]
    SmallZone {
        /// The zone with too few candidates.
        zone: Arc<str>,
        /// Number of candidates in the zone.
        candidates: usize,
    },
    /// Two for each zone are more than the count gives.
    #[error(
        "spec.count.min: topology Zonal needs two reflectors in each of {zones} zones, and the count gives {count}; set count.min to {needed}{}", and_max(*.max, *.needed)
    )]
    FewForZones {
        /// Number of zones.
        zones: usize,
        /// Number of reflectors by the count.
        count: usize,
        /// Number of required reflectors.
        needed: usize,
        /// `count.max`.
        max: usize,
    },
    /// As above, in one zone.
    #[error(
        "spec.count.min: topology Zonal needs two reflectors in each zone, and the count gives zone \"{zone}\" {count}; set count.min to 2{}", and_max(*.max, 2)
    )]
    FewInZone {
        /// The zone with too few candidates.
        zone: Arc<str>,
        /// Number of reflectors by the count.
        count: usize,
        /// `count.max`.
        max: usize,
    },
    /// Reflectors with the same id do not pass on each other's routes.
    #[error(
        "spec.clusterID.per: with topology Zonal and one id for all, reflectors drop the routes of other zones; use Zone"
    )]
    OneIdForZones,
    /// There is no room to replace a reflector.
    #[error(
        "spec.topology: Zonal has no room to replace a reflector in {zones} zones{}; use topology Simple", at_most(*.most)
    )]
    ManyZones {
        /// Number of zones.
        zones: usize,
        /// Maximum number of zones.
        most: usize,
    },
    /// Tables would overflow while one is replaced.
    #[error(
        "spec.count: with topology {} and these zones at most {most} reflectors leave room to replace one, and the count gives {wanted}; set count.max to {most}, or use topology Simple with clusterID.per Set", topology.as_str()
    )]
    ManyReflectors {
        /// The topology whose limit is exceeded.
        topology: Topology,
        /// Maximum number of reflectors.
        most: usize,
        /// Number of reflectors by the count.
        wanted: usize,
    },
    /// The number of paths explodes.
    #[error(
        "spec.clusterID.per: {scope:?} needs {needed} different cluster ids, and with more than {MOST_IDS} the number of paths between reflectors explodes; use topology Simple with clusterID.per Set"
    )]
    ManyIds {
        /// The reflectors that would share an id.
        scope: IdScope,
        /// Number of required ids.
        needed: usize,
    },
    /// Not IPv4.
    #[error(
        "spec.clusterID.pool: \"{text}\" is not an IPv4 range or address, e.g. \"224.0.0.0/16\""
    )]
    Pool {
        /// The configured text.
        text: String,
    },
    /// Too few addresses.
    #[error(
        "spec.clusterID.pool: {pool} has {} that can be cluster ids (1.0.0.0 to 239.255.255.255, without 127.0.0.0/8 and the addresses of nodes), and {needed} are needed", addresses(*.have)
    )]
    SmallPool {
        /// The range.
        pool: Pool,
        /// Number of addresses that can be ids.
        have: usize,
        /// Number of required ids.
        needed: usize,
    },
}

fn few(count: usize) -> String {
    if count == 0 { "none".into() } else { format!("{count}") }
}

fn at_most(zones: usize) -> String {
    if zones == 0 { String::new() } else { format!(" (in at most {zones} it has)") }
}

fn addresses(count: usize) -> String {
    match count {
        0 => "no addresses".into(),
        1 => "1 address".into(),
        _ => format!("{count} addresses"),
    }
}

fn and_max(max: usize, needed: usize) -> String {
    if max < needed { format!(", and count.max as well (it is {max})") } else { String::new() }
}
