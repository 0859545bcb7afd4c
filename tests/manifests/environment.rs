//! `kubectl exec … doctor` sees the environment of the controllers and not their arguments.
use std::collections::BTreeSet;

use clap::CommandFactory;
use serde_json::{Value, json};
use traffic_operator::{
    api::{KINDS, KindInfo},
    cli::Cli,
    prometheus::DEFAULT_URL,
};

use crate::rendering::{NAMESPACE, Objects, chart, id, overlay};

const STANDALONE: &str = "http://prometheus.traffic-operator-monitoring.svc:9090";
const STACK: &str = "http://prometheus-operated.monitoring.svc:9090";

/// Returns the controllers' container.
fn container(objects: &Objects) -> &Value {
    let deployment = &objects[&id("Deployment", NAMESPACE, "traffic-operator")];
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

/// Returns the flags of a command, and the variable of each.
fn flags(command: &str) -> Vec<(String, Option<String>)> {
    let cli = Cli::command();
    let command = cli.find_subcommand(command).expect(command);
    let variable = |flag: &clap::Arg| flag.get_env().map(|name| name.to_string_lossy().into());
    let flags = command.get_arguments();
    flags.filter_map(|flag| Some((format!("--{}", flag.get_long()?), variable(flag)))).collect()
}

/// Returns the value that the environment gives to a flag of doctor.
fn of_doctor(container: &Value, flag: &str) -> Option<String> {
    let variable = flags("doctor").into_iter().find(|(name, _)| name == flag)?.1?;
    let mut env = container["env"].as_array().into_iter().flatten();
    Some(env.find(|env| env["name"] == *variable)?["value"].as_str()?.to_owned())
}

fn assert_known_to_doctor(what: &str, objects: &Objects, url: &str, kinds: &[&str]) {
    let container = container(objects);
    let shared = flags("doctor");
    for arg in container["args"].as_array().expect("args") {
        let arg = arg.as_str().expect("text");
        let name = arg.split('=').next().expect("a name");
        let hidden = shared.iter().any(|(flag, _)| flag == name);
        assert!(!hidden, "{what}: `kubectl exec … doctor` does not see {arg}");
    }
    let queried = of_doctor(container, "--prometheus-url");
    assert_eq!(queried.as_deref().unwrap_or(DEFAULT_URL), url, "{what}");
    let given = of_doctor(container, "--kinds").expect("kinds");
    let (without, with): (BTreeSet<_>, BTreeSet<_>) =
        given.split(',').partition(|kind| kind.starts_with('-'));
    assert_eq!(with, kinds.iter().copied().collect(), "{what}");
    let known = KINDS.iter().map(KindInfo::name).filter(|kind| !with.contains(&**kind));
    let known: Vec<_> = known.map(|kind| format!("-{kind}")).collect();
    assert_eq!(without, known.iter().map(String::as_str).collect(), "{what}");
}

#[test]
fn doctor_asks_the_prometheus_of_the_operator_for_the_kinds_that_run() {
    let names: Vec<String> = KINDS.iter().map(KindInfo::name).collect();
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    for (name, url) in [
        ("kube-prometheus", DEFAULT_URL),
        ("kube-prometheus-stack", STACK),
        ("standalone", STANDALONE),
    ] {
        assert_known_to_doctor(name, &overlay(name, &[]), url, &all);
        let values = json!({"prometheus": {"setup": name}, "kinds": ["Swarm", "TrafficWatch"]});
        let chart = chart(&format!("doctor-of-{name}"), NAMESPACE, &values);
        assert_known_to_doctor(name, &chart, url, &["Swarm", "TrafficWatch"]);
    }
    let one = overlay("trafficwatch-only", &[]);
    assert_known_to_doctor("trafficwatch-only", &one, DEFAULT_URL, &["TrafficWatch"]);
    let url = "https://thanos.example.com";
    let values = json!({"prometheus": {"setup": "external", "url": url}});
    assert_known_to_doctor("external", &chart("doctor-of-external", NAMESPACE, &values), url, &all);
}
