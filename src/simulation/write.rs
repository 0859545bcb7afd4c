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

impl Write {
    /// Reports whether it changes more of an object than its status and its finalizers.
    pub fn changes_spec(&self) -> bool {
        let rest = |object: &Value| {
            let mut object = object.clone();
            object["status"].take();
            for field in ["resourceVersion", "finalizers"] {
                object["metadata"][field].take();
            }
            object
        };
        self.before.as_ref().zip(self.after.as_ref()).is_some_and(|(a, b)| rest(a) != rest(b))
    }
}
