//! `agent`: in the image a program of its own, which takes this one's place.
use std::{env, os::unix::process::CommandExt, path::Path, process::Command};

use traffic_operator_agent::cli::{self, AgentArgs};

/// The agent's own program in the image. What runs there needs a third of the memory: this program
/// holds the clients of Kubernetes, etcd and Prometheus too.
const PROGRAM: &str = "/traffic-operator-agent";

/// Runs an agent: the image's own program where there is one, else the same code in this process.
pub(super) fn run(args: AgentArgs) -> anyhow::Result<()> {
    if Path::new(PROGRAM).exists() {
        // It returns only when it fails; the process stays, and with it its waiters.
        let error = Command::new(PROGRAM).args(env::args_os().skip(2)).exec();
        eprintln!("warning: {PROGRAM}: {error}; the agent runs in this program");
    }
    cli::run(args)
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;

    /// Pods that were made before the agent had a program of its own.
    #[test]
    fn the_agents_commands_are_still_commands_of_the_operator() {
        for command in [&["probe"][..], &["worker"], &["reload", "--url", "http://localhost/"]] {
            let all = ["traffic-operator", "agent"].iter().chain(command);
            assert!(Cli::of(all.map(Into::into)).is_ok(), "{command:?}");
        }
    }
}
