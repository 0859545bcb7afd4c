//! The words of a selector.
use super::SelectorError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Label(&'t str),
    Text(&'t str),
    Has(&'t str),
    /// `all()` and `global()`.
    All,
    Equal,
    Unequal,
    In,
    NotIn,
    Contains,
    StartsWith,
    EndsWith,
    Not,
    And,
    Or,
    Open,
    Close,
    OpenSet,
    CloseSet,
    Comma,
    End,
}

/// Splits a selector into tokens, each with the number of characters before it. As in Calico's
/// tokenizer, the word after a label is an operator even without a space after it, and only spaces
/// and tabs separate tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, usize)>, SelectorError> {
    let mut found: Vec<(Token, usize)> = Vec::new();
    let (mut rest, mut position, mut counted) = (text, 0, 0);
    loop {
        rest = blank(rest);
        let read = text.len() - rest.len();
        position += text[counted..read].chars().count();
        counted = read;
        let error = |problem| SelectorError { position, problem };
        if rest.is_empty() {
            found.push((Token::End, position));
            return Ok(found);
        }
        let after_label = matches!(found.last(), Some((Token::Label(_), _)));
        let (token, left) = symbol(rest)
            .unwrap_or_else(|| if after_label { word_operator(rest) } else { operand(rest) })
            .map_err(error)?;
        found.push((token, position));
        rest = left;
    }
}

type Split<'t> = Result<(Token<'t>, &'t str), &'static str>;

/// Splits off a token that its first characters identify; `None` for a word.
fn symbol(rest: &str) -> Option<Split<'_>> {
    const SYMBOLS: [(&str, Token); 10] = [
        ("==", Token::Equal),
        ("!=", Token::Unequal),
        ("!", Token::Not),
        ("&&", Token::And),
        ("||", Token::Or),
        ("(", Token::Open),
        (")", Token::Close),
        ("{", Token::OpenSet),
        ("}", Token::CloseSet),
        (",", Token::Comma),
    ];
    for (symbol, token) in SYMBOLS {
        if let Some(left) = rest.strip_prefix(symbol) {
            return Some(Ok((token, left)));
        }
    }
    let first = rest.chars().next()?;
    match first {
        '\'' | '"' => {
            let inner = &rest[1..];
            Some(match inner.split_once(first) {
                Some((value, left)) => Ok((Token::Text(value), left)),
                None => Err("this quote is never closed"),
            })
        }
        '=' => Some(Err("expected ==")),
        '&' => Some(Err("expected &&")),
        '|' => Some(Err("expected ||")),
        _ => None,
    }
}

/// Splits off an operator that is a word. It is one only after a label; elsewhere the same word is
/// a label.
fn word_operator(rest: &str) -> Split<'_> {
    let two = |first, second| {
        rest.strip_prefix(first).and_then(|left: &str| blank(left).strip_prefix(second))
    };
    if let Some(left) = rest.strip_prefix("contains") {
        Ok((Token::Contains, left))
    } else if let Some(left) = two("starts", "with") {
        Ok((Token::StartsWith, left))
    } else if let Some(left) = two("ends", "with") {
        Ok((Token::EndsWith, left))
    } else if let Some(left) = two("not", "in") {
        Ok((Token::NotIn, left))
    } else if let Some(left) = rest.strip_prefix("in") {
        Ok((Token::In, left))
    } else {
        Err("expected an operator after the label")
    }
}

fn operand(rest: &str) -> Split<'_> {
    if let Some(left) = rest.strip_prefix("has(") {
        let (key, left) = label(blank(left));
        return match (key, blank(left).strip_prefix(')')) {
            ("", _) => Err("has( needs the name of a label"),
            (_, None) => Err("has( is never closed"),
            (key, Some(left)) => Ok((Token::Has(key), left)),
        };
    }
    for name in ["all(", "global("] {
        if let Some(left) = rest.strip_prefix(name) {
            let left = blank(left).strip_prefix(')');
            return left.map(|left| (Token::All, left)).ok_or("expected ) at once");
        }
    }
    match label(rest) {
        ("", _) => Err("unexpected character"),
        (key, left) => Ok((Token::Label(key), left)),
    }
}

/// Returns the longest label name at the beginning, and the rest.
fn label(rest: &str) -> (&str, &str) {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "_./-".contains(c));
    rest.split_at(rest.find(ends).unwrap_or(rest.len()))
}

fn blank(rest: &str) -> &str {
    rest.trim_start_matches([' ', '\t'])
}
