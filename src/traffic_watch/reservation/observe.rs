//! Reads what nodes offer and what pods request. Decides nothing.
use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{TrafficWatchReconciler, conflict},
    Leaving, Seen,
};
use crate::{
    api::{TrafficWatch, traffic_watch::Mode},
    controller::key,
};

impl TrafficWatchReconciler {
    /// Reads what the reservation of an object rests on, and has the requests of pods read while
    /// it depends on them.
    pub(in super::super) fn reservation(
        &self,
        watch: &TrafficWatch,
        others: &[&TrafficWatch],
    ) -> Seen {
        let holder = conflict::resource_holder(watch, others.iter().copied());
        let current = watch.spec.reservation.as_ref().filter(|_| !watch.spec.paused);
        let current = current.map(|reservation| &*reservation.resource);
        // Observe writes nothing, and so takes nothing away.
        let leaving = match watch.spec.mode {
            Mode::Enforce => self.leaving(watch, current, others),
            Mode::Observe => vec![],
        };
        let offered = current.filter(|_| holder.is_none());
        let key = key(watch);
        self.requests.need(&key, offered.is_some() || !leaving.is_empty());
        Seen {
            offers: offered.map_or_else(Vec::new, |resource| self.nodes.offering(resource)),
            requested: offered.and_then(|resource| self.requests.of(resource)),
            waiting: offered.map_or_else(Vec::new, |resource| self.requests.waiting(resource)),
            failed: self.memories.read(&key, |entry| Arc::clone(&entry.failed_offers)),
            holder,
            device_class: None,
            leaving,
        }
    }

    /// Reads the resources that an object has to take away from nodes: all that it offered and does
    /// not offer any more, except those of another object.
    pub(in super::super) fn leaving(
        &self,
        watch: &TrafficWatch,
        current: Option<&str>,
        others: &[&TrafficWatch],
    ) -> Vec<Leaving> {
        let recorded = watch.status.as_ref().and_then(|status| status.reservation.as_ref());
        let recorded = recorded.into_iter().flat_map(|it| it.resource.iter().chain(&it.leaving));
        let own = conflict::inherited_resource(watch, others.iter().copied());
        let names: BTreeSet<&str> = recorded.map(String::as_str).chain(own).collect();
        let goes = |name: &&str| {
            current != Some(*name)
                && !conflict::is_offered_by_other(watch, name, others.iter().copied())
        };
        names
            .into_iter()
            .filter(goes)
            .map(|name| Leaving {
                resource: name.into(),
                offers: self.nodes.offering(name),
                requested: self.requests.of(name),
            })
            .collect()
    }
}
