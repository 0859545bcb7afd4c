//! The seed of generated specs, the length of walks, and their result in one line.
//!
//! `SCHEMA_SEED=7 SCHEMA_STEPS=200 cargo test --test reconcile -- schema:: --nocapture` plays other
//! and longer walks; every failure names its seed and case.

/// Any number will do; another number makes another test.
const SEED: u64 = 20_261_120;

/// Returns the seed: `SCHEMA_SEED`, else always the same.
pub fn seed() -> u64 {
    number("SCHEMA_SEED").unwrap_or(SEED)
}

/// Returns the number of specs of a walk: `SCHEMA_STEPS`, else this one.
pub fn steps(usual: u64) -> u64 {
    number("SCHEMA_STEPS").unwrap_or(usual)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Names a case so that it can be played again.
pub fn named(case: impl std::fmt::Display) -> String {
    format!("seed {}, case {case}", seed())
}

pub struct Walk {
    kind: &'static str,
    transitions: usize,
    /// Allowed specs that were refused.
    refusals: Vec<String>,
}

impl Walk {
    pub fn of(kind: &'static str) -> Self {
        Self { kind, transitions: 0, refusals: vec![] }
    }

    /// Notes the edit of an object from one spec to the next.
    pub fn went(&mut self, refusal: Option<String>) {
        self.transitions += 1;
        self.refusals.extend(refusal);
    }

    /// Prints the result; panics with the refusals, if there are any.
    pub fn end(self) {
        let Self { kind, transitions, refusals } = self;
        eprintln!("{kind}: {transitions} transitions, {} false refusals", refusals.len());
        assert!(refusals.is_empty(), "{}", refusals.join("\n"));
    }
}
