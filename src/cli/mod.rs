//! The command line; doc comments are the help text. Every flag of `run` is an environment variable
//! too.
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod manifests;
mod run;
mod values;

pub use run::RunArgs;

/// Kubernetes that acts on how its network really behaves.
///
/// Judges nodes by their measured network load in Prometheus, marks them fit or unfit by a label,
/// and keeps Deployments on the fit ones.
#[derive(Debug, Parser)]
#[command(name = "traffic-operator", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator.
    Run(RunArgs),
    /// Print the custom resource definitions and the RBAC rules, as YAML.
    Manifests(manifests::ManifestsArgs),
}

impl Cli {
    /// Does what was asked; errors are printed, with their causes.
    #[must_use]
    pub fn execute(self) -> ExitCode {
        let result = match self.command {
            Command::Run(args) => run::run(&args),
            Command::Manifests(args) => manifests::print(args),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
