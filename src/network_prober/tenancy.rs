//! The namespaces that no `NetworkProber` touches, and the one in which authors need no consent.
use crate::webhook::configuration::is_excluded;

/// The namespaces that are never touched.
#[derive(Clone, Debug)]
pub struct Tenancy {
    operator: String,
}

impl Tenancy {
    /// With the operator in this namespace.
    #[must_use]
    pub fn of(operator: &str) -> Self {
        Self { operator: operator.into() }
    }

    /// The operator's namespace.
    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// Reports whether a namespace is never touched.
    #[must_use]
    pub fn is_excluded(&self, namespace: &str) -> bool {
        is_excluded(namespace, &self.operator)
    }
}
