//! Claims as they are judged, and all of them at the end.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use lab::checks::{Check, table};
use lab::wait::lock;

/// Everything that was judged since the beginning.
#[derive(Debug)]
pub struct Report {
    started: Instant,
    /// True if acts are played beside each other: lines begin with the name of their act.
    many: bool,
    /// True for the image of a release.
    released: bool,
    /// True if the cluster stays, with what acts have made on it.
    keep: bool,
    claims: Mutex<Vec<(String, Check)>>,
}

impl Report {
    pub fn new(many: bool, released: bool, keep: bool) -> Self {
        Self { started: Instant::now(), many, released, keep, claims: Mutex::default() }
    }

    pub fn keeps(&self) -> bool {
        self.keep
    }

    /// Prints the claims of each act, and the verdict; returns whether all passed.
    pub fn conclude(&self) -> bool {
        let claims = lock(&self.claims);
        let mut rest: Vec<&(String, Check)> = claims.iter().collect();
        while let Some((act, _)) = rest.first().copied() {
            let (of_it, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|it| it.0 == *act);
            let checks: Vec<Check> = of_it.into_iter().map(|(_, check)| check.clone()).collect();
            println!("\n{act}\n{}", table(&checks).trim_end());
            rest = others;
        }
        let failed = claims.iter().filter(|(_, check)| !check.pass).count();
        println!(
            "\n{}: {} of {} claims hold, in {:.0} s",
            if failed == 0 && !claims.is_empty() { "PASS" } else { "FAIL" },
            claims.len() - failed,
            claims.len(),
            self.started.elapsed().as_secs_f64()
        );
        failed == 0 && !claims.is_empty()
    }
}

/// What one act says.
#[derive(Debug, Clone, Copy)]
pub struct Act<'a> {
    pub report: &'a Report,
    pub name: &'a str,
}

impl Act<'_> {
    /// The most resident memory of the operator, in MiB: the limit of its pods; what demos run is
    /// compiled quickly, and so is twice as large.
    pub fn most_memory(&self) -> f64 {
        if self.report.released { 64.0 } else { 128.0 }
    }

    /// The time since the beginning of everything.
    pub fn age(&self) -> Duration {
        self.report.started.elapsed()
    }

    /// Prints what happens next, or what has happened.
    pub fn say(&self, text: &str) {
        let seconds = self.age().as_secs_f64();
        let name = if self.report.many { format!("{:12} ", self.name) } else { String::new() };
        println!("{seconds:6.1} s  {name}{text}");
    }

    /// Keeps a claim, and prints it.
    pub fn check(&self, check: Check) {
        let verdict = if check.pass { "PASS" } else { "FAIL" };
        self.say(&format!("{verdict}  {}: {}", check.name, check.figure));
        lock(&self.report.claims).push((self.name.to_owned(), check));
    }

    /// Keeps a claim with its figure, and prints it.
    pub fn claim(&self, name: &str, pass: bool, figure: impl Into<String>) {
        self.check(Check::new(name, pass, figure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_judged_is_no_success_and_one_failure_is_enough() {
        let report = Report::new(false, false, false);
        assert!(!report.conclude());
        let act = Act { report: &report, name: "a" };
        act.claim("x", true, "1");
        assert!(report.conclude());
        Act { name: "b", ..act }.claim("y", false, "2");
        assert!(!report.conclude());
    }
}
