//! The sample, and everything.
use std::collections::BTreeMap;

use super::{
    faults::build,
    layout::{Layout, all},
    network::Network,
    tally::{play, sum, table},
};
use crate::api::route_reflector_set::Topology;

/// The sample has one layout in this many, and of each one fault in this many: some seconds,
/// unoptimized.
const SAMPLE: (usize, usize) = (197, 13);

/// All layouts, or those with `PROVE` in their names.
fn asked() -> Vec<Layout> {
    let wanted = std::env::var("PROVE").unwrap_or_default();
    all().into_iter().filter(|layout| layout.to_string().contains(&wanted)).collect()
}

#[test]
#[ignore = "minutes: make prove-reflectors"]
fn every_layout() {
    let tallies = play(&asked(), &|_| true);
    println!("{}", table(&tallies));
    assert_eq!(sum(&tallies).failed(), 0);
}

#[test]
fn a_sample_of_layouts() {
    let (layouts, faults) = SAMPLE;
    let layouts: Vec<Layout> = all().into_iter().step_by(layouts).collect();
    let tallies = play(&layouts, &|number| number % faults == 0);
    println!("{}", table(&tallies));
    assert_eq!(sum(&tallies).failed(), 0);
}

/// The quick count of paths, and the learned routes, equal those of the lab.
#[test]
fn the_judge_is_the_lab() {
    for topology in [Topology::Simple, Topology::Zonal, Topology::Multi] {
        let layout = Layout { topology, zones: 3, reflectors: 6, ids: None };
        let (play, _) = build(&layout).expect("no failure").expect("admissible");
        let network = Network::of(&play.stage);
        assert_eq!(network.disagreement(), None);
        let theirs = network.tables_of_the_lab();
        // The lab also counts the node's own networks.
        let ours = network
            .tables()
            .into_iter()
            .map(|(name, paths)| (name, usize::try_from(paths).unwrap() + 3));
        assert_eq!(ours.collect::<BTreeMap<_, _>>(), theirs);
    }
}
