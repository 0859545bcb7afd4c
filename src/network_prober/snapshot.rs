//! One `NetworkProber` as it stands, and all of them at one moment: what follows from specs,
//! namespaces and pods. Pure.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::{Resource, ResourceExt};

use super::{
    constraints::ByNamespace,
    members::{self, Members, Nodes, Selection},
    pinglists::Pinglists,
    places::{Full, Places, webhook_bytes},
    scope::{NamespaceFacts, Scope, Standing},
    settings::{Rank, Settings, Tenancy},
    watches::{self, Counts, Demand, Over},
};
pub use crate::controller::Key;
use crate::{
    api::{
        NetworkProber,
        network_prober::{Delivery, Mode},
    },
    infra::watch::DeserializeGuard,
    pods::PodObject,
    webhook::injection::{self, Recipe},
};

/// The settings of one replica, from its start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The namespaces that are never touched.
    pub tenancy: Tenancy,
    /// Our own image, for agents.
    pub own_image: Option<String>,
    /// URL at which agents get their pinglists.
    pub pinglist_url: String,
    /// True if the API server knows native sidecars (1.29); kubelets have to know them too.
    pub native_sidecars: bool,
    /// URL of the runbooks, for alerts.
    pub runbooks: Option<String>,
}

/// The settings of a `NetworkProber`, and the namespaces to which they apply.
pub struct Reach {
    settings: Result<Settings, String>,
    recipe: Option<Recipe>,
    scope: Scope,
    webhook_bytes: usize,
    beyond: Option<Over>,
}

impl Reach {
    /// Examines all namespaces.
    #[must_use]
    pub fn of(
        settings: Result<Settings, crate::controller::Error>,
        setup: &Setup,
        namespaces: &[NamespaceFacts],
    ) -> Self {
        let settings = settings.map_err(|error| error.to_text());
        let recipe = settings.as_ref().ok().and_then(|settings| recipe(settings, setup));
        let image = recipe.as_ref().map(|recipe| &*recipe.image);
        let scope = settings.as_ref().map_or_else(
            |_| Scope::default(),
            |settings| Scope::of(settings, image, &setup.tenancy, namespaces),
        );
        let webhook_bytes =
            settings.as_ref().map_or(0, |settings| webhook_bytes(settings, &scope, &setup.tenancy));
        Self { settings, recipe, scope, webhook_bytes, beyond: None }
    }

    /// Of one that is not served, because there are too many: it reaches no namespace.
    #[must_use]
    pub fn beyond(
        settings: Result<Settings, crate::controller::Error>,
        setup: &Setup,
        over: Over,
    ) -> Self {
        Self { beyond: Some(over), ..Self::of(settings, setup, &[]) }
    }

    /// Returns why it is not served, whatever it selects.
    #[must_use]
    pub fn beyond_all(&self) -> Option<&Over> {
        self.beyond.as_ref()
    }

    /// Reports whether its pods may have agents in any namespace.
    #[cfg(test)]
    pub(super) fn reaches_any(&self) -> bool {
        self.scope.allows_any()
    }

    /// The pods that one of this namespace needs to know; `None` if it is not served.
    #[must_use]
    pub fn demand(&self, namespace: &str, tenancy: &Tenancy) -> Option<Demand> {
        if self.beyond.is_some() {
            return None;
        }
        Some(match &self.settings {
            Ok(settings) => watches::demand(settings, &self.scope, tenancy),
            Err(_) => {
                Demand { payer: watches::payer(namespace, tenancy), queries: BTreeSet::new() }
            }
        })
    }
}

/// The pods that the selector of a `NetworkProber` matches.
#[derive(Clone, Copy, Debug)]
pub enum Pods<'a> {
    /// They were not listed yet.
    Unlisted,
    /// They are not watched.
    OverBudget(&'a Over),
    /// These, of the namespaces in its reach at least.
    Listed(&'a [Arc<PodObject>]),
}

/// One `NetworkProber` as it stands.
#[derive(Debug)]
pub struct ProberState {
    /// UID of the `NetworkProber`.
    pub uid: String,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// The checked spec, or its error.
    pub settings: Result<Settings, String>,
    /// Its namespaces.
    pub scope: Scope,
    /// Why it has no webhook, if the older ones leave no place for it.
    pub full: Option<Full>,
    /// The size of its webhook's entry.
    pub webhook_bytes: usize,
    /// The recipe that it injects, if an image is known.
    pub recipe: Option<Recipe>,
    /// True if its pods were listed.
    pub synced: bool,
    /// Why its pods are not watched, if they are not.
    pub over: Option<Over>,
    /// Why new pods of a namespace get no agent: it would refuse them with one.
    pub refused: BTreeMap<String, String>,
    /// Since when each selected pod must have been seen by the webhook, in seconds since 1970;
    /// `None` if that is not known.
    pub calls_since: Option<i64>,
    /// Its pods.
    pub members: Members,
    /// The lists of peers.
    pub pinglists: Pinglists,
}

/// The inputs of one view besides its object, its namespaces and its pods.
pub struct Surroundings<'a> {
    /// The older `NetworkProber`s.
    pub before: &'a Snapshot,
    /// The places that they take in the object of all webhooks.
    pub places: &'a Places,
    /// The requirements of namespaces on pods.
    pub constraints: &'a ByNamespace,
    /// The queries about nodes.
    pub nodes: Nodes<'a>,
    /// When its webhook's entry was last written, in seconds since 1970, if that is known.
    pub entry_written: Option<i64>,
    /// The time since the Unix epoch.
    pub now: Duration,
}

/// Seconds after which the API server calls a webhook whose entry was written: each of its replicas
/// follows the entries by a watch.
const ENTERED: i64 = 3;

impl ProberState {
    /// Computes the state of an object from the pods that its selector matches. `last` is what
    /// followed the last time.
    #[must_use]
    pub fn of(
        prober: &NetworkProber,
        Reach { settings, recipe, scope, webhook_bytes, .. }: Reach,
        pods: Pods<'_>,
        last: Option<&Self>,
        surroundings: &Surroundings<'_>,
    ) -> Self {
        let mut view = Self {
            uid: prober.uid().unwrap_or_default(),
            generation: prober.metadata.generation,
            settings,
            scope,
            full: None,
            webhook_bytes,
            recipe,
            synced: matches!(pods, Pods::Listed(_)),
            over: None,
            refused: BTreeMap::new(),
            calls_since: None,
            members: Members::default(),
            pinglists: Pinglists::default(),
        };
        // While pods are not listed, those that have appeared are not forgotten.
        if let Some(last) = last.filter(|last| last.uid == view.uid && last.recipe == view.recipe) {
            view.members.appeared.clone_from(&last.members.appeared);
        }
        let Ok(settings) = &view.settings else { return view };
        view.full = surroundings.places.full(&settings.namespace, webhook_bytes);
        let pods = match pods {
            Pods::Unlisted => return view,
            Pods::OverBudget(over) => {
                view.over = Some(over.clone());
                return view;
            }
            Pods::Listed(pods) => pods,
        };
        let now = i64::try_from(surroundings.now.as_secs()).unwrap_or(i64::MAX);
        let last = last.filter(|last| last.uid == view.uid);
        view.calls_since = view.calls_since(prober, last, surroundings.entry_written, now);
        let mut selection = Selection {
            settings,
            recipe: view.recipe.as_ref(),
            scope: &view.scope,
            older: &surroundings.before.older(&settings.rank),
            pods,
            nodes: &surroundings.nodes,
            constraints: surroundings.constraints,
            last: last.map(|last| &last.members),
            appeared: last
                .filter(|last| last.recipe == view.recipe)
                .map(|last| &last.members.appeared),
            calls_since: view.calls_since,
            now,
        };
        view.refused = refused(settings, &view.scope, &selection);
        view.members = members::members(&selection);
        // Pods were skipped until now.
        let is_new = |last: &Self| {
            (&last.refused, &last.members.paused) != (&view.refused, &view.members.paused)
        };
        if view.calls_since.is_some() && last.is_some_and(is_new) {
            view.calls_since = Some(now);
            selection.calls_since = view.calls_since;
            view.members = members::members(&selection);
        }
        view.pinglists = Pinglists::of_members(settings, &view.members, surroundings.now);
        view
    }

    /// Returns since when the API server has had every reason to call the webhook for each selected
    /// pod. Whatever changes which pods get an agent begins anew, because pods that were skipped
    /// before look the same; but not while it is known that the webhook is not called.
    fn calls_since(
        &self,
        prober: &NetworkProber,
        last: Option<&Self>,
        entry_written: Option<i64>,
        now: i64,
    ) -> Option<i64> {
        let entered = entry_written?.saturating_add(ENTERED);
        let Some(last) = last else {
            // Another process has found it out.
            let conditions = prober.status.iter().flat_map(|status| &status.conditions);
            let known = conditions.into_iter().any(|condition| condition.reason == "NotCalled");
            return Some(if known { entered } else { now });
        };
        let same = self.generation == last.generation
            && self.recipe == last.recipe
            && self.scope == last.scope
            && (self.full.is_none(), true, None)
                == (last.full.is_none(), last.synced, last.over.as_ref());
        match last.calls_since {
            Some(since) if last.members.is_never_called() => Some(since),
            Some(since) if same => Some(since.max(entered)),
            _ => Some(now),
        }
    }

    /// Takes its place for a webhook from those after it.
    pub fn take_place(&self, places: &mut Places) {
        // One of too many gets none.
        let beyond = matches!(self.over, Some(Over::Probers(_)));
        if let (Ok(settings), false) = (&self.settings, beyond) {
            places.take(settings, &self.scope, self.webhook_bytes);
        }
    }

    /// Reports whether new pods get its agents, as far as it is up to the spec and the namespaces.
    #[must_use]
    pub fn injects(&self) -> bool {
        self.settings.as_ref().is_ok_and(|settings| settings.mode == Mode::Sidecar)
            && self.scope.allows_any()
    }

    /// Reports whether pods that it selects get no agent of a younger one. If new pods get none of
    /// its own, they may have one of the next.
    fn claims(&self) -> bool {
        self.injects() && self.over.is_none() && self.full.is_none() && self.recipe.is_some()
    }

    /// Reports whether it is of this generation of the object.
    #[must_use]
    pub fn is_of(&self, prober: &NetworkProber) -> bool {
        prober.metadata.uid.as_ref() == Some(&self.uid)
            && prober.metadata.generation == self.generation
    }

    /// Reports whether nothing differs that any consumer reads.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.synced == other.synced
            && self.over == other.over
            && self.scope == other.scope
            && self.recipe == other.recipe
            && self.refused == other.refused
            && self.calls_since == other.calls_since
            && self.members == other.members
            && self.pinglists.version == other.pinglists.version
            && self.full == other.full
    }
}

/// Everything, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The `NetworkProber`s.
    pub views: BTreeMap<Key, Arc<ProberState>>,
    /// Those that have no view and get none: they are being deleted, or cannot be read. No pod
    /// waits for news of them.
    pub ending: BTreeSet<Key>,
    /// True if `NetworkProber`s and namespaces were listed.
    pub synced: bool,
    /// The requirements of namespaces on pods.
    pub constraints: Arc<ByNamespace>,
}

impl Snapshot {
    /// One of them.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<ProberState>> {
        self.views.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Returns the ones older than `rank`, which have precedence.
    #[must_use]
    pub fn older(&self, rank: &Rank) -> Vec<(&Settings, &Scope)> {
        let all = self.views.values().filter(|view| view.claims()).filter_map(|view| {
            let settings = view.settings.as_ref().ok()?;
            Some((settings, &view.scope))
        });
        all.filter(|(settings, _)| settings.rank < *rank).collect()
    }
}

fn refused(
    settings: &Settings,
    scope: &Scope,
    selection: &Selection<'_>,
) -> BTreeMap<String, String> {
    let Some(recipe) = selection.recipe.filter(|_| settings.mode == Mode::Sidecar) else {
        return BTreeMap::new();
    };
    let constrained = selection.constraints.iter();
    let allowed = constrained.filter(|(name, _)| scope.standing(name) == Some(Standing::Allowed));
    let refused = allowed.filter_map(|(name, constraints)| {
        Some((name.clone(), constraints.refusal_of_all(recipe)?))
    });
    refused.collect()
}

/// Returns the recipe of a `NetworkProber`; `None` if it names no image and ours is unknown.
pub(super) fn recipe(settings: &Settings, setup: &Setup) -> Option<Recipe> {
    let image = settings.image.clone().or_else(|| setup.own_image.clone())?;
    Some(Recipe {
        prober: settings.key(),
        image,
        own_image: settings.image.is_none(),
        http_port: settings.http_port,
        prometheus_port: settings.prometheus_port,
        delivery: match settings.delivery {
            Delivery::ConfigMap => injection::Delivery::ConfigMap,
            Delivery::Pull => injection::Delivery::Pull { url: setup.pinglist_url.clone() },
        },
        config_map: settings.name.clone(),
        resources: injection::Resources {
            requests: settings.requests.clone(),
            limits: settings.limits.clone(),
        },
        pull_policy: settings.pull_policy,
        run_as_user: settings.run_as_user,
        native_sidecar: setup.native_sidecars,
    })
}

/// Returns the objects to serve, the oldest first, and the keys of the others: those that are being
/// deleted or cannot be read.
pub(super) fn to_serve(
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
    use crate::network_prober::watches::{OF_AUTHORS, OF_NAMESPACE};

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
        let (read, ending) = to_serve(&all);
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
