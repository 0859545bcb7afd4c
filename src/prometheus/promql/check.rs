//! Finds errors in a user's query before it is sent to Prometheus.
//!
//! The parser is that of `GreptimeDB`. Three kinds of input never reach it, because they would end
//! or block the process: nesting that overflows its stack, numbers of seconds that its durations
//! cannot hold, and texts that take it minutes. Regular expressions are not checked here:
//! Prometheus' dialect differs.
use std::fmt;

use lrpar::{Lexeme, Lexer};
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{
    self, Expr,
    token::{
        T_COLON, T_EOF, T_EQL_REGEX, T_LEFT_BRACE, T_LEFT_BRACKET, T_LEFT_PAREN, T_NEQ_REGEX,
        T_NUMBER, T_OFFSET, T_RIGHT_BRACE, T_RIGHT_BRACKET, T_RIGHT_PAREN, T_STRING, TokenId,
    },
    value::ValueType,
};

use crate::prometheus::shortened;

/// The longest query: that of the field in the custom resource.
pub const MAX_BYTES: usize = 16 << 10;

/// The parser's time grows with the square of the operators: 5,000 take a tenth of a second.
const MAX_LEXEMES: usize = 5_000;

/// Parentheses within parentheses; 2,000 function calls overflow two mebibytes of stack.
const MAX_DEPTH: usize = 100;

/// Maximum length of a text in which errors are located, which parses once for each word: enough
/// for texts written by people.
const MAX_LOCATED: usize = 2 << 10;

/// Maximum number of seconds: 10⁹ years; the parser panics beyond 5·10¹¹.
const MAX_SECONDS: f64 = 3.2e16;

/// Maximum length of a message, in bytes: the parser repeats words of the query in it.
const LONGEST_MESSAGE: usize = 300;

/// The message of the parser without a specific reason.
const NO_REASON: &str = "invalid promql query";

/// An error in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromqlError {
    /// Description of the error.
    pub message: String,
    /// Position of the error, if known.
    pub position: Option<Position>,
}

/// A place in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Bytes before it.
    pub offset: usize,
    /// Line, from 1; `None` if the query has only one.
    pub line: Option<usize>,
    /// Character of the line, from 1.
    pub column: usize,
}

impl PromqlError {
    /// Returns an error whose message is short and has no control characters: parts of the query
    /// are in it, and administrators read it in a terminal, which would obey these.
    fn new(message: String, position: Option<Position>) -> Self {
        Self { message: shortened(message, LONGEST_MESSAGE), position }
    }
}

impl std::error::Error for PromqlError {}

impl fmt::Display for PromqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line: Some(line), column, .. }) => {
                write!(f, "line {line}, column {column}: ")?;
            }
            Some(Position { column, .. }) => write!(f, "column {column}: ")?,
            None => {}
        }
        f.write_str(&self.message)
    }
}

impl Position {
    fn of(text: &str, offset: usize) -> Self {
        let before = &text[..offset];
        let line = text.trim_end().contains('\n').then(|| before.matches('\n').count() + 1);
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { offset, line, column }
    }
}

/// A word or sign of a query.
#[derive(Clone, Copy)]
struct Word {
    kind: TokenId,
    start: usize,
    end: usize,
}

/// Maximum length of a text that is parsed as a selector, in bytes: a name and some labels.
const LONGEST_SELECTOR: usize = 1000;

/// Reports whether a query is only the selector of one metric, without a fixed time, so that its
/// elements are stored samples. With one name only, because `timestamp` drops it, and two names may
/// have the same labels.
#[must_use]
pub fn is_selector(text: &str) -> bool {
    // Called for each request, and the parser's time grows with the text; a selector is short.
    if text.len() > LONGEST_SELECTOR {
        return false;
    }
    let Ok(words) = words(text) else { return false };
    match parser::parse(&without_regexes(text, &words)) {
        Ok(Expr::VectorSelector(selector)) => {
            let by_name =
                |matcher: &Matcher| matcher.name == "__name__" && matcher.op == MatchOp::Equal;
            selector.at.is_none()
                && selector.matchers.or_matchers.is_empty()
                && (selector.name.is_some() || selector.matchers.matchers.iter().any(by_name))
        }
        _ => false,
    }
}

/// Checks that a query can be parsed and gives an instant vector.
///
/// # Errors
/// The error in the query, with its position if known.
pub fn check_vector(text: &str) -> Result<(), PromqlError> {
    let nowhere = |message: String| PromqlError::new(message, None);
    if text.len() > MAX_BYTES {
        let message = format!("has {} bytes, where at most {MAX_BYTES} are allowed", text.len());
        return Err(nowhere(message));
    }
    if text.trim().is_empty() {
        return Err(nowhere("is empty".into()));
    }
    let located = |offset: Option<usize>, message: String| {
        PromqlError::new(message, offset.map(|offset| Position::of(text, offset)))
    };
    let words = words(text).map_err(|message| located(locate_word(text, &message), message))?;
    if words.is_empty() {
        return Err(nowhere("is only a comment".into()));
    }
    limits(text, &words).map_err(|(word, message)| located(Some(word.start), message))?;
    let text = without_regexes(text, &words);
    let found = parser::parse(&text).map_err(|message| {
        let offset = locate(&text, &words, &message);
        if message != NO_REASON {
            return located(offset, message);
        }
        let rest = offset.map_or("", |offset| text[offset..].trim());
        let words: String = rest.chars().take(20).collect();
        let dots = if words.len() < rest.len() { "…" } else { "" };
        match words.as_str() {
            "" => located(offset, "is no PromQL".into()),
            words => located(offset, format!("is no PromQL from here on: {words}{dots}")),
        }
    })?;
    let found = match found.value_type() {
        ValueType::Vector => return Ok(()),
        ValueType::Scalar => "a scalar",
        ValueType::Matrix => "a range (a matrix)",
        ValueType::String => "a string",
    };
    Err(nowhere(format!("gives {found}, where one value per node (an instant vector) is needed")))
}

/// Splits the text with the parser's own lexer: a second one could disagree with it.
fn words(text: &str) -> Result<Vec<Word>, String> {
    let lexer = parser::lexer(text)?;
    let words = lexer.iter().filter_map(Result::ok).map(|lexeme| {
        let span = lexeme.span();
        Word { kind: lexeme.tok_id(), start: span.start(), end: span.end() }
    });
    Ok(words.filter(|word| word.kind != T_EOF).collect())
}

/// Refuses queries that would end the process.
fn limits(text: &str, words: &[Word]) -> Result<(), (Word, String)> {
    if let Some(word) = words.get(MAX_LEXEMES) {
        return Err((*word, format!("has more than {MAX_LEXEMES} words and signs")));
    }
    let (mut depth, mut seconds) = (0_usize, false);
    for word in words {
        match word.kind {
            T_LEFT_PAREN => depth += 1,
            T_RIGHT_PAREN => depth = depth.saturating_sub(1),
            // The parser reads a number as a duration here.
            T_OFFSET | T_LEFT_BRACKET | T_COLON => seconds = true,
            T_NUMBER if seconds => {
                let number = &text[word.start..word.end];
                // Any other number here is an integer in another base, which fits.
                if number.parse().is_ok_and(|n: f64| !(0.0..MAX_SECONDS).contains(&n)) {
                    return Err((*word, format!("{number} is no duration")));
                }
                seconds = false;
            }
            parser::token::T_ADD | parser::token::T_SUB => {}
            _ => seconds = false,
        }
        if depth > MAX_DEPTH {
            return Err((*word, format!("is nested more than {MAX_DEPTH} levels deep")));
        }
    }
    Ok(())
}

/// Returns a text of the same length with regular expressions that are valid in every dialect. They
/// count as matchers that do not match the empty text.
fn without_regexes(text: &str, words: &[Word]) -> String {
    let mut plain = text.to_owned();
    for pair in words.windows(2) {
        let fill = match (pair[0].kind, pair[1].kind) {
            (T_EQL_REGEX, T_STRING) => "x",
            (T_NEQ_REGEX, T_STRING) => "^",
            _ => continue,
        };
        let inner = pair[1].start + 1..pair[1].end - 1;
        plain.replace_range(inner.clone(), &fill.repeat(inner.len()));
    }
    plain
}

/// Locates an error of the lexer: the end of the longest prefix without this error.
fn locate_word(text: &str, message: &str) -> Option<usize> {
    let ends = text.char_indices().map(|(offset, _)| offset).rev();
    (text.len() <= MAX_LOCATED)
        .then(|| {
            ends.into_iter().find(|end| words(&text[..*end]).err().as_deref() != Some(message))
        })
        .flatten()
}

/// Locates an error of the parser, which does not report positions: by parsing shorter texts with
/// their brackets closed.
fn locate(text: &str, words: &[Word], message: &str) -> Option<usize> {
    if text.len() > MAX_LOCATED {
        return None;
    }
    let mut place = None;
    for count in (1..=words.len()).rev() {
        let (word, end) = (words[count - 1], words[count - 1].end);
        let next = || text[end..].find(|c: char| !c.is_whitespace()).map_or(end, |skip| end + skip);
        match beginning(text, &words[..count]) {
            Err(other) if other == message && message != NO_REASON => place = Some(word.start),
            // It may only be unfinished here.
            Err(other) if other == NO_REASON => {}
            // Up to here it is valid PromQL, or has a different error.
            _ if message == NO_REASON => return Some(next()),
            _ => return place,
        }
    }
    // Not even the first word.
    place.or_else(|| words.first().map(|word| word.start))
}

/// Parses the text up to the last of these words.
fn beginning(text: &str, words: &[Word]) -> Result<Expr, String> {
    let mut open = Vec::new();
    for word in words {
        match word.kind {
            T_LEFT_PAREN => open.push(')'),
            T_LEFT_BRACKET => open.push(']'),
            T_LEFT_BRACE => open.push('}'),
            T_RIGHT_PAREN | T_RIGHT_BRACKET | T_RIGHT_BRACE => drop(open.pop()),
            _ => {}
        }
    }
    let end = words.last().map_or(0, |word| word.end);
    let closed: String = text[..end].chars().chain(open.into_iter().rev()).collect();
    parser::parse(&closed)
}

#[cfg(test)]
mod tests;
