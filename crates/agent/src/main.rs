//! The agent's own program: `traffic-operator agent` without the operator.
use std::process::ExitCode;

use clap::Parser;
use traffic_operator_agent::cli::{self, Cli};

fn main() -> ExitCode {
    match cli::run(Cli::parse().agent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
