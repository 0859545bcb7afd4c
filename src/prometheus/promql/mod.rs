//! PromQL as text. Whether a query of a user's is valid, the server decides: each has a dialect of
//! its own.
mod selector;
mod text;

pub use selector::{Matchers, is_selector};
pub use text::{duration, string};
