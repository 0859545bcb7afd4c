//! The elements of an instant vector, in the form in which Prometheus writes them.
//!
//! Reading them is most of the cost of a judgment: an answer about 5,000 nodes has 20,000.
//! Therefore this module is in a crate that is built for speed, and not next to the client.
mod cursor;
mod element;
mod form;
mod labels;
#[cfg(test)]
mod properties;

pub use cursor::Stop;
pub use element::Elements;
pub use labels::Labels;

/// One element of an instant vector.
#[derive(Debug)]
pub struct Series<'a> {
    /// The labels, in the order of the answer.
    pub labels: Labels<'a>,
    /// The time at which the server evaluated it, by the server's clock, in Unix seconds. `None`
    /// for a native histogram.
    pub time: Option<f64>,
    /// The value: `NaN` and infinities are values. `None` is a native histogram.
    pub value: Option<f64>,
}
