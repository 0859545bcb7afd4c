//! Start and end of an agent.
use std::process::Stdio;

use crate::stage::{Agent, command, config, entry, free_port, get};

fn refused(port: u16, metrics_port: u16) -> String {
    let output = command(port, metrics_port).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_port_that_is_taken_is_named() {
    let agent = Agent::start();
    let error = refused(agent.port, free_port());
    assert!(
        error.contains(&format!("HTTP_PORT: cannot listen on TCP port {}", agent.port)),
        "{error}"
    );
    let error = refused(free_port(), agent.metrics_port);
    assert!(error.contains("HTTP_PROMETHEUS_PORT: cannot listen on TCP"), "{error}");
    let udp = free_port();
    let _socket = std::net::UdpSocket::bind(("0.0.0.0", udp)).unwrap();
    let error = refused(udp, free_port());
    assert!(error.contains("HTTP_PORT: cannot listen on UDP"), "{error}");
    let port = free_port();
    let error = refused(port, port);
    assert!(error.contains("HTTP_PORT and HTTP_PROMETHEUS_PORT are both"), "{error}");
}

#[test]
fn it_ends_well_on_a_signal_even_with_probes_in_flight() {
    for signal in ["TERM", "INT"] {
        let hole = crate::stage::BlackHole::new();
        let mut agent = Agent::start();
        agent.publish(&config(
            60_000,
            60_000,
            r#"["HTTP"]"#,
            &[entry("b", "127.0.0.2", hole.port)],
        ));
        agent.page_with("the list", |page| page.lists() == 1);
        agent.signal(signal);
        assert_eq!(agent.ended(), Some(0), "{signal}");
    }
}

#[test]
fn the_pages_are_those_of_the_original() {
    let agent = Agent::start();
    let (headers, body) = get(agent.port, "/ping", "").unwrap();
    assert!(headers.starts_with("http/1.1 200"), "{headers}");
    assert_eq!(body, "pong\n");
    for (port, path, status) in [
        (agent.port, "/healthz", "200"),
        (agent.port, "/metrics", "404"),
        (agent.metrics_port, "/healthz", "200"),
        (agent.metrics_port, "/ping", "404"),
    ] {
        let (headers, _) = get(port, path, "").unwrap();
        assert!(headers.starts_with(&format!("http/1.1 {status}")), "{path}: {headers}");
    }
}

#[test]
fn the_page_about_the_agent_names_every_metric_and_every_variable() {
    let page = include_str!("../../docs/reference/agent.md");
    for name in traffic_operator::agent::metrics::NAMES {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for reason in traffic_operator::agent::reason::Reason::ALL {
        assert!(page.contains(&format!("\n| `{}` |", reason.label())), "{reason:?}");
    }
    let cli = <traffic_operator::cli::Cli as clap::CommandFactory>::command();
    let agent = cli.find_subcommand("agent").unwrap().find_subcommand("probe").unwrap();
    for flag in agent.get_arguments().filter(|flag| flag.get_id() != "help") {
        let variable = flag.get_env().unwrap().to_str().unwrap();
        assert!(page.contains(&format!("`{variable}`")), "{variable}");
        assert!(page.contains(&format!("`--{}`", flag.get_long().unwrap())), "{variable}");
    }
}
