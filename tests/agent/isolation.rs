//! Peers do not affect each other, and an agent that did not run blames no peer.
use crate::stage::{ALL, Agent, BlackHole, config, entry};

#[test]
fn twenty_dead_peers_neither_slow_nor_bias_a_healthy_one() {
    let (agent, healthy) = (Agent::start(), Agent::start());
    let hole = BlackHole::new();
    let mut entries = vec![entry("healthy", "127.0.0.2", healthy.port)];
    for i in 0..20 {
        entries.push(entry(&format!("dead-{i}"), &format!("127.0.1.{i}"), hole.port));
    }
    // With the original's metric these are more than an agent probes concurrently.
    let few = config(500, 400, ALL, &entries);
    agent.publish(&few.replacen('{', r#"{"originalMetrics":false,"#, 1));
    let page = agent.page_with("twenty of each", |page| {
        (0..20).all(|i| page.failures(&format!("dead-{i}")) >= 60)
    });
    let most = (0..20).map(|i| page.probes(&format!("dead-{i}"), &[])).max().unwrap_or_default();
    let of = page.probes("healthy", &[]);
    // Three protocols, each of which may be one slot behind and have one probe in flight.
    assert!(of + page.skipped() >= most - 6, "{of} of {most}: {}", page.text);
    for i in 0..20 {
        assert!(page.successes(&format!("dead-{i}")) == 0);
    }
    let measured = page.sum("netprober_rtt_seconds_count", &[("dst_node", "node-healthy")]);
    assert_eq!(measured, page.successes("healthy"), "{}", page.text);
    assert_eq!(page.sum("netprober_rtt_seconds_count", &[]), measured);
}

/// A pause of several periods: the answers wait in our sockets, and all timers have expired.
#[test]
fn an_agent_that_was_not_run_skips_and_blames_nobody() {
    let (agent, peer, clock) = (Agent::start(), Agent::start(), Agent::start());
    let to_peer = config(1000, 1000, ALL, &[entry("b", "127.0.0.2", peer.port)]);
    agent.publish(&to_peer);
    clock.publish(&to_peer);
    agent.page_with("it probes", |page| page.successes("b") >= 6);
    agent.signal("STOP");
    let now = clock.page().probes("b", &[]);
    clock.page_with("five periods", |page| page.probes("b", &[]) >= now + 15);
    agent.signal("CONT");
    let page = agent.page_with("it skips", |page| {
        page.sum("netprober_skipped_probes_total", &[("reason", "starved")]) >= 9
    });
    assert!(page.failures("b") == 0, "{}", page.text);
    assert!(page.sum("netprober_skipped_probes_total", &[("reason", "busy")]) == 0);
    let before = page.successes("b");
    agent.page_with("probing continues", |page| page.successes("b") >= before + 6);
}
