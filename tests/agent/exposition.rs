//! The metrics page in its formats.
use traffic_operator::agent::metrics::{NAMES, TRACE};

use crate::stage::{ALL, Agent, config, entry, free_port, get, get_bytes};

const ACCEPT: &str = "Accept: application/vnd.google.protobuf;\
                      proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                      application/openmetrics-text;q=0.5\r\n";

/// Those that have a series from the beginning.
fn names() -> impl Iterator<Item = &'static str> {
    let later = |name: &str| name == TRACE || name.starts_with("netprober_target_");
    NAMES.iter().copied().filter(move |name| !later(name))
}

/// One field of a protobuf message: its number, and its bytes if it has any.
struct Field<'a>(u64, &'a [u8]);

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("more bytes");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

fn fields(mut message: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let bytes = match tag & 7 {
            0 => {
                varint(&mut message);
                &[]
            }
            1 => take(&mut message, 8),
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                take(&mut message, length)
            }
            5 => take(&mut message, 4),
            other => unreachable!("wire type {other}"),
        };
        fields.push(Field(tag >> 3, bytes));
    }
    fields
}

fn find(message: &[u8], number: u64) -> Vec<&[u8]> {
    fields(message).iter().filter(|field| field.0 == number).map(|field| field.1).collect()
}

/// Returns the names and messages of the metric families of a page.
fn families(mut page: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut families = Vec::new();
    while !page.is_empty() {
        let length = usize::try_from(varint(&mut page)).unwrap();
        let message = take(&mut page, length);
        let name = String::from_utf8(find(message, 1)[0].to_vec()).unwrap();
        families.push((name, message.to_vec()));
    }
    families
}

/// Reports whether a page of text has a series of this name.
fn has(page: &str, name: &str) -> bool {
    let mut rests = page.lines().filter_map(|line| line.strip_prefix(name));
    rests.any(|rest| rest.starts_with([' ', '{']) || rest.starts_with("_count"))
}

fn probing() -> (Agent, Agent) {
    let (agent, peer) = (Agent::start(), Agent::start());
    let entries = [entry("b", "127.0.0.2", peer.port), entry("gone", "127.0.0.2", free_port())];
    agent.publish(&config(200, 200, ALL, &entries));
    agent.page_with("each protocol", |page| {
        ["http", "tcp", "udp"]
            .iter()
            .all(|protocol| page.probes("b", &[("protocol", protocol), ("result", "success")]) >= 2)
            && page.failed("gone", "refused") > 0
    });
    (agent, peer)
}

#[test]
fn every_format_has_every_metric() {
    let (agent, _peer) = probing();
    // That of large packets comes with the first round of them.
    agent.page_with("every metric", |page| names().all(|name| has(&page.text, name)));
    for (accept, kind) in [
        ("", "text/plain; version=0.0.4"),
        ("Accept: application/openmetrics-text\r\n", "application/openmetrics-text"),
    ] {
        let (headers, body) = get(agent.metrics_port, "/metrics", accept).unwrap();
        assert!(headers.contains(&format!("content-type: {kind}")), "{headers}");
        for name in names() {
            assert!(has(&body, name), "{name} is not on the page:\n{body}");
        }
    }
    let (headers, body) = get_bytes(agent.metrics_port, "/metrics", ACCEPT).unwrap();
    assert!(headers.contains("application/vnd.google.protobuf"), "{headers}");
    let families: Vec<_> = families(&body).into_iter().map(|(name, _)| name).collect();
    for name in names() {
        assert!(families.iter().any(|family| family == name), "{name} is not in {families:?}");
    }
    assert_eq!(families.len(), names().count(), "{families:?}");
}

/// Classic buckets, native ones, and their spans: fields 3, 5 (schema) and 12 of `Histogram`, which
/// is field 7 of `Metric`, which is field 4 of `MetricFamily`.
#[test]
fn round_trips_are_native_and_classic_and_the_originals_classic_only() {
    let (agent, _peer) = probing();
    let (_, body) = get_bytes(agent.metrics_port, "/metrics", ACCEPT).unwrap();
    for (name, buckets, native) in [
        // The library decides whether the bucket +Inf is included.
        ("netprober_rtt_seconds", [13, 14], true),
        ("netprober_scheduling_delay_seconds", [10, 11], true),
        ("netprober_interpod_latency_s", [25, 26], false),
    ] {
        let families = families(&body);
        let (_, family) = families.iter().find(|(of, _)| of == name).expect(name);
        let histograms: Vec<_> =
            find(family, 4).into_iter().map(|metric| find(metric, 7)[0]).collect();
        for histogram in &histograms {
            assert!(buckets.contains(&find(histogram, 3).len()), "{name}");
        }
        // Those without an observation have no native buckets.
        let any = histograms.iter().any(|histogram| !find(histogram, 12).is_empty());
        assert_eq!(any, native, "{name}");
    }
}
