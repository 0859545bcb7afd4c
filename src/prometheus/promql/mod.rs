//! PromQL as text: what we write, and what users write.
mod check;
mod text;

pub use check::{PromqlError, check_vector};
pub use text::{duration, string};
