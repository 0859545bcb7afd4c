//! Laws of every outcome.
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

impl Case {
    pub(super) fn standing(&self, worker: &str) -> Option<Standing> {
        self.workers.iter().find(|(id, _)| id == worker).map(|(_, standing)| *standing)
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.workers.iter().all(|(_, standing)| *standing != Standing::Full)
    }

    /// Returns the current worker of an item, if it is present.
    pub(super) fn owner<'a>(&self, thing: &'a Thing) -> Option<(&'a str, Standing)> {
        let owner = thing.owner.as_deref()?;
        Some((owner, self.standing(owner)?))
    }

    /// The items of each worker after a step.
    pub(super) fn shares(&self, outcome: &Outcome) -> BTreeMap<&str, Vec<&Thing>> {
        let mut shares: BTreeMap<&str, Vec<&Thing>> =
            self.workers.iter().map(|(id, _)| (id.as_str(), Vec::new())).collect();
        for thing in &self.items {
            if let Ok(owner) = &outcome[&thing.id] {
                shares.get_mut(owner.as_str()).unwrap().push(thing);
            }
        }
        shares
    }

    /// The items that leave a worker that is present.
    pub(super) fn moves(&self, outcome: &Outcome) -> Vec<&Thing> {
        let moves = |thing: &&Thing| {
            self.owner(thing).is_some_and(|(owner, _)| {
                outcome[&thing.id].as_ref().map_or(true, |new| new != owner)
            })
        };
        self.items.iter().filter(moves).collect()
    }

    /// Reports whether a unit is held to one worker: by its pin, or because that worker takes
    /// nothing now.
    pub(super) fn is_bound(thing: &Thing) -> bool {
        thing.pin.is_some() || thing.dedicated
    }

    /// The workers for items that are neither pinned nor dedicated.
    pub(super) fn open<'a>(&'a self, shares: &BTreeMap<&'a str, Vec<&Thing>>) -> Vec<&'a str> {
        let open = |id: &&str| {
            self.standing(id) == Some(Standing::Full)
                && !shares[id].iter().any(|thing| thing.dedicated)
        };
        shares.keys().copied().filter(open).collect()
    }

    pub(super) fn limit(&self) -> usize {
        self.rules.max_per_worker.unwrap_or(usize::MAX)
    }
}

/// Checks the laws that hold with any budget.
pub(super) fn check_always(case: &Case, outcome: &Outcome) -> Result<(), TestCaseError> {
    for thing in &case.items {
        let new = &outcome[&thing.id];
        let owner = case.owner(thing);
        if let Some((owner, Standing::Keeps)) = owner {
            prop_assert_eq!(new.as_deref(), Ok(owner), "{:?} left who keeps", thing);
        }
        let Ok(new) = new else { continue };
        if owner.is_some_and(|(owner, _)| owner == new) {
            continue;
        }
        // It moves to a worker that may take it.
        let standing = case.standing(new).unwrap();
        prop_assert_ne!(standing, Standing::Keeps);
        let pinned_here = thing.pin.as_ref() == Some(new);
        prop_assert!(standing == Standing::Full || pinned_here, "{:?} to {}", thing, new);
        prop_assert!(thing.pin.is_none() || pinned_here, "{:?} to {}", thing, new);
    }
    let shares = case.shares(outcome);
    for (worker, share) in shares {
        let come = |thing: &&&Thing| thing.owner.as_deref() != Some(worker);
        let newcomers = share.iter().filter(come).count();
        if newcomers > 0 {
            prop_assert!(share.len() <= case.limit(), "{} above the limit", worker);
            let dedicated = share.iter().filter(|thing| thing.dedicated).count();
            prop_assert!(dedicated == 0 || share.len() == 1, "{} is shared: {:?}", worker, share);
        }
    }
    Ok(())
}

/// Checks the additional laws that hold once nothing is held back.
pub(super) fn check_at_rest(case: &Case, outcome: &Outcome) -> Result<(), TestCaseError> {
    check_always(case, outcome)?;
    let shares = case.shares(outcome);
    for (&worker, share) in &shares {
        if case.standing(worker) == Some(Standing::Keeps) {
            continue;
        }
        prop_assert!(share.len() <= case.limit(), "{} above the limit", worker);
        let dedicated = share.iter().filter(|thing| thing.dedicated).count();
        prop_assert!(dedicated == 0 || share.len() == 1, "{} is shared: {:?}", worker, share);
        for thing in share {
            let waits = thing.pin.as_ref().is_some_and(|pin| {
                case.standing(pin) == Some(Standing::Keeps)
                    && thing.owner.as_deref() == Some(worker)
            });
            let honored = thing.pin.as_deref().is_none_or(|pin| pin == worker);
            prop_assert!(honored || waits, "{:?} on {}", thing, worker);
        }
    }
    let open = case.open(&shares);
    let full = case.workers.iter().filter(|(_, standing)| *standing == Standing::Full).count();
    // No item stays with a worker that leaves if another worker can take it.
    for (worker, _) in case.workers.iter().filter(|worker| worker.1 == Standing::Leaving) {
        for thing in shares[worker.as_str()].iter().filter(|thing| !Case::is_bound(thing)) {
            let able = open.iter().find(|other| shares[*other].len() < case.limit());
            prop_assert!(able.is_none(), "{:?} stays on {}, not {:?}", thing, worker, able);
        }
    }
    for thing in &case.items {
        let Err(reason) = &outcome[&thing.id] else { continue };
        let pin = thing.pin.as_deref();
        let pinned = pin.and_then(|pin| case.standing(pin));
        let has_room = |worker: &str| shares[worker].len() < case.limit();
        let expected = match reason {
            // It waits for a worker that only keeps its items.
            Reason::NoWorker => {
                let may_have = |(id, standing): &(String, Standing)| {
                    let own = shares[id.as_str()].iter().any(|thing| thing.dedicated);
                    *standing == Standing::Keeps && !own
                };
                let waits = open.is_empty() && case.workers.iter().any(may_have);
                pin.is_none() && !thing.dedicated && waits
            }
            Reason::PinnedWorkerAbsent => {
                pin.is_some() && pinned.is_none_or(|standing| standing == Standing::Keeps)
            }
            Reason::NoCapacity => match pin {
                // While the worker takes nothing, the item may only be where it was.
                Some(_) if pinned == Some(Standing::Keeps) => {
                    case.owner(thing).is_some_and(|(owner, _)| !has_room(owner))
                }
                Some(pin) => pinned.is_some() && !has_room(pin),
                None => !open.is_empty() && !open.iter().any(|worker| has_room(worker)),
            },
            // All other workers are dedicated, or an item is pinned to them, or the last one is for
            // ordinary items.
            Reason::NoDedicatedWorker => {
                let shared = |worker: &&str| shares[worker].iter().any(|t| t.pin.is_some());
                let ordinary = case.items.iter().any(|t| !t.dedicated && t.pin.is_none());
                let free = open.iter().filter(|worker| !shared(worker)).count();
                let left = usize::from(ordinary && free == open.len());
                thing.dedicated && (pin.is_some() || free <= left || full == 0)
            }
        };
        prop_assert!(expected, "{:?}: {:?} of {:?}", thing, reason, shares);
    }
    Ok(())
}

/// Checks that the spread is as even as pins, limits and dedicated items allow.
pub(super) fn check_even(case: &Case, outcome: &Outcome) -> Result<(), TestCaseError> {
    let shares = case.shares(outcome);
    let open = case.open(&shares);
    let equal =
        case.items.iter().filter(|t| !t.dedicated).map(|t| t.weight).collect::<BTreeSet<_>>();
    let by_weight = case.rules.policy == Policy::Sticky && equal.len() > 1;
    let load = |worker: &str| -> u128 {
        let weight = |t: &&Thing| if by_weight { u128::from(t.weight) } else { 1 };
        shares[worker].iter().map(weight).sum()
    };
    let movable = |worker: &&str| shares[worker].iter().any(|thing| !Case::is_bound(thing));
    let bound = case.items.iter().filter(|t| !Case::is_bound(t)).map(|t| t.weight).max();
    let bound = if by_weight { u128::from(bound.unwrap_or(0)) } else { 1 };
    for from in open.iter().filter(|worker| movable(worker)) {
        for to in open.iter().filter(|worker| shares[*worker].len() < case.limit()) {
            let (from, to) = (load(from), load(to));
            prop_assert!(from <= to.saturating_add(bound), "{} and {}: {:?}", from, to, shares);
        }
    }
    Ok(())
}
