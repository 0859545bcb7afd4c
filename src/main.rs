//! The binary: one crypto provider, one command, one exit code.
use std::process::ExitCode;

use clap::Parser;
use traffic_operator::cli::Cli;

fn main() -> ExitCode {
    // Two providers in one process are a panic at the first connection: this is the only one.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: another TLS crypto provider is installed already");
        return ExitCode::FAILURE;
    }
    Cli::parse().execute()
}
