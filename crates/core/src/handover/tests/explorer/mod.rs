//! Every order of events in small worlds, for the protocol alone.
//!
//! Here every worker without a pod is confirmed to have none, and answers come by themselves: that
//! the operator does see to that, and what it does about workers that answer nothing, is explored
//! with its own functions in the operator's `swarm::explorer`. What is only here: a `step` in which
//! each rule is weakened in turn (`weakened`), workers that start and stop one stream after the
//! other, kubelets that are late, immediate handovers, and many more states.
//!
//! A world is an API server with one file and its history, a workload that makes and deletes pods,
//! kubelets that deliver files, workers that read, run and acknowledge, and the operator, which
//! observes, decides, writes and evicts, each at its own time, and may be killed in between. The
//! search visits every state that any order of these events leads to ([`search`]), and asks in each
//! of them:
//!
//! - **I2** no stream is in two lists of the file;
//! - **I8** no stream is run by two pods;
//! - **I10** the epoch never decreases;
//! - **book** whatever runs is owned or releasing there, according to the file;
//! - **I9** if from here on nothing more goes wrong, every stream eventually runs on its worker,
//!   and nowhere else, and then nothing more is written.
//!
//! Two simplifications make it small, and neither hides an overlap. A worker starts what a file
//! lists as soon as it has read it, and stops what it does not list only just before it
//! acknowledges: between the two it may have run less, never more. ([`Plot::careful`] is the same
//! without that.) And epochs are counted from the lowest that anything in the state refers to,
//! since nothing but their order is ever asked.
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
