//! The addresses that probe this agent: the other half of a measurement, because an agent that
//! receives no probes is cut off.
use std::{collections::HashMap, net::IpAddr, time::Duration};

use tokio::time::Instant;

/// Maximum number of remembered addresses: four times the members of the largest cluster in which a
/// full mesh is practical, and a bound on the memory that strangers can occupy (some 100 kB).
const MOST: usize = 4096;

/// The time of the last probe from each address.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    last: HashMap<IpAddr, Instant>,
    pruned: Option<Instant>,
}

/// Time between two clean-ups of strangers: searching all addresses for each packet with a forged
/// one would help a flood.
const PRUNE: Duration = Duration::from_secs(1);

impl Incoming {
    /// Records a probe from an address; `window` is the time for which it counts.
    pub fn note(&mut self, from: IpAddr, now: Instant, window: Duration) {
        if self.last.len() >= MOST && !self.last.contains_key(&from) {
            if self.pruned.is_some_and(|last| now.saturating_duration_since(last) < PRUNE) {
                return;
            }
            self.prune(now, window);
            if self.last.len() >= MOST {
                return;
            }
        }
        self.last.insert(from, now);
    }

    /// Counts the addresses that probed within the window; the others are forgotten.
    pub fn count(&mut self, now: Instant, window: Duration) -> usize {
        self.prune(now, window);
        self.last.len()
    }

    fn prune(&mut self, now: Instant, window: Duration) {
        self.pruned = Some(now);
        self.last.retain(|_, last| now.saturating_duration_since(*last) <= window);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_the_window_counts_and_memory_is_bounded() {
        let (window, start) = (Duration::from_secs(3), Instant::now());
        let mut incoming = Incoming::default();
        for i in 0..10_000_u32 {
            incoming.note(Ipv4Addr::from(i).into(), start, window);
        }
        assert_eq!(incoming.count(start, window), MOST);
        // Known addresses stay; a stranger gets no place until the window has passed.
        incoming.note(Ipv4Addr::from(0).into(), start + window, window);
        incoming.note(Ipv4Addr::from(77_777).into(), start + window * 2, window);
        assert_eq!(incoming.count(start + window * 2, window), 2);
    }
}
