//! The numbers of all nodes.
use std::sync::Arc;

use super::super::query::Measure;

/// The numbers of all nodes, by measure and then by node: an answer brings them in this order, and
/// only existing measures take memory. The built-in query returns four of its nine, and a custom
/// one returns one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    nodes: usize,
    /// By [`Measure::index`]; empty where no node has that number.
    columns: [Box<[Value]>; Measure::ALL.len()],
}

/// The numbers of one node.
#[derive(Clone, Copy, Debug)]
pub struct NodeMeasurement<'a> {
    numbers: &'a Numbers,
    node: usize,
}

static ABSENT: Value = Value::Absent;

/// One number of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// There was none.
    #[default]
    Absent,
    /// This one; `device` where the series names one.
    One(f64, Option<Arc<str>>),
    /// Two series claim the place, or the value is not a number.
    Unusable,
}

impl Numbers {
    /// None of this many nodes.
    #[must_use]
    pub fn of(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Those of the node at a place.
    #[must_use]
    pub fn node(&self, node: usize) -> Option<NodeMeasurement<'_>> {
        (node < self.nodes).then_some(NodeMeasurement { numbers: self, node })
    }

    /// Sets one number; a second one makes it unusable.
    pub fn put(&mut self, node: usize, measure: Measure, value: Value) {
        let column = &mut self.columns[measure.index()];
        if column.is_empty() {
            *column = vec![Value::Absent; self.nodes].into_boxed_slice();
        }
        if let Some(known) = column.get_mut(node) {
            *known = if matches!(known, Value::Absent) { value } else { Value::Unusable };
        }
    }
}

impl<'a> NodeMeasurement<'a> {
    /// One number.
    #[must_use]
    pub fn get(&self, measure: Measure) -> &'a Value {
        self.numbers.columns[measure.index()].get(self.node).unwrap_or(&ABSENT)
    }

    /// Reports whether there is none at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Measure::ALL.into_iter().all(|measure| *self.get(measure) == Value::Absent)
    }
}

/// The numbers of one node by itself.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq)]
pub struct OneNode(Numbers);

#[cfg(test)]
impl Default for OneNode {
    fn default() -> Self {
        Self(Numbers::of(1))
    }
}

#[cfg(test)]
impl OneNode {
    /// Sets one number; a second one makes it unusable.
    pub fn put(&mut self, measure: Measure, value: Value) {
        self.0.put(0, measure, value);
    }

    /// Returns the facts that are read from it.
    pub fn reading(&self) -> NodeMeasurement<'_> {
        NodeMeasurement { numbers: &self.0, node: 0 }
    }
}
