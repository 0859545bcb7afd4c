//! The commands of the pages, in their blocks of sh.
use crate::files::{below, name, read, root};
use crate::reading::documents;

/// Commands that begin a line, besides assignments of variables.
const KNOWN: [&str; 29] = [
    ".",
    "calicoctl",
    "cat",
    "cd",
    "cosign",
    "curl",
    "docker",
    "done",
    "env",
    "export",
    "for",
    "gh",
    "helm",
    "kill",
    "kubectl",
    "lab",
    "ln",
    "make",
    "man",
    "mkdir",
    "opm",
    "sed",
    "sha256sum",
    "skopeo",
    "sleep",
    "traffic-operator",
    "while",
    "{",
    "}",
];

/// A page with a program in sh, whose lines are no commands of a reader.
const PROGRAM: &str = "docs/reference/worker.md";

/// A line of an image's name: a sample that has it needs the reader's own.
const PLACEHOLDER: &str = "registry.invalid/";

const SUBSTITUTION: &str = r#"sed "s|registry.invalid/traffic-operator:[^ ]*|$IMG|""#;

/// Returns the lines of the blocks of sh that begin a command: their number, the first word.
fn begun(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    let (mut sh, mut fenced) = (false, false);
    // A command goes on after a backslash or a pipe, within quotes, and within a document.
    let (mut goes_on, mut quoted, mut document) = (false, false, None::<String>);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(language) = line.strip_prefix("```") {
            fenced = !fenced;
            sh = fenced && language.trim_end() == "sh";
            (goes_on, quoted, document) = (false, false, None);
            continue;
        }
        if !sh {
            continue;
        }
        if let Some(end) = &document {
            if line == end {
                document = None;
            }
            continue;
        }
        let continues = goes_on || quoted;
        if !continues && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        if !continues {
            let word = line.split_whitespace().next().unwrap_or_default();
            all.push((number, word.trim_end_matches(';').to_owned()));
        }
        goes_on = line.ends_with(['\\', '|']);
        quoted ^= line.replace("\\'", "").matches('\'').count() % 2 == 1;
        let end = line.split_once("<<").map(|(_, rest)| rest.trim_start_matches('\''));
        document = end.map(|end| end.chars().take_while(char::is_ascii_uppercase).collect());
    }
    all
}

fn is_command(word: &str) -> bool {
    let assigned = word.split_once('=').is_some_and(|(variable, _)| {
        variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !word.starts_with("jsonpath=")
    });
    assigned || KNOWN.contains(&word)
}

#[test]
fn a_command_that_was_wrapped_like_prose_is_found() {
    let text = "exec\n```sh\n# why\nkubectl a \\\n  b 'c\nd'\n\nX=1 make\nx | \ny\n```\n";
    let words: Vec<_> =
        begun(text).into_iter().map(|(line, word)| format!("{line} {word}")).collect();
    assert_eq!(words, ["4 kubectl", "8 X=1", "9 x"]);
    let wrapped =
        "```sh\nkubectl exec\ndeploy/x -- y kubectl get\nNAME -o\njsonpath=\"{.a}\"\n```\n";
    let wrong: Vec<_> = begun(wrapped).into_iter().filter(|(_, word)| !is_command(word)).collect();
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    assert_eq!(begun("```sh\ncat <<'END'\nkind: x\nEND\nmake\n```").len(), 2);
}

#[test]
fn every_line_of_a_block_of_commands_begins_with_a_command() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in documents().into_iter().filter(|page| name(page) != PROGRAM) {
        for (line, word) in begun(&read(&page)) {
            count += 1;
            if !is_command(&word) {
                wrong.push(format!("{}:{line}: {word}", name(&page)));
            }
        }
    }
    assert!(count > 200, "{count} commands");
    assert!(wrong.is_empty(), "no commands, or commands to list:\n{}", wrong.join("\n"));
}

/// The image of the operator has no other program, and an image with a worker need not have any.
#[test]
fn no_runbook_runs_a_program_that_an_image_may_lack() {
    let mut count = 0;
    for page in below(&root().join("docs/runbooks"), &["md"]) {
        for line in read(&page).lines().filter(|line| line.contains(" exec ")) {
            let Some((_, program)) = line.split_once(" -- ") else { continue };
            count += 1;
            // That of Calico's own pods.
            let is_there = program.starts_with('/') || program.starts_with("birdcl ");
            assert!(is_there, "{}: {program}", name(&page));
        }
    }
    assert!(count > 1, "{count}");
}

#[test]
fn a_page_that_applies_our_worker_puts_in_the_image() {
    let samples: Vec<_> = below(&root().join("deploy/samples"), &["yaml"])
        .iter()
        .filter(|file| read(file).contains(PLACEHOLDER))
        .map(|file| name(file))
        .collect();
    assert!(samples.len() > 3, "{samples:?}");
    for page in documents() {
        let text = read(&page);
        let applies = samples.iter().any(|file| text.contains(&format!("apply -f {file}")));
        assert!(!applies || text.contains(SUBSTITUTION), "{}", name(&page));
    }
    let page = read(&root().join("docs/reference/samples.md"));
    assert!(page.contains(SUBSTITUTION));
    for file in samples {
        let of_samples = file.strip_prefix("deploy/samples/").expect("a sample");
        let sample = of_samples.split('/').next().expect("a name");
        assert!(page.contains(&format!("`{sample}`")), "{sample}");
    }
}
