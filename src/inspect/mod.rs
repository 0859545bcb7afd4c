//! The logic of the commands that only read.
//!
//! Each has a pure core: facts in, an answer out, and the answer as text. What gathers the facts is
//! thin, reads only, and stands beside it in `gather`.
//!
//! - [`status`]: everything on one screen, and what needs attention.
//! - [`doctor`]: is everything there that the operator needs?
//! - [`explain`]: why is this node what it is?
//! - [`probing`]: why has this pod no agent, why is this path bad?
//! - [`reflectors`]: the reflectors of a set, and its steps.
//! - [`streams`]: the owner of a stream, the streams of a worker, and what they wait for.
//! - [`evaluate`]: judges once with current data.
//! - [`backtest`]: judges a history, also with other thresholds.
//! - [`spec`]: objects in a file. [`population`]: which nodes there are.
//! - [`cluster`], [`leader`]: the API server, and the replica that decides.
//! - [`progress`]: the stage that a command has reached.
//! - [`measures`], [`figures`], [`reasons`], [`remedies`], [`style`], [`table`], [`lines`]: as a
//!   person reads them.
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
