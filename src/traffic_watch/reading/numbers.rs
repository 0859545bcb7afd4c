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
    columns: [Column; Measure::ALL.len()],
}

/// One measure of all nodes: 9 bytes for each, and 16 more where series name devices.
#[derive(Clone, Debug, Default, PartialEq)]
struct Column {
    states: Box<[State]>,
    /// Zero where there is no number.
    values: Box<[f64]>,
    devices: Box<[Option<Arc<str>>]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Absent,
    One,
    Unusable,
}

/// The numbers of one node.
#[derive(Clone, Copy, Debug)]
pub struct NodeMeasurement<'a> {
    numbers: &'a Numbers,
    node: usize,
}

/// One number of one node, with the name of its device or a reference to that name: a reader of
/// thousands copies only those that it keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Value<Device = Arc<str>> {
    /// There was none.
    #[default]
    Absent,
    /// This one; `device` where the series names one.
    One(f64, Option<Device>),
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

    /// One measure alone.
    #[must_use]
    pub fn only(&self, measure: Measure) -> Self {
        let mut numbers = Self::of(self.nodes);
        numbers.copy(measure, self);
        numbers
    }

    /// Copies one measure from the numbers of the same nodes.
    pub fn copy(&mut self, measure: Measure, from: &Self) {
        debug_assert_eq!(self.nodes, from.nodes, "the same nodes");
        self.columns[measure.index()].clone_from(&from.columns[measure.index()]);
    }

    /// Sets one number; a second one makes it unusable.
    pub fn put(&mut self, node: usize, measure: Measure, value: Value) {
        let column = &mut self.columns[measure.index()];
        if column.states.is_empty() {
            column.states = vec![State::Absent; self.nodes].into();
            column.values = vec![0.0; self.nodes].into();
        }
        let Some(state) = column.states.get_mut(node) else { return };
        let (Value::One(number, device), State::Absent) = (value, *state) else {
            *state = State::Unusable;
            return;
        };
        *state = State::One;
        column.values[node] = number;
        if device.is_some() {
            if column.devices.is_empty() {
                column.devices = vec![None; self.nodes].into();
            }
            column.devices[node] = device;
        }
    }
}

impl<'a> NodeMeasurement<'a> {
    /// One number.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Value<&'a Arc<str>> {
        let column = &self.numbers.columns[measure.index()];
        match column.states.get(self.node) {
            Some(State::One) => {
                let device = column.devices.get(self.node).and_then(Option::as_ref);
                Value::One(column.values[self.node], device)
            }
            Some(State::Unusable) => Value::Unusable,
            Some(State::Absent) | None => Value::Absent,
        }
    }

    /// Reports whether there is anything, usable or not.
    #[must_use]
    pub fn has(&self, measure: Measure) -> bool {
        let states = &self.numbers.columns[measure.index()].states;
        states.get(self.node).is_some_and(|state| *state != State::Absent)
    }

    /// Reports whether there is none at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !Measure::ALL.into_iter().any(|measure| self.has(measure))
    }
}

#[cfg(test)]
impl Value<&Arc<str>> {
    /// The same with a name of its own.
    pub fn cloned(self) -> Value {
        match self {
            Self::Absent => Value::Absent,
            Self::One(value, device) => Value::One(value, device.cloned()),
            Self::Unusable => Value::Unusable,
        }
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
