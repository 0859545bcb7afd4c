//! Texts for users and newcomers are plain English: none of these phrases occurs in them.
use crate::files::{below, files_in, name, read, root};
use clap::CommandFactory;
use std::path::PathBuf;
use traffic_operator::cli::Cli;

/// Phrases that read as if translated, in lower case. Each has a plain equivalent: "is reported",
/// "reports", "must", "should", "this many", "separate", "if … is unsafe", "is missing", "moves",
/// "is unavailable", "again", "releases", "depends on", "the result", "earlier", "someone", "anyone
/// who", "counts as", "because of".
const BANNED: [&str; 48] = [
    "is told",
    "are told",
    "was told",
    "were told",
    "be told",
    "been told",
    "tells of",
    "tell of",
    "told of",
    "is to be",
    "are to be",
    "so many",
    "of one's own",
    "what would",
    "that there is none",
    "who comes",
    "who asks",
    "whoever",
    "gives it on",
    "give it on",
    "is given on",
    "are given on",
    "cannot be had",
    "can be had",
    "belongs into",
    "belong into",
    "anew",
    "lets go of",
    "let go of",
    "has let go",
    "have let go",
    "stands on",
    "stand on",
    "is known of",
    "nothing is known",
    "what became",
    "what becomes",
    "of before",
    "in vain",
    "somebody",
    "for want of",
    "says so",
    "say so",
    "is taken for",
    "are taken for",
    "speaks for",
    "has to exist",
    "which has to",
];

/// British spellings: the API, its documentation, help and comments have those of Kubernetes, which
/// are American.
const BRITISH: [&str; 56] = [
    "analyse",
    "analysed",
    "behaviour",
    "behaviours",
    "cancelled",
    "cancelling",
    "catalogue",
    "centre",
    "colour",
    "coloured",
    "colours",
    "defence",
    "favour",
    "favours",
    "flavour",
    "flavours",
    "grey",
    "honour",
    "honoured",
    "honours",
    "initialise",
    "initialised",
    "judgement",
    "judgements",
    "labelled",
    "labelling",
    "learnt",
    "licence",
    "licences",
    "misspelt",
    "modelled",
    "neighbour",
    "neighbouring",
    "neighbours",
    "normalise",
    "normalised",
    "optimisation",
    "optimise",
    "optimised",
    "organise",
    "organised",
    "recognise",
    "recognised",
    "relabelled",
    "relabelling",
    "serialise",
    "serialised",
    "signalled",
    "signalling",
    "spelt",
    "synchronise",
    "tokeniser",
    "travelled",
    "unlabelled",
    "unoptimised",
    "whilst",
];

/// Files, by the end of their names, that keep one: the former spelling of a field.
const KEPT: [(&str, &str); 3] = [
    ("networkprobers.probes.bigmikes.io.yaml", "neighbours"),
    ("fieldpolicy.yaml", "neighbours"),
    ("traffic-operator.clusterserviceversion.yaml", "neighbours"),
];

/// Words that no doc comment begins with: a noun or a verb shows at once what the item is.
const BEGINNINGS: [&str; 8] = ["What", "Whether", "Who", "Which", "How", "That", "Where", "When"];

/// Maximum number of columns in a line of a comment; rustfmt limits code to the same, but not
/// comments.
const COLUMNS: usize = 100;

/// Returns the lines with a phrase, which may begin on one line and end on the next: their number,
/// the phrase.
fn found(lines: &[&str], banned: &[&'static str]) -> Vec<(usize, &'static str)> {
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
    for phrase in banned {
        for (at, _) in text.match_indices(phrase) {
            let before = text[..at].chars().next_back();
            let after = text[at + phrase.len()..].chars().next();
            if !is_word(before) && !is_word(after) {
                all.push((begins.partition_point(|begin| *begin <= at), *phrase));
            }
        }
    }
    all.sort_unstable();
    all
}

/// Fails with every place where one of the texts contains a phrase.
fn assert_plain<'a>(
    texts: impl IntoIterator<Item = (String, Vec<&'a str>)>,
    banned: &[&'static str],
) {
    let mut wrong = Vec::new();
    for (name, lines) in texts {
        let places = found(&lines, banned);
        wrong.extend(places.iter().map(|(line, phrase)| format!("{name}:{line}: \"{phrase}\"")));
    }
    assert!(wrong.is_empty(), "phrases to put into plain English:\n{}", wrong.join("\n"));
}

/// Returns a line without its code, which keeps the names of others and of earlier versions.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the lines with a British spelling in a file of this name: their number, the word.
fn british(name: &str, lines: &[&str]) -> Vec<(usize, &'static str)> {
    let lines: Vec<_> = lines.iter().map(|line| without_code(line)).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let is_kept = |word: &str| KEPT.iter().any(|(end, kept)| name.ends_with(end) && *kept == word);
    found(&lines, &BRITISH).into_iter().filter(|(_, word)| !is_kept(word)).collect()
}

/// Fails with every place where one of the texts has a British spelling.
fn assert_american<'a>(texts: impl IntoIterator<Item = (String, Vec<&'a str>)>) {
    let mut wrong = Vec::new();
    for (name, lines) in texts {
        let places = british(&name, &lines);
        wrong.extend(places.iter().map(|(line, word)| format!("{name}:{line}: \"{word}\"")));
    }
    assert!(wrong.is_empty(), "British spellings:\n{}", wrong.join("\n"));
}

#[test]
fn a_british_spelling_is_found_except_in_code_and_where_it_is_kept() {
    let lines = ["the Colour", "`colour` and a_colour", "neighbours:", "labelledby"];
    assert_eq!(british("a.yaml", &lines), [(1, "colour"), (3, "neighbours")]);
    assert_eq!(british("deploy/base/fieldpolicy.yaml", &lines), [(1, "colour")]);
}

#[test]
fn a_phrase_is_found_with_its_line_also_across_two_lines_and_not_within_a_word() {
    let lines = ["fine", "it Is told here", "there are so", "  many of them", "a_what would_be"];
    let all = found(&lines, &BANNED);
    assert_eq!(all, [(2, "is told"), (3, "so many")]);
    let crossing = found(&["kubectl", "`this told`", "is to bend"], &BANNED);
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
    let lines =
        || texts.iter().map(|(name, text)| (name.clone(), text.lines().collect::<Vec<_>>()));
    assert_plain(lines(), &BANNED);
    assert_american(lines());
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
    let lines = || all.iter().map(|(name, text)| (name.clone(), text.lines().collect::<Vec<_>>()));
    assert_plain(lines(), &BANNED);
    assert_american(lines());
}

/// Returns the Rust files of the operator, its crates, the lab, tests and benches, with their text.
fn code() -> Vec<(PathBuf, String)> {
    let folders = ["src", "crates", "lab/src", "tests", "bench"];
    let files: Vec<_> =
        folders.iter().flat_map(|folder| below(&root().join(folder), &["rs"])).collect();
    assert!(files.len() > 600, "{}", files.len());
    files.into_iter().map(|file| (file.clone(), read(&file))).collect()
}

/// Returns the text of a line of a doc comment.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
}

/// Returns the lines with a doc comment that begins badly: their number, and the word.
fn badly_begun(text: &str) -> Vec<(usize, &'static str)> {
    let mut all = Vec::new();
    let mut within = false;
    for (number, line) in (1..).zip(text.lines()) {
        let doc = doc(line);
        let first = doc.filter(|_| !within).and_then(|doc| {
            doc.split(|c: char| !c.is_alphanumeric() && c != '`').find(|word| !word.is_empty())
        });
        all.extend(BEGINNINGS.iter().filter(|word| first == Some(**word)).map(|w| (number, *w)));
        within = doc.is_some();
    }
    all
}

#[test]
fn a_bad_beginning_is_found_and_only_at_the_beginning() {
    let text =
        "/// What it is.\nfn a() {}\n\n/// The sum.\n/// How it is made.\nfn b() {}\n//! Who.";
    assert_eq!(badly_begun(text), [(1, "What"), (7, "Who")]);
    assert!(badly_begun("/// Whose it is.\n/// `How`.\n// What?").is_empty());
}

#[test]
fn comments_are_in_plain_english() {
    let texts = code();
    // Other lines count as empty, so that numbers are those of the file.
    let commented = || {
        texts.iter().map(|(file, text)| {
            let lines = text.lines().map(|line| {
                let line = line.trim_start();
                doc(line).or_else(|| line.strip_prefix("//")).unwrap_or_default()
            });
            (name(file), lines.collect::<Vec<_>>())
        })
    };
    assert_plain(commented(), &BANNED);
    assert_american(commented());
}

#[test]
fn names_of_functions_are_in_plain_english() {
    let texts = code();
    // Only the names, as words; a period keeps one apart from the next.
    let words = texts.iter().map(|(file, text)| {
        let lines = text.lines().map(|line| {
            let defined = line.split_once("fn ").map(|(_, rest)| rest.split(['(', '<']).next());
            format!("{}.", defined.flatten().unwrap_or_default().replace('_', " "))
        });
        (name(file), lines.collect::<Vec<_>>())
    });
    let words: Vec<_> = words.collect();
    let lines = words
        .iter()
        .map(|(file, lines)| (file.clone(), lines.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_plain(lines, &BANNED);
}

/// Conditions, events, errors and what commands print are strings in code, in which no identifier
/// is one of the phrases.
#[test]
fn strings_are_in_plain_english() {
    let texts = code();
    let shipped = texts.iter().filter(|(file, _)| !file.starts_with(root().join("tests")));
    let lines = shipped.map(|(file, text)| {
        // A backslash at the end of a line continues its string.
        let lines = text.lines().map(|line| line.trim_end_matches('\\')).collect();
        (name(file), lines)
    });
    assert_plain(lines, &BANNED);
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let mut wrong = Vec::new();
    for (file, text) in code() {
        let places = badly_begun(&text);
        wrong.extend(places.iter().map(|(line, word)| format!("{}:{line}: {word}", name(&file))));
    }
    assert!(wrong.is_empty(), "doc comments to begin with a noun or a verb:\n{}", wrong.join("\n"));
}

/// Returns the numbers of the lines that begin with a comment and are too long.
fn too_long(text: &str) -> Vec<usize> {
    let lines = (1..).zip(text.lines());
    let long = lines
        .filter(|(_, line)| line.trim_start().starts_with("//") && line.chars().count() > COLUMNS);
    long.map(|(number, _)| number).collect()
}

#[test]
fn a_long_comment_is_found_by_its_columns_and_long_code_is_not() {
    let text = |columns: usize| format!("// {}\n\"{}\"", "ä".repeat(columns - 3), "x".repeat(200));
    assert_eq!(too_long(&text(COLUMNS + 1)), [1]);
    assert!(too_long(&text(COLUMNS)).is_empty());
}

#[test]
fn lines_of_comments_fit_into_the_columns() {
    let mut wrong = Vec::new();
    for (file, text) in code() {
        wrong.extend(too_long(&text).iter().map(|line| format!("{}:{line}", name(&file))));
    }
    assert!(wrong.is_empty(), "comments above {COLUMNS} columns:\n{}", wrong.join("\n"));
}
