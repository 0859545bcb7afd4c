//! The page that describes the commands names every one of them; with the page of the operator's
//! flags it names every flag.
use clap::CommandFactory;
use traffic_operator::cli::Cli;

const PAGE: &str = include_str!("../../docs/reference/commands.md");
const FLAGS: &str = include_str!("../../docs/reference/flags.md");

fn flags(command: &clap::Command, all: &mut Vec<String>) {
    let own = command.get_arguments().filter_map(|flag| flag.get_long());
    all.extend(own.map(|flag| format!("--{flag}")));
    command.get_subcommands().for_each(|command| flags(command, all));
}

#[test]
fn every_command_has_a_section_and_every_flag_is_named() {
    let mut all = Vec::new();
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(PAGE.contains(&format!("\n## {name}\n")), "{name} has no section");
        flags(command, &mut all);
    }
    assert!(all.len() > 20);
    // Shown by their short forms.
    all.retain(|flag| !["--help", "--output", "--file"].contains(&flag.as_str()));
    for flag in all {
        assert!(PAGE.contains(&flag) || FLAGS.contains(&flag), "{flag} is not described");
    }
}
