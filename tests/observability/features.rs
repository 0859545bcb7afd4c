//! The table of features is accurate: every claimed feature has a test, and one without a test is
//! marked as missing.
use crate::files::{read, root};

/// A row of a table: its cells.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let lines: Vec<_> = page.lines().collect();
    lines
        .iter()
        .enumerate()
        .filter(|(i, line)| {
            // Skips the header and the line below it.
            let is_rule = |line: &&str| line.starts_with("|---");
            line.starts_with('|') && !is_rule(line) && !lines.get(i + 1).is_some_and(is_rule)
        })
        .map(|(_, line)| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// The links of a cell: text and target.
fn links(cell: &str) -> Vec<(&str, &str)> {
    let link = |rest: &'_ str| -> Option<(usize, usize)> {
        let middle = rest.find("](")?;
        Some((middle, middle + rest[middle..].find(')')?))
    };
    cell.split('[')
        .skip(1)
        .filter_map(|rest| {
            let (middle, end) = link(rest)?;
            Some((&rest[..middle], &rest[middle + 2..end]))
        })
        .collect()
}

#[test]
fn every_feature_is_proved_by_a_test_or_marked_as_missing() {
    let rows_of = read(&root().join("docs/reference/features.md"));
    let rows = rows(&rows_of);
    assert!(rows.len() > 50, "{} rows", rows.len());
    for row in rows {
        let [feature, how, _, proof] = row.as_slice() else { panic!("not four cells: {row:?}") };
        let tests = links(proof);
        assert!(!tests.is_empty() || how.starts_with("no:"), "{feature}: neither a test nor no:");
        for (test, target) in tests {
            let path = root().join("docs/reference").join(target);
            assert!(path.is_file(), "{feature}: there is no {target}");
            let found = read(&path).contains(&format!("fn {test}("));
            assert!(found, "{feature}: {target} has no test {test}");
        }
    }
}

/// Each row begins with an id, and so do the names of its tests: `T1` and `t01_…`.
#[test]
fn every_bad_day_is_proved_by_a_test_of_its_id() {
    let page = read(&root().join("docs/operations/bad-days.md"));
    let rows = rows(&page);
    assert!(rows.len() > 10, "{} rows", rows.len());
    for row in rows {
        let [id, _, _, proof] = row.as_slice() else { panic!("not four cells: {row:?}") };
        let number: u32 = id[1..].parse().expect("a letter and a number");
        let prefix = format!("{}{number:02}_", id[..1].to_lowercase());
        let tests = links(proof);
        assert!(!tests.is_empty(), "{id}: no test");
        for (test, target) in tests {
            let path = root().join("docs/operations").join(target);
            assert!(path.is_file(), "{id}: there is no {target}");
            let found = read(&path).contains(&format!("fn {test}("));
            assert!(found, "{id}: {target} has no test {test}");
            assert!(
                test.starts_with(&prefix) || test.contains(&format!("_{prefix}")),
                "{id}: {test}"
            );
        }
    }
}

#[test]
fn links_and_rows_are_found() {
    let page = "| a | b |\n|---|---|\n| x [l](m) | y |\ntext\n| z |  |\n";
    assert_eq!(rows(page), [vec!["x [l](m)", "y"], vec!["z", ""]]);
    assert_eq!(links("a [b](c), [d](e) [f"), [("b", "c"), ("d", "e")]);
}
