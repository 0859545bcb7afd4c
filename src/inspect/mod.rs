//! The logic of the commands that only read.
//!
//! Each has a pure core: facts in, an answer out, and the answer as text. The code that gathers the
//! facts (`gather`) is thin, only reads, and is next to it.
//!
//! - `status`: everything on one screen, and what needs attention.
//! - [`doctor`]: checks that everything the operator needs is available.
//! - [`explain`]: the reasons for the state of a node or a `TrafficWatch`.
//! - `probing`: the reasons why a pod has no agent, and why a path is bad.
//! - `reflectors`: the reflectors of a set, and its steps.
//! - `streams`: the owner of a stream, the streams of a worker, and what they wait for.
//! - [`evaluate`]: judges once with current data.
//! - `backtest`: judges a history, also with other thresholds.
//! - `offers`: the offers of nodes to pods, in both.
//! - [`spec`]: objects in a file. [`population`]: the existing nodes.
//! - `cluster`, `leader`: the API server, and the replica that decides.
//! - `progress`: the stage that a command has reached.
//! - `remedies`, `lines`: parts of the output for people.
pub(crate) mod backtest;
pub(crate) mod cluster;
pub mod doctor;
pub mod evaluate;
pub mod explain;
pub(crate) mod leader;
pub(crate) mod lines;
pub(crate) mod offers;
pub mod population;
pub(crate) mod probing;
pub(crate) mod progress;
pub(crate) mod reflectors;
pub(crate) mod remedies;
pub mod spec;
pub(crate) mod status;
pub(crate) mod streams;
