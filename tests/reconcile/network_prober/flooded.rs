//! Both ports during a flood, with a real API server that creates pods meanwhile.
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use lab::flood::Flood;
use reqwest::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

use super::{agent, lists::Agent, selector};
use crate::bench::{Bench, Operator, run};

/// Number of pods to create, twenty a second.
const PODS: u32 = 200;

/// The path that an agent requests.
const LIST: &str = "/pinglist?prober=default/np";

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("https://").and_then(|rest| rest.parse().ok()).expect("an address")
}

#[test]
fn pods_get_agents_and_agents_lists_while_both_ports_are_flooded() {
    run(async |bench| {
        // Kubernetes deletes pods whose node does not exist.
        bench.node("node-1").await;
        let operator = bench.ready_operator().await;
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        let pod = bench.pod("default", "known", json!({})).await;
        bench.runs("default", "known", "10.1.0.1").await;
        let known = Agent::of(&bench, &operator, &pod).await;
        known.until(&[]).await;
        let map = bench.maps("default").get("np").await.expect("ConfigMap");
        let flood = Flood::new(&map.data.expect("data")["ca.crt"]).expect("an authority");
        let (webhook, lists) = (address(&operator.webhook), address(&operator.pinglists));
        let foreign = bench.token(&pod, "https://kubernetes.default.svc").await;
        let wrong = vec!["nonsense".into(), "a.e30.b".into(), foreign, known.token.clone()];
        let mut attack = JoinSet::new();
        for source in 2..6 {
            for _ in 0..4 {
                attack.spawn(flood.clone().trickle(source, webhook, "/mutate/default/np"));
                attack.spawn(flood.clone().trickle(source, lists, "/pinglist"));
            }
            attack.spawn(flood.clone().idle(source + 4, webhook, 300));
            attack.spawn(flood.clone().idle(source + 4, lists, 150));
            attack.spawn(flood.clone().junk(source + 8, webhook));
            attack.spawn(flood.clone().junk(source + 8, lists));
            attack.spawn(flood.clone().tokens(source + 12, lists, LIST, wrong.clone()));
        }
        let slowest = create(&bench, &known).await;
        let done = flood.attempts();
        flood.stop();
        attack.shutdown().await;
        println!("{done} attacks; the slowest pod took {} ms", slowest.as_millis());
        // The number depends on the machine.
        assert!(done > 100, "{done} attacks");
        assert_counted(&operator).await;
    });
}

/// Creates pods, and asks for a list with each tenth; returns how long the slowest took.
async fn create(bench: &Bench, known: &Agent) -> Duration {
    let mut clock = tokio::time::interval(Duration::from_millis(50));
    let mut slowest = Duration::ZERO;
    for number in 0..PODS {
        clock.tick().await;
        let begun = Instant::now();
        let pod = bench.pod("default", &format!("flood-{number}"), json!({})).await;
        slowest = slowest.max(begun.elapsed());
        assert!(agent(&pod).is_some(), "pod {number} has no agent");
        if number % 10 == 0 {
            let status = known.ask("default/np", 0, None).await.status;
            assert_eq!(status, StatusCode::OK, "beside pod {number}");
        }
    }
    slowest
}

/// Asserts that the flood reached the operator, and that the operator counts refused requests.
async fn assert_counted(operator: &Operator) {
    let name = "traffic_operator_networkprober_pinglist_requests_total";
    let refused = operator.metric(name, &["code=\"401\""]).await;
    assert!(refused > 0.0, "no token was refused");
}
