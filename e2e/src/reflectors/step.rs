//! The actions of the demo in one step, and their permitted cost. No IO.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub name: String,
    /// The number of nodes that have to change for it: pairs with one of these are not judged, so
    /// nobody else may change.
    pub needed: usize,
    /// Nodes that the demo itself breaks or takes something from.
    pub touched: BTreeSet<String>,
    /// The node whose BIRD starts again after a crash.
    pub restarts: Option<String>,
}

impl Step {
    pub fn new(name: &str, needed: usize) -> Self {
        Self { name: name.to_owned(), needed, ..Self::default() }
    }

    pub fn touching<'a>(mut self, nodes: impl IntoIterator<Item = &'a str>) -> Self {
        self.touched.extend(nodes.into_iter().map(str::to_owned));
        self
    }

    pub fn restarting(mut self, node: &str) -> Self {
        self.restarts = Some(node.to_owned());
        self
    }
}
