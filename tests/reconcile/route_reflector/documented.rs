//! The commands in the documentation of route reflectors and of migration, run unchanged in a shell
//! with the real kubectl.
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

use k8s_openapi::jiff::Timestamp;
use lab::calico::Group;
use serde_json::json;

use super::{
    Stage,
    stage::{GROUP, ID, LABEL, SLOT, two},
};
use crate::bench::{Bench, run};

const PAGES: [&str; 2] = [
    include_str!("../../../docs/reference/routereflectorset.md"),
    include_str!("../../../docs/operations/migration.md"),
];

/// Returns the only block of shell commands of the page that contains this text.
pub fn documented(part: &str) -> String {
    let blocks = PAGES.into_iter().flat_map(|page| page.split("```"));
    let blocks = blocks.filter_map(|block| block.strip_prefix("sh\n"));
    let mut found = blocks.filter(|block| block.contains(part));
    let block = found.next().unwrap_or_else(|| panic!("no block has {part:?}"));
    assert!(found.next().is_none(), "two blocks have {part:?}");
    block.to_owned()
}

/// Runs commands as the administrator, in a directory; all of them must succeed.
pub async fn shell(bench: &Bench, commands: &str, dir: &Path) {
    let kubectl = lab::tools::ensure("kubectl").expect("kubectl");
    let path = format!(
        "{}:{}",
        kubectl.parent().expect("directory").display(),
        std::env::var("PATH").expect("PATH")
    );
    let config = bench.plane().kubeconfig_for("admin", &["system:masters"]).expect("kubeconfig");
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", commands]).current_dir(dir);
    command.env("PATH", path).env("KUBECONFIG", config).stdin(Stdio::null());
    let done = tokio::task::spawn_blocking(move || command.output()).await.expect("thread");
    let done = done.expect("bash");
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{commands}\n{errors}");
}

/// In a zone named `1`, our peers looked like the original's peers of single nodes.
#[test]
#[ignore = "needs kubectl: `make verify` runs it"]
fn the_clean_up_after_the_original_leaves_our_own_peers() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let spec = json!({"nodeSelector": "all()", "peerSelector": "has(rr)"});
        let peers = stage.peers();
        let ours = json!({"app.kubernetes.io/managed-by": "traffic-operator"});
        let uid = "0c1f9f0e-1d6c-4f7e-9d3e-5a2b8d6f1c22";
        for name in ["rrs-to-rrs", "peer-to-rrs-1-a", &format!("peer-to-rrs-2-{uid}")] {
            peers.create("BGPPeer", json!({"name": name, "labels": ours}), spec.clone()).await;
        }
        for name in ["peer-to-rrs-1-mine", "tor"] {
            peers.create("BGPPeer", json!({"name": name}), spec.clone()).await;
        }
        let kept = peers.names().await;
        for number in 1..=3 {
            let name = format!("peer-to-rrs-{number}-{number}{}", &uid[1..]);
            peers.create("BGPPeer", json!({"name": name}), spec.clone()).await;
        }
        let commands = documented("peer-to-rrs-[0-9]+-");
        shell(&stage.bench, &commands, Path::new("/")).await;
        assert_eq!(peers.names().await, kept);
        // Nothing is left, which is not a failure.
        shell(&stage.bench, &commands, Path::new("/")).await;
        assert_eq!(peers.names().await, kept);
    });
}

#[test]
#[ignore = "needs kubectl: `make verify` runs it"]
fn what_retain_leaves_is_removed_by_the_documented_commands_and_nothing_else() {
    run(async |bench| {
        let stage = Stage::with(bench, Group::V1).await;
        stage.nodes(4).await;
        let operator = stage.operator().await;
        stage
            .configurations()
            .create("BGPConfiguration", json!({"name": "default"}), json!({}))
            .await;
        let spec = json!({"nodeSelector": "all()", "peerIP": "10.0.0.9", "asNumber": 65_001});
        stage.peers().create("BGPPeer", json!({"name": "tor"}), spec).await;
        stage.set("main", two(json!({"mesh": "Migrate"}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        stage.delete("main").await;
        assert_eq!(stage.marks().await.len(), 2, "Retain");
        drop(operator);
        let since = Timestamp::now();
        let commands = documented("kubectl label nodes --all");
        for key in [LABEL, SLOT, GROUP, ID] {
            assert!(commands.contains(key), "{key}");
        }
        shell(&stage.bench, &commands, Path::new("/")).await;
        assert_eq!(stage.marks().await, BTreeMap::new());
        assert_eq!(stage.peers().names().await, ["tor"]);
        assert_eq!(stage.mesh().await, Some(true));
        assert_eq!(stage.bench.writes_since(since).await, []);
    });
}
