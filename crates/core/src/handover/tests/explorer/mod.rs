//! Every order of events in small worlds, for the protocol alone.
//!
//! Here every worker without a pod is confirmed to have none, and answers arrive by themselves. The
//! operator's `swarm::explorer` explores, with the operator's own functions, that it ensures this,
//! and how it treats workers that never answer. Only here are: a `step` in which each rule is
//! weakened in turn (`weakened`), workers that start and stop one stream after the other, kubelets
//! that are late, immediate handovers, and many more states.
//!
//! A world is an API server with one file and its history, a workload that makes and deletes pods,
//! kubelets that deliver files, workers that read, run and acknowledge, and the operator, which
//! observes, decides, writes and evicts, each at its own time, and may be killed in between. The
//! search visits every state that any order of these events leads to ([`search`]), and checks in
//! each of them:
//!
//! - **I2** no stream is in two lists of the file;
//! - **I8** no stream is run by two pods;
//! - **I10** the epoch never decreases;
//! - **book** every running stream is owned or releasing there, according to the file;
//! - **I9** if from here on nothing more goes wrong, every stream eventually runs on its worker,
//!   and nowhere else, and then nothing more is written.
//!
//! Two simplifications make it small, and neither hides an overlap. A worker starts the streams of
//! a file as soon as it has read it, and stops the others only just before it acknowledges: in
//! between it may have run fewer, never more. ([`Plot::careful`] explores without this
//! simplification.) And epochs are counted from the lowest one that the state refers to, because
//! only their order is ever compared.
mod epochs;
mod events;
mod model;
mod operator;
mod search;
mod weakened;
mod worlds;

use model::{File, Plot, Pod, State, Wish, World};
use operator::{Operator, StepFunction};
use search::{Found, search};
