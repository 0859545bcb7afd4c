//! Names looked up in the order of a list.
use std::sync::Arc;

/// Returns the values of names that are asked for in their order; the list is sorted by name.
pub fn in_turn<'a, T>(
    names: &'a [Arc<str>],
    values: &'a [T],
) -> impl FnMut(&str) -> Option<&'a T> + use<'a, T> {
    let mut rest = names.iter().zip(values).peekable();
    move |name| {
        while rest.next_if(|(known, _)| ***known < *name).is_some() {}
        rest.peek().filter(|(known, _)| ***known == *name).map(|(_, value)| *value)
    }
}
