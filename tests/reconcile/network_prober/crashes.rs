//! The operator is killed after each of its writes, before it has the answer, and starts again.
use std::time::Duration;

use kube::api::DeleteParams;
use lab::fault::{Fault, Proxy, Rule};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, Operator, eventually, message, run},
    faults::WRITES,
};

/// The sample of the original prober, whose lists are a file.
const ORIGINAL: &str = include_str!("../../../deploy/samples/networkprober-original.yaml");

/// Runs a pod with the agent that the original's webhook gave it: our own webhook cannot be reached
/// here, because the operator may be dead.
async fn runs(bench: &Bench, name: &str, ip: &str) {
    let agent = json!({
        "name": "net-prober", "image": "bigmikes/kube-net-prober:test-version-v8",
        "restartPolicy": "Always",
        "ports": [
            {"name": "np-ping", "containerPort": 9090},
            {"name": "np-prometheus", "containerPort": 1222},
        ],
    });
    let change = json!({
        "metadata": {"annotations": {"netprober-container-deployed": "true"}},
        "spec": {"initContainers": [agent]},
    });
    bench.pod("default", name, change).await;
    bench.runs("default", name, ip).await;
}

/// Reports whether file, webhook and status are those of this many agents.
async fn lists(bench: &Bench, agents: usize) -> bool {
    let Some(file) = bench.file("default", "np").await else { return false };
    let listed = file["endpointsMap"].as_object().map_or(0, serde_json::Map::len);
    let status = bench.prober_status("np").await;
    let covered = message(&status, "Covered", "True", "AllInjected").is_some();
    let injects = bench.entry("default", "np").await.is_some();
    listed == agents && status["injected"] == agents && injects && covered
}

async fn is_gone(bench: &Bench) -> bool {
    let prober = bench.probers("default").get_opt("np").await.expect("NetworkProber");
    let map = bench.maps("default").get_opt("np").await.expect("ConfigMap");
    prober.is_none() && map.is_none() && bench.entry("default", "np").await.is_none()
}

/// The second process takes over the lease of the first at once, because it has the same name. The
/// address of the webhook is part of what they write, so that both have the same.
fn start(bench: &Bench, proxy: &Proxy) -> Operator {
    let kubeconfig = proxy.kubeconfig().expect("a proxy before the API server").to_owned();
    let lease = ["--lease-duration", "15s", "--identity", "operator-1"];
    let urls = ["--webhook-url", "https://127.0.0.1:9", "--pinglist-url", "https://127.0.0.1:9"];
    let prometheus = ["--prometheus-url", &bench.prometheus.url];
    Bench::operator_from(kubeconfig, &prometheus, &[lease, urls].concat())
}

/// Two pods run, then a third one, and the object is deleted; returns whether the operator came to
/// the write of this number, after which it is killed.
async fn play(bench: Bench, number: usize) -> bool {
    // The garbage collector deletes pods of nodes that do not exist.
    bench.node("node-1").await;
    runs(&bench, "a", "10.1.0.1").await;
    runs(&bench, "b", "10.1.0.2").await;
    let (first, second) = (bench.proxy().await, bench.proxy().await);
    let halt = Rule::new(Fault::Halt).verbs(WRITES).other_than("/leases/");
    first.set([halt.skip(number).times(1)]);
    let (mut operator, mut killed) = (start(&bench, &first), false);
    for part in 0..3 {
        match part {
            0 => {
                let sample: Value = serde_yaml::from_str(ORIGINAL).expect("YAML");
                bench.prober("np", sample["spec"].clone()).await;
            }
            1 => runs(&bench, "c", "10.1.0.3").await,
            _ => {
                let now = DeleteParams::background();
                bench.probers("default").delete("np", &now).await.expect("delete");
            }
        }
        let is_over = async || match part {
            2 => is_gone(&bench).await,
            _ => lists(&bench, 2 + part).await,
        };
        let over_or_halted =
            async || (is_over().await || !killed && first.is_halted()).then_some(());
        eventually("the end of a part, or the write", over_or_halted).await;
        // What follows the last change of a part may be the write.
        tokio::time::sleep(Duration::from_millis(500)).await;
        if !killed && first.is_halted() {
            killed = true;
            // By SIGKILL: it can neither report nor release anything.
            operator.child.kill().expect("kill");
            operator.child.wait().expect("wait");
            operator = start(&bench, &second);
        }
        eventually("the end of a part", async || is_over().await.then_some(())).await;
    }
    assert_eq!(operator.child.try_wait().expect("wait"), None, "the operator ended");
    killed
}

#[test]
fn what_a_kill_between_two_writes_leaves_is_completed_and_removed() {
    let is_killed = |number: &usize| {
        let (number, mut killed) = (*number, false);
        let slot = &mut killed;
        run(move |bench| async move { *slot = play(bench, number).await });
        killed
    };
    let writes = (0..99).take_while(is_killed).count();
    eprintln!("killed after each of {writes} writes");
    assert!((6..99).contains(&writes), "{writes} writes");
}
