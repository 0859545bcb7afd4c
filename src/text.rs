//! Parts of texts for people, which commands and kinds share: numbers (`figures`), colors and tables.
//!
//! Colors are those of states: green, yellow, red. The word itself always has the same meaning. A text
//! contains the escape sequences; the command that writes it removes them if colors are disabled.
use std::{borrow::Cow, fmt::Write};

use anstyle::{AnsiColor, Style};

use crate::api::traffic_watch::NodeState;

pub(crate) mod figures;

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
        let style = self.style();
        format!("{style}{text}{style:#}")
    }

    fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green,
            Self::Notable => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        }
        .on_default()
    }
}

/// Returns the text without control characters other than those of [`Tone`]; line breaks and tabs
/// become spaces. A message of another program, such as that of a condition, otherwise moves the
/// cursor of a terminal, or adds a line that seems to be ours.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let styles = [Tone::Good, Tone::Notable, Tone::Bad].map(Tone::style);
    let colors: Vec<_> =
        styles.iter().flat_map(|style| [format!("{style}"), format!("{style:#}")]).collect();
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let color = colors.iter().find(|color| rest.starts_with(color.as_str()));
        let (now, later) = rest.split_at(color.map_or(first.len_utf8(), String::len));
        match first {
            _ if color.is_some() => made.push_str(now),
            '\n' | '\r' | '\t' => made.push(' '),
            _ if first.is_control() => made.push(char::REPLACEMENT_CHARACTER),
            _ => made.push(first),
        }
        rest = later;
    }
    Cow::Owned(made)
}

/// Returns the text without escape sequences, which take no columns on a terminal.
#[must_use]
pub fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Formats rows under a head, with columns two spaces apart; the last one is not padded.
#[must_use]
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<_> = rows.iter().map(<[String; N]>::as_slice).collect();
    aligned(&head.map(str::to_owned), &rows)
}

/// Does the same for columns that are known only at run time. Every row has as many cells as the
/// head.
#[must_use]
pub fn rows(head: &[String], rows: &[Vec<String>]) -> String {
    let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    aligned(head, &rows)
}

fn aligned(head: &[String], rows: &[&[String]]) -> String {
    let mut widths: Vec<_> = head.iter().map(|cell| width(cell)).collect();
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(*row) {
            *widest = (*widest).max(width(cell));
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, widest) in row.iter().zip(&widths) {
            let padding = widest.saturating_sub(width(cell));
            // Writing to a String cannot fail.
            let _ = write!(line, "{}{:padding$}  ", printable(cell), "");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Returns the number of columns that a cell takes on a terminal.
fn width(cell: &str) -> usize {
    plain(&printable(cell)).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_control_characters_only_those_of_colors_are_printed() {
        let painted = Tone::Bad.paint("ä word");
        for (text, expected) in [
            ("ä word", "ä word"),
            (&*painted, &*painted),
            ("a\nb\r\tc", "a b  c"),
            (
                "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}1A\0",
                "\u{fffd}[2J\u{fffd}]0;x\u{fffd}\u{fffd}1A\u{fffd}",
            ),
            // The colors of others, and a sequence that never ends.
            ("\u{1b}[41mx\u{1b}", "\u{fffd}[41mx\u{fffd}"),
        ] {
            assert_eq!(printable(text), expected);
        }
        let within = Tone::Good.paint("a\u{1b}[Hb");
        assert_eq!(printable(&within), Tone::Good.paint("a\u{fffd}[Hb"));
    }

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

    #[test]
    fn colors_take_no_columns() {
        let rows = |state: &str| [[state.to_owned(), "x".into()], ["word".into(), "y".into()]];
        let painted = table(["A", "B"], &rows(&Tone::Bad.paint("is")));
        assert_eq!(plain(&painted), table(["A", "B"], &rows("is")));
        assert_ne!(painted, plain(&painted));
    }

    #[test]
    fn a_cell_stays_in_its_line() {
        let rows = [["a\nb\u{1b}[H".into(), "x".into()], ["word".into(), "y".into()]];
        assert_eq!(table(["A", "B"], &rows), "A       B\na b\u{fffd}[H  x\nword    y\n");
    }

    #[test]
    fn columns_align() {
        let rows = [["a".into(), "ä b".into()], ["long".into(), String::new()]];
        let expected = "N     VALUE\na     ä b\nlong\n";
        assert_eq!(table(["N", "VALUE"], &rows), expected);
        let head = ["N", "VALUE"].map(String::from);
        assert_eq!(super::rows(&head, &rows.map(Vec::from)), expected);
    }
}
