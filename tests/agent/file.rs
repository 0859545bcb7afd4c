//! `config.json`: what the kubelet does to it while the agent runs.
use std::fs;

use crate::stage::{ALL, Agent, config, entry};

#[test]
fn the_original_file_and_its_three_variables_are_enough() {
    let (agent, peer) = (Agent::start(), Agent::start());
    agent.publish(&format!(
        r#"{{"endpointsMap":{{"me":{{"ip":"127.0.0.1","port":"{}"}},"b":{{"ip":"127.0.0.2","port":"{}"}}}},"pollingPeriod":200000000}}"#,
        agent.port, peer.port
    ));
    let labels = [("dest_pod_name", "b"), ("dest_ip", "127.0.0.2")];
    let page = agent
        .page_with("probes", |page| page.sum("netprober_interpod_latency_s_count", &labels) >= 3);
    assert!(page.sum("netprober_peers", &[]) == 1);
    assert!(!page.text.contains(r#"protocol="tcp""#));
}

#[test]
fn another_period_is_followed_without_a_restart() {
    let (agent, peer) = (Agent::start(), Agent::start());
    let of = |period| config(period, 0, r#"["TCP"]"#, &[entry("b", "127.0.0.2", peer.port)]);
    // No probe would be due for an hour.
    agent.publish(&of(3_600_000));
    agent.page_with("the list", |page| page.sum("netprober_peers", &[]) == 1);
    agent.publish(&of(100));
    let page = agent.page_with("probes", |page| page.successes("b") >= 20);
    agent.publish(&of(3_600_000));
    let changed = page.lists() + 1;
    let page = agent.page_with("the next list", |page| page.lists() >= changed);
    let checks = |page: &crate::stage::Page| {
        page.sum("netprober_pinglist_refreshes_total", &[("result", "unchanged")])
    };
    let until = checks(&page) + 3;
    let later = agent.page_with("three checks", |page| checks(page) >= until);
    // One probe may have been in flight.
    assert!(later.probes("b", &[]) <= page.probes("b", &[]) + 1, "{}", later.text);
}

#[test]
fn a_broken_file_keeps_the_last_list_and_is_reported_once() {
    let (agent, peer) = (Agent::start(), Agent::start());
    let good = config(200, 200, ALL, &[entry("b", "127.0.0.2", peer.port)]);
    agent.publish(&good);
    let page = agent.page_with("probes", |page| page.successes("b") >= 3);
    let errors = |page: &crate::stage::Page| {
        page.sum("netprober_pinglist_refreshes_total", &[("result", "error")])
    };
    let before = errors(&page);
    agent.publish(&good[..good.len() - 5]);
    let page = agent.page_with("an error", |page| errors(page) > before);
    let more = page.successes("b") + 40;
    let page = agent.page_with("it probes on", |page| page.successes("b") >= more);
    assert_eq!(errors(&page), before + 1, "{}", page.text);
    assert_eq!(agent.log().matches("is not usable").count(), 1, "{}", agent.log());
    // No change, but the file is good again.
    agent.publish(&good);
    let page = agent.page_with("it is good", |page| {
        agent.log().contains("file is good") && page.successes("b") > more
    });
    assert!(page.lists() == 1, "{}", page.text);
}

#[test]
fn a_list_that_nobody_confirms_is_given_up_and_taken_up_again() {
    let (agent, peer) = (Agent::with(&[("NET_PROBER_PINGLIST_TTL", "2s")], &[]), Agent::start());
    let good = config(100, 100, ALL, &[entry("b", "127.0.0.2", peer.port)]);
    agent.publish(&good);
    agent.page_with("probes", |page| page.successes("b") >= 3);
    let path = agent.directory().path("config.json");
    fs::rename(&path, agent.directory().path("away")).unwrap();
    let page = agent.page_with("given up", |page| page.sum("netprober_peers", &[]) == 0);
    assert!(!page.text.contains("node-b"), "{}", page.text);
    assert!(agent.log().contains("probing stops"), "{}", agent.log());
    fs::rename(agent.directory().path("away"), &path).unwrap();
    agent.page_with("taken up", |page| page.successes("b") >= 3);
}

/// Three in two zones: each has exactly one prober in each zone.
#[test]
fn neighbors_are_worked_out_by_each_agent() {
    let names = ["a", "b", "c", "d"];
    let agents = names.map(|name| {
        let variables = [("NET_PROBER_POD_NAMESPACE", "ns"), ("NET_PROBER_POD_NAME", name)];
        Agent::with(&variables, &[])
    });
    let entries: Vec<_> = names
        .iter()
        .zip(&agents)
        .map(|(name, agent)| entry(name, "127.0.0.1", agent.port))
        .collect();
    let text = config(500, 400, r#"["TCP"]"#, &entries)
        .replace("zone-a", "zone-1")
        .replace("zone-b", "zone-1")
        .replace("zone-c", "zone-2")
        .replace("zone-d", "zone-2")
        .replace(
            r#","pollingPeriod""#,
            r#","neighbours":{"inZone":1,"perOtherZone":1},"pollingPeriod""#,
        );
    for agent in &agents {
        agent.publish(&text);
    }
    let pages: Vec<_> =
        agents.iter().map(|agent| agent.page_with("a list", |page| page.lists() == 1)).collect();
    for name in names {
        let probers =
            pages.iter().filter(|page| page.text.contains(&format!(r#"dst_node="node-{name}""#)));
        assert_eq!(probers.count(), 2, "{name}");
    }
}

/// The targets of a list have series at once, are probed, and lose their series with the list.
#[test]
fn targets_are_probed_for_as_long_as_they_are_listed() {
    let agent = Agent::start();
    let of = |targets: &str| {
        format!(
            r#"{{"endpointsMap":{{"me":{{"ip":"127.0.0.1","port":"{}"}}}},"targets":[{targets}]}}"#,
            agent.port
        )
    };
    let target = |name: &str| {
        let port = agent.port;
        format!(r#"{{"name":"{name}","host":"127.0.0.1","port":{port},"path":"/ping"}}"#)
    };
    let has = |page: &crate::stage::Page, name: &str| {
        page.text.contains(&format!(
            r#"netprober_target_probes_total{{target="{name}",result="success"}} 0"#
        ))
    };
    agent.publish(&of(&[target("one"), target("two")].join(",")));
    agent.page_with("series of both", |page| has(page, "one") && has(page, "two"));
    // Loopback is not probed, and that is a result.
    let labels = [("target", "two"), ("phase", "connect"), ("reason", "forbidden")];
    agent.page_with("a probe", |page| page.sum("netprober_target_failures_total", &labels) > 0);
    agent.publish(&of(&target("one")));
    let page = agent.page_with("the shorter list", |page| !page.text.contains(r#"target="two""#));
    assert!(has(&page, "one"), "{}", page.text);
}
