//! A refusal names the command that grants the missing right, and the command works.
use std::process::Command;

use serde_json::{Value, json};

use super::{Author, Kind, PROBER, SET, SWARM, WATCH, bind_everywhere, cluster_role, kinds, rule};
use crate::{
    bench::{Bench, eventually, run},
    traffic_watch::judging::deployment,
};

/// Characters that end a word in a shell, or that the name of a binding may not have.
const ODD: &str = "o'neil/100%";

#[test]
#[ignore = "needs kubectl: `make verify` runs it"]
fn each_command_in_a_refusal_grants_what_was_missing() {
    for user in ["carol", ODD] {
        run(async |bench| granted(&bench, user).await);
    }
}

async fn granted(bench: &Bench, user: &str) {
    let safe = user.replace(['\'', '/', '%'], "-");
    bench.namespace(super::TENANT, json!({})).await;
    super::role(bench, &safe, &[kinds()]).await;
    super::bind(bench, &safe, user, json!({"kind": "Role", "name": safe})).await;
    let sets = format!("{safe}-sets");
    cluster_role(bench, &sets, &[rule("traffic.example.com", "routereflectorsets", &["*"])]).await;
    bind_everywhere(bench, &sets, user, &sets).await;
    let author = Author::of(bench, user).await;
    let mut commands = 0;
    for (kind, spec) in [
        (WATCH, json!({"deployment": deployment()})),
        (WATCH, json!({"criteria": [{"name": "loss", "query": "loss", "max": 1}]})),
        (WATCH, json!({"label": "platform"})),
        // One command for both objects.
        (PROBER, json!({"monitoring": null})),
        (PROBER, json!({"mode": "DaemonSet"})),
        // Before the right to nodes, which includes queries of the whole cluster.
        (SET, json!({"transition": {"query": "x"}})),
        (WATCH, json!({"taint": "NoSchedule"})),
        (WATCH, json!({"reservation": {"resource": "traffic.example.com/egress-mbps"}})),
    ] {
        commands += grant(bench, &author, kind, spec).await;
    }
    assert_eq!(commands, 8);
    for (kind, spec) in [
        (WATCH, json!({"maxUnfit": "100%", "minFit": 0, "label": "platform"})),
        (SWARM, json!({"weights": {"query": "x"}})),
    ] {
        author.try_create(kind, spec).await.expect("granted before");
    }
}

/// Runs the command of a refusal as the administrator.
async fn grant(bench: &Bench, author: &Author, kind: Kind, spec: Value) -> usize {
    let refusal = async || {
        let message = author.try_create(kind, spec.clone()).await.err()?;
        message.contains("grant it with: ").then_some(message)
    };
    let message = eventually("a refusal with a command", refusal).await;
    let command = message.split("grant it with: ").nth(1).expect("a command").to_owned();
    assert!(command.starts_with("kubectl create "), "{message}");
    let kubectl = lab::tools::ensure("kubectl").expect("kubectl");
    let path = kubectl.parent().expect("folder").display().to_string();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap_or_default());
    let config = bench.plane().kubeconfig().to_owned();
    let shell = command.clone();
    let output = tokio::task::spawn_blocking(move || {
        Command::new("sh").args(["-c", &shell]).env("PATH", path).env("KUBECONFIG", config).output()
    });
    let output = output.await.expect("thread").expect("sh");
    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    let allowed = async || author.try_create(kind, spec.clone()).await.ok();
    eventually(&format!("{command} to help"), allowed).await;
    1
}
