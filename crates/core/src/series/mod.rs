//! The elements of an instant vector, in the form in which Prometheus writes them.
//!
//! Reading them is most of what a judgment costs: an answer about 5,000 nodes has 20,000. That is
//! why this is here, in a crate that is built for speed, and not beside the client that asks.
mod cursor;
mod element;
mod labels;

pub use cursor::Stop;
pub use element::Elements;
pub use labels::Labels;

/// One element of an instant vector.
#[derive(Debug)]
pub struct Series<'a> {
    /// The labels, in the order of the answer.
    pub labels: Labels<'a>,
    /// The value: `NaN` and infinities are values. `None` is a native histogram.
    pub value: Option<f64>,
}
