//! The table of features is accurate: every claimed feature has a test, and one without a test is
//! marked as missing.
use traffic_operator::api::KINDS;

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

/// Asserts that a link of a page below `docs/…` leads to a test that is executed.
fn assert_is_a_test(row: &str, test: &str, target: &str) {
    let file = target.strip_prefix("../../").unwrap_or_else(|| panic!("{row}: {target}"));
    assert!(root().join(file).is_file(), "{row}: there is no {target}");
    assert!(lab::proof::has_test(file, test), "{row}: {target} has no test {test}");
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
            assert_is_a_test(feature, test, target);
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
            assert_is_a_test(id, test, target);
            assert!(
                test.starts_with(&prefix) || test.contains(&format!("_{prefix}")),
                "{id}: {test}"
            );
        }
    }
}

/// The shared parts of the page, which a cell may name instead of a test.
const PARTS: [&str; 5] = ["start", "client", "watch", "driver", "queries"];

/// The named faults, by the letter and the highest number of their ids.
const FAULTS: [(char, u32); 5] = [('A', 20), ('P', 24), ('L', 10), ('W', 10), ('R', 6)];

/// Each named fault has one row, in which every kind has a test, a shared part, or a reason.
#[test]
fn every_fault_has_a_test_or_a_reason_for_each_kind() {
    let page = read(&root().join("docs/operations/faults.md"));
    let rows = rows(&page);
    let ids = FAULTS.iter().flat_map(|(letter, most)| (1..=*most).map(move |n| (*letter, n)));
    for (letter, number) in ids {
        let id = format!("{letter}{number}");
        let found: Vec<_> = rows.iter().filter(|row| row[0] == id).collect();
        assert_eq!(found.len(), 1, "{id}");
    }
    // Real faults have the id of the injected one, and a further letter.
    let is_fault = |id: &str| {
        let number = id.get(1..).unwrap_or_default().trim_end_matches(char::is_alphabetic);
        FAULTS.iter().any(|(letter, _)| id.starts_with(*letter)) && number.parse::<u32>().is_ok()
    };
    for row in rows.iter().filter(|row| is_fault(row[0])) {
        let id = row[0];
        assert!(row.len() >= 3 && row.iter().all(|cell| !cell.is_empty()), "{id}: {row:?}");
        for (test, target) in row.iter().flat_map(|cell| links(cell)) {
            assert_is_a_test(id, test, target);
        }
        for cell in &row[2..] {
            assert!(is_proved(cell), "{id}: neither a test, nor a part, nor a reason: {cell}");
        }
    }
}

/// Reports whether a cell has a test, or says why it has none.
fn is_proved(cell: &str) -> bool {
    !links(cell).is_empty() || cell.split("; ").all(is_reason)
}

/// Reports whether this names shared parts, another cell, or a reason.
fn is_reason(text: &str) -> bool {
    let names_a_cell = |rest: &str| {
        let word = rest.split([':', ',', ' ']).next().unwrap_or_default();
        let letter = word.chars().next();
        let is_id = FAULTS.iter().any(|(l, most)| {
            letter == Some(*l) && word[1..].parse::<u32>().is_ok_and(|n| (1..=*most).contains(&n))
        });
        is_id || KINDS.iter().any(|kind| kind.name() == word)
    };
    text.split(", ").all(|word| PARTS.contains(&word))
        || text.strip_prefix("as ").is_some_and(names_a_cell)
        || ["no test: ", "no test with etcd: "].iter().any(|word| {
            text.strip_prefix(word).is_some_and(|reason| reason.split_whitespace().count() >= 3)
        })
}

#[test]
fn a_cell_without_a_test_names_a_part_another_cell_or_a_reason() {
    let proved = [
        "[a](b)",
        "queries: [a](b)",
        "watch",
        "watch, driver",
        "as P17",
        "as TrafficWatch",
        "as P17: they are longer than that",
        "no test: it is another cluster",
        "client; no test with etcd: it has no such answer",
    ];
    let bare = [
        "",
        "-",
        "n/a",
        "tested",
        "watch, and more",
        "the author's query decides",
        "as usual",
        "as P25",
        "as é",
        "no test",
        "no test: none",
        "queries; and a claim",
    ];
    assert!(proved.iter().all(|cell| is_proved(cell)));
    for cell in bare {
        assert!(!is_proved(cell), "{cell}");
    }
}

/// The parts that a cell may name, each with a row that says what it is.
#[test]
fn the_shared_parts_are_those_of_the_page() {
    let page = read(&root().join("docs/operations/faults.md"));
    let (_, table) = page.split_once("\n## Shared parts\n").expect("a section");
    let table = table.split("\n## ").next().unwrap_or_default();
    let named: Vec<_> = rows(table).iter().map(|row| row[0]).collect();
    assert_eq!(named, PARTS);
}

/// Proofs of a shared part hold for a kind only if the kind does not go around the part.
#[test]
fn every_watch_and_every_query_goes_through_the_shared_part() {
    let files = below(&root().join("src"), &["rs"]).into_iter();
    let files: Vec<_> = files.map(|file| (name(&file), read(&file))).collect();
    let with = |word: &str, below: &[&str]| {
        let own = |file: &str| below.iter().any(|folder| file.starts_with(folder));
        let others = files.iter().filter(|(file, _)| !own(file) && !file.contains("tests"));
        let found = others.filter(|(_, text)| text.contains(word)).map(|(file, _)| file);
        found.cloned().collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    for word in ["watcher(", "watch_object(", "watch_metadata("] {
        assert_eq!(with(word, &["src/infra/watch"]), none, "{word}");
    }
    // The library, and the paths by which one could do without it.
    for word in ["prometheus_http_query", "/api/v1/query", "api/v1/series", "api/v1/labels"] {
        assert_eq!(with(word, &["src/prometheus/"]), none, "{word}");
    }
    assert!(files.iter().any(|(file, text)| {
        file == "src/infra/watch.rs" && text.contains("watcher(api, config)")
    }));
    assert!(files.iter().any(|(file, text)| {
        file.starts_with("src/prometheus/") && text.contains("prometheus_http_query")
    }));
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
