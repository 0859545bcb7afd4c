//! Any reflector can be replaced, in any layout that is admitted: simulated step by step, and
//! judged by the lab.
//!
//! A layout ([`layout`]) is a topology, a number of zones and of reflectors. The operator moves
//! from the mesh to it by its own decisions and steps ([`play`]), with its memory lost before each
//! of them and the gate always open. Then every fault occurs ([`faults`]): each reflector dies or
//! is cordoned, all of a zone die, the count grows and shrinks by one, the topology changes, also
//! with one reflector dead meanwhile.
//!
//! The judge ([`network`]) is the lab's model of confd and of BIRD (`lab/src/bgp`), which was
//! verified against real BIRD and shares no code with [`super::bgp_model`]. After each step it
//! checks
//!
//! - **harm**: the sessions that the step leaves as they are, on both ends, still bring every route
//!   between living nodes that it does not change; afterwards no node misses a route that it had;
//!   and no prefix has more paths than is known to be quiet, unless it had as many before;
//!
//! and in the end
//!
//! - **progress**: nothing is left to do, no dead or cordoned node reflects, there are as many
//!   reflectors as desired, no pair misses a route, nor with any one reflector down;
//! - **bounds**: a replacement interrupts only the two nodes that it is about.
//!
//! A refusal must come at once, with the size or the topology that works, and that is tried too.
//! `make prove-reflectors` simulates all layouts and prints the counts ([`tally`]); the tests
//! simulate a sample.
mod faults;
mod graph;
mod layout;
mod network;
mod play;
mod random;
mod tally;
mod tests;
