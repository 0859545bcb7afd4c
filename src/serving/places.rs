//! Places that clients take: so many in all, and so many of one source.
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Places; clones share them.
#[derive(Clone, Debug)]
pub struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    of_one_source: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only sources that hold a place: never more than places.
    by_source: HashMap<IpAddr, usize>,
}

/// A place that is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    source: IpAddr,
}

impl Places {
    /// `most` places, of which one source gets `of_one_source`.
    #[must_use]
    pub fn new(most: usize, of_one_source: usize) -> Self {
        Self(Arc::new(Inner { most, of_one_source, taken: Mutex::default() }))
    }

    /// A place for a source, if it may have one more.
    #[must_use]
    pub fn take(&self, source: IpAddr) -> Option<Place> {
        // An IPv4 client of an IPv6 socket is the same client.
        let source = source.to_canonical();
        let mut taken = self.taken();
        if taken.all >= self.0.most {
            return None;
        }
        let held = taken.by_source.entry(source).or_default();
        if *held >= self.0.of_one_source {
            return None;
        }
        *held += 1;
        taken.all += 1;
        Some(Place { places: self.clone(), source })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all = taken.all.saturating_sub(1);
        if let Some(held) = taken.by_source.get_mut(&self.source) {
            *held -= 1;
            if *held == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_never_has_all_places_and_what_is_given_back_is_free() {
        let places = Places::new(3, 2);
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap());
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let first = [places.take(a).unwrap(), places.take(mapped).unwrap()];
        assert!(places.take(a).is_none() && places.take(mapped).is_none());
        let second = places.take(b).unwrap();
        assert!(places.take(c).is_none(), "all are taken");
        drop(first);
        assert!(places.take(c).is_some() && places.take(a).is_some());
        drop(second);
        assert!(places.taken().by_source.is_empty() && places.taken().all == 0);
    }
}
