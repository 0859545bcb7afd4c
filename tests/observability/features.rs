//! The table of features is accurate: every claimed feature has a test, and one without a test is
//! marked as missing.
use crate::files::{below, name, read, root};

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

/// The named faults, by the letter and the highest number of their ids.
const FAULTS: [(char, u32); 4] = [('A', 20), ('P', 24), ('L', 10), ('W', 10)];

/// Each named fault has one row, in which every kind has a test, a shared part, or a reason.
#[test]
fn every_fault_has_a_test_or_a_reason_for_each_kind() {
    let page = read(&root().join("docs/operations/faults.md"));
    let rows = rows(&page);
    let ids = FAULTS.iter().flat_map(|(letter, most)| (1..=*most).map(move |n| (*letter, n)));
    for (letter, number) in ids {
        let id = format!("{letter}{number}");
        let found: Vec<_> = rows.iter().filter(|row| row[0] == id).collect();
        let [row] = found[..] else { panic!("{id}: {} rows", found.len()) };
        assert!(row.len() >= 3 && row.iter().all(|cell| !cell.is_empty()), "{id}: {row:?}");
        for (test, target) in row.iter().flat_map(|cell| links(cell)) {
            let path = root().join("docs/operations").join(target);
            assert!(path.is_file(), "{id}: there is no {target}");
            let found = read(&path).contains(&format!("fn {test}("));
            assert!(found, "{id}: {target} has no test {test}");
        }
        let proven = row.iter().any(|cell| !links(cell).is_empty());
        let reason = ["no test", "as "].iter().any(|word| row[2].starts_with(word));
        assert!(proven || reason, "{id}: neither a test nor a reason");
    }
}

/// The words of the client libraries by which a file writes.
const WRITES: [&str; 8] = [
    "Patch::Apply(",
    "Patch::Json",
    "Patch::Merge(",
    "Patch::Strategic(",
    "DeleteParams::",
    "PostParams::",
    "TxnOp::",
    "finalizer::Event::",
];

/// Two leaders could collide in any write: each file with one has a row that says what refuses a
/// late one.
#[test]
fn every_file_that_writes_is_in_the_table_of_writes() {
    let page = read(&root().join("docs/operations/faults.md"));
    let (_, table) = page.split_once("\n## Writes\n").expect("a section");
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = rows(table);
    assert!(rows.iter().all(|row| row.len() == 3 && row.iter().all(|cell| !cell.is_empty())));
    let mut listed: Vec<_> = rows.iter().flat_map(|row| links(row[0])).map(|(_, to)| to).collect();
    listed.sort_unstable();
    listed.dedup();
    let writes = |text: &str| {
        // The tests of a file are its last part.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        WRITES.iter().any(|word| code.contains(word))
    };
    let files = below(&root().join("src"), &["rs"]).into_iter();
    let files = files.filter(|file| !name(file).contains("tests")).filter(|f| writes(&read(f)));
    let mut found: Vec<_> = files.map(|file| format!("../../{}", name(&file))).collect();
    found.sort_unstable();
    assert_eq!(found, listed);
}

#[test]
fn links_and_rows_are_found() {
    let page = "| a | b |\n|---|---|\n| x [l](m) | y |\ntext\n| z |  |\n";
    assert_eq!(rows(page), [vec!["x [l](m)", "y"], vec!["z", ""]]);
    assert_eq!(links("a [b](c), [d](e) [f"), [("b", "c"), ("d", "e")]);
}
