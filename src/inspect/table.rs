//! Columns of text, as wide as their widest cell.
use std::fmt::Write;

/// Rows under a head, columns two spaces apart; the last one is not padded.
#[must_use]
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let head = head.map(str::to_owned);
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let rows = [["a".into(), "ä b".into()], ["long".into(), String::new()]];
        assert_eq!(table(["N", "VALUE"], &rows), "N     VALUE\na     ä b\nlong\n");
    }
}
