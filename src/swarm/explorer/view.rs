//! The deliveries of the operator's watches in a small world.
use super::{
    facts::{MAP, facts},
    plot::Plot,
    world::World,
};
use crate::swarm::{
    watches::{WorkloadFacts, WorkloadView},
    workers::immutable_name,
};

impl World {
    /// Returns the state delivered by the operator's watches.
    pub(super) fn view(&self, plot: &Plot) -> WorkloadView {
        let (pods, map) =
            if plot.cached { (&self.cache, &self.heard) } else { (&self.pods, &self.map) };
        WorkloadView {
            workload: Some(self.workload(plot)),
            share: map.as_ref().map(|file| file.facts.clone()),
            pods: pods.iter().flatten().map(|pod| facts(plot, pod)).collect(),
            ..WorkloadView::default()
        }
    }

    fn workload(&self, plot: &Plot) -> WorkloadFacts {
        let replicas = u32::try_from(plot.wishes[self.wish].replicas).expect("few");
        let mounted = match self.template {
            0 => MAP.into(),
            epoch => immutable_name(MAP, epoch.into()),
        };
        WorkloadFacts {
            name: "w".into(),
            uid: "w".into(),
            replicas,
            generation: self.template.into(),
            observed_generation: self.observed.into(),
            on_delete: true,
            mounts: vec![("shares".into(), mounted.into())],
            plain: vec!["shares".into()],
            ..WorkloadFacts::default()
        }
    }
}
