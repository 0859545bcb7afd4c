use proptest::prelude::*;

use super::*;
use crate::streams::Interval;

/// A worker, the number of its pod, and when it ran the stream under which epoch.
type Told = (&'static str, u32, Millis, Millis, u64);

fn report(reported: Told) -> Report {
    let (worker, pod, from, to, epoch) = reported;
    Report {
        worker: worker.to_owned(),
        pod: format!("{worker}/{pod}"),
        intervals: vec![Interval { stream: "s".to_owned(), epoch, from, to }],
    }
}

fn ledger(reported: &[Told]) -> Ledger {
    let mut ledger = Ledger::default();
    for reported in reported {
        ledger.enter(&report(*reported));
    }
    ledger
}

fn times<T>(found: &[T], time: impl Fn(&T) -> Stretch) -> Vec<(Millis, Millis)> {
    found.iter().map(|found| (time(found).from, time(found).to)).collect()
}

#[test]
fn reports_of_one_pod_that_touch_are_one_run() {
    let ledger = ledger(&[("w0", 1, 0, 200, 1), ("w0", 1, 200, 400, 1), ("w0", 1, 400, 600, 3)]);
    let [run] = ledger.runs("s") else { panic!("{:?}", ledger.runs("s")) };
    assert_eq!((run.time, run.first_epoch, run.last_epoch), (Stretch::new(0, 600), 1, 3));
    assert!(ledger.gaps(Stretch::new(0, 600)).is_empty());
}

#[test]
fn a_handover_leaves_a_gap_and_no_overlap() {
    let ledger = ledger(&[("w0", 1, 0, 1000, 1), ("w1", 1, 2500, 4000, 3)]);
    assert_eq!(times(&ledger.gaps(Stretch::new(0, 4000)), |gap| gap.time), [(1000, 2500)]);
    assert_eq!(ledger.gap_times(Stretch::new(2000, 4000))["s"], 500, "only what is in the window");
    assert!(ledger.overlaps(Stretch::ALWAYS).is_empty());
    assert!(ledger.regressions().is_empty());
}

#[test]
fn two_pods_at_once_are_an_overlap_even_of_one_name() {
    let ledger = ledger(&[("w0", 1, 0, 1000, 1), ("w0", 2, 990, 2000, 1)]);
    let overlaps = ledger.overlaps(Stretch::ALWAYS);
    assert_eq!(times(&overlaps, |overlap| overlap.time), [(990, 1000)]);
    assert_eq!(overlaps[0].workers, ["w0", "w0"]);
    assert!(ledger.overlaps(Stretch::new(1000, 2000)).is_empty());
}

#[test]
fn fencing_tokens_grow_with_every_change_of_the_worker() {
    let cases: [(&str, &[Told], usize); 5] = [
        ("another worker, newer", &[("w0", 1, 0, 10, 1), ("w1", 1, 20, 30, 3)], 0),
        ("another worker, the same", &[("w0", 1, 0, 10, 3), ("w1", 1, 20, 30, 3)], 1),
        ("another worker, older", &[("w0", 1, 0, 10, 3), ("w1", 1, 20, 30, 2)], 1),
        ("a restart with the same", &[("w0", 1, 0, 10, 3), ("w0", 2, 20, 30, 3)], 0),
        ("a restart with an older", &[("w0", 1, 0, 10, 3), ("w0", 2, 20, 30, 2)], 1),
    ];
    for (name, reported, wanted) in cases {
        assert_eq!(ledger(reported).regressions().len(), wanted, "{name}");
    }
}

#[test]
fn an_empty_or_backward_interval_says_nothing() {
    let ledger = ledger(&[("w0", 1, 10, 10, 1), ("w0", 1, 20, 10, 1)]);
    assert!(ledger.runs("s").is_empty() && ledger.gaps(Stretch::new(0, 100)).is_empty());
}

#[test]
fn the_latest_run_is_the_one_that_reaches_farthest() {
    let ledger = ledger(&[("w1", 1, 2000, 3000, 3), ("w0", 1, 0, 1000, 1)]);
    assert_eq!(ledger.latest("s").unwrap().worker, "w1");
    assert_eq!(ledger.end(), 3000);
    assert!(ledger.latest("other").is_none());
}

const WORKERS: [&str; 3] = ["w0", "w1", "w2"];

proptest! {
    /// Reports may split the truth in any way, come in any order, and repeat themselves.
    #[test]
    fn the_order_of_reports_does_not_matter(
        reported in prop::collection::vec((0..3_usize, 0..80_u64, 1..30_u64), 0..10),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let all: Vec<Told> = reported
            .iter()
            .map(|&(worker, from, length)| (WORKERS[worker], 0, from, from + length, 1))
            .collect();
        let mut shuffled = all.clone();
        for index in &order {
            if !all.is_empty() {
                let place = index.index(shuffled.len());
                let moved = shuffled.remove(place);
                shuffled.push(moved);
                shuffled.push(*index.get(&all));
            }
        }
        let (one, other) = (ledger(&all), ledger(&shuffled));
        let window = Stretch::new(0, 120);
        prop_assert_eq!(one.gaps(window), other.gaps(window));
        prop_assert_eq!(
            times(&one.overlaps(window), |overlap| overlap.time),
            times(&other.overlaps(window), |overlap| overlap.time)
        );
        for time in 0..120 {
            let at = |(worker, .., from, to, _): &Told| (from..to).contains(&&time).then_some(*worker);
            let mut running: Vec<&str> = all.iter().filter_map(at).collect();
            running.sort_unstable();
            running.dedup();
            let overlaps = one.overlaps(Stretch::new(time, time + 1));
            prop_assert_eq!(overlaps.len(), usize::from(running.len() >= 2), "at {}", time);
            let known = one.runs("s").first().is_some_and(|run| run.time.from <= time);
            let gaps = one.gaps(Stretch::new(time, time + 1));
            prop_assert_eq!(gaps.len(), usize::from(known && running.is_empty()), "at {}", time);
        }
    }
}
