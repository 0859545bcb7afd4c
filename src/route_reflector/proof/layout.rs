//! The layouts that are tried, and a small cluster for each.
use std::fmt;

use serde_json::json;

use crate::{
    api::{
        RouteReflectorSet,
        route_reflector_set::{IdScope, Topology},
    },
    nodes::{Incarnation, Readiness, Speaker, Texts},
    route_reflector::{datastore::Snapshot, dry_run::Stage},
};

/// Zones: one more than there may be cluster ids.
pub const ZONES: usize = 5;

/// Reflectors: `count.max` of the default spec.
pub const REFLECTORS: usize = 25;

/// The request of a spec, for a cluster with a number of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub topology: Topology,
    pub zones: usize,
    pub reflectors: usize,
    /// The reflectors that share a cluster id; `None` for the default of the topology.
    pub ids: Option<IdScope>,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topology, zones, reflectors, ids } = self;
        write!(f, "{} {zones} zones {reflectors} reflectors", topology.as_str())?;
        ids.map_or(Ok(()), |ids| write!(f, " ids per {ids:?}"))
    }
}

/// The tested combinations of topologies and cluster ids.
pub const KINDS: [(Topology, Option<IdScope>); 9] = [
    (Topology::Auto, None),
    (Topology::Simple, None),
    (Topology::Zonal, None),
    (Topology::Multi, None),
    (Topology::Simple, Some(IdScope::Zone)),
    (Topology::Simple, Some(IdScope::Slot)),
    (Topology::Zonal, Some(IdScope::Slot)),
    (Topology::Multi, Some(IdScope::Set)),
    (Topology::Multi, Some(IdScope::Slot)),
];

pub fn all() -> Vec<Layout> {
    let mut all = vec![];
    for (topology, ids) in KINDS {
        for zones in 1..=ZONES {
            let layout = |reflectors| Layout { topology, zones, reflectors, ids };
            all.extend((1..=REFLECTORS).map(layout));
        }
    }
    all
}

/// Labels or annotations, by key.
pub fn texts(texts: &[(&str, &str)]) -> Texts {
    texts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// A node that speaks BGP.
pub fn speaker(number: usize, zone: Option<&str>) -> Speaker {
    let zone: Vec<_> = zone.map(|zone| ("topology.kubernetes.io/zone", zone)).into_iter().collect();
    let address = format!("10.0.{}.{}/16", number / 250, number % 250 + 1);
    Speaker {
        name: format!("n{number:02}").into(),
        incarnation: Incarnation::default(),
        labels: texts(&zone),
        taints: [].into(),
        readiness: Readiness::Ready,
        cordoned: false,
        calico: texts(&[("projectcalico.org/IPv4Address", &address)]),
    }
}

pub fn mesh(speakers: Vec<Speaker>) -> Stage {
    let snapshot = Snapshot { mesh: true, as_number: 64_512, ..Snapshot::default() };
    Stage { speakers, snapshot }
}

pub fn zone(number: usize) -> String {
    char::from(b'a' + u8::try_from(number).expect("few zones")).into()
}

impl Layout {
    /// Each zone has a candidate for each of its reflectors, one more, and so clients in any case.
    pub fn stage(&self) -> Stage {
        let of_zone = 2 * self.reflectors.div_ceil(self.zones) + 1;
        let nodes = 0..of_zone * self.zones;
        mesh(nodes.map(|n| speaker(n, Some(&zone(n % self.zones)))).collect())
    }

    /// The spec.
    pub fn set(&self) -> RouteReflectorSet {
        let (count, ids) = (self.reflectors, self.ids.map(|ids| format!("{ids:?}")));
        let mut ids_of = json!({});
        if let Some(ids) = ids {
            ids_of["per"] = ids.into();
        }
        serde_json::from_value(json!({
            "metadata": {"name": "main"},
            "spec": {"count": {"min": count, "max": count}, "mesh": "Migrate",
                "topology": self.topology.as_str(), "clusterID": ids_of}
        }))
        .expect("a spec")
    }
}
