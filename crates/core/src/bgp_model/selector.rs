//! Calico's selector language, as its own parser reads it.
//!
//! `all()`, `global()` (here the same: nodes have no namespace), `has(k)`, `k == 'v'`, `k != 'v'`,
//! `k in {'v', 'w'}`, `k not in {…}`, `k contains 'v'`, `k starts with 'v'`, `k ends with 'v'`,
//! `!`, `&&`, `||` and parentheses; `&&` binds tighter than `||`. Quotes are ' or ", without
//! escapes. A missing label differs from every value, and is in no set.
use std::{collections::BTreeSet, fmt, sync::Arc};

use super::{
    Labels,
    tokens::{Token, tokens},
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
