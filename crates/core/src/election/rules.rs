//! A validated spec.
use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

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

/// The set of nodes for which the number of reflectors is computed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Scope {
    /// One number for the whole cluster, spread over the zones.
    #[default]
    Cluster,
    /// One number for each zone.
    PerZone,
}

/// The rounding of a fractional number of reflectors.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Rounding {
    /// Up, as the original does.
    #[default]
    Ceil,
    /// Down.
    Floor,
    /// To the nearest, halves up.
    Round,
}

/// The peerings between nodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Topology {
    /// Zonal if two to four zones get two reflectors each and routing tables leave room to replace
    /// one, otherwise Simple.
    #[default]
    Auto,
    /// Every client peers with every reflector, and there is one cluster id. These are the
    /// original's two peers.
    Simple,
    /// Every client peers with the reflectors of its zone, and each zone has a cluster id.
    Zonal,
    /// Every client peers with `peersPerClient` reflectors, one of them in its own zone. If this
    /// does not survive the loss of a reflector, Simple is used, and the condition Ready reports
    /// it.
    Multi,
}

crate::named!(Topology { Auto, Simple, Zonal, Multi });

/// The reflectors that share a cluster id.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum IdScope {
    /// All reflectors share one id.
    Set,
    /// The reflectors of a zone share one id.
    Zone,
    /// Each reflector has a separate id. At most four reflectors.
    Slot,
}

/// `spec.count`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Scope of the number: the cluster or each zone.
    pub scope: Scope,
    /// Reflectors per node.
    pub ratio: Ratio,
    /// The minimum.
    pub min: usize,
    /// The maximum.
    pub max: usize,
    /// The rounding of a fraction.
    pub rounding: Rounding,
    /// A table in place of the ratio: up to this many nodes, this many reflectors.
    pub steps: Vec<(usize, usize)>,
}

impl Count {
    /// Returns the number for this many nodes, never more than there are nodes.
    #[must_use]
    pub fn of(&self, nodes: usize) -> usize {
        self.wanted(nodes).min(nodes)
    }

    /// Returns the number for this many nodes, whether they exist or not; `max` wins over `min`.
    pub(super) fn wanted(&self, nodes: usize) -> usize {
        let row = |steps: &[(usize, usize)]| {
            let mut rows: Vec<_> = steps.to_vec();
            rows.sort_unstable();
            let found = rows.iter().find(|(most, _)| nodes <= *most).or(rows.last()).copied();
            found.map(|(_, count)| count)
        };
        let raw = row(&self.steps).unwrap_or_else(|| self.ratio.of(nodes, self.rounding));
        raw.max(self.min).min(self.max)
    }

    /// Returns the desired number of reflectors, from the current number. Between the number for
    /// the ready nodes and the number for all of them, it stays unchanged: nodes that are not ready
    /// neither add nor remove a reflector.
    pub(super) fn desired(&self, now: usize, nodes: &Nodes) -> usize {
        let low = self.of(nodes.ready).min(nodes.usable);
        let high = self.of(nodes.all).min(nodes.suitable).max(low);
        now.clamp(low, high)
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.min > self.max {
            return Err(Refusal::MinAboveMax { min: self.min, max: self.max });
        }
        if self.min == 0 {
            return Err(Refusal::NoMin);
        }
        let mut rows = self.steps.clone();
        rows.sort_unstable();
        for pair in rows.windows(2) {
            let [(few, before), (many, after)] = *pair else { continue };
            if few == many {
                return Err(Refusal::StepTwice { nodes: few });
            }
            // A node that goes away would add a reflector.
            if after < before {
                return Err(Refusal::StepDown { few, before, many, after });
            }
        }
        Ok(())
    }
}

/// The nodes of the cluster or of a zone, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    /// All: each is a client or a reflector.
    pub all: usize,
    /// Those that are ready.
    pub ready: usize,
    /// Those that may be reflectors once they are ready and open.
    pub suitable: usize,
    /// Those that could be reflectors now.
    pub usable: usize,
}

/// Reflectors per node. In binary floating point 0.05 × 100 can be more than 5, which is then
/// rounded up to 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The digits after the point, or those of 1.
    digits: u64,
    /// A power of ten.
    scale: u64,
}

/// The error of an invalid ratio: its message describes the valid form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a decimal above 0 and at most 1, e.g. \"0.005\"")]
pub struct InvalidRatio;

/// Number of digits for which 10^n fits into 64 bits. The API allows a text of twenty characters.
const MOST_DIGITS: usize = 19;

impl FromStr for Ratio {
    type Err = InvalidRatio;

    fn from_str(text: &str) -> Result<Self, InvalidRatio> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digit = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let part = if digit(part) { part.trim_end_matches('0') } else { return Err(InvalidRatio) };
        let places = u32::try_from(part.len()).map_err(|_| InvalidRatio)?;
        match (whole, part) {
            ("1", "") => Ok(Self { digits: 1, scale: 1 }),
            ("0" | "", part) if !part.is_empty() && part.len() <= MOST_DIGITS => Ok(Self {
                digits: part.parse().map_err(|_| InvalidRatio)?,
                scale: 10_u64.pow(places),
            }),
            _ => Err(InvalidRatio),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.scale == 1 {
            return write!(f, "{}", self.digits);
        }
        let places = self.scale.ilog10() as usize;
        write!(f, "0.{:0places$}", self.digits)
    }
}

impl Ratio {
    /// Returns the share of a number, rounded.
    #[must_use]
    pub fn of(self, nodes: usize, rounding: Rounding) -> usize {
        let (scale, share) = (u128::from(self.scale), nodes as u128 * u128::from(self.digits));
        let rounded = match rounding {
            Rounding::Ceil => share.div_ceil(scale),
            Rounding::Floor => share / scale,
            Rounding::Round => (2 * share + scale) / (2 * scale),
        };
        usize::try_from(rounded).unwrap_or(usize::MAX)
    }
}

/// Reflectors with different ids are clients of each other, and Calico's BIRD passes on every path
/// that it has: with four ids, each table holds some tens of paths to a prefix; with six, 326, and
/// BIRD has not converged after a minute (measured).
pub const MOST_IDS: usize = 4;

/// IPv4 addresses to take ids from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    first: u32,
    bits: u8,
}

/// 224.0.0.0/16.
impl Default for Pool {
    fn default() -> Self {
        Self { first: 224 << 24, bits: 16 }
    }
}

impl Pool {
    /// Reads a range ("224.0.0.0/16") or an address.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let invalid = || Refusal::Pool { text: text.to_owned() };
        let (address, bits) = match text.split_once('/') {
            None => (text, 32),
            // As the API server reads it: no sign, no leading zero.
            Some((_, bits)) if bits.starts_with(['+', '0']) && bits != "0" => return Err(invalid()),
            Some((address, bits)) => (address, bits.parse::<u8>().map_err(|_| invalid())?),
        };
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let mask = match bits {
            0 => 0,
            1..=32 => u32::MAX << (32 - bits),
            _ => return Err(invalid()),
        };
        Ok(Self { first: address.to_bits() & mask, bits })
    }

    pub(super) fn contains(self, id: Ipv4Addr) -> bool {
        (self.first..=self.last()).contains(&id.to_bits())
    }

    fn last(self) -> u32 {
        self.first | u32::MAX.checked_shr(u32::from(self.bits)).unwrap_or(0)
    }

    /// Reports whether any of its addresses can be an id.
    #[must_use]
    pub fn has_ids(self) -> bool {
        self.size(&BTreeSet::new()) > 0
    }

    /// Returns the parts of the pool that can be ids.
    fn parts(self) -> impl Iterator<Item = RangeInclusive<u32>> {
        let within = move |(first, last): (u32, u32)| self.first.max(first)..=self.last().min(last);
        IDS.into_iter().map(within)
    }

    pub(super) fn ids(self) -> impl Iterator<Item = Ipv4Addr> {
        self.parts().flatten().map(Ipv4Addr::from_bits)
    }

    /// Returns the number of addresses that can be ids, without these.
    pub(super) fn size(self, without: &BTreeSet<IpAddr>) -> usize {
        let size = |part: RangeInclusive<u32>| {
            if part.is_empty() { 0 } else { (part.end() - part.start()) as usize + 1 }
        };
        let taken = |address: &&IpAddr| match address {
            IpAddr::V4(id) => self.contains(*id) && is_id(*id),
            IpAddr::V6(_) => false,
        };
        self.parts().map(size).sum::<usize>() - without.iter().filter(taken).count()
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.bits)
    }
}

/// Addresses of hosts and multicast groups, without loopback (first and last).
const IDS: [(u32, u32); 2] = [(0x0100_0000, 0x7eff_ffff), (0x8000_0000, 0xefff_ffff)];

/// Reports whether an address can be an id.
pub(super) fn is_id(id: Ipv4Addr) -> bool {
    IDS.iter().any(|(first, last)| (*first..=*last).contains(&id.to_bits()))
}

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
    #[error("spec.count.ratio: \"{text}\": {}", InvalidRatio)]
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
