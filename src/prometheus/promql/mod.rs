//! PromQL as text: what we write, and what users write.
mod check;
mod matchers;
mod text;

pub use check::{PromqlError, check_vector, is_selector};
pub use matchers::Matchers;
pub use text::{duration, string};
