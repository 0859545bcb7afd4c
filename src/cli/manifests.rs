//! `manifests`: the sources of the generated files in `deploy/`.
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::{
    manifests::{self, chart},
    route_reflector::migrate_from_env,
};

/// Flags of `manifests`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ManifestsArgs {
    #[command(subcommand)]
    of: Option<Of>,

    /// Write the files to this directory (`crds/`, `rbac/` and `monitoring/` below it) instead of
    /// printing them. For `deploy/` of the repository, also write the files of the chart and the
    /// bundle, and the field reference.
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Manifests other than the operator's own.
#[derive(Clone, Debug, Subcommand)]
enum Of {
    /// Print the RouteReflectorSet that replaces an installation of
    /// calico-route-reflector-operator.
    RouteReflectorSet(FromArgs),
}

/// Flags of `manifests route-reflector-set`.
#[derive(Args, Clone, Debug)]
struct FromArgs {
    /// Read the settings from the original's environment variables: `ROUTE_REFLECTOR_*`,
    /// `DATASTORE_TYPE` and `ETCD_*`.
    #[arg(long, required = true)]
    from_env: bool,
}

/// Prints the generated files, or writes them.
pub(super) fn print(args: ManifestsArgs) -> anyhow::Result<()> {
    if let Some(Of::RouteReflectorSet(_)) = args.of {
        // A value that is not text is an error, and is reported as such.
        let lookup = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        print!("{}", migrate_from_env::from_env(&lookup)?);
        return Ok(());
    }
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
