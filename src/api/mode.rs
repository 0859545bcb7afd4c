//! The fields that every kind with a placement shares.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Writes that the controller may make.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// Everything that was decided, and status, metrics and events.
    #[default]
    Enforce,
    /// Status, metrics and events only.
    Observe,
}
