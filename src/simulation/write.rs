//! Writes of the operator.
use std::time::Duration;

use serde_json::Value;

use super::{call::Call, store::Key};

/// A write of the operator, and its effect.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Duration,
    pub call: Call,
    pub key: Key,
    /// The code of the answer.
    pub outcome: u16,
    pub changed: bool,
    pub before: Option<Value>,
    pub after: Option<Value>,
}
