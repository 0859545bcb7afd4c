//! The budgets of watched pods: a watch costs a connection and a pod memory, in every replica.
//! Pure.
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use super::PodQuery;

/// The common limits of some `NetworkProber`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Open watches. Each is a connection of some 40 kB, and a request every 20 s.
    pub watches: usize,
    /// Pods. The usual one takes 4 kB with all that follows from it; a larger one counts as
    /// several.
    pub pods: usize,
}

/// The budget of the `NetworkProber`s of one namespace: as many namespaces as its `ConfigMap`s are
/// made for in advance, and the 5,000 pods up to which the ring of probers is tested.
pub const OF_NAMESPACE: Limit = Limit { watches: 100, pods: 5_000 };

/// The budget of all namespaces except the operator's: three that use all of theirs, or the 80 that
/// may have a webhook with three watches each and some without. 15 requests a second; 12 MB and
/// 40 MB of memory.
pub const OF_AUTHORS: Limit = Limit { watches: 300, pods: 10_000 };

/// The budget of the operator's namespace, so that authors cannot block administrators: as many as
/// may have a webhook, and more pods than two replicas can serve with lists. 80 MB, which leave
/// room for 5,000 waiting agents within the memory limit of the Deployment.
pub const OF_ADMINISTRATORS: Limit = Limit { watches: 100, pods: 20_000 };

/// The group of `NetworkProber`s that share a budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
    /// Those of a namespace.
    Namespace(String),
    /// Those of all namespaces but the operator's.
    Authors,
    /// Those of the operator's namespace.
    Administrators,
}

impl Payer {
    /// Returns their limits.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        match self {
            Self::Namespace(_) => OF_NAMESPACE,
            Self::Authors => OF_AUTHORS,
            Self::Administrators => OF_ADMINISTRATORS,
        }
    }

    /// Reports whether `other` draws on this budget.
    #[must_use]
    pub fn pays_for(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::Authors, Self::Namespace(_)))
    }

    /// Returns the payers with budgets that must all have room.
    #[must_use]
    pub fn with_others(&self) -> Vec<Self> {
        match self {
            Self::Namespace(_) => vec![self.clone(), Self::Authors],
            Self::Authors | Self::Administrators => vec![self.clone()],
        }
    }
}

impl fmt::Display for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "the NetworkProbers of the namespace {name}"),
            Self::Authors => f.write_str("the NetworkProbers of all namespaces but the operator's"),
            Self::Administrators => f.write_str("the NetworkProbers of the operator's namespace"),
        }
    }
}

/// The watches that one `NetworkProber` needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The budget that pays.
    pub payer: Payer,
    /// Its watches.
    pub queries: BTreeSet<Arc<PodQuery>>,
}

/// The reason why a `NetworkProber` gets none of its watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// It needs more watches than the `used` ones leave.
    Watches {
        /// The owner of the budget.
        payer: Payer,
        /// The part of it that others use.
        used: usize,
        /// Number that it needs itself.
        needed: usize,
    },
    /// There are too many pods.
    Pods(Payer),
    /// There are as many older `NetworkProber`s as there may be watches.
    Probers(Payer),
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watches { payer, used, needed } => {
                let most = payer.limit().watches;
                write!(
                    f,
                    "{payer} may have {most} watches of pods (one for each namespace and \
                     podSelector); this one needs {needed} and older ones have {used}: select fewer \
                     namespaces, use the same podSelector as another one, or delete one"
                )?;
            }
            Self::Pods(payer) => {
                let most = payer.limit().pods;
                write!(
                    f,
                    "{payer} may select {most} pods (large ones count as several), and with this one \
                     they select more: narrow spec.podSelector or select fewer namespaces; it is \
                     tried again every {} minutes",
                    super::RETRY.as_secs() / 60
                )?;
            }
            Self::Probers(payer) => {
                let most = payer.limit().watches;
                write!(
                    f,
                    "the oldest {most} of {payer} are served (each takes a watch of pods), and this \
                     is not one of them: delete one, or use one for several namespaces"
                )?;
            }
        }
        f.write_str("; until then its pods get no agents, and its agents no new lists")
    }
}

/// Counts `NetworkProber`s, the oldest first. Each takes at least one watch, so there are never
/// more of them than watches; and each costs an examination of all namespaces before its watches
/// are known.
#[derive(Debug, Default)]
pub struct Counts(HashMap<Payer, usize>);

impl Counts {
    /// Counts the next one; returns why it is not served, if there are too many.
    pub fn admit(&mut self, payer: &Payer) -> Option<Over> {
        let payers = payer.with_others();
        let count = |payer: &Payer| self.0.get(payer).copied().unwrap_or_default();
        let full = payers.iter().find(|payer| count(payer) >= payer.limit().watches);
        if let Some(payer) = full {
            return Some(Over::Probers(payer.clone()));
        }
        for payer in payers {
            *self.0.entry(payer).or_default() += 1;
        }
        None
    }
}

/// The known facts about a watch.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Number of its pods.
    pub pods: usize,
    /// The payers on whose account it was closed a while ago.
    pub refused: Vec<Payer>,
}

/// The granted watches.
#[derive(Debug, Default)]
pub struct Grants {
    /// The watches that may be open, each with its payer.
    pub queries: HashMap<Arc<PodQuery>, Payer>,
    /// For each demand, in their order, the reason why it gets nothing.
    pub over: Vec<Option<Over>>,
}

#[derive(Clone, Copy, Default)]
struct Used {
    watches: usize,
    pods: usize,
}

/// Distributes the budgets in the order of `demands`: the first one keeps what it has. A
/// watch that several need is paid for by the first of them.
#[must_use]
pub fn grant(demands: &[Demand], known: impl Fn(&PodQuery) -> Known) -> Grants {
    let mut grants = Grants::default();
    let mut used = HashMap::<Payer, Used>::new();
    for demand in demands {
        let queries = demand.queries.iter();
        let new: Vec<_> = queries.filter(|query| !grants.queries.contains_key(*query)).collect();
        let known: Vec<_> = new.iter().map(|query| known(query)).collect();
        // A demand that shares all its watches with others costs only the work for its pods.
        let watches = new.len().max(1);
        let pods = known.iter().map(|known| known.pods).sum::<usize>();
        let payers = demand.payer.with_others();
        let over = payers.iter().find_map(|payer| {
            let (limit, used) = (payer.limit(), used.get(payer).copied().unwrap_or_default());
            if used.watches + watches > limit.watches {
                let (payer, used) = (payer.clone(), used.watches);
                return Some(Over::Watches { payer, used, needed: watches });
            }
            (used.pods + pods > limit.pods).then(|| Over::Pods(payer.clone()))
        });
        // What was too much for one namespace may be little for another.
        let refused = |payer: &&Payer| known.iter().any(|known| known.refused.contains(payer));
        let over = over.or_else(|| payers.iter().find(refused).cloned().map(Over::Pods));
        if over.is_none() {
            for payer in payers {
                let used = used.entry(payer).or_default();
                used.watches += watches;
                used.pods += pods;
            }
            let paid = new.into_iter().map(|query| (Arc::clone(query), demand.payer.clone()));
            grants.queries.extend(paid);
        }
        grants.over.push(over);
    }
    grants
}
