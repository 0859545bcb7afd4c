//! `manifests`, `completions` and `man`: what the program generates about itself.
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::{Shell, env::Shells};
use clap_mangen::Man;

use super::output;
use crate::manifests;

/// Flags of `manifests`.
#[derive(Args, Clone, Debug)]
pub struct ManifestsArgs {
    /// Write the files to this directory (`crds/`, `rbac/` and `monitoring/` below it) instead of
    /// printing them. For `deploy/` of the repository, also write the files of the chart and the
    /// bundle, and the field reference.
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Prints the generated files, or writes them.
pub(super) fn manifests(args: ManifestsArgs) -> anyhow::Result<()> {
    let mut files = manifests::files()?;
    let Some(dir) = args.output_dir else {
        // Prints only files that kubectl accepts.
        for file in files.iter().filter(|file| file.path != manifests::RULES) {
            print!("{}", file.text);
        }
        return Ok(());
    };
    if manifests::has_sources(&dir) {
        files.extend(manifests::packages(&files, &dir)?);
    }
    for file in files {
        let path = dir.join(&file.path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
        }
        std::fs::write(&path, file.text).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

/// Flags of `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// Shell to print the script for.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script of one shell, which asks this program at each key what may follow.
pub(super) fn completions(args: &CompletionsArgs, command: &clap::Command) -> anyhow::Result<()> {
    let (name, shell) = (command.get_name(), args.shell.to_string());
    let shells = Shells::builtins();
    let shell = shells.completer(&shell).with_context(|| format!("no {shell}"))?;
    let mut script = Vec::new();
    shell.write_registration("COMPLETE", name, name, name, &mut script).context("script")?;
    output::text(&String::from_utf8_lossy(&script))
}

/// Flags of `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Write one page for each command to this directory, instead of printing the page of the
    /// program.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the page of the program, or writes those of all commands.
pub(super) fn man(args: &ManArgs, command: clap::Command) -> anyhow::Result<()> {
    // The manual describes also what the first screen of help leaves out.
    let command = command.mut_subcommands(|one| one.hide(false));
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).context("manual page")?;
        return output::text(&String::from_utf8_lossy(&page));
    };
    let failed = || format!("--dir {}", dir.display());
    std::fs::create_dir_all(dir).with_context(failed)?;
    clap_mangen::generate_to(command, dir).with_context(failed)
}
