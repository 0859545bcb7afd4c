//! The command line; doc comments are the help text. Every flag of `run` is an environment variable
//! too.
use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod agent;
mod backtest;
mod cluster;
mod completions;
mod doctor;
mod documents;
mod evaluate;
mod explain;
mod invocation;
mod kinds;
mod manifests;
mod output;
mod plan;
mod prometheus;
mod run;
mod series;
mod values;

pub use prometheus::PrometheusArgs;
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
    Run(Box<RunArgs>),
    /// Run one of the processes that work in the pods.
    Agent(agent::AgentArgs),
    /// Check everything the operator needs, and say how to repair what is missing.
    Doctor(doctor::DoctorArgs),
    /// Say why something is as it is.
    Explain(explain::ExplainArgs),
    /// Judge once, by what Prometheus says now: what would a TrafficWatch decide?
    ///
    /// Reads only; with --cluster the nodes from the API server too.
    Evaluate(evaluate::EvaluateArgs),
    /// Judge a history, step by step: what would a TrafficWatch have decided, and with other
    /// thresholds?
    ///
    /// Reads only; with --cluster the nodes from the API server too, as they are now.
    Backtest(backtest::BacktestArgs),
    /// Say what would be done, step by step, before anything is.
    Plan(plan::PlanArgs),
    /// Print the custom resource definitions and the RBAC rules, as YAML.
    Manifests(manifests::ManifestsArgs),
    /// Print the script that completes commands and flags in a shell.
    Completions(completions::CompletionsArgs),
}

impl Cli {
    /// Reads the arguments, the program's name among them: called as `kubectl-traffic` it is the
    /// plugin `kubectl traffic`, and says so in its texts.
    ///
    /// # Errors
    /// What clap says of wrong arguments; `--help` and `--version` among it.
    pub fn of(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Vec<_> = args.into_iter().collect();
        let mut command = Self::command();
        if let Some(typed) = invocation::typed(args.first().map(OsString::as_os_str)) {
            command = command.bin_name(typed).display_name(typed);
        }
        let matches = command.clone().try_get_matches_from(args)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Does what was asked; errors are printed, with their causes.
    #[must_use]
    pub fn execute(self) -> ExitCode {
        let done = |()| ExitCode::SUCCESS;
        let result = match self.command {
            Command::Run(args) => run::run(&args).map(done),
            Command::Agent(args) => agent::run(args).map(done),
            Command::Doctor(args) => doctor::run(&args),
            Command::Explain(args) => explain::run(args).map(done),
            Command::Evaluate(args) => evaluate::run(&args).map(done),
            Command::Backtest(args) => backtest::run(&args).map(done),
            Command::Plan(args) => plan::run(args).map(done),
            Command::Manifests(args) => manifests::print(args).map(done),
            Command::Completions(args) => completions::print(&args, Self::command()).map(done),
        };
        match result {
            Ok(code) => code,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_names_what_was_typed() {
        let usage = |program: &str| {
            let args = [program, "run", "--no-such-flag"].map(OsString::from);
            Cli::of(args).unwrap_err().to_string()
        };
        assert!(usage("/x/kubectl-traffic").contains("Usage: kubectl traffic run"));
        assert!(usage("/x/traffic-operator").contains("Usage: traffic-operator run"));
    }
}
