//! The logic of the commands that only read.
//!
//! Each has a pure core: facts in, an answer out, and the answer as text. The code that gathers the
//! facts is thin, only reads, and is next to it in `gather`.
//!
//! - [`status`]: everything on one screen, and what needs attention.
//! - [`doctor`]: checks that everything the operator needs is available.
//! - [`explain`]: the reasons for the state of a node or a `TrafficWatch`.
//! - [`probing`]: the reasons why a pod has no agent, and why a path is bad.
//! - [`reflectors`]: the reflectors of a set, and its steps.
//! - [`streams`]: the owner of a stream, the streams of a worker, and what they wait for.
//! - [`evaluate`]: judges once with current data.
//! - [`backtest`]: judges a history, also with other thresholds.
//! - [`offers`]: the offers of nodes to pods, in both.
//! - [`spec`]: objects in a file. [`population`]: the existing nodes.
//! - [`cluster`], [`leader`]: the API server, and the replica that decides.
//! - [`progress`]: the stage that a command has reached.
//! - [`measures`], [`figures`], [`reasons`], [`remedies`], [`style`], [`table`], [`lines`]: parts
//!   of the output for people.
pub mod backtest;
pub mod cluster;
pub mod doctor;
pub mod evaluate;
pub mod explain;
pub mod figures;
pub mod forward;
pub mod leader;
pub mod lines;
pub mod measures;
pub mod offers;
pub mod population;
pub mod probing;
pub mod progress;
pub mod reasons;
pub mod reflectors;
pub mod remedies;
pub mod spec;
pub mod status;
pub mod streams;
pub mod style;
pub mod table;
