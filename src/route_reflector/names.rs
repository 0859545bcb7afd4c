//! Lists of names in texts.
use std::fmt::Display;

/// The first `most` names, and how many more there are.
pub fn first(names: impl ExactSizeIterator<Item = impl Display>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let listed: Vec<String> = names.take(most).map(|name| name.to_string()).collect();
    let listed = listed.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

/// The first three.
pub fn few(names: impl ExactSizeIterator<Item = impl Display>) -> String {
    first(names, 3)
}
