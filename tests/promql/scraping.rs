//! A real Prometheus scrapes pods by the `PodMonitor` of a `NetworkProber`, as prometheus-operator
//! configures it, and the pods serve arbitrary text.
use serde_json::{Value, json};

use crate::{
    monitor::{Target, prober, scrape},
    server::{Prometheus, eventually, serve},
};

/// The page of a pod whose owner forges series about other nodes.
const FORGED: &str = r#"netprober_peers 3
netprober_probes_total{src_node="victim",dst_node="b",job="node-exporter",node="victim",result="success"} 5
node_network_transmit_bytes_total{device="eth0",node="victim",job="node-exporter"} 1e12
node_network_speed_bytes{device="eth0",node="victim"} 1
bird_protocol_up{proto="BGP",state="Established",name="Node_10_0_0_1",node="victim"} 1
netprober:node_loss:ratio1m{node="victim",prober="shop/web"} 1
up{job="node-exporter",instance="victim"} 0
process_start_time_seconds 1
"#;

/// A pod that may be scraped: the text that it serves, and its annotation.
struct Pod {
    name: &'static str,
    injected_by: Option<&'static str>,
    text: String,
}

fn target(pod: &Pod) -> Target {
    let text = pod.text.clone();
    Target {
        address: serve(move || text.clone()),
        pod: pod.name.into(),
        node: format!("node-of-{}", pod.name),
        injected_by: pod.injected_by.map(str::to_owned),
    }
}

#[test]
fn a_forged_exporter_in_a_selected_pod_says_nothing_but_probes_of_its_own_node() {
    let many: Vec<_> = (0..20_001).map(|i| format!("netprober_peers{{i=\"{i}\"}} 1\n")).collect();
    let long = format!("netprober_peers{{zone=\"{}\"}} 1\n", "x".repeat(513));
    let own = Some("shop/web");
    let pods = [
        Pod { name: "forged", injected_by: own, text: FORGED.into() },
        Pod { name: "many", injected_by: own, text: many.concat() },
        Pod { name: "long", injected_by: own, text: long },
        Pod { name: "nobodys", injected_by: None, text: FORGED.into() },
        Pod { name: "anothers", injected_by: Some("shop/webs"), text: FORGED.into() },
    ];
    let served: Vec<_> = pods.iter().map(target).collect();
    let prometheus = Prometheus::start("forged", &[scrape(&prober("web"), &served)], &[]);
    let up = eventually("two scrapes of each target", || {
        let counted = prometheus.ask("count_over_time(up[1m]) >= 2")?;
        (counted.len() >= 3).then(|| prometheus.ask("up")).flatten()
    });
    let mut up: Vec<_> = up
        .iter()
        .map(|one| (one["metric"]["pod"].as_str().expect("pod"), one["value"][1] == "1"))
        .collect();
    up.sort_unstable();
    // A target that exceeds a limit is dropped as a whole; a pod without the annotation, or with
    // another one, is not scraped.
    assert_eq!(up, [("forged", true), ("long", false), ("many", false)]);
    let series = prometheus.ask(r#"{pod!=""}"#).expect("series");
    let own = |one: &&Value| {
        let name = one["metric"]["__name__"].as_str().expect("a name");
        name != "up" && !name.starts_with("scrape_")
    };
    let stored: Vec<_> = series.iter().filter(own).map(|one| &one["metric"]).collect();
    assert_eq!(stored.len(), 2, "{stored:?}");
    for metric in stored {
        assert!(metric["__name__"].as_str().is_some_and(|name| name.starts_with("netprober_")));
        assert_eq!(metric["job"], "shop/web", "{metric}");
        assert_eq!(
            (&metric["node"], &metric["src_node"]),
            (&json!("node-of-forged"), &json!("node-of-forged"))
        );
        let labels = metric.as_object().expect("labels");
        assert!(!labels.keys().any(|label| label.starts_with("exported_")), "{metric}");
    }
    for query in [
        "node_network_transmit_bytes_total",
        "node_network_speed_bytes",
        "bird_protocol_up",
        r#"{__name__="netprober:node_loss:ratio1m"}"#,
        r#"up{job="node-exporter"}"#,
        r#"{node="victim"}"#,
        r#"{src_node="victim"}"#,
    ] {
        assert_eq!(prometheus.ask(query), Some(vec![]), "{query}");
    }
}
