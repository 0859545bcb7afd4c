//! The labels of a node, and Calico's selector language, as its own parser reads it.
//!
//! `all()`, `global()` (here the same: nodes have no namespace), `has(k)`, `k == 'v'`, `k != 'v'`,
//! `k in {'v', 'w'}`, `k not in {…}`, `k contains 'v'`, `k starts with 'v'`, `k ends with 'v'`,
//! `!`, `&&`, `||` and parentheses; `&&` binds tighter than `||`. Quotes are ' or ", without
//! escapes. A missing label differs from every value, and is in no set.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// The deepest nesting of parentheses, which bounds the stack. There is no limit of the length:
/// Calico has none up to 3.31, and 4,096 characters from 3.32 on.
pub const MAX_DEPTH: usize = 500;

/// A parsed selector.
#[derive(Clone, Debug)]
pub struct Selector {
    text: Arc<str>,
    root: Expression,
}

/// An error in a selector, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {}: {problem}", .position + 1)]
pub struct SelectorError {
    /// The number of characters before the error.
    pub position: usize,
    /// Description of the error.
    pub problem: &'static str,
}

/// The problem that Calico's parser does not have.
const TOO_DEEP: &str = "more than 500 parentheses inside each other";

impl SelectorError {
    /// Reports whether Calico may read the selector all the same.
    #[must_use]
    pub fn is_depth(&self) -> bool {
        self.problem == TOO_DEEP
    }
}

#[derive(Clone, Debug)]
enum Expression {
    All,
    Has(Arc<str>),
    Label { key: Arc<str>, test: Test },
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

#[derive(Clone, Debug)]
enum Test {
    In(BTreeSet<Arc<str>>),
    NotIn(BTreeSet<Arc<str>>),
    Contains(Arc<str>),
    StartsWith(Arc<str>),
    EndsWith(Arc<str>),
}

impl Selector {
    /// Reads a selector. The empty one selects everything, as in Calico.
    ///
    /// # Errors
    /// When Calico's parser refuses the text, or it is nested deeper than [`MAX_DEPTH`].
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
        let root = match parser.peek() {
            Token::End => Expression::All,
            _ => parser.any()?,
        };
        match parser.peek() {
            Token::End => Ok(Self { text: text.into(), root }),
            _ => parser.error("expected &&, || or the end"),
        }
    }

    /// Reports whether it selects an object with these labels.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.holds(&|key| labels.get(key))
    }

    /// Returns the parsed text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn holds<'v>(&self, value: &dyn Fn(&str) -> Option<&'v str>) -> bool {
        self.root.holds(value)
    }

    /// Collects every label key that it uses.
    pub(super) fn keys<'s>(&'s self, keys: &mut BTreeSet<&'s str>) {
        self.root.keys(keys);
    }

    /// Returns a label that every selected object has, with its possible values.
    pub(super) fn required(&self) -> Option<(&str, &BTreeSet<Arc<str>>)> {
        self.root.required()
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expression {
    fn holds<'v>(&self, value: &dyn Fn(&str) -> Option<&'v str>) -> bool {
        match self {
            Self::All => true,
            Self::Has(key) => value(key).is_some(),
            Self::Label { key, test } => test.holds(value(key)),
            Self::Not(inner) => !inner.holds(value),
            Self::And(all) => all.iter().all(|one| one.holds(value)),
            Self::Or(any) => any.iter().any(|one| one.holds(value)),
        }
    }

    fn keys<'s>(&'s self, keys: &mut BTreeSet<&'s str>) {
        match self {
            Self::All => {}
            Self::Has(key) | Self::Label { key, .. } => drop(keys.insert(key)),
            Self::Not(inner) => inner.keys(keys),
            Self::And(several) | Self::Or(several) => {
                for one in several {
                    one.keys(keys);
                }
            }
        }
    }

    fn required(&self) -> Option<(&str, &BTreeSet<Arc<str>>)> {
        match self {
            Self::Label { key, test: Test::In(values) } => Some((key, values)),
            Self::And(all) => all.iter().find_map(Self::required),
            _ => None,
        }
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(set) => value.is_some_and(|value| set.contains(value)),
            Self::NotIn(set) => value.is_none_or(|value| !set.contains(value)),
            Self::Contains(part) => value.is_some_and(|value| value.contains(&**part)),
            Self::StartsWith(part) => value.is_some_and(|value| value.starts_with(&**part)),
            Self::EndsWith(part) => value.is_some_and(|value| value.ends_with(&**part)),
        }
    }
}

/// A recursive-descent parser.
struct Parser<'t> {
    /// The tokens with their positions; the last is [`Token::End`].
    tokens: Vec<(Token<'t>, usize)>,
    next: usize,
    /// Open parentheses.
    depth: usize,
}

impl<'t> Parser<'t> {
    /// Returns the next token; never moves beyond the end.
    fn peek(&self) -> Token<'t> {
        self.tokens.get(self.next).map_or(Token::End, |&(token, _)| token)
    }

    fn take(&mut self) -> Token<'t> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn take_if(&mut self, wanted: Token) -> bool {
        let is = self.peek() == wanted;
        self.next += usize::from(is);
        is
    }

    /// Returns an error at the next token.
    fn error<T>(&self, problem: &'static str) -> Result<T, SelectorError> {
        let last = self.tokens.last();
        let position = self.tokens.get(self.next).or(last).map_or(0, |&(_, position)| position);
        Err(SelectorError { position, problem })
    }

    fn any(&mut self) -> Result<Expression, SelectorError> {
        let first = self.all()?;
        let mut any = vec![first];
        while self.take_if(Token::Or) {
            any.push(self.all()?);
        }
        Ok(if any.len() == 1 { any.remove(0) } else { Expression::Or(any) })
    }

    fn all(&mut self) -> Result<Expression, SelectorError> {
        let first = self.one()?;
        let mut all = vec![first];
        while self.take_if(Token::And) {
            all.push(self.one()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::And(all) })
    }

    fn one(&mut self) -> Result<Expression, SelectorError> {
        let mut negated = false;
        while self.take_if(Token::Not) {
            negated = !negated;
        }
        let expression = match self.peek() {
            Token::All => {
                self.next += 1;
                Expression::All
            }
            Token::Has(key) => {
                self.next += 1;
                Expression::Has(key.into())
            }
            Token::Label(key) => {
                self.next += 1;
                self.test(key)?
            }
            Token::Open if self.depth == MAX_DEPTH => {
                return self.error(TOO_DEEP);
            }
            Token::Open => {
                self.next += 1;
                self.depth += 1;
                let inner = self.any()?;
                self.depth -= 1;
                if !self.take_if(Token::Close) {
                    return self.error("expected )");
                }
                inner
            }
            Token::End => return self.error("the selector ends where a condition is expected"),
            _ => return self.error("expected a label, has(…), all() or ("),
        };
        Ok(if negated { Expression::Not(Box::new(expression)) } else { expression })
    }

    fn test(&mut self, key: &str) -> Result<Expression, SelectorError> {
        let operator = self.peek();
        self.next += 1;
        let test = match operator {
            Token::Equal => Test::In([self.string()?].into()),
            Token::Unequal => Test::NotIn([self.string()?].into()),
            Token::Contains => Test::Contains(self.string()?),
            Token::StartsWith => Test::StartsWith(self.string()?),
            Token::EndsWith => Test::EndsWith(self.string()?),
            Token::In => Test::In(self.set()?),
            Token::NotIn => Test::NotIn(self.set()?),
            _ => {
                self.next -= 1;
                return self.error("expected an operator after the label");
            }
        };
        Ok(Expression::Label { key: key.into(), test })
    }

    fn string(&mut self) -> Result<Arc<str>, SelectorError> {
        match self.peek() {
            Token::Text(text) => {
                self.next += 1;
                Ok(text.into())
            }
            _ => self.error("expected a text in quotes"),
        }
    }

    /// Parses a set, which may be empty and may end with a comma.
    fn set(&mut self) -> Result<BTreeSet<Arc<str>>, SelectorError> {
        if !self.take_if(Token::OpenSet) {
            return self.error("expected {");
        }
        let mut set = BTreeSet::new();
        while let Token::Text(text) = self.peek() {
            self.take();
            set.insert(text.into());
            if !self.take_if(Token::Comma) {
                break;
            }
        }
        if self.take_if(Token::CloseSet) { Ok(set) } else { self.error("expected }") }
    }
}

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
fn tokens(text: &str) -> Result<Vec<(Token<'_>, usize)>, SelectorError> {
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

/// Labels, by key. Cheap to clone: the simulation of each step copies thousands of nodes.
///
/// One text holds all of them, and a lookup compares hashes before it reads the text: with a text
/// for each key, the processor would wait for memory some hundred thousand times.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Arc<Inner>);

#[derive(Default, PartialEq, Eq)]
struct Inner {
    /// Keys and values, one after the other.
    text: Box<str>,
    /// The positions of the labels, by key.
    marks: Box<[Mark]>,
}

/// The position of a label in the text.
#[derive(PartialEq, Eq)]
struct Mark {
    hash: u32,
    start: u32,
    /// The position at which its key ends and its value begins.
    middle: u32,
    end: u32,
}

/// A key with its hash.
#[derive(Clone, Copy)]
pub(super) struct Key<'k> {
    key: &'k str,
    hash: u32,
}

impl<'k> Key<'k> {
    pub fn new(key: &'k str) -> Self {
        Self { key, hash: hash(key) }
    }
}

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.value(Key::new(key))
    }

    pub(super) fn value(&self, Key { key, hash }: Key) -> Option<&str> {
        let found = self.0.marks.iter().filter(|mark| mark.hash == hash);
        found.map(|mark| self.at(mark)).find(|&(of, _)| of == key).map(|(_, value)| value)
    }

    /// Returns a copy with some labels set (`Some`) or removed (`None`).
    #[must_use]
    pub fn with(&self, changes: &[(&str, Option<&str>)]) -> Self {
        let mut labels: BTreeMap<&str, &str> = self.iter().collect();
        for &(key, value) in changes {
            match value {
                Some(value) => labels.insert(key, value),
                None => labels.remove(key),
            };
        }
        labels.into_iter().collect()
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.marks.iter().map(|mark| self.at(mark))
    }

    fn at(&self, mark: &Mark) -> (&str, &str) {
        let part = |from: u32, to: u32| self.0.text.get(from as usize..to as usize).unwrap_or("");
        (part(mark.start, mark.middle), part(mark.middle, mark.end))
    }
}

/// If a key occurs twice, the last value counts.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let labels: Vec<(K, V)> = labels.into_iter().collect();
        let sorted: BTreeMap<&str, &str> =
            labels.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        let mut text = String::new();
        // Labels of a node are a few kilobytes (etcd takes no object above 1.5 MB).
        let mut write = |part: &str| {
            text.push_str(part);
            u32::try_from(text.len()).unwrap_or(u32::MAX)
        };
        let mut start = 0;
        let marks = sorted.into_iter().map(|(key, value)| {
            let (middle, end) = (write(key), write(value));
            let mark = Mark { hash: hash(key), start, middle, end };
            start = end;
            mark
        });
        let marks = marks.collect();
        Self(Arc::new(Inner { text: text.into(), marks }))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// FNV-1a (Fowler, Noll, Vo). Equal hashes of different keys only cost time.
fn hash(key: &str) -> u32 {
    let fold = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    key.bytes().fold(0x811c_9dc5, fold)
}
