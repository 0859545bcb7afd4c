//! Names of tests in documents and tables.

use std::path::Path;

/// The programs whose tests are functions in a list, without an attribute: the folder, and the file
/// of the list.
const LISTED: [(&str, &str); 2] =
    [("tests/cluster/", "tests/cluster/scenarios.rs"), ("tests/page/", "tests/page/main.rs")];

/// Reports whether this file, named from the root of the workspace, has a test of this name that is
/// executed.
#[must_use]
pub fn has_test(file: &str, name: &str) -> bool {
    let text = |file: &str| read(&super::workspace::root().join(file));
    match LISTED.iter().find(|(folder, _)| file.starts_with(folder)) {
        // A play of its own, beside the list.
        Some((folder, _)) if file == format!("{folder}main.rs") => {
            text(file).contains(&format!("::{name}\", move ||"))
        }
        Some((_, list)) => is_listed(&text(list), name) && is_a_function(&text(file), name),
        None => is_executed(&text(file), name, includes_ignored(&text("hack/test"), file)),
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Reports whether a source file has a test of this name, with the attribute of one, that is
/// neither ignored nor commented out.
#[must_use]
pub fn is_a_test(text: &str, name: &str) -> bool {
    is_executed(text, name, false)
}

/// Reports whether `hack/test` executes also the ignored tests of this file.
fn includes_ignored(script: &str, file: &str) -> bool {
    let program = file.strip_prefix("tests/").and_then(|rest| rest.split(['/', '.']).next());
    program.is_some_and(|name| script.contains(&format!("--test {name} -- --include-ignored")))
}

/// The same, for a file whose ignored tests count if `also_ignored`.
fn is_executed(text: &str, name: &str, also_ignored: bool) -> bool {
    let test = |attribute: &String| {
        attribute == "#[test]"
            || attribute == "#[tokio::test]"
            || attribute.starts_with("#[tokio::test(")
    };
    let ignored = |attribute: &String| {
        let condition = attribute.starts_with("#[cfg_attr(") && attribute.contains("ignore");
        condition || attribute.starts_with("#[ignore")
    };
    functions(text).any(|(function, attributes)| {
        function == name
            && attributes.iter().any(test)
            && (also_ignored || !attributes.iter().any(ignored))
    })
}

/// Reports whether a source file has a function of this name that is not commented out.
fn is_a_function(text: &str, name: &str) -> bool {
    functions(text).any(|(function, _)| function == name)
}

/// Reports whether a list in the call of a macro, such as `scenarios![…];`, has this name.
fn is_listed(text: &str, name: &str) -> bool {
    let mut within = false;
    text.lines().any(|line| {
        within = (within || line.ends_with("![")) && line != "];";
        within && line.trim().strip_suffix(',') == Some(name)
    })
}

/// Returns each function that is not commented out, with the attributes above it.
fn functions(text: &str) -> impl Iterator<Item = (&str, Vec<String>)> {
    let (mut attributes, mut open, mut commented) = (Vec::new(), None::<String>, false);
    text.lines().map(str::trim).filter_map(move |line| {
        if commented || line.starts_with("/*") {
            commented = !line.contains("*/");
            return None;
        }
        // Comments and empty lines may stand between an attribute and its function.
        if line.is_empty() || line.starts_with("//") {
            return None;
        }
        // An attribute of several lines ends where its bracket does.
        if open.is_some() || line.starts_with("#[") {
            let whole = open.take().unwrap_or_default() + line;
            if whole.ends_with(']') {
                attributes.push(whole);
            } else {
                open = Some(whole);
            }
            return None;
        }
        let above = std::mem::take(&mut attributes);
        let (before, rest) = line.split_once("fn ")?;
        let words = ["pub", "pub(super)", "pub(crate)", "async", "const"];
        if !before.split_whitespace().all(|word| words.contains(&word)) {
            return None;
        }
        Some((rest.split(['(', '<']).next()?, above))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
/// Is one.
#[test]
fn plain() {
}

#[tokio::test(flavor = \"multi_thread\")]
#[expect(
    clippy::too_many_lines,
    reason = \"acts of one play\"
)]
// A comment.
async fn with_a_runtime() {}

#[test]
#[ignore = \"takes hours\"]
fn ignored() {}

// #[test]
// fn commented_out() {}

/* #[test]
fn in_a_long_comment() {}
*/

#[test]
// fn renamed() {}
fn its_new_name() {}

fn helper() {}

const TEXT: &str = \"a test: fn in_a_text() {}\";

#[test]
struct NoFunction;
fn after_it() {}

proptest! {
    #[test]
    fn of_a_property(x: u8) {}
}
";

    #[test]
    fn what_has_the_attribute_is_a_test() {
        for name in ["plain", "with_a_runtime", "its_new_name", "of_a_property"] {
            assert!(is_a_test(SOURCE, name), "{name}");
        }
    }

    #[test]
    fn what_is_not_executed_is_no_test() {
        let none = [
            "ignored",
            "commented_out",
            "in_a_long_comment",
            "renamed",
            "helper",
            "in_a_text",
            "after_it",
            "plai",
            "",
        ];
        for name in none {
            assert!(!is_a_test(SOURCE, name), "{name}");
        }
        assert!(!has_test("lab/src/no_such_file.rs", "plain"));
    }

    #[test]
    fn an_ignored_test_counts_where_the_script_executes_it() {
        let script = "AUDIT_RECORDS=x cargo test --test rights -- --include-ignored";
        assert!(includes_ignored(script, "tests/rights/main.rs"));
        for file in ["tests/page/main.rs", "src/rights.rs", "tests/right/main.rs"] {
            assert!(!includes_ignored(script, file), "{file}");
        }
        assert!(is_executed(SOURCE, "ignored", true) && !is_executed(SOURCE, "helper", true));
    }

    #[test]
    fn a_scenario_is_one_that_is_in_the_list() {
        let list =
            "\nscenarios![\n    judging: [\n        one,\n        // two,\n    ],\n];\nthree,\n";
        assert!(is_listed(list, "one"));
        assert!(!is_listed(list, "two") && !is_listed(list, "three") && !is_listed(list, ""));
        assert!(!is_listed("one,", "one"));
        assert!(has_test("tests/page/looks.rs", "what_is_wrong_stands_first_with_its_numbers"));
        assert!(!has_test("tests/page/probers.rs", "what_is_wrong_stands_first_with_its_numbers"));
        let file = "tests/cluster/scenarios.rs";
        assert!(has_test(file, "a_silent_exporter_makes_its_node_unknown_and_only_that"));
        assert!(!has_test(file, "is_root"));
        // A function of another file.
        assert!(!has_test(file, "a_pending_pod_blocks_no_other"));
    }
}
