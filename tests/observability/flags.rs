//! The table of the operator's flags.
use clap::CommandFactory;
use traffic_operator::cli::Cli;

use crate::files::{read, root};

/// Several flags of a row have one default each.
#[test]
fn the_page_has_every_flag_with_its_default_and_no_other() {
    let page = read(&root().join("docs/reference/flags.md"));
    let mut shown = Vec::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `--")) {
        let mut cells = row.split(" | ");
        let (flags, default) = (cells.next().expect("flags"), cells.next().expect("a default"));
        let flags: Vec<_> = flags.split(", ").collect();
        let defaults = if flags.len() == 1 { vec![default] } else { default.split(", ").collect() };
        shown.extend(flags.into_iter().zip(defaults).map(|(flag, default)| {
            (flag.trim_start_matches("`--").trim_end_matches('`'), default.trim_matches('`'))
        }));
    }
    let command = Cli::command();
    let run = command.find_subcommand("run").expect("run").get_arguments();
    for flag in run.filter(|flag| flag.get_long().is_some_and(|name| name != "help")) {
        let name = flag.get_long().expect("a name");
        let at = shown.iter().position(|(shown, _)| *shown == name);
        let (_, default) = shown.remove(at.unwrap_or_else(|| panic!("no row of --{name}")));
        let values = flag.get_default_values().iter().map(|value| value.to_string_lossy());
        let values = values.collect::<Vec<_>>().join(",");
        // That of a namespace comes from the pod first.
        assert!(default.contains(&values), "--{name} is {values} by default and not {default}");
    }
    assert!(shown.is_empty(), "no such flags: {shown:?}");
}
