//! The values of a spec that control the election: fields of the custom resource have these types.
use serde::{Deserialize, Serialize};

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
