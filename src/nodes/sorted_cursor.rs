//! Names looked up in the order of a list.
use std::sync::Arc;

/// Reports whether two texts are the same. Shared ones are compared by address: `==` reads both.
#[must_use]
pub fn is_same(a: &Arc<str>, b: &Arc<str>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// Finds names in a list that is sorted by name. A name that follows the last one costs nothing, if
/// both are the same shared text; every other name costs a binary search.
#[derive(Clone, Copy, Debug, Default)]
pub struct SortedCursor(usize);

impl SortedCursor {
    /// Finds the place of a name.
    pub fn find<T>(
        &mut self,
        list: &[T],
        name_of: impl Fn(&T) -> &Arc<str>,
        name: &Arc<str>,
    ) -> Option<usize> {
        let found = match list.get(self.0) {
            Some(next) if is_same(name_of(next), name) => Ok(self.0),
            _ => list.binary_search_by(|other| name_of(other).cmp(name)),
        };
        self.0 = found.map_or_else(|place| place, |place| place + 1);
        found.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_in_every_order_and_misses_those_that_are_not_there() {
        let list = ["b", "d", "f"].map(Arc::<str>::from);
        let mut cursor = SortedCursor::default();
        for (name, place) in [
            ("a", None),
            ("b", Some(0)),
            ("c", None),
            ("d", Some(1)),
            ("f", Some(2)),
            ("g", None),
            ("f", Some(2)),
            ("b", Some(0)),
        ] {
            assert_eq!(cursor.find(&list, |name| name, &name.into()), place, "{name}");
        }
    }
}
