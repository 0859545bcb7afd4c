//! Fifty thousand streams: the moves of a change are those of its worker, at any size. Numbers of
//! moves and not times.
use super::*;

/// Streams of each worker, which is the same in both sizes.
const EACH: usize = 100;

struct Ids {
    streams: Vec<String>,
    workers: Vec<String>,
}

impl Ids {
    fn new(streams: usize) -> Self {
        Self {
            streams: (0..streams).map(|i| format!("stream:{i}")).collect(),
            // One more than take part at first.
            workers: (0..=streams / EACH).map(|i| format!("swarm-{i}")).collect(),
        }
    }

    /// Assigns all streams to these workers; asserts that each stream has one, evenly.
    fn run(&self, workers: usize, previous: &[Option<usize>], rules: &Rules) -> Vec<Option<usize>> {
        let item = |id| Item { id, weight: 1, pin: None, dedicated: false };
        let items: Vec<_> = self.streams.iter().map(|id| item(id)).collect();
        let worker = |id| Worker { id, standing: Standing::Full };
        let workers: Vec<_> = self.workers[..workers].iter().map(|id| worker(id)).collect();
        let assignment = assign(&items, &workers, previous, rules);
        assert_eq!(assignment.unassigned, []);
        let mut counts = vec![0; workers.len()];
        assignment.owners.iter().flatten().for_each(|owner| counts[*owner] += 1);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert_eq!(counts.iter().sum::<usize>(), items.len());
        if rules.max_moves.is_none() {
            assert!(most - least <= 1, "{least} to {most} streams");
        }
        assignment.owners
    }
}

fn moves(before: &[Option<usize>], after: &[Option<usize>]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

/// Returns the moves when a worker joins, when it joins with a budget of ten, and when the last one
/// leaves.
fn joining_and_leaving(policy: Policy, streams: usize) -> [usize; 3] {
    let (ids, workers) = (Ids::new(streams), streams / EACH);
    let rules = Rules { policy, ..Rules::default() };
    let before = ids.run(workers, &vec![None; streams], &rules);
    assert_eq!(ids.run(workers, &before, &rules), before, "nothing moves by itself");
    let joined = ids.run(workers + 1, &before, &rules);
    let budget = Rules { max_moves: Some(10), ..rules };
    let slowly = ids.run(workers + 1, &before, &budget);
    let left = ids.run(workers - 1, &before, &rules);
    [&joined, &slowly, &left].map(|after| moves(&before, after))
}

#[test]
fn fifty_thousand_streams_move_as_five_thousand_do() {
    let [small, large] =
        [5_000, 50_000].map(|streams| joining_and_leaving(Policy::Sticky, streams));
    println!("joined, with a budget of ten, left: {small:?} and {large:?}");
    // A hundred for each worker before; one less for a few of them with one more.
    assert_eq!([small, large].map(|moves| (moves[1], moves[2])), [(10, EACH); 2]);
    assert_eq!((small[0], large[0]), (5_000 / 51, 50_000 / 501));
}

/// Blocks shift with each worker, and so most streams move; the budget holds at any size.
#[test]
fn fifty_thousand_streams_in_blocks_move_within_the_budget() {
    let [small, large] =
        [5_000, 50_000].map(|streams| joining_and_leaving(Policy::Contiguous, streams));
    println!("joined, with a budget of ten, left: {small:?} and {large:?}");
    assert!(small[1] <= 10 && large[1] <= 10, "{small:?} and {large:?}");
}
