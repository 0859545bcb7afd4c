//! The command line; its doc comments are the help text. Every flag of `run` is an environment
//! variable too.
use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::Path,
    process::{self, ExitCode},
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use traffic_operator_agent::cli::{self, AgentArgs};

mod cluster;
mod complete;
mod documents;
mod explain;
mod flags;
mod generate;
mod health;
mod judge;
mod output;
mod page;
mod plan;
mod progress;
mod run;
mod version;

pub use flags::PrometheusArgs;
pub use run::RunArgs;

/// A Kubernetes operator that measures the network and acts on the results.
///
/// Judges nodes by their network load as measured by Prometheus, labels them as fit or unfit, and
/// keeps Deployments on the fit ones. Measures the network between pods, assigns streams to
/// workers, and elects BGP route reflectors.
#[derive(Debug, Parser)]
#[command(name = "traffic-operator", version, max_term_width = 100)]
#[command(
    after_help = "Also: version, run, agent, manifests, completions, man. `help COMMAND` describes each."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show which nodes are not fit, every object of every kind, and what needs attention.
    ///
    /// Reads the objects' status and the operator's Lease from the API server. Changes nothing.
    /// Exits with 1 if anything needs attention.
    Status(health::StatusArgs),
    /// Explain the current state of an object, or of a node, pod, stream or worker.
    Explain(explain::ExplainArgs),
    /// Print what the objects of a file would do in the cluster, without doing it.
    ///
    /// A TrafficWatch: the judgment of each node now. A NetworkProber: which pods would get an agent,
    /// and why others would not. A Swarm: which streams would move. A RouteReflectorSet: each step.
    /// Reads from the API server, Prometheus and the operator's leader. Changes nothing. Exits with
    /// 1 if one of them would do nothing.
    Plan(plan::PlanArgs),
    /// Check everything that the operator needs, and print how to fix what is missing.
    Doctor(health::DoctorArgs),
    /// Show the leader's status page in a browser on this machine, through the API server.
    ///
    /// Changes nothing. Ends when it is interrupted.
    Page(page::PageArgs),
    /// Judge nodes once with current data, as a TrafficWatch does.
    ///
    /// Reads from Prometheus only; with --cluster, also reads the nodes from the API server.
    /// Changes nothing.
    Evaluate(judge::EvaluateArgs),
    /// Judge the past step by step, as a TrafficWatch does, and compare thresholds.
    ///
    /// Reads from Prometheus only; with --cluster, also reads the current nodes from the API
    /// server. Changes nothing.
    Backtest(judge::BacktestArgs),
    /// Print the versions of this program, of the operator that leads, and of the cluster.
    #[command(hide = true)]
    Version(version::VersionArgs),
    /// Run the operator.
    #[command(hide = true)]
    Run(Box<RunArgs>),
    /// Run inside a pod: as the agent of a NetworkProber, a worker of a Swarm, or its sidecar.
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Print the custom resource definitions and the RBAC rules, as YAML.
    #[command(hide = true)]
    Manifests(generate::ManifestsArgs),
    /// Print the script that completes commands and flags in a shell.
    #[command(hide = true)]
    Completions(generate::CompletionsArgs),
    /// Print the manual page of the program, or write a page for each command.
    #[command(hide = true)]
    Man(generate::ManArgs),
}

impl Cli {
    /// Parses the arguments, including the program's name: called as `kubectl-traffic`, it is the
    /// plugin `kubectl traffic`, and its texts use that name.
    ///
    /// # Errors
    /// When clap refuses the arguments, or prints `--help` or `--version`.
    pub fn of(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Vec<_> = args.into_iter().collect();
        let mut command = Self::command();
        if let Some(typed) = typed(args.first().map(OsString::as_os_str)) {
            command = command.bin_name(typed).display_name(typed);
        }
        let matches = command.clone().try_get_matches_from(args)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Answers a shell that asks what may follow the words that were typed. Returns false if none
    /// asks.
    ///
    /// # Errors
    /// When the shell is unknown, or the answer cannot be written.
    pub fn complete() -> anyhow::Result<bool> {
        complete::answer(Self::command)
    }

    /// Runs the command; prints errors with their causes.
    #[must_use]
    pub fn execute(self) -> ExitCode {
        let done = |()| ExitCode::SUCCESS;
        let result = match self.command {
            Command::Run(args) => run::run(&args).map(done),
            Command::Agent(args) => agent(args).map(done),
            Command::Status(args) => health::status(&args),
            Command::Doctor(args) => health::doctor(&args),
            Command::Version(args) => version::run(&args).map(done),
            Command::Page(args) => page::run(&args).map(done),
            Command::Explain(args) => explain::run(&args).map(done),
            Command::Evaluate(args) => judge::evaluate(&args).map(done),
            Command::Backtest(args) => judge::backtest(&args).map(done),
            Command::Plan(args) => plan::run(args).map(done),
            Command::Manifests(args) => generate::manifests(args).map(done),
            Command::Man(args) => generate::man(&args, Self::command()).map(done),
            Command::Completions(args) => generate::completions(&args, &Self::command()).map(done),
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

/// The name of the executable that kubectl runs for `kubectl traffic …`.
const PLUGIN: &str = "kubectl-traffic";

/// The command as the user typed it, for usage and help texts; `None` is the name of the binary.
fn typed(program: Option<&OsStr>) -> Option<&'static str> {
    let name = Path::new(program?).file_stem()?;
    (name == PLUGIN).then_some("kubectl traffic")
}

/// The agent's own program in the image. It needs a third of the memory, because this program also
/// contains the clients of Kubernetes, etcd and Prometheus.
const PROGRAM: &str = "/traffic-operator-agent";

/// Runs an agent: the image's separate program if there is one, else the same code in this process.
fn agent(args: AgentArgs) -> anyhow::Result<()> {
    if Path::new(PROGRAM).exists() {
        // It returns only on failure; the process keeps its id, and its parent keeps waiting for
        // it.
        let error = process::Command::new(PROGRAM).args(env::args_os().skip(2)).exec();
        eprintln!("warning: {PROGRAM}: {error}; the agent runs in this program");
    }
    cli::run(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// `kubectl exec` runs commands in a pod of the operator, which may be in any namespace.
    #[test]
    fn every_command_takes_the_namespace_of_its_pod_for_that_of_the_operator() {
        fn count(command: &clap::Command) -> usize {
            let own = command.get_arguments().find(|flag| flag.get_id() == "operator_namespace");
            if let Some(flag) = own {
                let variable = flag.get_env().and_then(std::ffi::OsStr::to_str);
                assert_eq!(variable, Some("POD_NAMESPACE"), "{}", command.get_name());
            }
            usize::from(own.is_some()) + command.get_subcommands().map(count).sum::<usize>()
        }
        assert!(count(&Cli::command()) > 5);
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

    #[test]
    fn only_the_plugin_name_is_special() {
        for (program, expected) in [
            ("/home/me/.local/bin/kubectl-traffic", Some("kubectl traffic")),
            ("kubectl-traffic", Some("kubectl traffic")),
            ("/usr/bin/traffic-operator", None),
            ("kubectl-traffic-jam", None),
            ("", None),
        ] {
            assert_eq!(typed(Some(OsStr::new(program))), expected, "{program}");
        }
        assert_eq!(typed(None), None);
    }

    /// Pods created before the agent had its own program use these commands.
    #[test]
    fn the_agents_commands_are_still_commands_of_the_operator() {
        for command in [&["probe"][..], &["worker"], &["reload", "--url", "http://localhost/"]] {
            let all = ["traffic-operator", "agent"].iter().chain(command);
            assert!(Cli::of(all.map(Into::into)).is_ok(), "{command:?}");
        }
    }
}
