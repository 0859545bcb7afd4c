//! `bird_exporter` with exactly the flags of the page, next to a real BIRD.
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::server::{eventually, get};

const PAGE: &str = include_str!("../../docs/reference/routereflectorset.md");

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[String]) -> Ended {
    let command = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
    Ended(command.unwrap_or_else(|error| panic!("{program}: {error}")))
}

/// Returns the flags on the page, word for word, and those that a comment gives instead for both
/// families.
fn flags() -> (Vec<String>, Vec<String>) {
    let (_, yaml) = PAGE.split_once("  - name: bird-exporter").expect("the container");
    let (yaml, _) = yaml.split_once("volumeMounts").expect("its end");
    let lines = yaml.lines().filter_map(|line| line.trim().strip_prefix("- -"));
    let (mut plain, mut both) = (vec![], vec![]);
    for line in lines {
        let (flag, comment) = line.split_once(" #").unwrap_or((line, ""));
        let instead = comment.split_whitespace().find_map(|word| word.strip_prefix('-'));
        plain.push(format!("-{flag}"));
        both.push(format!("-{}", instead.unwrap_or(flag)));
    }
    (plain, both)
}

/// A BIRD with one session towards the other one, and its socket.
fn bird(dir: &Path, number: u8, port: u16) -> (Ended, PathBuf) {
    let other = 3 - number;
    let text = format!(
        "log stderr all;\nrouter id 10.9.0.{number};\nprotocol device {{ }}\n\
         protocol bgp Node_127_0_9_{other} {{\n  local 127.0.9.{number} port {port} as 64512;\n  \
         neighbor 127.0.9.{other} port {port} as 64512;\n  strict bind on;\n  multihop;\n  \
         connect delay time 1;\n  connect retry time 1;\n  ipv4 {{ import all; export none; }};\n}}\n"
    );
    let (file, socket) = (dir.join(format!("{number}.conf")), dir.join(format!("{number}.ctl")));
    fs::write(&file, text).expect("configuration");
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let arguments = ["-f".into(), "-c".into(), path(&file), "-s".into(), path(&socket)];
    (start("bird", &arguments), socket)
}

#[test]
fn the_exporter_as_the_page_runs_it_exports_the_sessions() {
    if fs::metadata("/proc/self").expect("this process").uid() != 0 {
        lab::left_out("BIRD and its exporter: installing them needs root");
        return;
    }
    lab::packages::ensure_routers().unwrap_or_else(|error| panic!("{error:#}"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("r05-exporter");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("directory");
    let port = lab::free_port().expect("a port");
    let [(_one, socket), (_two, socket6)] = [1, 2].map(|number| bird(&dir, number, port));
    let (plain, both) = flags();
    assert!(plain.iter().any(|flag| flag == "-bird.ipv6=false"), "{plain:?}");
    for (flags, families) in [(plain, 1), (both, 2)] {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, lab::free_port().expect("a port")));
        // The paths of sockets and the address are the page's; all other flags are tested.
        let flags: Vec<String> = flags
            .iter()
            .map(|flag| match flag.split_once('=').map_or("", |(name, _)| name) {
                "-bird.socket" => format!("-bird.socket={}", socket.display()),
                "-bird.socket6" => format!("-bird.socket6={}", socket6.display()),
                "-web.listen-address" => format!("-web.listen-address={address}"),
                _ => flag.clone(),
            })
            .collect();
        let _exporter = start("prometheus-bird-exporter", &flags);
        let text = eventually("established sessions", || {
            let text = get(address, "/metrics")?;
            let up = |line: &&str| {
                line.starts_with("bird_protocol_up{")
                    && line.contains(r#"proto="BGP""#)
                    && line.contains(r#"state="Established""#)
                    && line.ends_with(" 1")
            };
            (text.lines().filter(up).count() == families).then_some(text)
        });
        assert!(text.contains(r#"name="Node_127_0_9_2""#), "{text}");
        assert_eq!(text.contains(r#"ip_version="6",name="Node_127_0_9_1""#), families == 2);
    }
}
