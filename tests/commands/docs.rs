//! The page about the commands names every one of them; together with the page about the operator's
//! flags it names every flag.
use clap::CommandFactory;
use traffic_operator::cli::Cli;

use crate::{evaluating::three, program::run_with_input, shells::pages};

const PAGE: &str = include_str!("../../docs/reference/commands.md");
const FLAGS: &str = include_str!("../../docs/reference/flags.md");
const README: &str = include_str!("../../README.md");

/// Returns the part of a text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after:?} after {before:?}")).0
}

/// Newcomers get the output on the page from the file on the page.
#[test]
fn the_first_judgment_in_the_readme_is_that_of_its_file() {
    let section = between(README, "\n## Without installing anything, one minute\n", "\n## ");
    let (file, url) = (between(section, "```yaml\n", "```"), "http://127.0.0.1:9090");
    let shown = between(section, &format!("evaluate -f watch.yaml --prometheus-url {url}\n"), "…");
    let prometheus = three();
    let args = ["evaluate", "-f", "-", "--prometheus-url", &prometheus.url];
    let outcome = run_with_input(&args, file);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.starts_with(shown), "not as shown:\n{shown}but:\n{}", outcome.out);
}

#[test]
fn every_command_has_a_section_and_every_flag_is_named() {
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(PAGE.contains(&format!("\n## {name}\n")), "{name} has no section");
    }
    let mut all: Vec<_> = pages().into_iter().flat_map(|(_, flags)| flags).collect();
    assert!(all.len() > 20);
    // The page shows these in their short forms.
    all.retain(|flag| !["--help", "--output", "--file"].contains(&flag.as_str()));
    for flag in all {
        assert!(PAGE.contains(&flag) || FLAGS.contains(&flag), "{flag} is not described");
    }
}
