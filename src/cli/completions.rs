//! `completions`: the script that completes commands and flags in a shell.
use clap::Args;
use clap_complete::{Shell, generate};

use super::output;

/// Flags of `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// Shell to print the script for.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script of one shell.
pub(super) fn print(args: &CompletionsArgs, mut command: clap::Command) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    // The generator panics when it cannot write, but a closed pipe is no reason to panic.
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    output::text(&String::from_utf8_lossy(&script))
}
