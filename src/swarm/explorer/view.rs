//! The deliveries of the operator's watches in a small world.
use std::sync::Arc;

use super::{
    facts::{File, MAP, facts},
    plot::{Old, Plot},
    world::World,
};
use crate::swarm::{
    file::{STATE_KEY, parts::Head, stored::fingerprint},
    watches::{WorkloadFacts, WorkloadView},
    workers::immutable_name,
};

impl World {
    /// Returns the state delivered by the operator's watches.
    pub(super) fn view(&self, plot: &Plot) -> WorkloadView {
        let (pods, map) =
            if plot.cached { (&self.cache, &self.heard) } else { (&self.pods, &self.maps[0]) };
        let read = |map: &Option<Arc<File>>| map.as_ref().map(|file| file.facts.clone());
        let mut view = WorkloadView {
            workload: Some(self.workload(plot)),
            share: read(map),
            parts: self.maps[1..plot.maps()].iter().map(read).collect(),
            pods: pods.iter().flatten().map(|pod| facts(plot, pod)).collect(),
            ..WorkloadView::default()
        };
        if plot.old == Some(Old::NoFence) {
            self.believe(&mut view);
        }
        view
    }

    /// Makes the head state the actual version of each part.
    fn believe(&self, view: &mut WorkloadView) {
        let head = view.share.as_mut().filter(|share| share.data.contains_key(STATE_KEY));
        let Some(share) = head else { return };
        let mut head = Head::parse(&share.data[STATE_KEY]).expect("a head");
        for (file, version) in self.maps[1..].iter().zip(&mut head.parts) {
            *version = file.as_ref().map_or(*version, |file| file.epoch.min(*version));
        }
        let state = head.render();
        share.content = Some(fingerprint("", &state));
        share.data = Arc::new([(STATE_KEY.to_owned(), state)].into());
    }

    fn workload(&self, plot: &Plot) -> WorkloadFacts {
        let replicas = u32::try_from(plot.wishes[self.wish].replicas).expect("few");
        let mut mounted = plot.wishes[self.wish].swarm.parts();
        if mounted.is_empty() {
            mounted.push(match self.template {
                0 => MAP.into(),
                epoch => immutable_name(MAP, epoch.into()),
            });
        }
        WorkloadFacts {
            name: "w".into(),
            uid: "w".into(),
            replicas,
            generation: self.template.into(),
            observed_generation: self.observed.into(),
            on_delete: true,
            mounts: mounted.into_iter().map(|map| ("shares".into(), map.into())).collect(),
            plain: vec!["shares".into()],
            ..WorkloadFacts::default()
        }
    }
}
