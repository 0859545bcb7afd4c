//! Colors of states: green, yellow, red. The word itself always has the same meaning.
//!
//! A text contains the escape sequences; the command that writes it removes them if colors are
//! disabled.
use anstyle::AnsiColor;

use crate::api::traffic_watch::NodeState;

/// The meaning of a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Good: green.
    Good,
    /// Notable: yellow.
    Notable,
    /// Bad: red.
    Bad,
}

impl Tone {
    /// Returns the tone of the state of a node.
    #[must_use]
    pub fn of(state: NodeState) -> Self {
        match state {
            NodeState::Fit => Self::Good,
            NodeState::Unknown | NodeState::Suppressed => Self::Notable,
            NodeState::Unfit => Self::Bad,
        }
    }

    /// Returns the tone of a part: all, some or none of what is wanted.
    #[must_use]
    pub fn of_part<N: Copy + PartialOrd + Default>(part: N, all: N) -> Self {
        match part {
            part if part >= all => Self::Good,
            part if part > N::default() => Self::Notable,
            _ => Self::Bad,
        }
    }

    /// Returns the text in this color.
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

/// Returns the text without escape sequences, which take no columns on a terminal.
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
        let parts = [(3, 3), (2, 3), (0, 3), (0, 0)].map(|(part, all)| Tone::of_part(part, all));
        assert_eq!(parts, [Tone::Good, Tone::Notable, Tone::Bad, Tone::Good]);
    }
}
