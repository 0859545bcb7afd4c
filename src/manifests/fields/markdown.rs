//! Text for a table in Markdown.

/// Returns a text for a cell: each paragraph on one line, and everything escaped that would end the
/// cell or count as HTML, emphasis or a link. Code in backticks stays as it is.
pub(super) fn cell(text: &str) -> String {
    let paragraphs: Vec<_> = text.split("\n\n").map(line).filter(|line| !line.is_empty()).collect();
    paragraphs.join("<br>")
}

fn line(paragraph: &str) -> String {
    let mut line = String::new();
    let mut inside_code = false;
    for (index, word) in paragraph.split_whitespace().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        for character in word.chars() {
            match character {
                '`' => inside_code = !inside_code,
                // Ends the cell even within code.
                '|' => line.push('\\'),
                '*' | '[' | ']' | '\\' if !inside_code => line.push('\\'),
                '<' if !inside_code => {
                    line.push_str("&lt;");
                    continue;
                }
                _ => {}
            }
            line.push(character);
        }
    }
    line
}

/// Returns a text as code.
pub(super) fn code(text: &str) -> String {
    let text = text.replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// Returns the anchor of a heading that consists of a path.
pub(super) fn anchor(path: &str) -> String {
    let kept = path.chars().filter(|character| character.is_alphanumeric() || *character == '-');
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_in_its_cell() {
        for (text, expected) in [
            ("One\nline.", "One line."),
            ("A paragraph.\n\n  Another.\n\n", "A paragraph.<br>Another."),
            ("a | b, `c | d`", "a \\| b, `c \\| d`"),
            ("<label> and `<label>`", "&lt;label> and `<label>`"),
            ("eth[0-9]*\\. `[0-9]*\\.`", "eth\\[0-9\\]\\*\\\\. `[0-9]*\\.`"),
            ("", ""),
        ] {
            assert_eq!(cell(text), expected, "{text:?}");
        }
    }

    #[test]
    fn code_may_hold_anything() {
        assert_eq!(code("^a|b$"), "`^a\\|b$`");
        assert_eq!(code("`a`"), "`` `a` ``");
    }

    #[test]
    fn an_anchor_is_that_of_the_heading() {
        assert_eq!(anchor("status.nodes.<name>.criteria[]"), "statusnodesnamecriteria");
        assert_eq!(anchor("spec.onUnknown"), "speconunknown");
    }
}
