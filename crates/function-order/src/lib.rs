//! The functions of a program that run, and their names in another build of it.
mod name;

pub use name::{digest, stable};

/// Returns the symbol that a line of callgrind's output defines: `fn=(12) name`, `cfn=(7) name'2`.
#[must_use]
pub fn defined(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=("))?;
    let (_, symbol) = rest.split_once(") ")?;
    // A recursive call has a number.
    Some(symbol.split('\'').next().unwrap_or_default())
}

/// Returns the symbol of a function in a line of nm: `0000000000001000 t name`.
#[must_use]
pub fn function(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (_, kind, symbol) = (words.next()?, words.next()?, words.next()?);
    matches!(kind, "t" | "T" | "w" | "W").then_some(symbol)
}

/// Returns the process that an output of callgrind is of: it writes `out.PID`, and `out.PID.N` for
/// its N-th part.
#[must_use]
pub fn process(output: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match output.rsplit_once('.') {
        Some((process, part))
            if is_number(part) && is_number(process.rsplit('.').next().unwrap_or_default()) =>
        {
            process
        }
        _ => output,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_in_outputs_of_callgrind_and_of_nm() {
        assert_eq!(defined("fn=(12) _RNvCs1_1a1b"), Some("_RNvCs1_1a1b"));
        assert_eq!(defined("cfn=(7) malloc'2"), Some("malloc"));
        for line in ["fn=(12)", "fl=(1) a.c", "calls=1 2", "12 3"] {
            assert_eq!(defined(line), None, "{line}");
        }
        for output in ["a/out.12", "a/out.12.1", "a/out.12.34"] {
            assert_eq!(process(output), "a/out.12");
        }
        assert_eq!(function("0000000000001000 t _RNvCs1_1a1b"), Some("_RNvCs1_1a1b"));
        for line in ["0000000000001000 r table", "                 U malloc", ""] {
            assert_eq!(function(line), None, "{line}");
        }
    }
}
