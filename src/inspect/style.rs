//! Colors of states: green, yellow, red. The word itself always says the same.
//!
//! A text contains the escape sequences, and the command that writes it leaves them out where they
//! are not wanted.
use anstyle::AnsiColor;

use crate::api::traffic_watch::NodeState;

/// The meaning of a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be: green.
    Good,
    /// To look at: yellow.
    Notable,
    /// Not as it should be: red.
    Bad,
}

impl Tone {
    /// The tone of the state of a node.
    #[must_use]
    pub fn of(state: NodeState) -> Self {
        match state {
            NodeState::Fit => Self::Good,
            NodeState::Unknown | NodeState::Suppressed => Self::Notable,
            NodeState::Unfit => Self::Bad,
        }
    }

    /// The text in this color.
    #[must_use]
    pub fn paint(self, text: &str) -> String {
        let style = match self {
            Self::Good => AnsiColor::Green,
            Self::Notable => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        }
        .on_default();
        format!("{style}{text}{style:#}")
    }
}

/// The text without escape sequences, as it takes up columns on a terminal.
#[must_use]
pub fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_painted_word_is_still_that_word() {
        for tone in [Tone::Good, Tone::Notable, Tone::Bad] {
            let painted = tone.paint("ä word");
            assert!(painted.starts_with('\u{1b}') && painted.ends_with('m'), "{painted:?}");
            assert_eq!(plain(&painted), "ä word");
        }
        assert_ne!(Tone::of(NodeState::Fit), Tone::of(NodeState::Unfit));
    }
}
