//! The table of the operator's flags, and the defaults in it.
use clap::{Arg, CommandFactory};
use std::collections::BTreeMap;
use traffic_operator::{cli::Cli, prometheus::DEFAULT_URL};

use crate::files::{read, root};

/// The page's words for flags whose default is not a value of the flag.
const IN_WORDS: [(&str, &str); 7] = [
    ("kinds", "all"),
    ("prometheus-config", "none"),
    ("webhook-url", "the Service `traffic-operator-webhook`"),
    ("pinglist-url", "the Service `traffic-operator-pinglists`"),
    ("agent-image", "the image of the operator's own pod"),
    ("runbook-url", "none"),
    ("identity", "from `POD_NAME`, otherwise host name and process ID"),
];

/// Returns the default of each flag in the table; several flags of a row have one each.
fn shown() -> BTreeMap<String, String> {
    let page = read(&root().join("docs/reference/flags.md"));
    let mut shown = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `--")) {
        let mut cells = row.split(" | ");
        let (flags, defaults) = (cells.next().expect("flags"), cells.next().expect("defaults"));
        let flags: Vec<_> = flags.trim_start_matches("| ").split(", ").collect();
        let defaults: Vec<_> =
            if flags.len() > 1 { defaults.split(", ").collect() } else { vec![defaults] };
        assert_eq!(flags.len(), defaults.len(), "one default for each flag: {row}");
        for (flag, default) in flags.into_iter().zip(defaults) {
            let flag = flag.trim_matches('`').trim_start_matches("--").to_owned();
            assert_eq!(shown.insert(flag, default.to_owned()), None, "twice: {row}");
        }
    }
    shown
}

fn default_of(flag: &Arg) -> Option<String> {
    let values: Vec<_> = flag.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

#[test]
fn the_defaults_of_flags_are_those_of_the_page() {
    let mut shown = shown();
    let command = Cli::command();
    let run = command.find_subcommand("run").expect("run");
    for flag in run.get_arguments() {
        let Some(name) = flag.get_long().filter(|name| *name != "help") else { continue };
        let cell = shown.remove(name).unwrap_or_else(|| panic!("--{name} is not in the table"));
        let words = IN_WORDS.iter().find(|(of, _)| *of == name).map(|(_, words)| *words);
        match (name, default_of(flag), words) {
            ("prometheus-url", None, None) => assert_eq!(cell, format!("`{DEFAULT_URL}`")),
            ("lease-namespace", Some(default), None) => {
                assert_eq!(cell, format!("from `POD_NAMESPACE`, otherwise `{default}`"));
            }
            (_, Some(default), None) => assert_eq!(cell, format!("`{default}`"), "--{name}"),
            (_, None, Some(words)) => assert_eq!(cell, words, "--{name}"),
            (_, default, words) => panic!("--{name}: default {default:?}, in words {words:?}"),
        }
    }
    assert!(shown.is_empty(), "no such flags: {shown:?}");
}
