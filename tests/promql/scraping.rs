//! A real Prometheus scrapes pods by the `PodMonitor` of a `NetworkProber`, as the prometheus-operator has it
//! do, and the pods serve what they like.
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use traffic_operator::{
    api::NetworkProber,
    network_prober::{children::Family, scope::Tenancy, settings::Settings},
};

/// What a pod serves whose owner wants to be believed about others.
const FORGED: &str = r#"netprober_peers 3
netprober_probes_total{src_node="victim",dst_node="b",job="node-exporter",node="victim",result="success"} 5
node_network_transmit_bytes_total{device="eth0",node="victim",job="node-exporter"} 1e12
node_network_speed_bytes{device="eth0",node="victim"} 1
bird_protocol_up{proto="BGP",state="Established",name="Node_10_0_0_1",node="victim"} 1
netprober:node_loss:ratio1m{node="victim",prober="shop/web"} 1
up{job="node-exporter",instance="victim"} 0
process_start_time_seconds 1
"#;

/// Who may be scraped: served text, and the annotation of the pod.
struct Pod {
    name: &'static str,
    injected_by: Option<&'static str>,
    text: String,
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn monitor() -> Value {
    let prober: NetworkProber = serde_json::from_value(json!({
        "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "monitoring": {"interval": "1s"}},
    }))
    .expect("NetworkProber");
    let settings = Settings::of(&prober, &Tenancy::of("traffic-operator-system")).expect("a spec");
    let family = Family { prober: &prober, settings: &settings };
    family.pod_monitor(["shop"]).object["spec"].clone()
}

/// The rules of a `PodMonitor` as those of Prometheus: their fields are the same in another case.
fn snake(rules: &Value) -> Vec<Value> {
    let rules = rules.as_array().expect("rules").iter();
    rules
        .map(|rule| {
            let fields = rule.as_object().expect("a rule").iter().map(|(key, value)| {
                let key: String = key
                    .chars()
                    .flat_map(|c| {
                        let under = c.is_ascii_uppercase().then_some('_');
                        under.into_iter().chain([c.to_ascii_lowercase()])
                    })
                    .collect();
                (key, value.clone())
            });
            Value::Object(fields.collect())
        })
        .collect()
}

/// What the prometheus-operator makes of it, but that the pods are found in a list.
fn config(pods: &[(SocketAddr, &Pod)]) -> Value {
    let spec = monitor();
    let endpoint = &spec["podMetricsEndpoints"][0];
    let targets: Vec<_> = pods
        .iter()
        .map(|(address, pod)| {
            let mut labels = json!({
                "__meta_kubernetes_pod_node_name": format!("node-of-{}", pod.name),
                "namespace": "shop", "pod": pod.name, "job": "shop/web",
            });
            if let Some(by) = pod.injected_by {
                labels["__meta_kubernetes_pod_annotation_probes_bigmikes_io_injected_by"] =
                    by.into();
            }
            json!({"targets": [address.to_string()], "labels": labels})
        })
        .collect();
    json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{
            "job_name": "podMonitor/shop/web/0",
            "honor_labels": endpoint["honorLabels"],
            "scrape_interval": endpoint["interval"],
            "static_configs": targets,
            "relabel_configs": snake(&endpoint["relabelings"]),
            "metric_relabel_configs": snake(&endpoint["metricRelabelings"]),
            "sample_limit": spec["sampleLimit"],
            "label_limit": spec["labelLimit"],
            "label_name_length_limit": spec["labelNameLengthLimit"],
            "label_value_length_limit": spec["labelValueLengthLimit"],
            "body_size_limit": spec["bodySizeLimit"],
        }],
    })
}

/// Serves a text to whoever asks, until the test's process ends.
fn serve(text: String) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let (text, mut head) = (text.clone(), [0; 4096]);
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = stream.read(&mut head);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                    Connection: close\r\n";
                let length = format!("Content-Length: {}\r\n\r\n", text.len());
                let _ = stream.write_all([head, &length, &text].concat().as_bytes());
            });
        }
    });
    address
}

/// One request to Prometheus; nothing while it does not answer.
fn ask(address: SocketAddr, query: &str) -> Option<Vec<Value>> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let body = format!("query={}", escaped(query));
    let request = format!(
        "POST /api/v1/query HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    answer["data"]["result"].as_array().cloned()
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02X}"))
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn s04_a_forged_exporter_in_a_selected_pod_says_nothing_but_probes_of_its_own_node() {
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
    let served: Vec<_> = pods.iter().map(|pod| (serve(pod.text.clone()), pod)).collect();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forged");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("directory");
    let file = dir.join("prometheus.yml");
    fs::write(&file, config(&served).to_string()).expect("configuration");
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let process = Command::new(lab::tools::ensure("prometheus").expect("prometheus"))
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stderr(File::create(dir.join("log")).expect("log"))
        .spawn()
        .expect("prometheus");
    let _process = Ended(process);
    let up = eventually("two scrapes of each target", || {
        let counted = ask(address, "count_over_time(up[1m]) >= 2")?;
        (counted.len() >= 3).then(|| ask(address, "up")).flatten()
    });
    let mut up: Vec<_> = up
        .iter()
        .map(|one| (one["metric"]["pod"].as_str().expect("pod"), one["value"][1] == "1"))
        .collect();
    up.sort_unstable();
    // Who breaks a limit is not believed at all; who names nobody, or another, is not asked.
    assert_eq!(up, [("forged", true), ("long", false), ("many", false)]);
    let series = ask(address, r#"{pod!=""}"#).expect("series");
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
        assert_eq!(ask(address, query), Some(vec![]), "{query}");
    }
}
