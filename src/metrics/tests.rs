//! The families of a process.
use super::*;

#[test]
fn every_family_of_the_process_is_listed() {
    let metrics = Metrics::new();
    metrics.reconciled("x", "ns", Duration::ZERO, Some("ApiError"));
    metrics.prometheus_request("default", "success", Duration::ZERO);
    metrics.samples_rejected("unmapped", 1);
    metrics.api_request("get", "nodes", 200);
    metrics.watch_restarted("nodes");
    metrics.stored("nodes", 1);
    metrics.injection("skipped", "HostNetwork", Duration::ZERO);
    metrics.certificate_ends("ca", 1);
    metrics.pinglist_agents(1);
    metrics.pinglist_request(200);
    metrics.scraped(200);
    metrics.refused_connections("metrics").inc();
    assert!(!metrics.encode().unwrap().contains("leader"));
    metrics.set_leader(false);
    let page = metrics.encode().unwrap();
    let families: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect();
    assert!(!families.is_empty());
    for family in families {
        assert!(NAMES.contains(&family.as_str()), "{family} is not in NAMES");
    }
    let requests =
        r#"traffic_operator_prometheus_requests_total{endpoint="default",result="success"} 1"#;
    assert!(page.contains(requests), "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
}

#[test]
fn nothing_is_lost_between_pieces_and_none_is_larger_than_said() {
    let mut pieces = Vec::new();
    let mut chunks = Chunks::new(|piece| {
        pieces.push(piece);
        Ok(())
    });
    let text = "ä".repeat(CHUNK) + "end";
    chunks.write_str("x").unwrap();
    chunks.write_str(&text).unwrap();
    chunks.end().unwrap();
    assert!(pieces.iter().all(|piece| (1..=CHUNK).contains(&piece.len())));
    assert_eq!(pieces.concat(), format!("x{text}").into_bytes());
}
