//! The operator's view of a world, and the identity of worlds.
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use super::{KEY, MAPS, Plot, WORKERS, WORKLOAD, Weak, World, facts};
use crate::{
    api::{Swarm, SwarmStatus},
    swarm::{
        explorer::operator::remembered,
        file::{self, STATE_KEY, parts::Head, stored::fingerprint},
        plan::Desired,
        watches::{WorkloadFacts, WorkloadView},
    },
};

impl World {
    pub(in super::super) fn swarm(&self, plot: &Plot) -> Swarm {
        let mut swarm = plot.wishes[self.wish].1.clone();
        let status = || SwarmStatus { epoch: self.reported.0, ..SwarmStatus::default() };
        swarm.status = (self.reported.1 != 0).then(status);
        swarm
    }

    pub(in super::super) fn view(&self, plot: &Plot) -> WorkloadView {
        let replicas = u32::try_from(plot.wishes[self.wish].0).expect("few");
        let pods = (0..WORKERS).filter_map(|w| self.pods[w].map(|pod| facts(w, &pod)));
        let map = |i: usize| self.maps[i].as_deref().cloned();
        let mut view = WorkloadView {
            workload: Some(WorkloadFacts {
                name: WORKLOAD.into(),
                uid: "w".into(),
                replicas,
                ..WorkloadFacts::default()
            }),
            share: map(0),
            parts: (1..MAPS).map(map).collect(),
            pods: pods.collect(),
            ..WorkloadView::default()
        };
        if plot.weak == Weak::NoFence {
            believe(&mut view);
        }
        view
    }

    pub(in super::super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for map in &self.maps {
            map.as_ref()
                .map(|map| (&map.resource_version, &map.content, &map.data))
                .hash(&mut hasher);
        }
        (&self.reads, self.reported.0, self.wish, self.pods, self.serials).hash(&mut hasher);
        (self.changes, self.faults, self.crashes).hash(&mut hasher);
        for write in &self.late {
            (write.map, &write.on, &write.facts.data).hash(&mut hasher);
        }
        remembered(&self.memory).hash(&mut hasher);
        if let Some(decided) = &self.decided {
            let Desired { publish, refresh, memory, .. } = &decided.desired;
            let writes = publish.as_ref().map(|p| (&p.data, &p.on, &p.parts));
            format!("{writes:?} {refresh:?}").hash(&mut hasher);
            memory.as_ref().map(remembered).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Makes the head state the actual version of each part.
fn believe(view: &mut WorkloadView) {
    let Some(share) = &mut view.share else { return };
    let Some(mut head) = share.data.get(STATE_KEY).and_then(|text| Head::parse(text).ok()) else {
        return;
    };
    for (part, version) in view.parts.iter().zip(&mut head.parts) {
        let config = part.as_ref().and_then(|part| part.data.get(KEY));
        if let Some(read) = config.and_then(|config| file::parse(config, None).ok()) {
            *version = read.published.epoch.min(*version);
        }
    }
    let state = head.render();
    share.content = Some(fingerprint("", &state));
    share.data = Arc::new([(STATE_KEY.to_owned(), state)].into());
}
