//! The queries, and the conversion of untrusted answers.
use proptest::{collection, prelude::*};

use super::*;

fn subject(prober: &str) -> Subject {
    Subject {
        prober: prober.into(),
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
    }
}

fn row(figure: &str, labels: &[(&'static str, &str)], value: f64) -> Row {
    let labels = labels.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
    Row { figure: figure.into(), labels, value }
}

fn node(figure: &str, name: &str, value: f64) -> Row {
    row(figure, &[("node", name)], value)
}

fn pair(figure: &str, from: &str, to: &str, value: f64) -> Row {
    let zone = |node: &str| if node < "n5" { "a" } else { "b" };
    let labels =
        [("src_node", from), ("src_zone", zone(from)), ("dst_node", to), ("dst_zone", zone(to))];
    row(figure, &labels, value)
}

#[test]
fn what_is_asked_is_promql_about_this_prober_and_of_series_that_exist() {
    let nodes = vec!["node-1.example".to_owned(), r#"odd"} or vector(1) #\"#.to_owned()];
    for prober in ["shop/web", r#"odd"} or vector(1) #"#] {
        let subject = subject(prober);
        let agent = agent_query(&subject, r#"odd"} or vector(1) #"#, "web-1");
        let all = [
            labeled("traced", &traced_query(&subject)),
            overview_query(&subject),
            paths_query(&subject, None),
            paths_query(&subject, Some(&nodes)),
            agent,
        ];
        for promql in all {
            for selector in promql.split("netprober").skip(1) {
                let (name, labels) = selector.split_once('{').unwrap();
                let own = [format!("job={}", string(prober)), format!("prober={}", string(prober))];
                assert!(own.iter().any(|own| labels.starts_with(own)), "{selector}");
                let name = name.trim_end_matches("_sum").trim_end_matches("_count");
                let name = format!("netprober{name}");
                let known = rules::NAMES.iter().chain(crate::agent::metrics::NAMES);
                assert!(known.into_iter().any(|known| **known == name), "{name}");
            }
        }
    }
}

#[test]
fn a_name_matches_itself_and_nothing_else() {
    assert_eq!(literally("node-1.example"), r"node\-1\.example");
    assert_eq!(literally("a|.*"), r"a\|\.\*");
    assert_eq!(literally("ä"), "ä");
}

#[test]
fn a_small_cluster_is_a_whole_matrix_by_zone_and_name() {
    let rows = vec![
        node("node_loss", "n9", 0.2),
        node("node_loss", "n1", 0.0),
        node("node_p99", "n1", 0.001),
        node("node_loss", "n2", 0.01),
        pair("pair_loss", "n1", "n9", 0.3),
        pair("also_p99", "n1", "n9", 0.2),
        pair("pair_p99", "n1", "n2", 0.004),
        row("scraped", &[], 3.0),
        row("silent_agents", &[], 1.0),
        row("silent", &[("namespace", "shop"), ("pod", "web-1")], 20.0),
    ];
    let overview = Overview::of(rows, Limits::of(&subject("n/p")));
    let chosen = overview.chosen();
    assert_eq!(chosen, ["n1", "n2", "n9"]);
    let rows = vec![pair("pair_loss", "n1", "n9", 0.3), pair("pair_p99", "n9", "n2", 0.05)];
    let found = overview.measurement(&chosen, rows);
    let names: Vec<_> = found.nodes.iter().map(|n| (&*n.zone, &*n.node)).collect();
    // No path from or to n2 has a loss, but one has a latency.
    assert_eq!(names, [("a", "n1"), ("a", "n2"), ("b", "n9")]);
    assert_eq!(found.loss[0], [None, None, Some(0.3)]);
    assert_eq!(found.p99[2], [None, Some(0.05), None]);
    assert_eq!((found.scraped, found.silent_agents, found.silent.len()), (3, 1, 1));
    let worst: Vec<_> = found.worst.iter().map(|p| (&*p.from, &*p.to, p.loss, p.blame)).collect();
    assert_eq!(worst, [("n1", "n9", Some(0.3), Blame::To), ("n1", "n2", None, Blame::Between)]);
    assert_eq!(found.worst[0].p99, Some(0.2));
    assert_eq!((found.lossy, found.slow), (0.05, 0.1));
    assert_eq!(found.worst[0].to_blame(), "n9");
}

#[test]
fn phases_that_are_bad_from_most_nodes_come_first() {
    let of = |figure: &str, target: &str, phase: &str, value| {
        row(figure, &[("target", target), ("phase", phase)], value)
    };
    let rows = vec![
        of("target_nodes", "web", "connect", 3.0),
        of("target_nodes", "web", "dns", 3.0),
        of("target_seconds", "web", "dns", 0.004),
        of("target_nodes", "web", "tls", 3.0),
        of("target_bad", "web", "tls", 2.0),
        // What no agent exports.
        of("target_nodes", "web", "lies", 9.0),
        of("target_bad", "web", "first_byte", 9.0),
    ];
    let phases =
        |rows| Overview::of(rows, Limits::of(&subject("n/p"))).measurement(&[], vec![]).targets;
    let found = phases(rows);
    let shown: Vec<_> =
        found.iter().map(|p| (&*p.phase, p.bad_nodes, p.nodes, p.seconds)).collect();
    assert_eq!(shown, [("tls", 2, 3, None), ("dns", 0, 3, Some(0.004)), ("connect", 0, 3, None)]);
    let many = (0..1000).map(|i| of("target_nodes", &format!("t{i}"), "dns", 1.0));
    assert_eq!(phases(many.collect()).len(), 32);
}

#[test]
fn of_a_large_cluster_the_worst_nodes_are_shown_and_counted() {
    let rows = (0..500).map(|i| node("node_loss", &format!("n{i:03}"), f64::from(i) / 1000.0));
    let overview = Overview::of(rows.collect(), Limits::of(&subject("n/p")));
    let chosen = overview.chosen();
    assert_eq!(chosen.len(), LARGEST_MATRIX);
    assert!(chosen.contains(&"n499".to_owned()) && !chosen.contains(&"n100".to_owned()));
    let found = overview.measurement(&chosen, vec![pair("pair_loss", "n001", "n499", 0.9)]);
    assert_eq!((found.measured_nodes, found.nodes.len()), (500, LARGEST_MATRIX));
    // A path to a node that is not shown has no field.
    assert!(found.loss.iter().flatten().all(Option::is_none));
}

#[test]
fn the_newest_traces_stand_first_and_silence_alone_blames_nothing() {
    let trace = |node: &str, result: &str, hops: &str, at| {
        let labels = [("src_node", "n1"), ("dst_node", node), ("result", result), ("hops", hops)];
        row("traced", &labels, at)
    };
    let all = [
        ("lost", "10.1.0.1", "packets reach 10.1.0.1, and nothing behind it answers, as it does"),
        ("lost", "", "no hop answers, not even the first, as it does on a path that works"),
        (
            "silent",
            "* 10.2.0.1",
            "packets reach 10.2.0.1; nothing behind it answers, which may be so",
        ),
        ("silent", "", "no hop answers, which may be so on paths that work"),
        ("undeliverable", "10.1.0.1 10.2.0.1", "10.2.0.1 reports that it cannot deliver"),
        ("loop", "10.1.0.1 10.1.0.1 10.1.0.1", "packets go in circles"),
        ("answered", "10.1.0.1", "the peer answered the trace: not every packet is lost"),
        // Of a later version.
        ("other", "10.1.0.1", "packets reach 10.1.0.1; nothing behind it answers, which may be so"),
    ];
    let rows =
        (0_u32..).zip(all).map(|(at, (result, hops, _))| trace("n2", result, hops, f64::from(at)));
    let found = Overview::of(rows.collect(), Limits::of(&subject("n/p"))).measurement(&[], vec![]);
    assert_eq!(found.traces.len(), all.len());
    for (traced, (result, _, finding)) in found.traces.iter().rev().zip(all) {
        assert!(traced.finding().starts_with(finding), "{result}: {}", traced.finding());
    }
    let many = (0..99).map(|i| trace(&format!("n{i}"), "lost", "", 1.0)).collect();
    let found = Overview::of(many, Limits::of(&subject("n/p"))).measurement(&[], vec![]);
    assert_eq!(found.traces.len(), TRACES);
}

/// Replicas of Prometheus, unless whatever merges them leaves out the duplicates.
#[test]
fn of_two_values_of_one_path_the_worse_counts_in_either_order() {
    for values in [[0.3, 0.1], [0.1, 0.3]] {
        let rows = values.into_iter().flat_map(|value| {
            [node("node_loss", "n1", value), pair("pair_loss", "n1", "n2", value)]
        });
        let rows = rows.chain([node("node_loss", "n2", 0.0)]);
        let overview = Overview::of(rows.collect(), Limits::of(&subject("n/p")));
        let chosen = overview.chosen();
        let paths = values.map(|value| pair("pair_loss", "n1", "n2", value));
        let found = overview.measurement(&chosen, paths.into());
        assert_eq!(found.loss[0][1], Some(0.3));
        assert_eq!((found.worst[0].loss, found.nodes[0].loss), (Some(0.3), Some(0.3)));
    }
}

#[test]
fn what_is_no_figure_is_left_out() {
    let read = |text: &str| {
        let body =
            format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{text}]}}}}"#);
        let mut rows = vec![];
        decode::vector(200, "application/json", body.as_bytes(), |series| {
            rows.extend(Row::of(&series));
            Ok(())
        })
        .unwrap();
        rows.len()
    };
    let of = |figure: &str, node: &str, value: &str| {
        format!(r#"{{"metric":{{"figure":"{figure}","node":"{node}"}},"value":[0,"{value}"]}}"#)
    };
    assert_eq!(read(&of("node_loss", "n", "0.5")), 1);
    for value in ["NaN", "+Inf", "-1"] {
        assert_eq!(read(&of("node_loss", "n", value)), 0, "{value}");
    }
    assert_eq!(read(&of("", "n", "1")), 0);
    assert_eq!(read(&of("node_loss", &"x".repeat(254), "1")), 0);
}

/// The elements of an answer, as a server may send them.
fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let figure = prop::sample::select(vec![
        "node_loss",
        "node_p99",
        "pair_loss",
        "pair_p99",
        "also_loss",
        "also_p99",
        "scraped",
        "silent_agents",
        "silent",
        "traced",
        "other",
    ]);
    let name = || prop_oneof![Just(String::new()), "n[0-9]{1,2}", ".{0,4}"];
    let labels = (name(), name(), name(), name(), name());
    let element = (figure, labels, any::<f64>()).prop_map(|(figure, labels, value)| {
        let (node, from, from_zone, to, to_zone) = labels;
        let metric = serde_json::json!({
            "figure": figure, "node": node, "src_node": from, "src_zone": from_zone,
            "dst_node": to, "dst_zone": to_zone, "pod": node, "namespace": from_zone,
        });
        serde_json::json!({"metric": metric, "value": [1, value.to_string()]})
    });
    collection::vec(element, 0..120).prop_map(|result| {
        let data = serde_json::json!({"resultType": "vector", "result": result});
        let body = serde_json::json!({"status": "success", "data": data}).to_string();
        let mut rows = vec![];
        decode::vector(200, "application/json", body.as_bytes(), |series| {
            rows.extend(Row::of(&series));
            Ok(())
        })
        .unwrap();
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is answered, the picture is a square of figures with a bound.
    #[test]
    fn any_answer_is_a_square_of_figures(first in any_rows(), second in any_rows()) {
        let overview = Overview::of(first, Limits::of(&subject("n/p")));
        let chosen = overview.chosen();
        let found = overview.measurement(&chosen, second);
        let count = found.nodes.len();
        prop_assert!(count <= LARGEST_MATRIX && found.worst.len() <= WORST);
        prop_assert!(found.measured_nodes >= count);
        let sound = |value: &f64| value.is_finite() && *value >= 0.0;
        for matrix in [&found.loss, &found.p99] {
            prop_assert_eq!(matrix.len(), count);
            prop_assert!(matrix.iter().all(|row| row.len() == count));
            prop_assert!(matrix.iter().flatten().flatten().all(sound));
        }
        let order = |node: &NodeFigures| (node.zone.clone(), node.node.clone());
        prop_assert!(found.nodes.is_sorted_by_key(order));
    }
}
