//! Tests of the evidence of one measure about all nodes.
use super::{super::evidence::Maybe, *};

fn evidence(age: f64) -> Evidence {
    let (percent, total, age) = (Some(8.0).into(), Some(7.0).into(), Some(age).into());
    let unknown = Maybe::default();
    Evidence { value: 8.0, percent, device: None, total, age, bits: unknown, capacity: unknown }
}

#[test]
fn the_time_of_a_sample_is_that_of_its_scrape() {
    assert_eq!(sample(&evidence(4.0), 1_000.0).time, 996);
    assert_eq!(sample(&Evidence { age: Maybe::default(), ..evidence(0.0) }, 1_000.0).time, 1_000);
}

/// The clock of a node without evidence goes on while half of the nodes have some.
#[test]
fn evidence_is_scarce_below_half_of_the_nodes() {
    for (with_evidence, nodes, scarce) in [(0, 1, true), (1, 3, true), (1, 2, false)] {
        let findings =
            (0..nodes)
                .map(|node| {
                    if node < with_evidence { Ok(evidence(1.0)) } else { Err(NoEvidence::NoSample) }
                })
                .collect();
        let (evaluation, asked, warned) = (Evaluation::Ok, 1_000.0, false);
        let evaluated = asked;
        let (covered, excused) = ((with_evidence, nodes), (0, 0));
        let gathered = Gathered {
            findings,
            evaluation,
            with_evidence,
            covered,
            excused,
            asked,
            evaluated,
            warned,
        };
        assert_eq!(gathered.is_scarce(), scarce, "{with_evidence} of {nodes}");
        assert_eq!(gathered.clock_stands(nodes - 1), scarce, "{with_evidence} of {nodes}");
    }
}
