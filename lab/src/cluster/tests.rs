//! Starts a real cluster; without root the test is skipped, with a message.

use std::time::Instant;

use super::*;
use crate::wait::{Look, until};

/// One test with several acts: starting a cluster takes most of the time.
#[tokio::test]
async fn a_cluster_works_breaks_mends_and_leaves_nothing() {
    if require_root().is_err() {
        crate::left_out("a cluster of the lab: it needs root");
        return;
    }
    let started = Instant::now();
    let cluster = Cluster::start(Options {
        nodes: 2,
        zones: vec!["east".to_owned(), "west".to_owned()],
        ..Options::default()
    })
    .await
    .unwrap();
    eprintln!("cluster of 2 up in {:.1} s", started.elapsed().as_secs_f64());
    let id = cluster.id();
    assert_eq!(cluster.node_names(), ["node-1", "node-2"]);

    traffic_is_counted_where_it_is_sent(&cluster).await;
    prometheus_names_nodes_as_instances(&cluster).await;
    pods_run_and_find_each_other(&cluster).await;
    a_link_is_slow_and_mended(&cluster).await;
    nodes_break_and_come_back(&cluster).await;
    let error = cluster.counters("node-3").unwrap_err().to_string();
    assert!(error.contains("only node-1, node-2"), "{error}");

    cluster.down().await.unwrap();
    assert!(!state::dir(&id).exists());
    assert_eq!(network::existing(&id), Vec::<String>::new());
    assert_eq!(cgroups::existing(&id), Vec::<PathBuf>::new());
}

async fn traffic_is_counted_where_it_is_sent(cluster: &Cluster) {
    let before = (cluster.counters("node-1").unwrap(), cluster.counters("node-2").unwrap());
    let traffic = cluster.traffic("node-2", 400_000_000, Duration::from_secs(2)).unwrap();
    let sent = traffic.wait().await.unwrap();
    let after = (cluster.counters("node-1").unwrap(), cluster.counters("node-2").unwrap());
    let counted = after.1.tx_bytes - before.1.tx_bytes;
    // 100 MB, or less, even much less, where the machine is busy; never more.
    assert!((10_000_000..=101_000_000).contains(&sent), "{sent}");
    // Headers are 4 %; a busy machine sends some segments twice.
    assert!(counted >= sent && counted < sent + sent / 4, "sent {sent}, counted {counted}");
    // No other node's link carries it.
    assert!(after.0.rx_bytes - before.0.rx_bytes < sent / 20);
}

async fn prometheus_names_nodes_as_instances(cluster: &Cluster) {
    let speed = cluster
        .query(r#"node_network_speed_bytes{device="eth0",job="node-exporter"}"#)
        .await
        .unwrap();
    let mut instances: Vec<_> =
        speed.iter().map(|(labels, _)| labels["instance"].as_str()).collect();
    instances.sort_unstable();
    assert_eq!(instances, ["node-1", "node-2"], "{speed:?}");
    let error = cluster.query("rate(").await.unwrap_err().to_string();
    assert!(error.contains("Prometheus refuses"), "{error}");
}

async fn pods_run_and_find_each_other(cluster: &Cluster) {
    let manifest = "
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 0
  containers:
  - {name: httpd, image: 'busybox:1.35', command: [sh, -c, 'echo hello > /tmp/x && httpd -f -p 8080 -h /tmp']}
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {selector: {app: server}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers:
  - name: wget
    image: busybox:1.35
    command: [sh, -c, 'until wget -q -O - http://server.default.svc/x; do sleep 0.2; done; sleep 600']
";
    cluster.apply(manifest).await.unwrap();
    until("the client's answer from the server", Duration::from_mins(1), || async {
        let said = cluster.kubectl(&["logs", "client"]).unwrap_or_else(|error| error.to_string());
        // Errors of the first tries are in its log, too.
        Ok(if said.ends_with("hello\n") { Look::Done(()) } else { Look::NotYet(said) })
    })
    .await
    .unwrap();
    let host = cluster.kubectl(&["exec", "client", "--", "hostname"]).unwrap();
    assert_eq!(host, "client\n");
    // The same Service from the caller's network namespace.
    let url = cluster.expose("default", "server", 80).await.unwrap();
    let answer = reqwest::get(format!("{url}/x")).await.unwrap().text().await.unwrap();
    assert_eq!(answer, "hello\n");
    assert_eq!(cluster.expose("default", "server", 80).await.unwrap(), url);
    assert!(cluster.kubectl(&["get", "nonsense"]).unwrap_err().to_string().contains("nonsense"));
}

/// Uses the pods of the previous act.
async fn a_link_is_slow_and_mended(cluster: &Cluster) {
    let zone = |node| {
        let path = r"jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}";
        cluster.kubectl(&["get", "node", node, "-o", path]).unwrap()
    };
    assert_eq!([zone("node-1"), zone("node-2")], ["east", "west"]);
    let address = "jsonpath={.status.podIP}";
    let server = cluster.kubectl(&["get", "pod", "server", "-o", address]).unwrap();
    let ping = || {
        let said = cluster
            .kubectl(&["exec", "client", "--", "ping", "-c", "5", "-i", "0.2", &server])
            .unwrap();
        assert!(said.contains(" 0% packet loss"), "{said}");
        // "round-trip min/avg/max = 0.126/0.222/0.406 ms"
        said.rsplit_once("= ").unwrap().1.split_once('/').unwrap().0.parse::<f64>().unwrap()
    };
    let impairment = Impairment { delay: Duration::from_millis(100), loss: 0.0 };
    let impaired = cluster.impair("node-2", impairment, Duration::from_mins(2)).await.unwrap();
    let slow = ping();
    assert!(slow >= 100.0, "{slow} ms");
    let again = cluster.impair("node-2", impairment, Duration::from_mins(2)).await.unwrap_err();
    assert!(format!("{again:#}").contains("impaired already"), "{again:#}");
    // A Service's address is translated once, whatever comes between.
    let url = "http://server.default.svc/x";
    let said = cluster.kubectl(&["exec", "client", "--", "wget", "-q", "-O", "-", url]).unwrap();
    assert_eq!(said, "hello\n");
    let counts = impaired.lift().await.unwrap();
    assert!(counts.held >= 10 && counts.failed == 0, "{counts:?}");
    eprintln!("100 ms: shortest round trip {slow} ms; mended {} ms, {counts:?}", ping());
}

async fn nodes_break_and_come_back(cluster: &Cluster) {
    let names = ["node-2".to_owned()];
    for (breaking, mending) in [
        (
            Cluster::kill_node as fn(&Cluster, &str) -> Result<()>,
            Cluster::start_node as fn(&Cluster, &str) -> Result<()>,
        ),
        (Cluster::cut, Cluster::join),
    ] {
        breaking(cluster, "node-2").unwrap();
        until("node-2 not Ready", Duration::from_mins(1), || async {
            let status = cluster.kubectl(&["get", "node", "node-2", "--no-headers"])?;
            Ok(if status.contains("NotReady") { Look::Done(()) } else { Look::NotYet(status) })
        })
        .await
        .unwrap();
        mending(cluster, "node-2").unwrap();
        cluster.nodes_ready(&names).await.unwrap();
    }
    assert!(cluster.start_node("node-2").unwrap_err().to_string().contains("runs already"));
    let archive = crate::workspace::state().join("cache/images/busybox-1.35.tar");
    cluster.load_image(&archive).unwrap();
    assert_eq!(cluster.in_node("node-2", "hostname", &[]).unwrap(), "node-2\n");
}
