//! A spec, read and checked.
use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelector};

use super::election::Rules;
use crate::{
    api::{
        RouteReflectorSet,
        route_reflector_set::{DeletionPolicy, Gate, Mesh},
    },
    controller::Error,
    prometheus::promql,
    selector::Selector,
};

/// A spec that was read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What decides who reflects.
    pub rules: Rules,
    /// Key and value of the label of reflectors.
    pub label: (Arc<str>, Arc<str>),
    /// The label that names a node's zone; "" if zones do not count.
    pub zone_label: Arc<str>,
    /// Which nodes may reflect.
    pub selector: Option<Selector>,
    /// Which of them rather.
    pub preferred: Option<Selector>,
    /// Which never.
    pub forbidden: Option<Selector>,
    /// Which taints are borne.
    pub tolerations: Vec<Toleration>,
    /// What says that sessions are up.
    pub gate: Gate,
    /// The author's own count of sessions.
    pub query: Option<String>,
    /// The time of gate Wait.
    pub wait: Duration,
    /// When a shut gate is told of.
    pub timeout: Duration,
    /// Nodes of a zone that may change at once.
    pub max_per_zone: usize,
    /// Whether the mesh is to be switched off.
    pub migrate: bool,
    /// Whether the mesh is to be restored in the end.
    pub restore: bool,
}

impl Settings {
    /// Reads a spec.
    ///
    /// # Errors
    /// The path of the field and what is wrong with it.
    pub fn of(set: &RouteReflectorSet) -> Result<Self, Error> {
        let spec = &set.spec;
        let candidates = &spec.candidates;
        let read = |selector: &Option<LabelSelector>, name: &str| {
            let read = selector.as_ref().map(Selector::new).transpose();
            read.map_err(|text| Error::Invalid(format!("spec.candidates.{name}.{text}")))
        };
        if let Some(query) = &spec.transition.query {
            promql::check_vector(query)
                .map_err(|error| Error::Invalid(format!("spec.transition.query: {error}")))?;
        }
        let (key, value) = set.node_label();
        Ok(Self {
            rules: Rules::of(spec).map_err(|refusal| Error::Invalid(refusal.to_string()))?,
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
            restore: spec.deletion_policy == DeletionPolicy::RestoreMesh,
        })
    }

    /// The keys of the labels that mark reflectors and name zones.
    #[must_use]
    pub fn keys(&self) -> (&str, &str) {
        (&self.label.0, &self.zone_label)
    }
}
