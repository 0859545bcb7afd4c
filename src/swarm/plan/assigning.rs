//! The final worker of each stream.
use std::{collections::BTreeMap, sync::Arc};

use super::Decision;
use crate::{
    api::swarm::{Policy, WorkloadKind},
    placement::assignment::{self, Assignment, Item, Rules, Standing},
    swarm::{handover::Published, weights},
};

impl Decision<'_> {
    /// The worker of each stream in a file, as a place among those that should have streams.
    pub(super) fn places(&self, file: &Published) -> Vec<Option<usize>> {
        let wanted = self.workers.wanted().enumerate();
        let index: BTreeMap<_, _> = wanted.map(|(i, worker)| (&worker.name, i)).collect();
        let owners: BTreeMap<_, _> = file.owners().collect();
        let place = |id: &Arc<str>| index.get(owners.get(id)?).copied();
        self.ids.iter().map(place).collect()
    }

    /// Counts a stream without a worker to the one to which it will come, which has prepared it.
    fn keep_coming(&self, places: &mut [Option<usize>]) {
        let next = &self.history.published.next;
        let wanted = self.workers.wanted().enumerate();
        let takes = wanted.filter(|(_, worker)| worker.standing == Standing::Full);
        let coming = takes.flat_map(|(i, worker)| {
            next.get(&worker.name).into_iter().flatten().map(move |stream| (stream, i))
        });
        let coming: BTreeMap<_, _> = coming.collect();
        for (place, id) in places.iter_mut().zip(&self.ids).filter(|(place, _)| place.is_none()) {
            *place = coming.get(id).copied();
        }
    }

    /// The weights of the workers between which streams can move for balance, and how many streams
    /// each has.
    pub(super) fn loads(&self, places: &[Option<usize>]) -> (Vec<f64>, Vec<usize>) {
        let takes = self.workers.wanted().map(|worker| worker.standing == Standing::Full);
        let takes: Vec<_> = takes.collect();
        weights::loads(&self.settings.streams, &self.weights, places, &takes)
    }

    /// Reports whether there are weights to be measured, and the present ones are unknown.
    pub(super) fn is_blind(&self) -> bool {
        self.settings.weights.is_some()
            && (self.memory.weights.is_empty() || self.observed.measuring.is_some())
    }

    /// Computes the final worker of every stream.
    pub(super) fn assign(&mut self) -> Assignment {
        let scaled = weights::scaled(&self.weights);
        let items: Vec<_> = self
            .settings
            .streams
            .iter()
            .zip(scaled)
            .map(|(stream, weight)| Item {
                id: &stream.id,
                weight,
                pin: stream.pin.as_deref(),
                dedicated: stream.dedicated,
            })
            .collect();
        let wanted: Vec<_> = self.workers.wanted().collect();
        let mut previous = self.places(&self.history.published);
        let mut balance = !self.workers.rolling;
        if let Some(rules) = &self.settings.weights {
            let (mut loads, counts) = self.loads(&previous);
            // Weights that are not measured now prove no imbalance.
            let blind = self.is_blind();
            if blind {
                loads.clear();
            }
            let (moves, heavy) =
                weights::rebalances(rules, &loads, &counts, self.memory.heavy, self.observed.now);
            if !blind {
                self.memory.heavy = heavy;
            }
            balance &= moves;
        }
        self.keep_coming(&mut previous);
        let rules = Rules {
            policy: match self.settings.policy {
                Policy::Sticky => assignment::Policy::Sticky,
                Policy::Stateless => assignment::Policy::Stateless,
                Policy::Contiguous => assignment::Policy::Contiguous,
            },
            max_per_worker: self.settings.max_per_worker,
            max_moves: self.settings.max_moves.map(|most| {
                // Streams that are already moving count towards the limit.
                let on_their_way = self.history.published.releasing.len() + self.memory.free.len();
                most.saturating_sub(on_their_way)
            }),
            balance,
        };
        let workers: Vec<_> = wanted
            .iter()
            .map(|worker| assignment::Worker { id: &worker.name, standing: worker.standing })
            .collect();
        let first = assignment::assign(&items, &workers, &previous, &rules);
        let returns = self.settings.kind == WorkloadKind::StatefulSet;
        let lost = returns && wanted.iter().any(|worker| worker.is_lost);
        if first.unassigned.is_empty() || !lost {
            return first;
        }
        // A stream in the list of a worker without a pod runs as soon as there is one; a stream in
        // no list waits for a change of the spec. (The pod of a Deployment may never run, and does
        // not come back under its name.)
        let whole: Vec<_> = wanted
            .iter()
            .map(|worker| {
                let lost = worker.is_lost && worker.standing == Standing::Keeps;
                let standing = if lost { Standing::Full } else { worker.standing };
                assignment::Worker { id: &worker.name, standing }
            })
            .collect();
        let rules = Rules { policy: assignment::Policy::Sticky, balance: false, ..rules };
        assignment::assign(&items, &whole, &first.owners, &rules)
    }
}
