//! What an agent costs at most, whatever it is given to probe, and what others can do to it.
use std::fmt::Write as _;

use traffic_operator::agent::budget;

use crate::stage::{ALL, Agent};

/// Members on nodes of their own, with names as long as they are in clusters; the first is alone in
/// its zone.
fn crowd(count: usize, probes: &str) -> String {
    let mut map = String::new();
    for i in 0..count {
        let comma = if i == 0 { "" } else { "," };
        let zone = if i == 0 { "eu-central-1a" } else { "eu-central-1b" };
        let name = format!("shop-frontend-7c9f8d6b5-{i:05}");
        write!(
            map,
            r#"{comma}"{name}":{{"ip":"127.1.{}.{}","port":"9","namespace":"shop","name":"{name}","uid":"8b8a33a4-1111-2222-3333-{i:012}","node":"ip-10-0-{i}.eu-central-1.compute.internal","zone":"{zone}"}}"#,
            i / 250,
            i % 250 + 1,
        )
        .unwrap();
    }
    format!(
        r#"{{"endpointsMap":{{{map}}},"pollingPeriod":1000000000,"probes":{probes},
        "neighbours":{{"inZone":8,"perOtherZone":2}}}}"#
    )
}

/// The only member of its zone beside 3,000: before, 3,000 peers, 218,000 series and 107 MB.
#[test]
fn n01_an_agent_alone_in_its_zone_stays_within_its_budget() {
    let name = "shop-frontend-7c9f8d6b5-00000";
    let variables = [("NET_PROBER_POD_NAMESPACE", "shop"), ("NET_PROBER_POD_NAME", name)];
    for (probes, protocols) in [(ALL, 3), (r#"["HTTP"]"#, 1)] {
        let agent = Agent::with(&variables, &[]);
        agent.publish(&crowd(3001, probes));
        let most = i64::try_from(budget::most_peers(protocols, 1, true)).unwrap();
        let page = agent.page_with("it probes", |page| {
            page.sum("netprober_peers", &[]) > 0
                && page.sum("netprober_probes_total", &[]) > 3 * most
        });
        assert_eq!(page.sum("netprober_peers", &[]), most, "{probes}");
        let series = page.text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series <= budget::SERIES, "{probes}: {series} series");
        let memory = page.sum("process_resident_memory_bytes", &[]);
        println!(
            "{protocols} protocols: {most} peers, {series} series, {} bytes of {} MiB RSS",
            page.text.len(),
            memory >> 20
        );
    }
}
