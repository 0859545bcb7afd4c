//! Limits the number of connections, in total and for each source.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Context,
};

use futures::task::AtomicWaker;

/// Places; clones share them.
#[derive(Clone, Debug)]
pub struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    of_one_source: usize,
    newest_wins: bool,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// In the order in which they were taken.
    held: BTreeMap<u64, (IpAddr, Arc<End>)>,
    /// Only sources that hold a place: never more than places.
    by_source: HashMap<IpAddr, BTreeSet<u64>>,
}

/// Says that a place was given to somebody else.
#[derive(Debug, Default)]
struct End {
    over: AtomicBool,
    waker: AtomicWaker,
}

/// A place that is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    id: u64,
    end: Arc<End>,
    /// Whether somebody lost it to this one.
    pub replaced: bool,
}

impl Places {
    /// `most` places in total, `of_one_source` for each source; a connection above that gets none.
    #[must_use]
    pub fn new(most: usize, of_one_source: usize) -> Self {
        Self::with(most, of_one_source, false)
    }

    /// The same, but a connection above that takes the place of the oldest: for clients with short
    /// requests, which must not wait for those that stay.
    #[must_use]
    pub fn newest_wins(most: usize, of_one_source: usize) -> Self {
        Self::with(most, of_one_source, true)
    }

    fn with(most: usize, of_one_source: usize, newest_wins: bool) -> Self {
        let taken = Mutex::default();
        Self(Arc::new(Inner { most, of_one_source, newest_wins, taken }))
    }

    /// A place for a source, if it may have one more.
    #[must_use]
    pub fn take(&self, source: IpAddr) -> Option<Place> {
        // An IPv4 client of an IPv6 socket is the same client.
        let source = source.to_canonical();
        let mut taken = self.taken();
        let own = taken.by_source.get(&source);
        let oldest = if own.map_or(0, BTreeSet::len) >= self.0.of_one_source {
            Some(own.and_then(BTreeSet::first).copied())
        } else if taken.held.len() >= self.0.most {
            Some(taken.held.first_key_value().map(|(id, _)| *id))
        } else {
            None
        };
        if let Some(oldest) = oldest {
            let oldest = oldest.filter(|_| self.0.newest_wins)?;
            taken.release(oldest).inspect(|end| end.now());
        }
        let (id, end) = (taken.next, Arc::<End>::default());
        taken.next += 1;
        taken.held.insert(id, (source, Arc::clone(&end)));
        taken.by_source.entry(source).or_default().insert(id);
        Some(Place { places: self.clone(), id, end, replaced: oldest.is_some() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn release(&mut self, id: u64) -> Option<Arc<End>> {
        let (source, end) = self.held.remove(&id)?;
        if let Some(own) = self.by_source.get_mut(&source) {
            own.remove(&id);
            if own.is_empty() {
                self.by_source.remove(&source);
            }
        }
        Some(end)
    }
}

impl End {
    fn now(&self) {
        self.over.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Place {
    /// Whether it was given to somebody else; the task is woken when it is.
    #[must_use]
    pub fn is_over(&self, cx: &Context<'_>) -> bool {
        self.end.waker.register(cx.waker());
        self.end.over.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever lost it has nothing to give back.
        self.places.taken().release(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> [IpAddr; 3] {
        ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap())
    }

    fn is_empty(places: &Places) -> bool {
        let taken = places.taken();
        taken.held.is_empty() && taken.by_source.is_empty()
    }

    #[test]
    fn one_source_never_has_all_places_and_what_is_given_back_is_free() {
        let places = Places::new(3, 2);
        let [a, b, c] = sources();
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let first = [places.take(a).unwrap(), places.take(mapped).unwrap()];
        assert!(places.take(a).is_none() && places.take(mapped).is_none());
        let second = places.take(b).unwrap();
        assert!(places.take(c).is_none(), "all are taken");
        drop(first);
        assert!(places.take(c).is_some() && places.take(a).is_some());
        drop(second);
        assert!(is_empty(&places));
    }

    #[test]
    fn s14_where_the_newest_wins_the_oldest_goes_of_the_same_source_first() {
        let places = Places::newest_wins(3, 2);
        let [a, b, c] = sources();
        let cx = Context::from_waker(std::task::Waker::noop());
        let over = |place: &Place| place.is_over(&cx);
        let first = places.take(b).unwrap();
        let [old, young] = [places.take(a).unwrap(), places.take(a).unwrap()];
        let third = places.take(a).unwrap();
        assert!(third.replaced && over(&old) && !over(&young) && !over(&first));
        let other = places.take(c).unwrap();
        assert!(other.replaced && over(&first) && !over(&young) && !over(&third));
        // What was lost is not given back a second time.
        drop((first, old));
        assert_eq!(places.taken().held.len(), 3);
        drop((young, third, other));
        assert!(is_empty(&places));
    }
}
