//! Every order of events in small worlds, with the very functions that observe, confirm, decide and write.
//!
//! A world is an API server with one file, a `StatefulSet` that makes and deletes pods, kubelets that deliver
//! files and start containers, workers that read, run and answer, people who edit and delete, and the
//! operator, which may be killed between any two writes. Time passes between two passes: longer than
//! anything is waited for. The search visits every state that any order of these events leads to
//! ([`search`]), and asks in each of them:
//!
//! - **one owner**: no stream is run by two pods;
//! - **rest**: if from here on nothing more goes wrong, everything comes to rest in a bounded number of
//!   rounds, and then nothing is written, status included;
//! - **owned**: at rest every stream is run by one worker, or Ready is False.
mod cluster;
mod moves;
mod search;
mod world;

use moves::Explorer;
use search::{Found, search};
use world::{Hazard, Plot, Wish, World, swarm};

/// Two workers and two streams, a third stream, one worker.
fn plot(refresh: &str) -> Plot {
    let wish =
        |replicas, streams: &[&str]| Wish { replicas, swarm: swarm(streams, refresh, "Enforce") };
    Plot {
        workers: 2,
        wishes: vec![wish(2, &["a", "b"]), wish(1, &["a", "b"])],
        changes: 1,
        faults: 0,
        crashes: 0,
        silent: false,
        reloads: refresh == "HotReload",
        cached: false,
        hazards: &[],
    }
}

/// As many states as a search visits: some seconds.
const MOST: usize = 20_000;

fn explore(plot: &Plot) -> Found {
    let explorer = Explorer::new(plot);
    let mut settled = World::beginning(plot);
    for _ in 0..search::ROUNDS {
        explorer.fair_round(&mut settled);
    }
    search(&explorer, settled, MOST)
}

fn is_sound(plot: &Plot, states: usize) {
    let found = explore(plot);
    println!("{} states, {} moves, {} complaints", found.states, found.moves, found.complained);
    assert!(found.violation.is_none(), "{:?}", found.violation);
    assert!(found.states >= states, "{} states", found.states);
}

#[test]
fn scaling_in_every_order() {
    is_sound(&plot("DeletePod"), 1);
    is_sound(&plot("HotReload"), 1);
}

#[test]
fn w03_a_crashed_container_that_is_started_again_while_its_pod_is_deleted() {
    is_sound(&Plot { faults: 1, hazards: &[Hazard::Restarts], ..plot("HotReload") }, 1);
    is_sound(
        &Plot { faults: 2, hazards: &[Hazard::Restarts, Hazard::Cuts], ..plot("HotReload") },
        1,
    );
}

#[test]
fn w02_silent_workers_and_a_history_that_is_lost() {
    let hazards = &[Hazard::Edits, Hazard::Losses, Hazard::Reapplied];
    for refresh in ["DeletePod", "HotReload"] {
        for silent in [false, true] {
            is_sound(&Plot { faults: 1, crashes: 1, hazards, silent, ..plot(refresh) }, 1);
        }
    }
}

/// Undoing it started a stream where it had been stopped, while the other worker still ran it. That both
/// ran it for a moment after the edit is the doing of whoever edited.
#[test]
fn w11_lists_that_somebody_exchanges_are_taken_back_in_turn() {
    is_sound(&Plot { faults: 1, hazards: &[Hazard::Swaps], ..plot("HotReload") }, 1);
}

#[test]
fn w01_an_observed_swarm_writes_nothing() {
    let mut plot = plot("HotReload");
    plot.wishes.push(Wish { replicas: 1, swarm: swarm(&["a", "b"], "HotReload", "Observe") });
    is_sound(&Plot { changes: 2, ..plot }, 1);
}

#[test]
fn killed_between_any_two_writes() {
    is_sound(&Plot { crashes: 2, changes: 2, ..plot("DeletePod") }, 1);
    is_sound(&Plot { crashes: 1, changes: 2, cached: true, ..plot("HotReload") }, 1);
}
