//! Weights that were not measured, or are 0.
use super::*;
use crate::prometheus::Class;

/// The list's weights are all the same, which nobody has measured.
#[test]
fn what_was_not_measured_moves_nothing() {
    let all: Vec<_> = EIGHT.into_iter().chain(["i"]).collect();
    let swarm = swarm(&all, &json!({"weights": {"query": "x"}}));
    let decided = |weights: &[(&str, f64)], measuring: Option<&str>| {
        let file = published(5, &[&["i"], &EIGHT]);
        let weights = weights.iter().map(|(id, weight)| ((*id).into(), *weight)).collect();
        let memory = Memory {
            heavy: Instant::now().checked_sub(Duration::from_mins(11)),
            reports: answers(&[(0, 5), (1, 5)]),
            weights: Arc::new(weights),
            ..Memory::default()
        };
        let measuring = measuring.map(|text| QueryError::new(Class::Timeout, text));
        let observed = Observed {
            now: Instant::now(),
            held: None,
            view: Some(view(&file, vec![pod(0, Some("n")), pod(1, Some("n"))], 2)),
            confirmed: Confirmed::default(),
            memory,
            unfit: BTreeSet::new(),
            measuring,
        };
        let plan = plan(&swarm, &observed).unwrap();
        (plan.desired.publish.is_some(), plan.desired.memory.unwrap().heavy.is_some())
    };
    let measured = EIGHT.map(|id| (id, 1.0));
    assert_eq!(decided(&[], None), (false, true), "never measured");
    assert_eq!(decided(&measured, Some("away")), (false, true), "not measured now");
    assert!(decided(&measured, None).0, "measured: w-1 has carried too much for 11 minutes");
}

#[test]
fn streams_that_weigh_nothing_keep_a_worker() {
    let wanted = |streams: Value, weights: &[(&str, f64)], min: u32, from: u32| {
        let autoscale = json!({"maxWeightPerWorker": 10, "min": min, "max": 9});
        let more = json!({
            "jobs": null, "streams": streams, "weights": {"query": "x"}, "autoscale": autoscale,
        });
        let since = Instant::now().checked_sub(Duration::from_mins(6)).unwrap();
        let weights = weights.iter().map(|(id, weight)| ((*id).into(), *weight));
        let weights = Arc::new(weights.collect());
        let memory = Memory { replicas: Some((from, since)), weights, ..Memory::default() };
        let plan = decide(&swarm(&[], &more), view(&published(5, &[]), vec![], from), memory);
        plan.desired.scale.map_or(from, |scale| scale.to)
    };
    let both = json!([{"id": "a"}, {"id": "x", "dedicated": true}]);
    assert_eq!(wanted(both, &[("a", 0.0), ("x", 5.0)], 1, 2), 2, "one for x, and one for a");
    assert_eq!(wanted(json!([{"id": "a"}]), &[("a", 0.0)], 0, 3), 1, "nothing would start it");
}
