//! PromQL as text: what we write, and what users write.
mod check;
mod matchers;
mod once;
mod text;

pub use check::{PromqlError, check_vector, is_selector};
pub use matchers::Matchers;
pub use once::check_vector_once;
#[cfg(test)]
pub use once::parsed;
pub use text::{duration, string};
