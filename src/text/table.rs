//! Columns of text, as wide as their widest cell.
use std::fmt::Write;

use super::style::{plain, printable};

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
    use crate::text::style::Tone;

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
