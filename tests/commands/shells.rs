//! Completions, and the name of the kubectl plugin.
use std::{os::unix::fs::symlink, path::Path};

use clap::CommandFactory;
use traffic_operator::cli::Cli;

use serde_json::json;

use crate::{
    explaining::ApiServer,
    program::{execute, run, run_as},
};

#[test]
fn names_in_the_cluster_complete_commands_of_the_plugin() {
    let server = ApiServer::start();
    let names = |kind: &str, names: &[&str]| {
        let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items})
    };
    server.set("/api/v1/nodes", 200, names("NodeList", &["node-1", "node-2", "gateway"]));
    let watches = "/apis/traffic.example.com/v1alpha1/namespaces/shop/trafficwatches";
    server.set(watches, 200, names("TrafficWatchList", &["web", "db"]));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("completing");
    std::fs::create_dir_all(&dir).unwrap();
    let link = dir.join("kubectl_complete-traffic");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_traffic-operator"), &link).unwrap();
    }
    let kubeconfig = server.kubeconfig("completing");
    let asked = |words: &[&str]| {
        let env = [("KUBECONFIG", kubeconfig.to_str().expect("a path"))];
        let outcome = execute(&link, words, "", &env);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.out
    };
    assert_eq!(asked(&["explain", "node", "nod"]), "node-1\t\nnode-2\t\n:4\n");
    let names = asked(&["explain", "trafficwatch", "-n", "shop", ""]);
    assert!(names.starts_with("web\t\ndb\t\n") || names.starts_with("db\t\nweb\t\n"), "{names}");
    assert!(asked(&["sta"]).starts_with("status\tShow which nodes are not fit"));
    // A cluster that refuses leaves the flags.
    assert!(asked(&["explain", "pod", "-n", "shop", "--out"]).contains("--output"));
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
fn every_command_has_a_manual_page_and_a_shell_that_is_not_known_is_named() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    // Pages of an earlier build would hide that one is missing.
    let _ = std::fs::remove_dir_all(&dir);
    let outcome = run(&["man", "--dir", dir.to_str().expect("a path")]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for (name, _) in pages() {
        assert!(dir.join(format!("{name}.1")).exists(), "{name}");
    }
    let outcome = run(&["completions", "csh"]);
    assert!(outcome.code == Some(2) && outcome.err.contains("powershell"), "{outcome:?}");
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
