//! The `lab` program; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::cli::main()
}
