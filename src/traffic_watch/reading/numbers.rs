//! The numbers of one node.
use std::sync::Arc;

use super::super::query::Measure;

/// The numbers of one node. Only existing ones take memory: the built-in query returns four of its
/// eight, and a custom one returns one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReading {
    /// The set of existing numbers: a bit for each, by [`Measure::index`].
    there: u16,
    /// In the order of the bits.
    values: Vec<Value>,
}

/// Number of values of the built-in query for most nodes: share, rate, total and age.
const USUAL: usize = 4;

static ABSENT: Value = Value::Absent;

/// One number of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// There was none.
    #[default]
    Absent,
    /// This one; `device` where the series names one.
    One(f64, Option<Arc<str>>),
    /// Two series claim to be it, or it is no number at all.
    Unusable,
}

impl NodeReading {
    /// One number.
    #[must_use]
    pub fn get(&self, measure: Measure) -> &Value {
        match self.place(measure) {
            Ok(place) => self.values.get(place).unwrap_or(&ABSENT),
            Err(_) => &ABSENT,
        }
    }

    /// Sets one number; a second one makes it unusable.
    pub fn put(&mut self, measure: Measure, value: Value) {
        match self.place(measure) {
            Ok(place) => self.values[place] = Value::Unusable,
            Err(_) if value == Value::Absent => {}
            Err(place) => {
                let built_in = !matches!(measure, Measure::Own | Measure::OwnAge);
                if self.there == 0 && built_in {
                    self.values.reserve_exact(USUAL);
                } else if self.values.len() == self.values.capacity() {
                    self.values.reserve_exact(1);
                }
                self.values.insert(place, value);
                self.there |= 1 << measure.index();
            }
        }
    }

    /// Returns the index of a number among the values, or the index at which it would be.
    fn place(&self, measure: Measure) -> Result<usize, usize> {
        let bit = 1 << measure.index();
        let place = (self.there & (bit - 1)).count_ones() as usize;
        if self.there & bit == 0 { Err(place) } else { Ok(place) }
    }
}
