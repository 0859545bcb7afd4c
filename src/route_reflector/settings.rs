//! A spec, read and checked.
use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelector};

use super::election::{Count, Ids, Pool, Refusal, Rules};
use crate::{
    api::{
        RouteReflectorSet, RouteReflectorSetSpec,
        route_reflector_set::{DeletionPolicy, Gate, Mesh},
    },
    controller::Error,
    selector::Selector,
};

/// A spec that was read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The rules of the election.
    pub rules: Rules,
    /// Key and value of the label of reflectors.
    pub label: (Arc<str>, Arc<str>),
    /// The label that names a node's zone; "" if zones do not count.
    pub zone_label: Arc<str>,
    /// The nodes that may reflect.
    pub selector: Option<Selector>,
    /// Selects the preferred nodes.
    pub preferred: Option<Selector>,
    /// Selects the forbidden nodes.
    pub forbidden: Option<Selector>,
    /// The tolerated taints.
    pub tolerations: Vec<Toleration>,
    /// The gate that verifies sessions.
    pub gate: Gate,
    /// The author's own count of sessions.
    pub query: Option<String>,
    /// The time of gate Wait.
    pub wait: Duration,
    /// The time after which a closed gate is reported.
    pub timeout: Duration,
    /// Nodes of a zone that may change at once.
    pub max_per_zone: usize,
    /// True if the mesh should be switched off once reflectors carry every route.
    pub migrate: bool,
    /// True if reflectors and mesh should go once no route depends on BGP.
    pub retire: bool,
    /// True if the mesh must be restored on deletion.
    pub restore: bool,
}

/// Reads the settings of the election from a spec.
///
/// # Errors
/// The path of the invalid field, and its error.
pub fn rules(spec: &RouteReflectorSetSpec) -> Result<Rules, Refusal> {
    let count = &spec.count;
    let size = |number: u32| number as usize;
    let ratio = count.ratio.parse().map_err(|_| Refusal::Ratio { text: count.ratio.clone() })?;
    let rules = Rules {
        topology: spec.topology,
        count: Count {
            scope: count.scope,
            ratio,
            min: size(count.min),
            max: size(count.max),
            rounding: count.rounding,
            steps: count.steps.iter().map(|step| (size(step.nodes), size(step.count))).collect(),
        },
        peers_per_client: size(spec.peers_per_client),
        ids: Ids { pool: Pool::parse(&spec.cluster_id.pool)?, per: spec.cluster_id.per },
        key: spec.node_label.split_once('=').map_or(&*spec.node_label, |(key, _)| key).into(),
        zone_label: spec.zone_label.as_str().into(),
        demote_after: spec.candidates.demote_after.into(),
        replace_after: spec.candidates.replace_after.into(),
    };
    rules.check().map(|()| rules)
}

impl Settings {
    /// Reads a spec. The parts that only the gate needs are checked elsewhere: repair goes on
    /// without them.
    ///
    /// # Errors
    /// The path of the invalid field, and its error.
    pub fn of(set: &RouteReflectorSet) -> Result<Self, Error> {
        let spec = &set.spec;
        let candidates = &spec.candidates;
        let read = |selector: &Option<LabelSelector>, name: &str| {
            let read = selector.as_ref().map(Selector::new).transpose();
            read.map_err(|text| Error::Invalid(format!("spec.candidates.{name}.{text}")))
        };
        let (key, value) = set.node_label();
        Ok(Self {
            rules: rules(spec).map_err(|refusal| Error::Invalid(refusal.to_string()))?,
            label: (key.into(), value.into()),
            zone_label: spec.zone_label.as_str().into(),
            selector: read(&candidates.node_selector, "nodeSelector")?,
            preferred: read(&candidates.preferred, "preferred")?,
            forbidden: read(&candidates.forbidden, "forbidden")?,
            tolerations: candidates.tolerations.clone(),
            gate: spec.transition.gate,
            query: spec.transition.query.clone(),
            wait: spec.transition.wait.into(),
            timeout: spec.transition.timeout.into(),
            max_per_zone: usize::try_from(spec.transition.max_per_zone).unwrap_or(usize::MAX),
            migrate: spec.mesh == Mesh::Migrate,
            retire: spec.mesh == Mesh::Retire,
            restore: spec.deletion_policy == DeletionPolicy::RestoreMesh,
        })
    }

    /// The keys of the labels that mark reflectors and name zones.
    #[must_use]
    pub fn keys(&self) -> (&str, &str) {
        (&self.label.0, &self.zone_label)
    }
}
