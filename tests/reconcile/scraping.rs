//! Scrapes of the metrics, for clients that the API server allows.
use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use reqwest::{Certificate, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use traffic_operator::manifests;

use crate::bench::{
    ACCOUNT, AGENT_IMAGE, Bench, Operator, WEBHOOK_ACCOUNT, eventually, free_address, run,
};

/// The manifest of kube-prometheus, unchanged: its account and its rights.
const KUBE_PROMETHEUS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/lab/manifests/prometheus-access.yaml");

struct Stage {
    operator: Operator,
    metrics: SocketAddr,
    probes: SocketAddr,
    page: SocketAddr,
}

/// Starts an operator with the servers that are deployed.
async fn stage(bench: &Bench) -> Stage {
    let stage = component(bench, ACCOUNT, "all");
    eventually("the operator to be ready", async || {
        let url = format!("http://{}/readyz", stage.probes);
        let answer = client(1).get(url).send().await.ok()?;
        (answer.status() == StatusCode::OK).then_some(())
    })
    .await;
    stage
}

/// Starts one component of it, under its account.
fn component(bench: &Bench, account: &str, component: &str) -> Stage {
    let [metrics, probes, page] = [(); 3].map(|()| free_address());
    let operator = Operator::start_at(
        metrics,
        bench.kubeconfig_of(account),
        &[
            "--component",
            component,
            "--prometheus-url",
            &bench.prometheus.url,
            "--agent-image",
            AGENT_IMAGE,
            "--metrics-auth=true",
            "--probe-address",
            &probes.to_string(),
            "--page-address",
            &page.to_string(),
            "--identity",
            "operator-1",
            "--lease-duration",
            "5s",
        ],
    );
    Stage { operator, metrics, probes, page }
}

impl Stage {
    /// Requests `/metrics` as Prometheus does, from its own source address.
    async fn scrape(&self, source: u8, token: Option<&str>) -> (StatusCode, String) {
        let mut request = client(source)
            .get(format!("https://{}/metrics", self.metrics))
            .header(reqwest::header::ACCEPT, "application/openmetrics-text");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.expect("an answer");
        (answer.status(), answer.text().await.expect("text"))
    }
}

fn source(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// A client with its own address that does not verify the certificate, as
/// `monitoring/servicemonitor.yaml` configures.
fn client(from: u8) -> reqwest::Client {
    let client = reqwest::Client::builder()
        .local_address(source(from))
        .tls_danger_accept_invalid_certs(true)
        .no_proxy()
        .timeout(Duration::from_secs(10));
    client.build().expect("client")
}

/// Applies the manifest of kube-prometheus, and returns a token of an account.
async fn token(bench: &Bench, namespace: &str, account: &str) -> String {
    let text = std::fs::read_to_string(KUBE_PROMETHEUS).expect("manifest");
    let monitoring =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}});
    apply(bench, monitoring).await;
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object = Value::deserialize(document).expect("YAML");
        // The lists are for discovery, which is not tested here.
        if !object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) {
            apply(bench, object).await;
        }
    }
    apply(
        bench,
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace}}),
    )
    .await;
    let asked =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let answer: Value = bench.post(&path, &asked).await.expect("token");
    answer["status"]["token"].as_str().expect("token").to_owned()
}

async fn apply(bench: &Bench, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).expect("object");
    let types = object.types.clone().expect("types");
    let kind = GroupVersionKind::try_from(&types).expect("kind");
    let (resource, _) = kube::discovery::pinned_kind(&bench.client, &kind).await.expect("kind");
    let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(bench.client.clone(), namespace, &resource),
        None => Api::all_with(bench.client.clone(), &resource),
    };
    let name = object.metadata.name.clone().expect("name");
    api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object))
        .await
        .expect("apply");
}

#[test]
fn metrics_are_for_those_whom_the_api_server_lets_read_them() {
    run(async |bench| {
        let stage = stage(&bench).await;
        let prometheus = token(&bench, "monitoring", "prometheus-k8s").await;
        let stranger = token(&bench, "default", "stranger").await;

        assert_eq!(stage.scrape(11, None).await.0, StatusCode::UNAUTHORIZED);
        assert_eq!(stage.scrape(12, Some("nonsense")).await.0, StatusCode::UNAUTHORIZED);
        // Not every bit of the last character of a signature counts.
        let (front, back) = prometheus.split_at(prometheus.len() - 20);
        let other = if back.starts_with('A') { 'B' } else { 'A' };
        let forged = format!("{front}{other}{}", &back[1..]);
        assert_eq!(stage.scrape(13, Some(&forged)).await.0, StatusCode::UNAUTHORIZED);
        let (status, text) = stage.scrape(14, Some(&stranger)).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        let who = "system:serviceaccount:default:stranger may not get the nonResourceURL /metrics";
        assert!(text.starts_with(who), "{text}");
        let (status, page) = stage.scrape(15, Some(&prometheus)).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        assert!(page.contains("traffic_operator_leader") && page.ends_with("# EOF\n"), "{page}");

        // The first scrape takes one review of each kind, and the next ones take none.
        let since = k8s_openapi::jiff::Timestamp::now();
        for _ in 0..20 {
            assert_eq!(stage.scrape(15, Some(&prometheus)).await.0, StatusCode::OK);
        }
        let (_, page) = stage.scrape(15, Some(&prometheus)).await;
        assert!(page.contains("traffic_operator_scrapes_total{code=\"403\"} 1\n"), "{page}");
        let asked = bench.requests_since(since).await;
        let reviews = asked.iter().filter(|event| event.resource.contains("reviews."));
        assert_eq!(reviews.filter(|event| event.user == ACCOUNT).count(), 0);

        // No other path is served, to any client; and nothing in plain text.
        for path in ["/", "/swarms", "/api/v1/trafficwatches", "/livez"] {
            let request = client(16).get(format!("https://{}{path}", stage.metrics));
            let answer = request.bearer_auth(&prometheus).send().await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        }
        let plain = client(16).get(format!("http://{}/metrics", stage.metrics)).send().await;
        assert!(plain.is_err(), "{plain:?}");
        for (address, path, expected) in [
            (stage.probes, "/metrics", StatusCode::NOT_FOUND),
            (stage.probes, "/livez", StatusCode::OK),
            (stage.page, "/", StatusCode::OK),
            (stage.page, "/swarms", StatusCode::OK),
            (stage.page, "/metrics", StatusCode::OK),
        ] {
            // Only a leader knows Swarms, and another test may still hold the lease for some
            // seconds.
            let what = format!("{expected} from {address}{path}");
            let answers = async || {
                let answer = client(16).get(format!("http://{address}{path}")).send().await;
                (answer.expect("an answer").status() == expected).then_some(())
            };
            eventually(&what, answers).await;
        }
        let log = stage.operator.log();
        for token in [&prometheus, &stranger, &forged] {
            assert!(!log.contains(token.as_str()), "a token is in the log");
        }
    });
}

/// The webhook authorizes scrapes through the API server as the controller does, and serves nothing
/// else.
#[test]
fn the_metrics_of_the_webhook_are_read_by_the_same_and_it_has_no_status_page() {
    run(async |bench| {
        let stage = component(&bench, WEBHOOK_ACCOUNT, "webhook");
        let prometheus = token(&bench, "monitoring", "prometheus-k8s").await;
        let stranger = token(&bench, "default", "stranger").await;
        eventually("the webhook to serve its metrics", async || {
            client(1).get(format!("http://{}/livez", stage.probes)).send().await.ok()
        })
        .await;
        assert_eq!(stage.scrape(17, Some(&stranger)).await.0, StatusCode::FORBIDDEN);
        let (status, page) = stage.scrape(18, Some(&prometheus)).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        // Nothing suggests a replica that waits for the Lease.
        assert!(page.contains("traffic_operator_build_info"), "{page}");
        assert!(!page.contains("traffic_operator_leader"), "{page}");
        for (path, expected) in [
            ("/metrics", StatusCode::OK),
            ("/", StatusCode::NOT_FOUND),
            ("/networkprobers", StatusCode::NOT_FOUND),
            ("/api/v1/networkprobers", StatusCode::NOT_FOUND),
        ] {
            let answer = client(19).get(format!("http://{}{path}", stage.page)).send().await;
            assert_eq!(answer.expect("an answer").status(), expected, "{path}");
        }
    });
}

/// A client can verify the certificate: it is the webhook's own, whose authority is in the
/// webhook's Secret.
#[test]
fn the_certificate_of_the_metrics_can_be_verified() {
    run(async |bench| {
        let stage = stage(&bench).await;
        let prometheus = token(&bench, "monitoring", "prometheus-k8s").await;
        let secrets = Api::<Secret>::namespaced(bench.client.clone(), manifests::NAMESPACE);
        let secret = eventually("the webhook's Secret", async || {
            secrets.get_opt(manifests::WEBHOOK).await.expect("secret")
        })
        .await;
        let bundle = secret.data.expect("data").remove("ca.crt").expect("ca.crt").0;
        let name = format!("{}.{}.svc", manifests::WEBHOOK, manifests::NAMESPACE);
        let verifying = reqwest::Client::builder()
            .tls_certs_only(Certificate::from_pem_bundle(&bundle).expect("certificates"))
            .resolve(&name, stage.metrics)
            .no_proxy()
            .build()
            .expect("client");
        let url = format!("https://{name}:{}/metrics", stage.metrics.port());
        eventually("a scrape that verifies the certificate", async || {
            let answer = verifying.get(&url).bearer_auth(&prometheus).send().await.ok()?;
            (answer.status() == StatusCode::OK).then_some(())
        })
        .await;
    });
}

/// Prometheus itself, configured as in `deploy/overlays/standalone`, except for the addresses of
/// the targets.
#[test]
#[ignore = "needs Prometheus: `make verify` runs it"]
fn prometheus_scrapes_by_the_configuration_that_we_ship() {
    run(async |bench| {
        let stage = stage(&bench).await;
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("scraping");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("directory");
        let (file, credentials) = (dir.join("prometheus.yml"), dir.join("token"));
        let prometheus = token(&bench, "monitoring", "prometheus-k8s").await;
        std::fs::write(&credentials, prometheus).expect("token");
        let shipped =
            concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/overlays/standalone/prometheus.yml");
        let shipped = std::fs::read_to_string(shipped).expect("prometheus.yml");
        let shipped: Value = serde_yaml::from_str(&shipped).expect("YAML");
        let jobs = shipped["scrape_configs"].as_array().expect("jobs");
        let job = jobs.iter().find(|job| job["job_name"] == "traffic-operator").expect("our job");
        let mut job = job.as_object().expect("a job").clone();
        job.retain(|key, _| key != "kubernetes_sd_configs" && key != "relabel_configs");
        job.insert("static_configs".into(), json!([{"targets": [stage.metrics.to_string()]}]));
        job["authorization"]["credentials_file"] = json!(credentials);
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job],
        });
        std::fs::write(&file, config.to_string()).expect("configuration");
        let address = free_address();
        let process = Command::new(lab::tools::ensure("prometheus").expect("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stderr(File::create(dir.join("log")).expect("log"))
            .spawn()
            .expect("prometheus");
        let _process = Ended(process);
        eventually("two scrapes in a row", async || {
            let query = "count_over_time(traffic_operator_leader[10s])";
            let asked = client(1).get(format!("http://{address}/api/v1/query"));
            let answer = asked.query(&[("query", query)]).send().await.ok()?;
            let answer: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
            let count = answer["data"]["result"][0]["value"][1].as_str()?.parse::<u32>().ok()?;
            (count >= 2).then_some(())
        })
        .await;
    });
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
