//! The defects of the original agent, each shown to be absent.
use std::time::Duration;

use crate::stage::{ALL, Agent, BlackHole, PONG, config, entry, free_port, has_ipv6, server};

/// The original never closed a response: one descriptor for every probe.
#[test]
fn no_descriptor_is_lost_over_many_probes() {
    let (agent, peer) = (Agent::start(), Agent::start());
    let nobody = free_port();
    let entries = [entry("b", "127.0.0.2", peer.port), entry("dead", "127.0.0.3", nobody)];
    agent.publish(&config(100, 100, ALL, &entries));
    let enough = |count: i64| {
        move |page: &crate::stage::Page| {
            page.successes("b") >= count && page.failures("dead") >= count
        }
    };
    agent.page_with("probes begin", enough(30));
    let before = (agent.open_files(), peer.open_files());
    agent.page_with("two hundred more", enough(230));
    let after = (agent.open_files(), peer.open_files());
    // Descriptors that happen to be open: a connection for each target, some of them closing.
    assert!(after.0 < before.0 + 20, "{before:?} {after:?}");
    assert!(after.1 < before.1 + 20, "{before:?} {after:?}");
}

/// The original only logged failures, and counted the time of an error page as latency.
#[test]
fn failures_are_counted_by_reason_and_never_measured() {
    let agent = Agent::start();
    let hole = BlackHole::new();
    let error = server("HTTP/1.1 503 no\r\nContent-Length: 3\r\n\r\nno\n", Duration::ZERO);
    let redirect = server(
        "HTTP/1.1 302 Found\r\nLocation: /ping\r\nContent-Length: 0\r\n\r\n",
        Duration::ZERO,
    );
    let closes = server("", Duration::ZERO);
    let cut = server("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\npong\n", Duration::ZERO);
    let ssh = server("SSH-2.0-OpenSSH_9.6\r\n", Duration::ZERO);
    let cases = [
        ("refused", "refused", free_port()),
        ("hole", "timeout", hole.port),
        ("error", "status", error),
        ("redirect", "status", redirect),
        ("closes", "reset", closes),
        ("cut", "reset", cut),
        ("ssh", "other", ssh),
    ];
    let entries = cases.map(|(name, _, port)| entry(name, "127.0.0.2", port));
    agent.publish(&config(500, 400, r#"["HTTP"]"#, &entries));
    let page = agent.page_with("each has failed", |page| {
        cases.iter().all(|(name, reason, _)| page.failed(name, reason) >= 2)
    });
    for (name, _, _) in cases {
        assert!(page.successes(name) == 0, "{name}: {}", page.text);
    }
    assert!(page.sum("netprober_rtt_seconds_count", &[]) == 0, "{}", page.text);
    assert!(page.sum("netprober_interpod_latency_s_count", &[]) == 0, "{}", page.text);
}

/// Without a period the original probed without a pause.
#[test]
fn a_missing_period_is_ten_seconds_and_no_busy_loop() {
    let (agent, peer) = (Agent::start(), Agent::start());
    agent.publish(&config(0, 0, r#"["HTTP"]"#, &[entry("b", "127.0.0.2", peer.port)]));
    // The agent checks the file once a second.
    let page = agent.page_with("eight checks", |page| {
        page.lists() == 1
            && page.sum("netprober_pinglist_refreshes_total", &[("result", "unchanged")]) >= 8
    });
    assert!(agent.log().contains("period=10s"), "{}", agent.log());
    // At most one slot in these seconds; many more if the machine held us up, but never hundreds.
    assert!(page.probes("b", &[]) <= 5, "{}", page.text);
}

/// The original paused after each round: slow answers reduced its rate.
#[test]
fn a_slow_answer_does_not_make_the_rate_lower() {
    let agent = Agent::start();
    let (fast, slow) = (server(PONG, Duration::ZERO), server(PONG, Duration::from_millis(250)));
    let entries = [entry("fast", "127.0.0.2", fast), entry("slow", "127.0.0.3", slow)];
    agent.publish(&config(400, 400, r#"["HTTP"]"#, &entries));
    let page = agent.page_with("thirty", |page| page.probes("fast", &[]) >= 30);
    let (fast, slow) = (page.probes("fast", &[]), page.probes("slow", &[]));
    assert!(slow + page.skipped() >= fast - 3, "{}", page.text);
}

/// The original wrote IPv6 addresses into URLs without brackets, and probed itself through them.
#[test]
fn ipv6_is_probed_and_oneself_is_not() {
    if !has_ipv6() {
        lab::left_out("probes over IPv6: this host has not even ::1");
        return;
    }
    let (agent, peer) = (Agent::start(), Agent::start());
    let entries = [entry("b", "::1", peer.port), entry("me", "::1", agent.port)];
    agent.publish(&config(200, 200, ALL, &entries));
    let page = agent.page_with("each protocol", |page| {
        ["http", "tcp", "udp"]
            .iter()
            .all(|protocol| page.probes("b", &[("protocol", protocol), ("result", "success")]) >= 2)
    });
    let labels = [("dest_ip", "::1"), ("dest_pod_name", "b")];
    assert!(page.sum("netprober_interpod_latency_s_count", &labels) > 0, "{}", page.text);
    assert!(!page.text.contains("node-me"), "{}", page.text);
    assert!(page.sum("netprober_peers", &[]) == 1);
}

/// The original kept the series of every former peer, and labeled neither nodes nor zones.
#[test]
fn series_of_a_gone_peer_vanish_and_labels_name_both_ends() {
    let variables = [
        ("NET_PROBER_POD_NAMESPACE", "ns"),
        ("NET_PROBER_POD_NAME", "me"),
        ("NET_PROBER_NODE", "node-me"),
    ];
    let (agent, peer) = (Agent::with(&variables, &[]), Agent::start());
    let me = entry("me", "127.0.0.1", agent.port);
    let b = entry("b", "127.0.0.2", peer.port);
    let c = entry("c", "127.0.0.3", peer.port);
    agent.publish(&config(200, 200, ALL, &[me.clone(), b.clone(), c]));
    let page = agent.page_with("both are probed", |page| {
        page.successes("b") >= 6
            && page.successes("c") >= 6
            && page.text.contains(r#"netprober_tcp_srtt_seconds{src_node="node-me",src_zone="zone-me",dst_node="node-c",dst_zone="zone-c"}"#)
    });
    for (label, value) in [("src_node", "node-me"), ("src_zone", "zone-me"), ("dst_zone", "zone-c")]
    {
        let labels = [(label, value), ("dst_node", "node-c")];
        assert!(page.sum("netprober_rtt_seconds_count", &labels) > 0, "{label}: {}", page.text);
    }
    agent.publish(&config(200, 200, ALL, &[me, b]));
    // The first page after the refresh.
    let page = agent.page_with("the second list", |page| page.lists() == 2);
    assert!(!page.text.contains("node-c"), "{}", page.text);
    assert!(!page.text.contains(r#"dest_pod_name="c""#), "{}", page.text);
    let later = page.successes("b") + 10;
    let page = agent.page_with("probing continues", |page| page.successes("b") >= later);
    assert!(!page.text.contains("node-c"), "{}", page.text);
}

/// The original logged a line for every probe and for every ping.
#[test]
fn probes_are_not_logged() {
    let (agent, peer) = (Agent::start(), Agent::start());
    let entries = [entry("b", "127.0.0.2", peer.port), entry("dead", "127.0.0.3", free_port())];
    agent.publish(&config(100, 100, ALL, &entries));
    agent.page_with("hundreds of probes", |page| {
        page.successes("b") >= 150 && page.failures("dead") >= 150
    });
    assert!(agent.log().lines().count() <= 5, "{}", agent.log());
    assert!(peer.log().lines().count() <= 5, "{}", peer.log());
}
