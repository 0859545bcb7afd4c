//! Explores every order of events in small worlds, with the product's own functions that observe,
//! confirm, decide and write.
//!
//! A world ([`world`]) is an API server with one file, or with a head and its parts; a `StatefulSet`
//! or Deployment that creates and deletes pods, kubelets that deliver files and start containers,
//! workers that read, run and answer, people who edit and delete, and the operator's process. It may
//! be killed before any of its writes, or hang there: what it has decided may still arrive, each
//! write over the version that it was decided on. A plot ([`plot`]) defines the participants, the
//! user's successive specs, and the faults with their numbers. The search ([`search`]) starts when
//! the first spec is fulfilled, visits every state that any order of events ([`moves`], [`people`])
//! leads to, and checks in each of them:
//!
//! - **one owner**: no pod starts a stream by a file of the operator while another pod runs it;
//! - **rest**: without further faults, everything settles in a bounded number of rounds, and then
//!   nothing is written, not even the status;
//! - **owned**: at rest one wanted worker runs each stream, and Ready is True. It may be False only
//!   if the plot allows streams to wait, with a **text** that names the blocking worker and the
//!   remedy;
//! - **next**: every file says of a stream that it will come to one worker at most, and not to the one
//!   that has it; at rest, none will come.
//!
//! The operator ([`operator`]) is the product's own: its reads, questions and writes reach the
//! small world through the trait that the real cluster also implements ([`cluster`]), and the
//! product's own readers ([`facts`], [`view`]) parse the events of watches. One pass takes a
//! millisecond. A search needs the same pass for thousands of states, which differ only in what the
//! operator cannot see: it is computed once, so that a state takes microseconds.
//!
//! Workers may prepare streams that will come, which takes a while or for ever, and start those of
//! which the operator tells them that a newer file lists them; its word arrives at any time, or not.
//!
//! There are three simplifications, none of which hides an overlap. Workers start the streams of a
//! file as soon as they have read it, and stop the others only just before they answer: in between
//! they may have run fewer, never more. Time passes only with passes: an hour between two of them,
//! so that every timeout has expired (or, in a hurried plot, no time at all). And kubelets deliver
//! the newest file to a new pod: it is known that a pod with a file from an older cache runs a
//! stream twice, which is the reason for `configMap.immutable`.
//!
//! In addition to the plots without violations ([`plots`]), some have a wrong rule ([`weakened`]),
//! and the search finds its fault.
mod cluster;
mod decided;
mod facts;
mod moves;
mod operator;
mod people;
mod plot;
mod plots;
mod pod;
mod search;
mod view;
mod weakened;
mod world;

use moves::Explorer;
use plot::Plot;
use search::{Found, search};
use world::World;

/// The number of states that a search visits, unless `EXPLORE` in the environment sets another one,
/// as `make night` does: all tests together take 40 seconds of a processor, unoptimized.
const MOST: usize = 1_500;

fn explore(plot: &Plot) -> Found {
    let began = std::time::Instant::now();
    let explorer = Explorer::new(plot);
    let mut settled = World::beginning(plot);
    for _ in 0..search::ROUNDS {
        explorer.fair_round(&mut settled);
    }
    let most = std::env::var("EXPLORE").ok().and_then(|number| number.parse().ok());
    let found = search(&explorer, settled, most.unwrap_or(MOST));
    println!(
        "{} states{}, {} moves, {} passes, {} wait, {:?}",
        found.states,
        if found.all { " (all)" } else { "" },
        found.moves,
        explorer.operator.passes(),
        found.complained,
        began.elapsed()
    );
    found
}
