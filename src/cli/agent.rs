//! `agent`: in the image, a separate program that replaces this one.
use std::{env, os::unix::process::CommandExt, path::Path, process::Command};

use traffic_operator_agent::cli::{self, AgentArgs};

/// The agent's own program in the image. It needs a third of the memory, because this program also
/// contains the clients of Kubernetes, etcd and Prometheus.
const PROGRAM: &str = "/traffic-operator-agent";

/// Runs an agent: the image's separate program if there is one, else the same code in this process.
pub(super) fn run(args: AgentArgs) -> anyhow::Result<()> {
    if Path::new(PROGRAM).exists() {
        // It returns only on failure; the process keeps its id, and its parent keeps waiting for
        // it.
        let error = Command::new(PROGRAM).args(env::args_os().skip(2)).exec();
        eprintln!("warning: {PROGRAM}: {error}; the agent runs in this program");
    }
    cli::run(args)
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;

    /// Pods created before the agent had its own program use these commands.
    #[test]
    fn the_agents_commands_are_still_commands_of_the_operator() {
        for command in [&["probe"][..], &["worker"], &["reload", "--url", "http://localhost/"]] {
            let all = ["traffic-operator", "agent"].iter().chain(command);
            assert!(Cli::of(all.map(Into::into)).is_ok(), "{command:?}");
        }
    }
}
