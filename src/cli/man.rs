//! `man`: the manual pages.
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_mangen::Man;

use super::output;

/// Flags of `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Write one page for each command to this directory, instead of printing the page of the
    /// program.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the page of the program, or writes those of all commands.
pub(super) fn print(args: &ManArgs, command: clap::Command) -> anyhow::Result<()> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).context("manual page")?;
        return output::text(&String::from_utf8_lossy(&page));
    };
    let failed = || format!("--dir {}", dir.display());
    std::fs::create_dir_all(dir).with_context(failed)?;
    clap_mangen::generate_to(command, dir).with_context(failed)
}
