//! What the commands that look find out.
//!
//! Each has a pure core: facts in, an answer out, and the answer as text. What gathers the facts is
//! thin, reads only, and stands beside it in `gather`.
//!
//! - [`doctor`]: is everything there that the operator needs?
//! - [`explain`]: why is this node what it is?
//! - [`cluster`], [`leader`]: the API server, and the replica that decides.
//! - [`measures`], [`figures`], [`reasons`]: thresholds, numbers and reasons, as a person reads them.
pub mod cluster;
pub mod doctor;
pub mod explain;
pub mod figures;
pub mod leader;
pub mod measures;
pub mod reasons;
