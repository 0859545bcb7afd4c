//! The runs of streams: the reports of a Swarm's workers, and the conclusions from them.
//!
//! Each worker posts the intervals in which it ran a stream to a [`Sink`]; its [`Ledger`] tells in
//! which times a stream was run by two pods (which must not be), and in which by none. A worker
//! that could not report tells later what it really ran, so nothing is hidden by a cut cable.

mod coverage;
mod ledger;
mod report;
mod sink;

pub use coverage::{Millis, Stretch};
pub use ledger::{Gap, Ledger, Overlap, Regression, Run};
pub use report::{Interval, Report};
pub use sink::Sink;
