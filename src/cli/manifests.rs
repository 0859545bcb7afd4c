//! `manifests`: what `deploy/` is generated from.
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::manifests;

/// Flags of `manifests`.
#[derive(Args, Clone, Debug)]
pub struct ManifestsArgs {
    /// Write the files into this directory instead (`crds/`, `rbac/` and `monitoring/` below it).
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Prints the generated files, or writes them.
pub(super) fn print(args: ManifestsArgs) -> anyhow::Result<()> {
    let files = manifests::files()?;
    let Some(dir) = args.output_dir else {
        // What is printed can be given to kubectl.
        for file in files.iter().filter(|file| file.path != manifests::RULES) {
            print!("{}", file.text);
        }
        return Ok(());
    };
    for file in files {
        let path = dir.join(&file.path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
        }
        std::fs::write(&path, file.text).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}
