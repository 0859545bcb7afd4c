//! The guarantees that the original did not keep: the same table, with the right results.
use super::*;

/// The jobs of its sample, in their order.
const JOBS: [&str; 27] = [
    "stream:xxrtve1",
    "stream:xxrtve2",
    "stream:zrtve2:new",
    "stream:zrtve1:new",
    "stream:zrtve0:new",
    "stream:cctv0:updated",
    "stream:history:new",
    "stream:foo:new",
    "stream:xxctv3:new",
    "stream:cctv3:updated",
    "stream:xxctv0:updated",
    "stream:xxctv10:updated",
    "stream:xxctv11:updated",
    "stream:xxctv12:updated",
    "stream:xxctv13:updated",
    "stream:xxctv14:updated",
    "stream:yxctv1:updated",
    "stream:yxctv2:updated",
    "stream:yxctv3:updated",
    "stream:xabcn0:updated",
    "stream:xacb01:updated",
    "stream:xacb02:updated",
    "stream:xacb03:updated",
    "stream:xacb04:updated",
    "stream:sportnews0:updated",
    "stream:cars:new",
    "stream:cars:updated",
];

fn contiguous(jobs: usize, workers: usize) -> Case {
    Case::new(jobs, workers).policy(Policy::Contiguous)
}

fn sample(workers: usize) -> Case {
    let mut case = contiguous(0, workers);
    case.items = JOBS.into_iter().map(Thing::new).collect();
    case
}

/// The shares in the order of the list.
fn shares(case: &Case) -> Vec<Vec<&str>> {
    let mut shares = vec![Vec::new(); case.workers.len()];
    for (thing, owner) in case.items.iter().zip(case.run().owners) {
        shares[owner.unwrap()].push(thing.id.as_str());
    }
    shares
}

#[test]
fn the_listing_of_the_sample_with_two_workers() {
    let case = sample(2);
    let shares = shares(&case);
    assert_eq!(shares, [&JOBS[..14], &JOBS[14..]]);
    assert_eq!((shares[0][0], shares[0][13]), ("stream:xxrtve1", "stream:xxctv12:updated"));
    assert_eq!((shares[1][0], shares[1][12]), ("stream:xxctv13:updated", "stream:cars:updated"));
}

#[test]
fn sizes_of_the_shares() {
    let with_rest =
        |first: &[usize], rest: usize, times: usize| [first, &vec![rest; times]].concat();
    for (jobs, workers, expected) in [
        (15, 3, vec![5, 5, 5]),
        (9, 2, vec![5, 4]),
        (27, 1, vec![27]),
        (27, 2, vec![14, 13]),
        (27, 3, vec![9, 9, 9]),
        (27, 4, vec![7, 7, 7, 6]),
        (27, 5, vec![6, 6, 5, 5, 5]),
        (27, 6, vec![5, 5, 5, 4, 4, 4]),
        (27, 10, with_rest(&[3; 7], 2, 3)),
        (27, 12, with_rest(&[3; 3], 2, 9)),
        (27, 30, with_rest(&[1; 27], 0, 3)),
    ] {
        assert_eq!(contiguous(jobs, workers).counts(), expected, "{jobs} over {workers}");
    }
}

/// The scalings of its tests: up, down, to nothing, and to a number at which it crashed.
#[test]
fn scaling_is_as_if_it_had_always_been_so() {
    for (from, to) in [(2, 3), (3, 2), (3, 0), (2, 12), (0, 2)] {
        let mut case = sample(from);
        case.step();
        case.scale(to);
        if to == 0 {
            let reasons = case.run().unassigned;
            assert_eq!(reasons, (0..27).map(|i| (i, Reason::NoWorker)).collect::<Vec<_>>());
        } else {
            assert_eq!(shares(&case), shares(&sample(to)), "{from} to {to}");
        }
    }
}

/// `start = i × size` with sizes that differ: with a remainder of `m`, two workers had the same `m`
/// jobs and no worker had the last `m`. Its tests checked only sizes.
#[test]
fn no_number_of_workers_doubles_or_loses_jobs() {
    for workers in 1..=60 {
        assert_eq!(shares(&sample(workers)).concat(), JOBS, "{workers} workers");
    }
}

#[test]
fn the_order_of_the_list_is_the_order_of_the_shares() {
    let mut case = sample(2);
    case.items.reverse();
    case.workers.reverse();
    let mut jobs = JOBS;
    jobs.reverse();
    assert_eq!(shares(&case), [&jobs[..14], &jobs[14..]]);
    assert_eq!(case.workers[0].0, "swarm-worker-1");
}
