//! `manifests`: the sources of the generated files in `deploy/`.
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::manifests::{self, chart};

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
pub(super) fn print(args: ManifestsArgs) -> anyhow::Result<()> {
    let mut files = manifests::files()?;
    let Some(dir) = args.output_dir else {
        // Prints only files that kubectl accepts.
        for file in files.iter().filter(|file| file.path != manifests::RULES) {
            print!("{}", file.text);
        }
        return Ok(());
    };
    if chart::has_sources(&dir) {
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
