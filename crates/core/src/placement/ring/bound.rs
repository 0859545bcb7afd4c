//! The maximum number of peers that one member probes, and the rotation if there are more targets.
use super::Ring;
use crate::placement::hash;

/// The bound of one member's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of peers in a list.
    pub most: usize,
    /// Number of the turn: the caller computes it from the time, so that nothing here needs a
    /// clock.
    pub epoch: u64,
}

impl Bound {
    /// No bound: every list is complete.
    pub const NONE: Self = Self { most: usize::MAX, epoch: 0 };
}

/// The part of a list that is kept for other zones while there are targets: a quarter. Without it,
/// a zone with enough members to fill the list would never measure a path to another zone.
const FOR_OTHER_ZONES: usize = 4;

/// One member's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// The peers of this epoch, as ranks.
    pub peers: Vec<usize>,
    /// Number of peers without a bound.
    pub wanted: usize,
    /// The number of consecutive epochs in which it probes all of them.
    pub epochs: u64,
}

/// The effect of the bound on a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The number of members that have more targets than they may probe at a time.
    pub members: usize,
    /// Largest number of targets of one member.
    pub wanted: usize,
    /// The number of consecutive epochs in which each member probes all of its targets: 1 if
    /// nothing rotates.
    pub epochs: u64,
}

impl Rotation {
    pub(super) fn note(&mut self, turn: &Turn) {
        self.members += usize::from(turn.peers.len() < turn.wanted);
        self.wanted = self.wanted.max(turn.wanted);
        self.epochs = self.epochs.max(turn.epochs);
    }
}

impl Ring {
    /// Selects the list of a member from all its targets: pairs of zone and rank, zone by zone.
    pub(super) fn turn(&self, rank: usize, wanted: &[(usize, usize)]) -> Turn {
        let Bound { most, epoch } = self.bound;
        let ranks = |group: &[(usize, usize)]| group.iter().map(|&(_, to)| to).collect::<Vec<_>>();
        if wanted.len() <= most {
            return Turn { peers: ranks(wanted), wanted: wanted.len(), epochs: 1 };
        }
        let seed = self.members[rank].1;
        let phase = |zone: usize| hash::combine(seed, self.zones[zone].0);
        let groups = wanted.chunk_by(|one, other| one.0 == other.0);
        let (own, mut others): (Vec<_>, Vec<_>) =
            groups.partition(|group| group[0].0 == self.zone_of[rank]);
        let own = own.first().copied().unwrap_or_default();
        // Each member has its own order of zones: other members probe what this one cannot probe
        // now.
        others.sort_by_key(|group| (phase(group[0].0), group[0].0));
        let outside: usize = others.iter().map(|group| group.len()).sum();
        let inside = own.len().min(most - outside.min(most / FOR_OTHER_ZONES));
        let left = most - inside;

        let mut turn = Turn { peers: Vec::with_capacity(most), wanted: wanted.len(), epochs: 1 };
        let mut take = |group: &[(usize, usize)], room: usize, epoch: u64| {
            let start = phase(group.first().map_or(0, |&(zone, _)| zone));
            turn.peers.extend(window(group.len(), room, start, epoch).map(|i| group[i].1));
            turn.epochs = turn.epochs.max(epochs(group.len(), room));
        };
        if inside > 0 {
            take(own, inside, epoch);
        }
        if others.len() <= left {
            let sizes: Vec<_> = others.iter().map(|group| group.len()).collect();
            for (group, room) in others.iter().zip(shares(&sizes, left)) {
                take(group, room, epoch);
            }
        } else if left > 0 {
            // One target of each zone in turn; at the next turn of the zone, another one.
            let rounds = epochs(others.len(), left);
            for place in window(others.len(), left, seed, epoch) {
                take(others[place], 1, epoch / rounds);
            }
            let largest = others.iter().map(|group| group.len()).max().unwrap_or_default();
            // A round of zones may have begun before the first of these epochs.
            turn.epochs = turn.epochs.max((epochs(largest, 1) + 1).saturating_mul(rounds));
        }
        turn
    }
}

/// Returns the number of consecutive epochs in which each of `len` elements has its turn, with
/// `room` at a time: less than twice as many as a plain rotation needs. A power of two, so that the
/// number and the current turn stay the same while elements come and go.
fn epochs(len: usize, room: usize) -> u64 {
    if room >= len {
        return 1;
    }
    let turns = len.div_ceil(room.max(1)).next_power_of_two();
    u64::try_from(turns).unwrap_or(u64::MAX)
}

/// Selects the current turn: `room` of `len` elements in a cyclic order.
///
/// The windows begin at the points of van der Corput's sequence (the bits of the epoch, backwards,
/// are a fraction of the circle): any 2^n consecutive epochs are 2^n evenly spaced points. So each
/// element has its turn, and one more or less moves each window by at most one element; twice as
/// many, by half a window.
fn window(len: usize, room: usize, phase: u64, epoch: u64) -> impl Iterator<Item = usize> {
    let kept = u64::MAX.checked_shr(epochs(len, room).trailing_zeros()).unwrap_or(0);
    let point = phase.wrapping_add(epoch.reverse_bits() & !kept);
    let start = (u128::from(point) * len as u128) >> u64::BITS;
    let start = usize::try_from(start).unwrap_or_default();
    (0..room.min(len)).map(move |i| (start + i) % len)
}

/// Returns the share of each group, if `room` is divided among them: equal shares, and the part
/// that small groups do not need goes to the others.
fn shares(sizes: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..sizes.len()).collect();
    order.sort_by_key(|&group| sizes[group]);
    let mut left = room;
    let mut shares = vec![0; sizes.len()];
    for (before, group) in order.into_iter().enumerate() {
        shares[group] = sizes[group].min(left / (sizes.len() - before));
        left -= shares[group];
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn everything_has_its_turn_within_the_epochs_that_are_stated(
            len in 1_usize..3000, room in 1_usize..80, phase: u64, first: u64,
        ) {
            let all = epochs(len, room);
            prop_assert!(all == 1 || all < 2 * len.div_ceil(room) as u64);
            let mut seen = BTreeSet::new();
            for epoch in 0..all {
                let now: BTreeSet<_> =
                    window(len, room, phase, first.wrapping_add(epoch)).collect();
                prop_assert_eq!(now.len(), room.min(len));
                seen.extend(now);
            }
            prop_assert_eq!(seen.len(), len);
        }

        #[test]
        fn shares_are_fair_and_leave_nothing(
            sizes in proptest::collection::vec(1_usize..50, 1..20), more in 0_usize..200,
        ) {
            let room = (sizes.len() + more).min(sizes.iter().sum());
            let shares = shares(&sizes, room);
            prop_assert_eq!(shares.iter().sum::<usize>(), room);
            let most = shares.iter().max().copied().unwrap_or_default();
            for (share, size) in shares.iter().zip(&sizes) {
                prop_assert!(share <= size && (share == size || share + 1 >= most));
            }
        }
    }
}
