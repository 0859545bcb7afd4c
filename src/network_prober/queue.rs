//! The `NetworkProber`s in the order of their rights, the oldest first. Pure.
use std::{collections::BTreeSet, sync::Arc};

use kube::{Resource, ResourceExt};

use super::{
    scope::NamespaceFacts,
    settings::Settings,
    snapshot::{Key, Reach, Setup},
    watches::{self, budget::Counts},
};
use crate::{api::NetworkProber, infra::watch::DeserializeGuard};

/// Returns the objects to serve, and the keys of the others: those that are being deleted or cannot
/// be read.
pub(super) fn read(
    probers: &[Arc<DeserializeGuard<NetworkProber>>],
) -> (Vec<&NetworkProber>, BTreeSet<Key>) {
    let (mut read, mut ending) = (Vec::new(), BTreeSet::new());
    for prober in probers {
        match &prober.0 {
            Ok(stays) if stays.metadata.deletion_timestamp.is_none() => read.push(stays),
            _ => {
                let key = (prober.namespace().unwrap_or_default(), prober.name_any());
                ending.insert(key);
            }
        }
    }
    read.sort_by_cached_key(|prober| {
        (prober.creation_timestamp(), prober.namespace(), prober.name_any())
    });
    (read, ending)
}

/// Returns the reach of each. Those beyond the number that is served reach nothing, and cost
/// nothing.
pub(super) fn reaches(
    read: &[&NetworkProber],
    setup: &Setup,
    namespaces: &[NamespaceFacts],
) -> Vec<Reach> {
    let mut counts = Counts::default();
    let reach = |prober: &&NetworkProber| {
        let settings = Settings::of(prober, &setup.tenancy);
        let namespace = prober.meta().namespace.as_deref().unwrap_or_default();
        match counts.admit(&watches::payer(namespace, &setup.tenancy)) {
            None => Reach::of(settings, setup, namespaces),
            Some(over) => Reach::beyond(settings, setup, over),
        }
    };
    read.iter().map(reach).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::network_prober::watches::budget::{OF_AUTHORS, OF_NAMESPACE};

    #[test]
    fn those_that_are_being_deleted_or_cannot_be_read_are_known_to_end() {
        let object = |name: &str, deleted: Option<&str>, spec| {
            let object = json!({
                "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
                "metadata": {"name": name, "namespace": "team", "deletionTimestamp": deleted},
                "spec": spec,
            });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let good = || json!({"podSelector": {"matchLabels": {"app": "a"}}});
        let all = [
            object("ends", Some("2026-01-01T00:00:00Z"), good()),
            object("stays", None, good()),
            object("unreadable", None, json!({"podSelector": 7})),
        ];
        let (read, ending) = read(&all);
        assert_eq!(read.iter().map(|prober| prober.name_any()).collect::<Vec<_>>(), ["stays"]);
        let key = |name: &str| ("team".to_owned(), name.to_owned());
        assert_eq!(ending, [key("ends"), key("unreadable")].into());
    }

    /// Each would cost an examination of all namespaces in every replica, at each change.
    #[test]
    fn more_probers_than_have_watches_cost_nothing() {
        let setup = crate::network_prober::tests::setup(Some("operator"));
        let named = |name: &str| NamespaceFacts {
            name: name.into(),
            allow: Some("*".into()),
            ..NamespaceFacts::default()
        };
        let namespaces = ["t0", "t1", "t2", "t3", "ops"].map(named);
        let prober = |namespace: &str, number: usize| {
            let mut prober = crate::network_prober::tests::prober(
                &format!("np-{number:03}"),
                "2026-01-01T00:00:00Z",
                &json!({"namespaceSelector": {}}),
            );
            prober.metadata.namespace = Some(namespace.into());
            prober
        };
        let served = |of: &[(&str, usize)]| {
            let all = of
                .iter()
                .flat_map(|(namespace, count)| (0..*count).map(|number| prober(namespace, number)));
            let all: Vec<_> = all.collect();
            let reaches = reaches(&all.iter().collect::<Vec<_>>(), &setup, &namespaces);
            let one = |(prober, reach): (&NetworkProber, &Reach)| {
                let namespace = prober.namespace().unwrap();
                let demand = reach.demand(&namespace, &setup.tenancy);
                assert_eq!(demand.is_some(), reach.beyond_all().is_none());
                assert_eq!(demand.is_some(), reach.reaches_any(), "no scope without a demand");
                reach.beyond_all().map(ToString::to_string)
            };
            all.iter().zip(&reaches).map(one).collect::<Vec<_>>()
        };
        let number = |all: &[Option<String>]| all.iter().filter(|over| over.is_none()).count();
        let one = served(&[("t0", 150), ("t1", 1), ("ops", 1)]);
        assert_eq!((number(&one[..150]), number(&one[150..])), (OF_NAMESPACE.watches, 2));
        let text = one[149].as_deref().unwrap();
        assert!(
            text.contains("the oldest 100 of the NetworkProbers of the namespace t0"),
            "{text}"
        );
        let all = served(&[("t0", 150), ("t1", 150), ("t2", 150), ("t3", 1), ("ops", 1)]);
        assert_eq!(number(&all), OF_AUTHORS.watches + 1);
        assert!(all[450].as_deref().unwrap().contains("all namespaces but the operator's"));
        assert_eq!(all[451], None);
    }
}
