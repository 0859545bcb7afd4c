//! Completions, and the name of the kubectl plugin.
use std::{os::unix::fs::symlink, path::Path};

use clap::CommandFactory;
use traffic_operator::cli::Cli;

use crate::program::{run, run_as};

#[test]
fn every_shell_gets_a_script_that_knows_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = run(&["completions", shell]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        for word in ["traffic-operator", "manifests", "completions", "prometheus-url"] {
            assert!(outcome.out.contains(word), "{shell} lacks {word}");
        }
    }
    let outcome = run(&["completions", "csh"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("powershell"), "{}", outcome.err);
}

/// Returns the names of the pages of all commands, with the flags that each must describe.
pub fn pages() -> Vec<(String, Vec<String>)> {
    fn of(command: &clap::Command, parent: &str) -> Vec<(String, Vec<String>)> {
        let name = format!("{parent}{}", command.get_name());
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        let flags = flags.filter_map(|flag| flag.get_long()).map(|flag| format!("--{flag}"));
        let own = (name.clone(), flags.collect());
        let below = command.get_subcommands().flat_map(|below| of(below, &format!("{name}-")));
        std::iter::once(own).chain(below).collect()
    }
    of(&Cli::command(), "")
}

#[test]
fn every_command_has_a_manual_page_with_all_its_flags() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man/man1");
    // Pages of an earlier build would hide that one is missing.
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let path = dir.to_str().expect("a path");
    // Also into an existing directory.
    for _ in 0..2 {
        let outcome = run(&["man", "--dir", path]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
    let all = pages();
    assert!(all.len() > 20, "{all:?}");
    for (name, flags) in all {
        let file = dir.join(format!("{name}.1"));
        let page = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
        // A hyphen at which no line breaks.
        let page = page.replace("\\-", "-");
        assert!(page.contains(".SH NAME"), "{name}: {page}");
        for flag in flags {
            assert!(page.contains(&flag), "{name} does not describe {flag}");
        }
    }
    let outcome = run(&["man"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains(".SH SYNOPSIS"), "{}", outcome.out);
    assert_eq!(run(&["man", "--dir", "/proc/none"]).code, Some(1));
}

#[test]
fn the_plugin_name_is_the_name_in_every_text() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin");
    std::fs::create_dir_all(&dir).unwrap();
    let link = dir.join("kubectl-traffic");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_traffic-operator"), &link).unwrap();
    }
    let help = run_as(&link, &["--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.out.contains("Usage: kubectl traffic <COMMAND>"), "{}", help.out);
    let help = run_as(&link, &["manifests", "--help"]);
    assert!(help.out.contains("Usage: kubectl traffic manifests"), "{}", help.out);
    assert!(run_as(&link, &["--version"]).out.starts_with("kubectl traffic 0."));
    let own = run(&["--help"]);
    assert!(own.out.contains("Usage: traffic-operator <COMMAND>"), "{}", own.out);
}
