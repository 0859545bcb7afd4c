//! Ownership of node labels: a label key belongs to the oldest `TrafficWatch` that claims it.
use std::collections::BTreeMap;

use kube::ResourceExt;

use super::TrafficWatchReconciler;
use crate::{
    api::{TrafficWatch, UNFIT_SUFFIX, has_ended, traffic_watch::Mode},
    controller::Reconciler,
};

/// The right to write a label key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This object may write the label.
    Ours,
    /// It belongs to another object, given by namespace/name.
    HeldBy(String),
    /// There are as many older objects of its mode as may be: the text says where.
    TooMany(String),
}

/// How many objects may write labels: each puts one on every node. As many more may observe: each
/// asks for measurements of every node.
#[derive(Clone, Debug)]
pub struct Quota {
    /// In one namespace; 0 is no limit.
    pub per_namespace: usize,
    /// In all namespaces together; 0 is no limit.
    pub in_all: usize,
    /// The operator's own namespace, whose objects neither count nor are limited.
    pub own: String,
}

impl Quota {
    /// What one namespace gets unless a flag changes it.
    pub const PER_NAMESPACE: usize = 16;
    /// What all namespaces together get unless a flag changes it.
    pub const IN_ALL: usize = 200;

    /// Reports whether the objects of a namespace have no limits.
    pub(super) fn is_free(&self, namespace: &str) -> bool {
        self.per_namespace == 0 || namespace == self.own
    }

    /// Returns the claim of an object that would have its key: the oldest objects have the places.
    #[must_use]
    pub fn claim<'a>(
        &self,
        watch: &TrafficWatch,
        others: impl IntoIterator<Item = &'a TrafficWatch>,
    ) -> Claim {
        let is_limited = |watch: &TrafficWatch| {
            watch.metadata.namespace.as_ref() != Some(&self.own)
                && !has_ended(watch, TrafficWatchReconciler::FINALIZER)
        };
        if !is_limited(watch) {
            return Claim::Ours;
        }
        let mode = watch.spec.mode;
        let mut older = BTreeMap::<_, usize>::new();
        for other in others {
            let counts = other.spec.mode == mode && is_limited(other);
            if counts && rank(other) < rank(watch) {
                *older.entry(other.metadata.namespace.as_deref()).or_default() += 1;
            }
        }
        let here = older.get(&watch.metadata.namespace.as_deref()).copied().unwrap_or_default();
        // Those above the limit of their namespace take no place from another one.
        let most = if self.per_namespace == 0 { usize::MAX } else { self.per_namespace };
        let all: usize = older.values().map(|count| count.min(&most)).sum();
        let is_full = |taken: usize, limit: usize| limit > 0 && taken >= limit;
        let act = match mode {
            Mode::Enforce => "write labels to nodes",
            Mode::Observe => "observe nodes",
        };
        if is_full(here, self.per_namespace) {
            Claim::TooMany(format!(
                "{here} older TrafficWatches of this namespace {act}, as many as the operator's flag \
                 --trafficwatches-per-namespace allows"
            ))
        } else if is_full(all, self.in_all) {
            Claim::TooMany(format!(
                "{all} older TrafficWatches {act}, as many as the operator's flag --trafficwatches \
                 allows"
            ))
        } else {
            Claim::Ours
        }
    }
}

/// Returns the holder, among all others, of the key that `watch` claims.
#[must_use]
pub fn claim<'a>(
    watch: &TrafficWatch,
    others: impl IntoIterator<Item = &'a TrafficWatch>,
) -> Claim {
    if !claims(watch) {
        return Claim::Ours;
    }
    let key = watch.label_key();
    others
        .into_iter()
        .filter(|other| claims(other) && other.label_key() == key && rank(other) < rank(watch))
        .min_by_key(|other| rank(other))
        .map_or(Claim::Ours, |holder| Claim::HeldBy(name(holder)))
}

/// Reports whether another live object claims `key`: its labels must not be removed with those of
/// `watch`.
#[must_use]
pub(super) fn is_claimed_by_other<'a>(
    watch: &TrafficWatch,
    key: &str,
    others: impl IntoIterator<Item = &'a TrafficWatch>,
) -> bool {
    others.into_iter().any(|other| {
        name(other) != name(watch)
            && other.metadata.deletion_timestamp.is_none()
            && claims(other)
            && other.label_key() == key
    })
}

/// Returns the older object, by namespace/name, that offers the same extended resource. One that
/// waits for its label key writes nothing: it offers none.
#[must_use]
pub(super) fn resource_holder<'a>(
    watch: &TrafficWatch,
    others: impl IntoIterator<Item = &'a TrafficWatch, IntoIter: Clone>,
) -> Option<String> {
    let resource = resource(watch)?;
    let others = others.into_iter();
    let mut older: Vec<_> = others
        .clone()
        .filter(|other| self::resource(other) == Some(resource) && rank(other) < rank(watch))
        .collect();
    older.sort_by(|a, b| rank(a).cmp(&rank(b)));
    // Mostly the first one: a claim is compared with all objects.
    older.into_iter().find(|other| claim(other, others.clone()) == Claim::Ours).map(name)
}

/// Reports whether another live object offers an extended resource: it stays on the nodes. One that
/// waits for its label key writes nothing and does not count, unless the object that has the key is
/// being deleted: it would leave the resource on the nodes for ever.
#[must_use]
pub(super) fn is_offered_by_other<'a>(
    watch: &TrafficWatch,
    resource: &str,
    others: impl IntoIterator<Item = &'a TrafficWatch, IntoIter: Clone>,
) -> bool {
    let live = others.into_iter().filter(|other| other.metadata.deletion_timestamp.is_none());
    live.clone().any(|other| {
        name(other) != name(watch)
            && self::resource(other) == Some(resource)
            && claim(other, live.clone()) == Claim::Ours
    })
}

/// Returns the extended resource that an object may have got without having had a pass since: the
/// one of its spec, unless another live object has it in its status.
#[must_use]
pub(super) fn inherited_resource<'a>(
    watch: &'a TrafficWatch,
    others: impl IntoIterator<Item = &'a TrafficWatch>,
) -> Option<&'a str> {
    let own = resource(watch)?;
    let has_it = |other: &TrafficWatch| {
        let status = other.status.as_ref().and_then(|status| status.reservation.as_ref());
        status.is_some_and(|it| it.resource.iter().chain(&it.leaving).any(|name| name == own))
    };
    let mut live = others
        .into_iter()
        .filter(|other| name(other) != name(watch) && other.metadata.deletion_timestamp.is_none());
    (!live.any(has_it)).then_some(own)
}

/// The extended resource that an object offers: one that is paused takes it away.
fn resource(watch: &TrafficWatch) -> Option<&str> {
    let reservation = watch.spec.reservation.as_ref().filter(|_| claims(watch))?;
    (!watch.spec.paused).then_some(&*reservation.resource)
}

/// Returns the key that an object had before, when `spec.label` could still change: nodes may have
/// it. Any other text in the status is not from the operator.
pub(super) fn former_key(watch: &TrafficWatch) -> Option<&str> {
    let published = watch.status.as_ref()?.label.as_deref()?;
    (published != watch.label_key() && published.ends_with(UNFIT_SUFFIX)).then_some(published)
}

/// Observe writes no label, so it claims none; nor does an object that is cleaned up.
fn claims(watch: &TrafficWatch) -> bool {
    watch.spec.mode == Mode::Enforce && !has_ended(watch, TrafficWatchReconciler::FINALIZER)
}

fn name(watch: &TrafficWatch) -> String {
    format!("{}/{}", watch.namespace().unwrap_or_default(), watch.name_any())
}

/// Older first, ties by namespace and name.
fn rank(watch: &TrafficWatch) -> (Option<i64>, Option<&str>, Option<&str>) {
    let meta = &watch.metadata;
    let created = meta.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, meta.namespace.as_deref(), meta.name.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_objects_have_the_places_and_those_of_the_platform_need_none() {
        let quota = Quota { per_namespace: 2, in_all: 3, own: "ops".into() };
        let at = |minute: u8| format!("2026-01-01T00:{minute:02}:00Z");
        let enforces = |namespace, name, minute| watch(namespace, name, &at(minute), json!({}));
        let all = [
            enforces("ops", "first", 0),
            enforces("a", "one", 1),
            watch("a", "looks", &at(2), json!({"mode": "Observe"})),
            watch("a", "looks too", &at(3), json!({"mode": "Observe"})),
            watch("a", "looks as well", &at(4), json!({"mode": "Observe"})),
            enforces("a", "two", 3),
            enforces("a", "three", 4),
            enforces("a", "four", 5),
            enforces("b", "one", 6),
            enforces("b", "two", 7),
            enforces("ops", "last", 9),
        ];
        let refused: Vec<_> = all
            .iter()
            .filter(|watch| matches!(quota.claim(watch, &all), Claim::TooMany(_)))
            .map(name)
            .collect();
        assert_eq!(refused, ["a/looks as well", "a/three", "a/four", "b/two"]);
        let unlimited = Quota { per_namespace: 0, in_all: 0, ..quota };
        assert!(all.iter().all(|watch| unlimited.claim(watch, &all) == Claim::Ours));
    }

    fn watch(namespace: &str, name: &str, created: &str, spec: serde_json::Value) -> TrafficWatch {
        let mut spec = spec;
        spec["maxBandwidthPercent"] = "60".into();
        serde_json::from_value(serde_json::json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
            "spec": spec
        }))
        .unwrap()
    }

    #[test]
    fn a_former_key_is_one_of_ours_and_not_the_present_one() {
        for (published, former) in [
            (json!({}), None),
            (json!({"label": "w.traffic.example.com/unfit"}), None),
            (json!({"label": "b.traffic.example.com/unfit"}), Some("b.traffic.example.com/unfit")),
            (json!({"label": "node-role.kubernetes.io/control-plane"}), None),
        ] {
            let mut watch = watch("a", "w", "2026-01-01T00:00:00Z", json!({}));
            watch.status = Some(serde_json::from_value(published).unwrap());
            assert_eq!(former_key(&watch), former);
        }
    }

    /// Original 1.4 #15: two of one name in different namespaces fought over the node label.
    #[test]
    fn the_older_wins_and_the_other_names_it() {
        let old = watch("b", "w", "2026-01-01T00:00:00Z", serde_json::json!({}));
        let new = watch("a", "w", "2026-01-02T00:00:00Z", serde_json::json!({}));
        let tie = watch("a", "x", "2026-01-01T00:00:00Z", serde_json::json!({"label": "w"}));
        let all = [old.clone(), new.clone(), tie.clone()];
        assert_eq!(claim(&tie, &all), Claim::Ours);
        assert_eq!(claim(&old, &all), Claim::HeldBy("a/x".into()));
        assert_eq!(claim(&new, &all), Claim::HeldBy("a/x".into()));
        assert_eq!(claim(&new, &[old, new.clone()]), Claim::HeldBy("b/w".into()));
    }

    #[test]
    fn the_older_offers_a_resource_unless_it_only_observes_or_is_paused() {
        let at = |day: u8| format!("2026-01-0{day}T00:00:00Z");
        let offering = |name: &str, day, more: serde_json::Value| {
            let mut spec = serde_json::json!({"reservation": {"resource": "example.com/mbps"}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            watch("ns", name, &at(day), spec)
        };
        let paused = offering("paused", 1, serde_json::json!({"paused": true}));
        let observes = offering("observes", 1, serde_json::json!({"mode": "Observe"}));
        let old = offering("old", 2, serde_json::json!({}));
        let new = offering("new", 3, serde_json::json!({}));
        let plain = watch("ns", "plain", &at(1), serde_json::json!({}));
        let all = [&paused, &observes, &old, &new, &plain];
        assert_eq!(resource_holder(&new, all), Some("ns/old".into()));
        for holder in [&paused, &observes, &old, &plain] {
            assert_eq!(resource_holder(holder, all), None, "{}", name(holder));
        }
        assert!(is_offered_by_other(&old, "example.com/mbps", all));
        assert!(!is_offered_by_other(&old, "example.com/other", all));
        assert!(!is_offered_by_other(&old, "example.com/mbps", [&paused, &observes, &old, &plain]));
    }

    fn offering(name: &str, day: u8, label: &str) -> TrafficWatch {
        let reservation = serde_json::json!({"resource": "example.com/mbps"});
        let spec = serde_json::json!({"label": label, "reservation": reservation});
        watch("ns", name, &format!("2026-01-0{day}T00:00:00Z"), spec)
    }

    /// It had no holder that wrote, and stayed on the nodes with its amounts after the last object
    /// that did.
    #[test]
    fn an_object_that_waits_for_its_label_key_neither_holds_nor_inherits_a_resource() {
        let holder = watch("ns", "holder", "2026-01-01T00:00:00Z", serde_json::json!({}));
        let waits = offering("waits", 2, "holder");
        let mut new = offering("new", 3, "new");
        assert_eq!(claim(&waits, [&holder, &waits, &new]), Claim::HeldBy("ns/holder".into()));
        assert_eq!(resource_holder(&new, [&holder, &waits, &new]), None);
        let next = offering("next", 4, "next");
        let all = [&holder, &waits, &new, &next];
        assert_eq!(resource_holder(&next, all), Some("ns/new".into()), "the next one that writes");
        for deleted in [false, true] {
            if deleted {
                new.metadata.deletion_timestamp = new.metadata.creation_timestamp.clone();
            }
            assert!(!is_offered_by_other(&new, "example.com/mbps", [&holder, &waits, &new]));
            // With its key it does both.
            assert!(is_offered_by_other(&new, "example.com/mbps", [&waits, &new]));
            assert_eq!(resource_holder(&next, [&waits, &next]), Some("ns/waits".into()));
        }
    }

    /// It has both as soon as the object is gone: without the resource in between, no pod that
    /// requests it could start.
    #[test]
    fn who_waits_for_the_label_key_of_a_deleted_object_gets_its_resource_too() {
        let mut old = offering("old", 1, "web");
        let new = offering("new", 2, "web");
        assert!(!is_offered_by_other(&old, "example.com/mbps", [&old, &new]));
        old.metadata.finalizers = Some(vec![TrafficWatchReconciler::FINALIZER.to_owned()]);
        old.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
        assert_eq!(claim(&new, [&old, &new]), Claim::HeldBy("ns/old".into()));
        assert!(is_offered_by_other(&old, "example.com/mbps", [&old, &new]));
    }

    /// One that is paused takes its resource away by itself, and leaves what pods request.
    #[test]
    fn who_never_offered_a_resource_inherits_none_that_another_has_in_its_status() {
        let offering = serde_json::json!({"reservation": {"resource": "example.com/mbps"}});
        let mut old = watch("ns", "old", "2026-01-01T00:00:00Z", offering.clone());
        let new = watch("ns", "new", "2026-01-02T00:00:00Z", offering);
        old.spec.paused = true;
        assert_eq!(inherited_resource(&new, [&old, &new]), Some("example.com/mbps"));
        let leaving = serde_json::json!({"reservation": {"leaving": ["example.com/mbps"]}});
        old.status = Some(serde_json::from_value(leaving).unwrap());
        assert_eq!(inherited_resource(&new, [&old, &new]), None);
        old.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
        assert_eq!(inherited_resource(&new, [&old, &new]), Some("example.com/mbps"));
    }

    /// With foreground deletion, the object stays until its Deployment is gone.
    #[test]
    fn who_is_cleaned_up_claims_nothing() {
        let mut old = watch("a", "w", "2026-01-01T00:00:00Z", serde_json::json!({}));
        let new = watch("b", "w", "2026-01-02T00:00:00Z", serde_json::json!({}));
        old.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
        let ours = TrafficWatchReconciler::FINALIZER.to_owned();
        old.metadata.finalizers = Some(vec!["foregroundDeletion".into(), ours]);
        assert_eq!(claim(&new, [&old]), Claim::HeldBy("a/w".into()));
        old.metadata.finalizers = Some(vec!["foregroundDeletion".into()]);
        assert_eq!(claim(&new, [&old]), Claim::Ours);
    }

    #[test]
    fn who_only_observes_claims_nothing() {
        let old = watch("a", "w", "2026-01-01T00:00:00Z", serde_json::json!({"mode": "Observe"}));
        let new = watch("b", "w", "2026-01-02T00:00:00Z", serde_json::json!({}));
        assert_eq!(claim(&new, [&old]), Claim::Ours);
        assert_eq!(claim(&old, [&new]), Claim::Ours);
        assert!(!is_claimed_by_other(&new, &new.label_key(), [&old, &new]));
        assert!(is_claimed_by_other(&old, &new.label_key(), [&old, &new]));
    }
}
