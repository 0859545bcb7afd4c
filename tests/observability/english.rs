//! Texts for users are plain English: none of these phrases occurs in them. `typos` checks their
//! spelling.
use crate::files::{below, files_in, name, read, root};
use clap::CommandFactory;
use std::path::PathBuf;
use traffic_operator::cli::Cli;

/// Phrases that read as if translated, in lower case. Each has a plain equivalent: "is reported",
/// "reports", "must", "should", "this many", "separate", "if … is unsafe", "is missing", "moves",
/// "is unavailable", "again", "releases", "depends on", "the result", "earlier", "someone", "anyone
/// who", "counts as", "because of".
const BANNED: &str = "is told; are told; was told; were told; be told; been told; tells of; tell of; told of; \
    is to be; are to be; so many; of one's own; what would; that there is none; who comes; \
    who asks; whoever; gives it on; give it on; is given on; are given on; cannot be had; \
    can be had; belongs into; belong into; anew; lets go of; let go of; has let go; have let \
    go; stands on; stand on; is known of; nothing is known; what became; what becomes; of \
    before; in vain; somebody; for want of; says so; say so; is taken for; are taken for; \
    speaks for; has to exist; which has to";

/// Returns the lines with a phrase, which may begin on one line and end on the next: their number,
/// the phrase.
fn found(lines: &[&str]) -> Vec<(usize, &'static str)> {
    let mut text = String::new();
    // Where each line begins in the text.
    let mut begins = Vec::new();
    for line in lines {
        begins.push(text.len());
        for word in line.split_whitespace() {
            text.extend(word.chars().map(|c| c.to_ascii_lowercase()));
            text.push(' ');
        }
    }
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut all = Vec::new();
    for phrase in BANNED.split("; ") {
        for (at, _) in text.match_indices(phrase) {
            let before = text[..at].chars().next_back();
            let after = text[at + phrase.len()..].chars().next();
            if !is_word(before) && !is_word(after) {
                all.push((begins.partition_point(|begin| *begin <= at), phrase));
            }
        }
    }
    all.sort_unstable();
    all
}

/// Fails with every place where one of the texts contains a phrase.
fn assert_plain<'a>(texts: impl IntoIterator<Item = (String, Vec<&'a str>)>) {
    let mut wrong = Vec::new();
    for (name, lines) in texts {
        let places = found(&lines);
        wrong.extend(places.iter().map(|(line, phrase)| format!("{name}:{line}: \"{phrase}\"")));
    }
    assert!(wrong.is_empty(), "phrases to put into plain English:\n{}", wrong.join("\n"));
}

#[test]
fn a_phrase_is_found_with_its_line_also_across_two_lines_and_not_within_a_word() {
    let lines = ["fine", "it Is told here", "there are so", "  many of them", "a_what would_be"];
    let all = found(&lines);
    assert_eq!(all, [(2, "is told"), (3, "so many")]);
    let crossing = found(&["kubectl", "`this told`", "is to bend"]);
    assert!(crossing.is_empty(), "{crossing:?}");
}

#[test]
fn documents_manifests_alerts_and_dashboards_are_in_plain_english() {
    let mut files: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(|file| root().join(file))
        .into();
    files.push(root().join("lab/README.md"));
    files.extend(below(&root().join("docs"), &["md"]));
    files.extend(below(&root().join("deploy"), &["yaml"]));
    files.extend(files_in("monitoring", "yaml"));
    files.extend(files_in("grafana", "json"));
    assert!(files.len() > 80, "{files:?}");
    let texts: Vec<_> = files.iter().map(|file| (name(file), read(file))).collect();
    assert_plain(texts.iter().map(|(name, text)| (name.clone(), text.lines().collect())));
}

#[test]
fn help_is_in_plain_english() {
    fn texts(command: &mut clap::Command, path: &str, all: &mut Vec<(String, String)>) {
        let path = format!("{path} {}", command.get_name());
        let help = command.clone().term_width(1000).render_long_help().to_string();
        all.push((format!("{} --help", path.trim()), help));
        for command in command.get_subcommands_mut() {
            texts(command, &path, all);
        }
    }
    let mut all = Vec::new();
    texts(&mut Cli::command(), "", &mut all);
    assert!(all.len() > 20, "{all:?}");
    assert_plain(all.iter().map(|(name, text)| (name.clone(), text.lines().collect())));
}

/// Conditions, events, errors and what commands print are strings in code, in which no identifier
/// is one of the phrases.
#[test]
fn strings_are_in_plain_english() {
    let files = ["src", "crates"].map(|folder| below(&root().join(folder), &["rs"])).concat();
    assert!(files.len() > 300, "{}", files.len());
    let texts: Vec<_> = files.iter().map(|file| (name(file), read(file))).collect();
    assert_plain(texts.iter().map(|(name, text)| {
        // A backslash at the end of a line continues its string.
        let code = text.lines().map(|line| line.trim_end_matches('\\'));
        let code = code.map(|line| if line.trim_start().starts_with("//") { "" } else { line });
        (name.clone(), code.collect())
    }));
}
