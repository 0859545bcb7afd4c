//! The binary: one crypto provider, one command, one exit code.
use std::process::ExitCode;

use traffic_operator::cli::Cli;

fn main() -> ExitCode {
    // With two providers in one process, the first connection panics: this is the only one.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: another TLS crypto provider is installed already");
        return ExitCode::FAILURE;
    }
    match Cli::complete() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    match Cli::of(std::env::args_os()) {
        Ok(cli) => cli.execute(),
        // Includes `--help` and `--version`, which go to standard output and are no failure.
        Err(error) => error.exit(),
    }
}
