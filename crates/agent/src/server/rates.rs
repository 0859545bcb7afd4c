//! Limits the number of answered packets of each source.
use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// The time within which packets are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Packets of one source that are answered in a second. One address may hide a node full of agents:
/// 110 pods, each with one packet in the shortest period of 100 ms, send 1,100. More than that does
/// not come from probers, and an answer costs three times as much as dropping the packet.
const OF_ONE_SOURCE: u32 = 2048;

/// Number of sources that are distinguished in a second: the number of probers that an agent
/// remembers. Those beyond share one count, because addresses are easily forged.
const SOURCES: usize = 4096;

/// The packets of the current second.
#[derive(Debug)]
pub(super) struct Rates {
    since: Instant,
    of: HashMap<IpAddr, u32>,
    of_others: u32,
}

impl Rates {
    pub fn new(now: Instant) -> Self {
        Self { since: now, of: HashMap::new(), of_others: 0 }
    }

    /// Reports whether one more packet of a source may be answered.
    pub fn admit(&mut self, from: IpAddr, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= WINDOW {
            *self = Self { since: now, of: std::mem::take(&mut self.of), of_others: 0 };
            self.of.clear();
        }
        let from = from.to_canonical();
        let count = if self.of.len() < SOURCES || self.of.contains_key(&from) {
            self.of.entry(from).or_default()
        } else {
            &mut self.of_others
        };
        *count = count.saturating_add(1);
        *count <= OF_ONE_SOURCE
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_source_that_floods_is_not_answered_and_others_are() {
        let start = Instant::now();
        let mut rates = Rates::new(start);
        let [loud, quiet] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let mut count = |from, now| (0..10_000).filter(|_| rates.admit(from, now)).count();
        assert_eq!(count(loud, start), OF_ONE_SOURCE as usize);
        assert_eq!(count(mapped, start), 0);
        assert_eq!(count(quiet, start), OF_ONE_SOURCE as usize);
        // The next second.
        assert_eq!(count(loud, start + WINDOW), OF_ONE_SOURCE as usize);
    }

    #[test]
    fn made_up_sources_cost_a_bounded_memory_and_known_ones_are_answered() {
        let start = Instant::now();
        let mut rates = Rates::new(start);
        let known = "10.0.0.1".parse().unwrap();
        assert!(rates.admit(known, start));
        let admitted =
            (0..100_000_u32).filter(|i| rates.admit(Ipv4Addr::from(*i).into(), start)).count();
        assert!(admitted < SOURCES + OF_ONE_SOURCE as usize);
        assert!(rates.of.len() <= SOURCES && rates.admit(known, start));
    }
}
