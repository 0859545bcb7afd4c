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
    all: usize,
    /// Only sources that hold a place: never more than places.
    by_source: HashMap<IpAddr, Source>,
    /// Places that a newer connection may take, in the order in which they were taken.
    loose: BTreeMap<u64, (IpAddr, Arc<End>)>,
}

#[derive(Debug, Default)]
struct Source {
    held: usize,
    loose: BTreeSet<u64>,
}

/// The end of a connection: its place was given to another client.
#[derive(Debug, Default)]
struct End {
    over: AtomicBool,
    waker: AtomicWaker,
}

/// A place, which is released when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    source: IpAddr,
    id: u64,
    end: Arc<End>,
    /// True if another client lost it to this one.
    pub replaced: bool,
}

impl Places {
    /// Creates `most` places in total and `of_one_source` for each source; a connection above that
    /// gets none.
    #[must_use]
    pub fn new(most: usize, of_one_source: usize) -> Self {
        Self::with(most, of_one_source, false)
    }

    /// Creates the same, but a connection above that takes the place of the oldest one that is not
    /// [kept](Place::keep): for clients with short requests, which must not wait for idle ones.
    #[must_use]
    pub fn newest_wins(most: usize, of_one_source: usize) -> Self {
        Self::with(most, of_one_source, true)
    }

    fn with(most: usize, of_one_source: usize, newest_wins: bool) -> Self {
        let taken = Mutex::default();
        Self(Arc::new(Inner { most, of_one_source, newest_wins, taken }))
    }

    /// Returns a place for a source, if it may have one more.
    #[must_use]
    pub fn take(&self, source: IpAddr) -> Option<Place> {
        // An IPv4 client of an IPv6 socket is the same client.
        let source = source.to_canonical();
        let mut taken = self.taken();
        let own = taken.by_source.get(&source);
        let oldest = if own.map_or(0, |own| own.held) >= self.0.of_one_source {
            Some(own.and_then(|own| own.loose.first()).copied())
        } else if taken.all >= self.0.most {
            Some(taken.loose.first_key_value().map(|(id, _)| *id))
        } else {
            None
        };
        if let Some(oldest) = oldest {
            let oldest = oldest.filter(|_| self.0.newest_wins)?;
            taken.evict(oldest);
        }
        let (id, end) = (taken.next, Arc::<End>::default());
        taken.next += 1;
        taken.all += 1;
        taken.loose.insert(id, (source, Arc::clone(&end)));
        let own = taken.by_source.entry(source).or_default();
        own.held += 1;
        own.loose.insert(id);
        Some(Place { places: self.clone(), source, id, end, replaced: oldest.is_some() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn evict(&mut self, id: u64) {
        if let Some((source, end)) = self.loose.get(&id).cloned() {
            self.release(source, id);
            end.now();
        }
    }

    fn release(&mut self, source: IpAddr, id: u64) {
        self.loose.remove(&id);
        self.all = self.all.saturating_sub(1);
        if let Some(own) = self.by_source.get_mut(&source) {
            own.loose.remove(&id);
            own.held = own.held.saturating_sub(1);
            if own.held == 0 {
                self.by_source.remove(&source);
            }
        }
    }
}

impl End {
    fn now(&self) {
        self.over.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Place {
    /// Reports whether it was given to another client; the task is woken when it is.
    #[must_use]
    pub fn is_over(&self, cx: &Context<'_>) -> bool {
        self.end.waker.register(cx.waker());
        self.end.over.load(Ordering::Acquire)
    }

    /// Protects the place from newer connections, because its client has proved that it is no
    /// stranger.
    pub fn keep(&self) {
        let mut taken = self.places.taken();
        taken.loose.remove(&self.id);
        if let Some(own) = taken.by_source.get_mut(&self.source) {
            own.loose.remove(&self.id);
        }
    }

    /// Returns the address that holds it.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.source
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        // A client that lost its place has nothing to release.
        if !self.end.over.load(Ordering::Acquire) {
            taken.release(self.source, self.id);
        }
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
        taken.all == 0 && taken.loose.is_empty() && taken.by_source.is_empty()
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
    fn where_the_newest_wins_the_oldest_goes_of_the_same_source_first() {
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
        // A lost place is not released a second time.
        drop((first, old));
        assert_eq!(places.taken().all, 3);
        drop((young, third, other));
        assert!(is_empty(&places));
    }

    #[test]
    fn strangers_lose_their_places_and_those_who_are_known_keep_theirs() {
        let places = Places::newest_wins(3, 2);
        let [a, b, c] = sources();
        let cx = Context::from_waker(std::task::Waker::noop());
        let known = [places.take(a).unwrap(), places.take(a).unwrap()];
        known.iter().for_each(Place::keep);
        assert!(places.take(a).is_none(), "a source has its part and no more");
        let stranger = places.take(b).unwrap();
        let newer = places.take(c).unwrap();
        assert!(newer.replaced && stranger.is_over(&cx) && !newer.is_over(&cx));
        // A client that lost it keeps nothing.
        stranger.keep();
        newer.keep();
        assert!(places.take(b).is_none(), "nobody is left to lose a place");
        assert!(known.iter().all(|place| !place.is_over(&cx)));
        drop((known, stranger, newer));
        assert!(is_empty(&places));
    }
}
