//! Completions, and the name of the kubectl plugin.
use std::{os::unix::fs::symlink, path::Path};

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
