//! Selections of nodes, kept while no node changes: most judgments select what the last one did.
use std::sync::{Arc, Mutex, PoisonError};

use super::{Carrier, NodeFacts};
use crate::selector::Selector;

/// Number of selections that are kept. Each takes up to 150 bytes a node, so that many objects,
/// each with its own label, share the places; those without one select again.
const KEPT: usize = 2;

/// The nodes of a selector, and which others carry its key.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The selected nodes, by name.
    pub nodes: Arc<[NodeFacts]>,
    /// The nodes that are not selected and have the key as a label or taint, by name.
    pub strays: Arc<[Carrier]>,
}

/// The request for a selection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub selector: Selector,
    /// The key whose label and taint are read.
    pub key: String,
    /// True if the other labels are read too.
    pub labels: bool,
}

/// The last selections, the latest last.
#[derive(Debug, Default)]
pub(super) struct Selections(Mutex<Vec<(Choice, u64, Selection)>>);

impl Selections {
    /// Returns the selection of this state of the nodes, if it is kept; forgets older states.
    pub fn get(&self, choice: &Choice, state: u64) -> Option<Selection> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, of, _)| *of == state);
        let place = kept.iter().position(|(known, ..)| known == choice)?;
        Some(kept[place].2.clone())
    }

    /// Keeps a selection, if there is a place: one that is in use is not replaced, so that objects
    /// that take turns do not drive each other out.
    pub fn put(&self, choice: Choice, state: u64, selection: &Selection) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT && kept.iter().all(|(known, ..)| *known != choice) {
            kept.push((choice, state, selection.clone()));
        }
    }
}
