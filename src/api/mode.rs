//! What every kind that places has.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the controller may write.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// All that was decided, status, metrics and events.
    #[default]
    Enforce,
    /// Status, metrics and events only.
    Observe,
}
