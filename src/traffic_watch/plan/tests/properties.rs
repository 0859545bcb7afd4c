//! Properties that hold for any measurement.
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        3 => (0.0..120.0f64).prop_map(Percent),
        1 => Just(Nothing),
        1 => Just(NaN),
        1 => Just(Old),
    ]
}

proptest! {
    /// Design rule 1: no write is explained by missing evidence.
    #[test]
    fn only_a_node_with_evidence_is_written(
        steps in proptest::collection::vec(proptest::collection::vec(says(), 4), 1..40),
    ) {
        let mut w = World::new(&["a", "b", "c", "d"], json!({}));
        for says in steps {
            let names: Vec<_> = w.labels.keys().cloned().collect();
            for (node, _) in w.judge(&says).writes {
                let i = names.iter().position(|n| *n == node).unwrap();
                prop_assert!(matches!(says[i], Percent(_)), "{node} was written on {:?}", says[i]);
            }
        }
    }

    /// Design rule 5: a restart changes no label by itself.
    #[test]
    fn a_restart_writes_nothing_that_the_same_evidence_did_not_ask_for(
        before in proptest::collection::vec(proptest::collection::vec(says(), 4), 2..20),
        says in proptest::collection::vec(says(), 4),
    ) {
        let mut w = World::new(&["a", "b", "c", "d"], json!({}));
        for step in &before {
            w.judge(step);
        }
        // Let it settle on the evidence, then restart on the same.
        for _ in 0..6 {
            w.judge(&says);
        }
        let settled = w.labels.clone();
        w.restart();
        for _ in 0..6 {
            w.judge(&says);
            prop_assert_eq!(&w.labels, &settled);
        }
    }

    /// Design rule 4: an existing state is not written again.
    #[test]
    fn the_same_pass_again_writes_nothing(
        steps in proptest::collection::vec(proptest::collection::vec(says(), 4), 1..20),
    ) {
        let mut w = World::new(&["a", "b", "c", "d"], json!({}));
        for says in steps {
            w.judge(&says);
            let status = w.watch.status.clone();
            let reading = w.reading(&says);
            let again = w.pass(vec![Ok(reading)]);
            prop_assert_eq!(again.writes, vec![]);
            prop_assert_eq!(&w.watch.status, &status);
        }
    }

    /// Of the nodes with evidence at most half is newly marked, and one stays unmarked.
    #[test]
    fn at_most_half_is_marked_whatever_happens(
        steps in proptest::collection::vec(proptest::collection::vec(says(), 5), 1..40),
    ) {
        let mut w = World::new(&["a", "b", "c", "d", "e"], json!({}));
        for says in steps {
            let step = w.judge(&says);
            let marked = |i: usize| w.labels.values().nth(i).unwrap().as_deref() == Some("true");
            prop_assert!((0..5).any(|i| !marked(i)));
            if step.writes.iter().any(|(_, value)| *value == Some(true)) {
                // A mark without evidence takes no place.
                let held = (0..5).filter(|&i| marked(i) && step.states[i] == Unknown).count();
                let measured = (0..5).filter(|&i| marked(i)).count() - held;
                prop_assert!(measured <= ((5 - held) / 2).max(1));
            }
        }
    }

    /// Design rule 1, with several measures: whichever of them answer, fail or fall silent.
    #[test]
    fn with_several_measures_too_only_a_node_with_evidence_is_written(
        steps in proptest::collection::vec(
            proptest::collection::vec(
                proptest::option::weighted(0.8, proptest::collection::vec(says(), 4)), 2), 1..40),
    ) {
        let criteria = json!([{"name": "loss", "query": "loss", "max": "10"}]);
        let mut w = World::new(
            &["a", "b", "c", "d"], json!({"maxBandwidthPercent": "60", "criteria": criteria}));
        for says in steps {
            let names: Vec<_> = w.labels.keys().cloned().collect();
            let measures: Vec<_> = says.iter().map(Option::as_deref).collect();
            for (node, value) in w.judge_all(&measures).writes {
                let i = names.iter().position(|n| *n == node).unwrap();
                let known = |m: Option<&[Says]>| m.is_some_and(|m| matches!(m[i], Percent(_)));
                prop_assert!(measures.iter().copied().any(known), "{node} = {value:?} on {says:?}");
            }
            let marked = w.labels.values().filter(|l| l.as_deref() == Some("true")).count();
            prop_assert!(marked <= 3, "one stays");
        }
    }
}
