//! The binary, and what it printed.
use std::{path::Path, process::Command};

/// What one call came to.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The binary under its own name.
pub fn run(args: &[&str]) -> Outcome {
    run_as(Path::new(env!("CARGO_BIN_EXE_traffic-operator")), args)
}

/// The binary under another name. Nothing of the tester's own environment leads it to a cluster.
pub fn run_as(program: &Path, args: &[&str]) -> Outcome {
    let output = Command::new(program)
        .args(args)
        .env_clear()
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .output()
        .expect("the binary runs");
    Outcome {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}
