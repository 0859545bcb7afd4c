//! The current stage of a command, which is shown while it runs.
use std::sync::{Mutex, PoisonError};

/// One line, replaced at every stage.
#[derive(Debug, Default)]
pub struct Progress(Mutex<String>);

impl Progress {
    /// Enters a stage.
    pub fn enter(&self, stage: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage.into();
    }

    /// Returns the current stage; empty before the first.
    #[must_use]
    pub fn stage(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
