//! The binary and its output, and servers that it asks.
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
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

/// A command that runs until it is dropped, and its output.
pub struct Running {
    child: Child,
    pub out: BufReader<ChildStdout>,
}

impl Running {
    /// Starts the binary.
    pub fn start(args: &[&str]) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_traffic-operator"));
        let mut child = command(program, args, &[]).spawn().expect("the binary runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, out }
    }

    /// Reads lines up to one that contains this text, and returns it.
    pub fn until(&mut self, text: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let length = self.out.read_line(&mut line).expect("output");
            all.push_str(&line);
            assert!(length > 0, "{text} is not in\n{all}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command in whose environment nothing leads to a cluster.
fn command(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a program with this text on standard input and these environment variables.
pub fn execute(program: &Path, args: &[&str], input: &str, env: &[(&str, &str)]) -> Outcome {
    let mut child = command(program, args, env).spawn().expect("the binary runs");
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
