//! `completions`: what a shell needs to complete commands and flags.
use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use clap_complete::{Shell, generate};

/// Flags of `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script of one shell.
pub(super) fn print(args: &CompletionsArgs, mut command: clap::Command) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    // The generator panics when it cannot write, and `| head` is no reason to.
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    io::stdout().write_all(&script).context("standard output")
}
