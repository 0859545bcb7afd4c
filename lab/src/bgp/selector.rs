//! Calico's selectors: which labels a node must carry. No IO.
//!
//! Written from Calico's documentation and without a look at the product's own parser, so that one
//! can prove the other wrong.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

pub type Labels = BTreeMap<String, String>;

/// An expression over labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Expression);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expression {
    All,
    Has(String),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Compare(String, Comparison),
}

/// A condition on the value of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Comparison {
    Is(String),
    IsNot(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    Contains(String),
    StartsWith(String),
    EndsWith(String),
}

impl Selector {
    /// Reads a selector; an empty one selects everything.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            return Ok(Self(Expression::All));
        }
        let mut parser = Parser { text, position: 0 };
        let expression = parser.either()?;
        ensure!(parser.rest().is_empty(), parser.complaint("the end"));
        Ok(Self(expression))
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.holds(labels)
    }
}

impl Expression {
    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::All => true,
            Self::Has(key) => labels.contains_key(key),
            Self::Not(inner) => !inner.holds(labels),
            Self::And(parts) => parts.iter().all(|part| part.holds(labels)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(labels)),
            Self::Compare(key, comparison) => comparison.holds(labels.get(key).map(String::as_str)),
        }
    }
}

impl Comparison {
    /// A label that is absent differs from every value, and is like none.
    fn holds(&self, value: Option<&str>) -> bool {
        let like = |test: &dyn Fn(&str) -> bool| value.is_some_and(test);
        match self {
            Self::Is(wanted) => like(&|value| value == wanted),
            Self::IsNot(wanted) => !like(&|value| value == wanted),
            Self::In(wanted) => like(&|value| wanted.iter().any(|one| one == value)),
            Self::NotIn(wanted) => !like(&|value| wanted.iter().any(|one| one == value)),
            Self::Contains(part) => like(&|value| value.contains(part)),
            Self::StartsWith(part) => like(&|value| value.starts_with(part)),
            Self::EndsWith(part) => like(&|value| value.ends_with(part)),
        }
    }
}

/// One function for each level of binding: `||` binds least, `!` most.
struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn either(&mut self) -> Result<Expression> {
        let mut parts = vec![self.both()?];
        while self.take("||") {
            parts.push(self.both()?);
        }
        Ok(one_or(parts, Expression::Or))
    }

    fn both(&mut self) -> Result<Expression> {
        let mut parts = vec![self.single()?];
        while self.take("&&") {
            parts.push(self.single()?);
        }
        Ok(one_or(parts, Expression::And))
    }

    fn single(&mut self) -> Result<Expression> {
        if self.take("!") {
            return Ok(Expression::Not(Box::new(self.single()?)));
        }
        if self.take("(") {
            let inner = self.either()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let key = self.key()?;
        match key {
            "all" | "global" if self.take("(") => {
                self.expect(")")?;
                // global() selects what has no namespace: every node.
                Ok(Expression::All)
            }
            "has" if self.take("(") => {
                let key = self.key()?.to_owned();
                self.expect(")")?;
                Ok(Expression::Has(key))
            }
            _ => Ok(Expression::Compare(key.to_owned(), self.comparison()?)),
        }
    }

    fn comparison(&mut self) -> Result<Comparison> {
        if self.take("==") {
            return Ok(Comparison::Is(self.value()?));
        }
        if self.take("!=") {
            return Ok(Comparison::IsNot(self.value()?));
        }
        match self.word() {
            "in" => Ok(Comparison::In(self.values()?)),
            "not" if self.word() == "in" => Ok(Comparison::NotIn(self.values()?)),
            "contains" => Ok(Comparison::Contains(self.value()?)),
            "starts" if self.word() == "with" => Ok(Comparison::StartsWith(self.value()?)),
            "ends" if self.word() == "with" => Ok(Comparison::EndsWith(self.value()?)),
            _ => bail!(self.complaint("an operator")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>> {
        self.expect("{")?;
        let mut values = Vec::new();
        while !self.take("}") {
            values.push(self.value()?);
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(values)
    }

    fn value(&mut self) -> Result<String> {
        let rest = self.rest();
        let quote = rest.chars().next().filter(|first| matches!(first, '\'' | '"'));
        let Some(quote) = quote else { bail!(self.complaint("a value in quotes")) };
        let Some(length) = rest[1..].find(quote) else { bail!(self.complaint("a closed quote")) };
        let value = rest[1..=length].to_owned();
        self.position += length + 2;
        Ok(value)
    }

    fn key(&mut self) -> Result<&'a str> {
        let key = self.word();
        ensure!(!key.is_empty(), self.complaint("a label"));
        Ok(key)
    }

    /// The characters that label keys are made of; may be none.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let is_other = |c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c));
        let word = &rest[..rest.find(is_other).unwrap_or(rest.len())];
        self.position += word.len();
        word
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.position += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        ensure!(self.take(token), self.complaint(token));
        Ok(())
    }

    /// Returns the unread text, without leading blanks.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.position..];
        let trimmed = rest.trim_start();
        self.position += rest.len() - trimmed.len();
        trimmed
    }

    fn complaint(&self, wanted: &str) -> String {
        format!("the selector {:?} has no {wanted} at {}", self.text, self.position)
    }
}

fn one_or(mut parts: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    match (parts.len(), parts.pop()) {
        (1, Some(only)) => only,
        (_, last) => many(parts.into_iter().chain(last).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Selector::parse(selector).unwrap().matches(&labels)
    }

    #[test]
    fn every_operator_says_yes_and_no() {
        let node = [("zone", "east-1"), ("example.com/rr", ""), ("slot", "3")];
        for (yes, no) in [
            ("all()", "!all()"),
            ("global()", "!global( )"),
            ("", "has(absent)"),
            ("has(example.com/rr)", "!has(example.com/rr)"),
            ("zone == 'east-1'", "zone == \"east-2\""),
            ("zone != 'west'", "zone != 'east-1'"),
            ("absent != 'x'", "absent == ''"),
            ("slot in {'0', '3'}", "slot in {'0','1'}"),
            ("slot not in { '0' }", "slot not in {'0', '3'}"),
            ("absent not in {'3'}", "absent in {}"),
            ("zone contains 'st-'", "zone contains 'x'"),
            ("zone starts with 'east'", "absent starts with ''"),
            ("zone ends  with '-1'", "zone ends with 'east'"),
            ("has(a) || has(slot)", "has(a) && has(slot)"),
            ("!(has(a) && has(slot))", "!(has(a) || has(slot))"),
            ("has(a) && has(b) || has(slot)", "has(a) && (has(b) || has(slot))"),
            ("!!has(slot)", "! has( slot )"),
            ("example.com/rr == ''", "all == 'x'"),
        ] {
            assert!(selects(yes, &node), "{yes}");
            assert!(!selects(no, &node), "{no}");
        }
    }
}
