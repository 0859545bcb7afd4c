//! The binary and its output, and servers that it asks.
use std::{
    io::Write,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use axum::Router;

/// The result of one run.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs the binary under its own name.
pub fn run(args: &[&str]) -> Outcome {
    run_with_input(args, "")
}

/// Runs the binary with this text on standard input.
pub fn run_with_input(args: &[&str], input: &str) -> Outcome {
    execute(Path::new(env!("CARGO_BIN_EXE_traffic-operator")), args, input, &[])
}

/// Runs the binary with these environment variables.
pub fn run_with_env(args: &[&str], env: &[(&str, &str)]) -> Outcome {
    execute(Path::new(env!("CARGO_BIN_EXE_traffic-operator")), args, "", env)
}

/// Runs the binary under another name.
pub fn run_as(program: &Path, args: &[&str]) -> Outcome {
    execute(program, args, "", &[])
}

/// Runs a command so that nothing in the tester's own environment leads to a cluster.
fn execute(program: &Path, args: &[&str], input: &str, env: &[(&str, &str)]) -> Outcome {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // The program may end without having read all of it.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("output");
    Outcome {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A port of the loopback device, and the URL of its server.
pub fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("non-blocking");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    (listener, url)
}

/// Serves until the process ends.
pub fn serve(listener: TcpListener, router: Router) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("runtime").block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("listener");
            axum::serve(listener, router).await.expect("server");
        });
    });
}
