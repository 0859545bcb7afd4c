//! Properties that hold for any input, including files that no step would write.
use std::collections::BTreeSet;

use proptest::{collection, option, prelude::*, sample, strategy::Strategy};

use super::*;

const WORKERS: [&str; 4] = ["w-0", "w-1", "w-2", "w-10"];
const STREAMS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

type Workers = BTreeMap<Name, Worker>;
type Claims = BTreeSet<(Name, Name)>;

fn stream() -> impl Strategy<Value = Name> {
    sample::select(&STREAMS[..]).prop_map(n)
}

fn worker() -> impl Strategy<Value = Name> {
    sample::select(&WORKERS[..]).prop_map(n)
}

/// Epochs around the file's own epoch, and far from it.
fn epoch() -> impl Strategy<Value = Epoch> {
    prop_oneof![9 => 0..9_u64, 1 => Just(LARGEST_EPOCH), 1 => Just(Epoch::MAX)]
}

prop_compose! {
    fn any_file()(
        epoch in 0..8_u64,
        lists in collection::btree_map(worker(), (collection::vec(stream(), 0..4), epoch()), 0..4),
        releasing in collection::btree_map((stream(), worker()), epoch(), 0..4),
        barrier in option::weighted(0.2, epoch()),
        next in collection::btree_map(worker(), collection::vec(stream(), 1..3), 0..3),
    ) -> Published {
        let share = |(worker, (streams, version))| (worker, Share { streams, version });
        Published { epoch, shares: lists.into_iter().map(share).collect(), next, releasing, barrier, ..Published::default() }
    }
}

prop_compose! {
    fn any_pod()(
        flags in any::<[bool; 3]>(),
        loaded in option::of(epoch()),
        born in option::of(0..9_u64),
        prepared in option::of(collection::btree_set(stream(), 0..3)),
    ) -> Pod {
        let [ready, terminating, stopped] = flags;
        Pod { uid: n("uid"), ready: ready && !stopped, terminating, stopped, loaded, heir: None, born, prepared }
    }
}

prop_compose! {
    fn any_worker()(
        wanted in any::<bool>(),
        pod in option::weighted(0.8, any_pod()),
        confirmed in 0..9_u64,
        successor in option::weighted(0.2, 0..9_u64),
    ) -> Worker {
        Worker { wanted, pod, confirmed, successor }
    }
}

fn any_workers() -> impl Strategy<Value = Workers> {
    collection::btree_map(worker(), any_worker(), 0..5)
}

fn any_target() -> impl Strategy<Value = Vec<(Name, Option<Name>)>> {
    collection::vec((stream(), option::weighted(0.8, worker())), 0..8)
}

prop_compose! {
    fn any_rules()(flags in any::<[bool; 4]>(), way in 0..3, max_unavailable in 0..3_usize) -> Rules {
        let [exclusive, gather, await_targets, announce] = flags;
        let strategies = [super::Strategy::DeletePod, super::Strategy::HotReload, super::Strategy::None];
        let strategy = strategies[usize::try_from(way).unwrap()];
        Rules { exclusive, strategy, max_unavailable, gather, await_targets, announce }
    }
}

/// Returns the streams that each worker may run, according to a file.
fn claims(file: &Published) -> Claims {
    let listed = file.shares.iter().flat_map(|(worker, share)| {
        share.streams.iter().map(move |stream| (stream.clone(), worker.clone()))
    });
    listed.chain(file.releasing.keys().cloned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// The core property: a worker that may run a stream stays recorded until it has released it,
    /// and no other worker gets it before.
    #[test]
    fn nothing_is_forgotten_and_nothing_given_that_another_has(
        file in any_file(),
        to in any_target(),
        workers in any_workers(),
        highest in epoch(),
        rules in any_rules(),
    ) {
        let step = step(&file, &to, &workers, highest, &rules);
        let next = step.publish.as_ref().unwrap_or(&file);
        let freed: Claims = step.freed.iter().cloned().collect();
        for (stream, worker) in &freed {
            let since = file.releasing[&(stream.clone(), worker.clone())];
            prop_assert_eq!(decide::in_the_way(workers.get(worker), since, file.epoch), None);
        }
        let (before, after) = (claims(&file), claims(next));
        let forgotten: Vec<_> = before.difference(&after).filter(|claim| !freed.contains(*claim)).collect();
        prop_assert!(forgotten.is_empty(), "{forgotten:?}");
        for granted in &step.granted {
            prop_assert!(after.contains(granted));
            if rules.exclusive {
                let holders = after.iter().filter(|(stream, _)| *stream == granted.0).count();
                prop_assert_eq!(holders, 1, "{:?}", granted);
                prop_assert_eq!(next.barrier, None);
            }
        }
        // A worker with a new stream was granted it.
        let granted: Claims = step.granted.iter().cloned().collect();
        prop_assert!(after.difference(&before).all(|claim| granted.contains(claim)));
    }

    #[test]
    fn a_file_lists_each_stream_once_and_each_wanted_worker(
        file in any_file(),
        to in any_target(),
        workers in any_workers(),
        rules in any_rules(),
    ) {
        let step = step(&file, &to, &workers, 0, &rules);
        let Some(next) = step.publish else { return Ok(()) };
        if next == file.distrusted(next.epoch - 1) {
            // History is lost: the same lists.
            return Ok(());
        }
        let listed: Vec<_> = next.shares.values().flat_map(|share| &share.streams).collect();
        let distinct: BTreeSet<_> = listed.iter().collect();
        prop_assert_eq!(listed.len(), distinct.len());
        let wanted = workers.iter().filter(|(_, worker)| worker.wanted).map(|(name, _)| name);
        prop_assert!(next.shares.keys().eq(wanted));
    }

    /// Every stream comes to the worker that it is meant for, until that one has it.
    #[test]
    fn what_will_come_is_what_is_meant_for_a_worker_and_not_in_its_list(
        file in any_file(),
        to in collection::btree_map(stream(), option::of(worker()), 0..6),
        workers in any_workers(),
        rules in any_rules(),
    ) {
        let to: Vec<_> = to.into_iter().collect();
        let step = step(&file, &to, &workers, 0, &rules);
        let next = step.publish.as_ref().unwrap_or(&file);
        if *next == file.distrusted(next.epoch.saturating_sub(1)) {
            return Ok(());
        }
        let lists = |stream: &Name, worker: &Name| next.shares[worker].streams.contains(stream);
        let comes = to.iter().filter_map(|(stream, to)| {
            let to = to.as_ref().filter(|to| workers.get(*to).is_some_and(|to| to.wanted))?;
            (rules.announce && !lists(stream, to)).then(|| (stream.clone(), to.clone()))
        });
        let said = next.next.iter().flat_map(|(worker, streams)| {
            streams.iter().map(move |stream| (stream.clone(), worker.clone()))
        });
        prop_assert_eq!(said.collect::<Claims>(), comes.collect::<Claims>());
    }

    #[test]
    fn numbers_rise(
        file in any_file(),
        to in any_target(),
        workers in any_workers(),
        highest in epoch(),
        rules in any_rules(),
    ) {
        let Some(next) = step(&file, &to, &workers, highest, &rules).publish else { return Ok(()) };
        prop_assert!(next.epoch > file.epoch);
        prop_assert!(next.epoch > highest || highest > BELIEVED_EPOCH);
        for (worker, share) in &next.shares {
            let set = |share: &Share| share.streams.iter().cloned().collect::<BTreeSet<_>>();
            let old = file.shares.get(worker);
            let same = set(share) == old.map(set).unwrap_or_default();
            let version = old.map_or(0, |old| old.version);
            prop_assert!(share.version == next.epoch || same && share.version == version);
            prop_assert!(share.version <= next.epoch);
        }
        prop_assert!(next.releasing.values().chain(&next.barrier).all(|since| *since <= next.epoch));
    }

    /// If nothing changes any more, nothing is written any more.
    #[test]
    fn it_comes_to_rest(
        file in any_file(),
        to in any_target(),
        workers in any_workers(),
        highest in epoch(),
        rules in any_rules(),
    ) {
        let mut file = file;
        // One step each for a barrier, its end, the changes that it held back, revocations and
        // grants, and one more for each worker that a stream passed through.
        for _ in 0..12 {
            let Some(next) = step(&file, &to, &workers, highest, &rules).publish else { return Ok(()) };
            file = next;
        }
        prop_assert!(false, "{file:?}");
    }

    #[test]
    fn the_order_of_the_spec_decides_nothing_but_the_order_of_lists(
        file in any_file(),
        to in collection::btree_map(stream(), option::of(worker()), 0..6),
        workers in any_workers(),
        rules in any_rules(),
        shuffle in any::<prop::sample::Index>(),
    ) {
        let to: Vec<_> = to.into_iter().collect();
        let mut other = to.clone();
        other.rotate_left(if to.is_empty() { 0 } else { shuffle.index(to.len()) });
        let sorted = |to: &Target| {
            let mut step = step(&file, to, &workers, 0, &rules);
            let lists = step.publish.iter_mut().flat_map(|next| next.shares.values_mut());
            lists.for_each(|share| share.streams.sort());
            let next = step.publish.iter_mut().flat_map(|next| next.next.values_mut());
            next.for_each(|streams| streams.sort());
            for moves in [&mut step.granted, &mut step.freed] {
                moves.sort();
            }
            step.revoked.sort();
            step.free.sort();
            step
        };
        prop_assert_eq!(sorted(&to), sorted(&other));
        let step = step(&file, &to, &workers, 0, &rules);
        prop_assert_eq!(step.free, decide::free(step.publish.as_ref().unwrap_or(&file), &to));
    }

    #[test]
    fn no_more_is_restarted_than_may_be_down(
        file in any_file(),
        workers in any_workers(),
        max_unavailable in 0..3_usize,
    ) {
        let rules = Rules { max_unavailable, ..RULES };
        let refreshed = refresh::refresh(&file, &workers, &rules);
        let mut down = workers.values().filter(|w| w.wanted && !w.serves()).count();
        let before = down;
        for refresh in refreshed {
            let Refresh::Evict { worker, .. } = refresh else { panic!("{refresh:?}") };
            let pod = workers[&worker].pod.as_ref().unwrap();
            prop_assert!(workers[&worker].wanted && !pod.terminating && !pod.stopped);
            down += usize::from(pod.ready);
        }
        prop_assert!(down <= max_unavailable.max(before));
    }

    #[test]
    fn every_stream_is_in_one_state(file in any_file(), to in any_target()) {
        let counts = Counts::of(&file, &to);
        let known = claims(&file).into_iter().map(|(stream, _)| stream);
        let all: BTreeSet<_> = known.chain(to.into_iter().map(|(stream, _)| stream)).collect();
        let Counts { owned, releasing, free, unassigned } = counts;
        prop_assert_eq!(owned + releasing + free + unassigned, all.len());
    }
}
