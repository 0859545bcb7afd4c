//! Numbers that may be unknown, for thousands of nodes.
use std::fmt;

/// A number that may be unknown, in the memory of a number: an `Option` takes twice as much.
#[derive(Clone, Copy)]
pub struct Maybe(f64);

impl Maybe {
    /// Returns the number if it is known.
    #[must_use]
    pub fn get(self) -> Option<f64> {
        (!self.0.is_nan()).then_some(self.0)
    }

    /// Returns the number, `NaN` if it is unknown.
    #[must_use]
    pub fn or_nan(self) -> f64 {
        self.0
    }
}

impl From<Option<f64>> for Maybe {
    fn from(number: Option<f64>) -> Self {
        Self(number.unwrap_or(f64::NAN))
    }
}

impl Default for Maybe {
    fn default() -> Self {
        None.into()
    }
}

impl PartialEq for Maybe {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Maybe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
