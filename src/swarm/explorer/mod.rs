//! Every order of events in small worlds, with the very functions that observe, confirm, decide and
//! write.
//!
//! A world ([`world`]) is an API server with one file, a `StatefulSet` or Deployment that makes and
//! deletes pods, kubelets that deliver files and start containers, workers that read, run and
//! answer, people who edit and delete, and the operator's process, which may be killed before any
//! of its writes. A plot ([`plot`]) says who is there, what the user wants in turn, and what may go
//! wrong, how often. From the state in which the first wish has come true the search ([`search`])
//! visits every state that any order of what can happen ([`moves`], [`people`]) leads to, and asks
//! in each of them:
//!
//! - **one owner**: no pod starts a stream by a file of the operator while another pod runs it;
//! - **rest**: if from here on nothing more goes wrong, everything settles in a bounded number of
//!   rounds, and then nothing is written, status included;
//! - **owned**: at rest one wanted worker runs each stream, and Ready is True. Only where a plot
//!   says that streams may wait it may be False, with a **text** that names who is in the way and
//!   what to do.
//!
//! The operator ([`operator`]) is the product's: its reads, questions and writes go to the small
//! world through the trait that the real cluster implements too ([`cluster`]); what watches bring
//! is read by the product's own readers ([`facts`]). One pass takes a millisecond. A search needs
//! the same pass for thousands of states, which differ only in what the operator cannot see: it is
//! computed once, so that a state takes microseconds.
//!
//! Three simplifications, none of which hides an overlap. Workers start what a file lists as soon
//! as they have read it, and stop what it does not list only just before they answer: between the
//! two they may have run less, never more. Time passes by passes: an hour between two of them, so
//! that everything that is waited for long enough has been (or, in a hurried plot, nothing, while
//! anything happens). And kubelets deliver a new pod the newest file; that one from an older cache
//! runs a stream twice is known, and the reason for `configMap.immutable`.
//!
//! Beside the plots in which nothing goes wrong ([`plots`]) there are some with a rule as it was
//! ([`weakened`]): there the search finds what was wrong with it. The protocol alone, with rules
//! that only it can have, is explored in the tests of `handover`.
pub(super) mod breadth_first;
mod cluster;
mod facts;
mod moves;
mod operator;
mod people;
mod plot;
mod plots;
mod search;
mod weakened;
mod world;

use moves::Explorer;
use plot::Plot;
use search::{Found, search};
use world::World;

/// The number of states that a search visits, unless `EXPLORE` in the environment sets another one:
/// all tests together take half a minute, unoptimized, on two slow cores.
const MOST: usize = 6_000;

fn explore(plot: &Plot) -> Found {
    let most = std::env::var("EXPLORE").ok().and_then(|number| number.parse().ok());
    let began = std::time::Instant::now();
    let explorer = Explorer::new(plot);
    let mut settled = World::beginning(plot);
    for _ in 0..search::ROUNDS {
        explorer.fair_round(&mut settled);
    }
    let (found, complained) = search(&explorer, settled, most.unwrap_or(MOST));
    println!(
        "{} states{}, {} moves, {} passes, {} wait, {:?}",
        found.states,
        if found.all { " (all)" } else { "" },
        found.moves,
        explorer.operator.passes(),
        complained,
        began.elapsed()
    );
    found
}
