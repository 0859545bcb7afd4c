//! What users install beside the operator fits the operator: alerts and dashboards ask only for
//! metrics that exist, every metric is documented, the rendered manifests hold what the
//! documentation promises.
//!
//! Needs promtool and kubectl (no cluster); `cargo run --bin lab -- tools` builds them beforehand.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;
use serde_json::Value;
use traffic_operator::metrics::NAMES;

const OPERATOR: &str = "traffic-operator";
const NAMESPACE: &str = "traffic-operator-system";
const OVERLAYS: [&str; 2] = ["deploy/overlays/kube-prometheus", "deploy/overlays/standalone"];

// --- Metrics, rules, dashboards, documentation agree ---------------------------------------------

#[test]
fn only_exported_metrics_are_asked_for() {
    for (place, expression) in expressions() {
        for name in metric_names(&expression) {
            assert!(is_exported(&name), "{place} asks for {name}, which is not exported");
        }
    }
}

#[test]
fn only_exported_metrics_are_documented() {
    for file in documents() {
        for name in metric_names(&read(&file)) {
            assert!(is_exported(&name), "{} names {name}, which is not exported", file.display());
        }
    }
}

#[test]
fn every_exported_metric_is_documented() {
    let page = read(&root().join("docs/metrics.md"));
    let missing: Vec<_> = NAMES.iter().filter(|name| !page.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks {missing:?}");
}

#[test]
fn names_end_where_they_should() {
    let text = "rate(traffic_operator_x_seconds_bucket{a=\"b\"}[5m]) / process_open_fds `traffic_operator_y_`";
    let names: Vec<_> = metric_names(text).into_iter().collect();
    assert_eq!(names, ["process_open_fds", "traffic_operator_x_seconds_bucket"]);
}

// --- The documentation is complete ---------------------------------------------------------------

#[test]
fn every_field_is_documented() {
    let pages = ["README.md", "docs/trafficwatch.md"].map(|page| (page, read(&root().join(page))));
    for kind in traffic_operator::api::KINDS {
        let crd = serde_json::to_value((kind.crd)()).expect("JSON");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            let fields = schema[part]["properties"].as_object().expect("fields");
            for field in fields.keys().filter(|field| *field != "conditions") {
                for (page, text) in &pages {
                    let named = [format!("`{field}"), format!("{field}:")];
                    let found = named.iter().any(|name| text.contains(name));
                    assert!(found, "{page} does not tell what {part}.{field} is");
                }
            }
        }
    }
}

#[test]
fn every_flag_is_documented() {
    let readme = read(&root().join("README.md"));
    let command = <traffic_operator::cli::Cli as clap::CommandFactory>::command();
    let run = command.find_subcommand("run").expect("run");
    for flag in run.get_arguments().filter_map(clap::Arg::get_long).filter(|flag| *flag != "help") {
        assert!(readme.contains(&format!("`--{flag}`")), "README.md does not name --{flag}");
    }
}

#[test]
fn every_target_is_documented() {
    let page = read(&root().join("CONTRIBUTING.md"));
    let makefile = read(&root().join("Makefile"));
    let targets = makefile.lines().filter_map(|line| {
        let (target, _) = line.split_once(':').filter(|(_, rest)| rest.contains("## "))?;
        (!target.is_empty() && !target.contains(char::is_whitespace)).then_some(target)
    });
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with('|')).collect();
    let documented =
        |target: &str| rows.iter().any(|row| row.split([' ', ',', '|']).any(|word| word == target));
    let targets: Vec<_> = targets.collect();
    assert!(targets.contains(&"help"), "{targets:?}");
    for target in targets {
        assert!(documented(target), "CONTRIBUTING.md does not say what `make {target}` does");
    }
}

#[test]
fn every_link_inside_the_repository_leads_somewhere() {
    let mut files = documents();
    files.extend(["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|file| root().join(file)));
    for file in files {
        let text = read(&file);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let directory = file.parent().expect("a directory");
            let page = if path.is_empty() { file.clone() } else { directory.join(path) };
            assert!(page.exists(), "{}: {target}", file.display());
            let found = anchor.is_empty() || headings(&read(&page)).contains(anchor);
            assert!(found, "{}: no heading for {target}", file.display());
        }
    }
}

/// The anchors that a page's headings get.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

// --- Alerts --------------------------------------------------------------------------------------

#[test]
fn every_alert_says_what_to_do() {
    for alert in alerts() {
        let name = &alert.name;
        for key in ["summary", "description", "runbook_url"] {
            assert!(
                alert.annotations.get(key).is_some_and(|text| !text.trim().is_empty()),
                "{name}: no annotation {key}"
            );
        }
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        let page = format!("docs/runbooks/{name}.md");
        assert!(alert.annotations["runbook_url"].ends_with(&page), "{name}: not {page}");
        let text = read(&root().join(&page));
        for heading in ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"] {
            assert!(text.contains(heading), "{page}: no {heading}");
        }
        assert!(text.starts_with(&format!("# {name}\n")), "{page}: not about {name}");
    }
}

#[test]
fn every_runbook_belongs_to_an_alert() {
    let names: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    for file in files_in("docs/runbooks", "md") {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        assert!(names.contains(&stem), "{}: there is no such alert", file.display());
    }
}

/// Fires, does not fire and resolves: each alert has a test that expects it, a test that never
/// expects it, and a test that expects it and later does not.
#[test]
fn every_alert_is_tested_three_ways() {
    let file: AlertTests = yaml(&root().join("monitoring/tests/alerts_test.yml"));
    for alert in alerts() {
        // One list per test: whether the alert is expected, in the order of time as written.
        let runs: Vec<Vec<bool>> = file
            .tests
            .iter()
            .map(|test| {
                let of_alert = test.alert_rule_test.iter().filter(|t| t.alertname == alert.name);
                of_alert.map(|t| !t.exp_alerts.is_empty()).collect()
            })
            .filter(|run: &Vec<bool>| !run.is_empty())
            .collect();
        let name = &alert.name;
        assert!(runs.iter().any(|run| run.contains(&true)), "{name}: no test that it fires");
        assert!(
            runs.iter().any(|run| !run.contains(&true)),
            "{name}: no test in which it does not fire"
        );
        assert!(
            runs.iter().any(|run| run.windows(2).any(|pair| pair == [true, false])),
            "{name}: no test that it resolves"
        );
    }
}

#[test]
fn promtool_accepts_and_tests_the_rules() {
    let dir = Scratch::new("rules");
    let rules = dir.write("rules.yml", &to_yaml(&rule_spec()));
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules]);
    let tests = read(&root().join("monitoring/tests/alerts_test.yml"));
    promtool(&["test", "rules", &dir.write("alerts_test.yml", &tests)]);
}

// --- Dashboards ----------------------------------------------------------------------------------

#[test]
fn dashboards_fit_every_installation() {
    for (file, dashboard) in dashboards() {
        for key in ["uid", "title", "description"] {
            assert!(has_text(&dashboard[key]), "{file}: no {key}");
        }
        assert_eq!(dashboard["editable"], false, "{file}: editable");
        assert_eq!(dashboard["refresh"], "10s", "{file}: refresh");
        let variables = dashboard["templating"]["list"].as_array().expect("a list of variables");
        let datasource = variables.iter().find(|v| v["name"] == "datasource");
        let datasource = datasource.unwrap_or_else(|| panic!("{file}: no variable datasource"));
        assert_eq!(datasource["type"], "datasource", "{file}");
        assert_eq!(datasource["query"], "prometheus", "{file}");
        for variable in variables.iter().filter(|v| v["type"] == "query") {
            assert_eq!(
                variable["datasource"]["uid"], "${datasource}",
                "{file}: {}",
                variable["name"]
            );
            // New nodes appear in an open dashboard.
            assert_eq!(variable["refresh"], 2, "{file}: {}", variable["name"]);
        }
    }
}

#[test]
fn every_panel_is_complete() {
    for (file, dashboard) in dashboards() {
        let mut ids = BTreeSet::new();
        let mut titles = BTreeSet::new();
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().unwrap_or_default();
            assert!(!title.is_empty(), "{file}: a panel without title");
            assert!(ids.insert(panel["id"].to_string()), "{file}: {title}: id {}", panel["id"]);
            assert!(titles.insert(title), "{file}: two panels {title}");
            if panel["type"] == "row" {
                continue;
            }
            assert!(has_text(&panel["description"]), "{file}: {title}: no description");
            let unit = &panel["fieldConfig"]["defaults"]["unit"];
            assert!(has_text(unit), "{file}: {title}: no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{file}: {title}");
            let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
            assert!(!targets.is_empty(), "{file}: {title}: no query");
            for target in targets {
                assert!(has_text(&target["expr"]), "{file}: {title}: an empty query");
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{file}: {title}");
            }
        }
    }
}

#[test]
fn panels_survive_another_job_name_and_another_leader() {
    for (place, expression) in panel_expressions() {
        for label in ["job=", "job=~", "instance=", "pod="] {
            assert!(!expression.contains(label), "{place}: selects by {label}: {expression}");
        }
        // Without an aggregation the series of the old and of the new leader stand side by side.
        if expression.contains("traffic_operator_") {
            let aggregated = ["sum", "max"].iter().any(|op| expression.contains(op));
            assert!(aggregated, "{place}: not aggregated over the pods: {expression}");
        }
        for name in metric_names(&expression).iter().filter(|name| name.ends_with("_total")) {
            let counted = ["rate(", "increase("].iter().any(|function| {
                expression.split(function).skip(1).any(|rest| rest.trim_start().starts_with(name))
            });
            assert!(counted, "{place}: {name} without rate or increase");
        }
        if expression.contains("rate(") {
            assert!(expression.contains("[$__rate_interval]"), "{place}: {expression}");
        }
    }
}

#[test]
fn promtool_parses_every_panel() {
    let rules: Vec<Value> = panel_expressions()
        .into_iter()
        .enumerate()
        .map(|(i, (_, expression))| {
            let expression = ["namespace", "name", "node"]
                .iter()
                .fold(expression.replace("$__rate_interval", "5m"), |text, variable| {
                    text.replace(&format!("\"${variable}\""), "\".*\"")
                });
            serde_json::json!({"record": format!("panel:{i}"), "expr": expression})
        })
        .collect();
    assert!(!rules.is_empty());
    let groups = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]});
    let dir = Scratch::new("panels");
    promtool(&["check", "rules", "--lint=none", &dir.write("panels.yml", &to_yaml(&groups))]);
}

#[test]
fn every_dashboard_is_shipped_as_it_is() {
    let overlay = render(OVERLAYS[0]);
    let map = overlay.one("ConfigMap", "traffic-operator-dashboards");
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let shipped = map["data"].as_object().expect("data");
    let files = files_in("grafana", "json");
    assert_eq!(shipped.len(), files.len(), "grafana/kustomization.yaml misses a dashboard");
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert_eq!(shipped[&name].as_str(), Some(read(&file).as_str()), "{name}");
    }
}

// --- The rendered manifests ----------------------------------------------------------------------

#[test]
fn overlays_render_without_flags_and_without_crds() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        assert!(rendered.all("CustomResourceDefinition").is_empty(), "{overlay}: deletes CRs");
        let mut seen = BTreeSet::new();
        for object in &rendered.0 {
            let id = (kind(object), namespace(object), name(object));
            assert!(seen.insert(id), "{overlay}: {id:?} twice");
        }
    }
    let crds = render("deploy/crds");
    assert!(crds.0.iter().all(|object| kind(object) == "CustomResourceDefinition"));
    assert!(!crds.0.is_empty());
}

#[test]
fn every_namespace_exists_or_is_that_of_the_monitoring() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        let namespaces = rendered.all("Namespace").into_iter().map(name).collect::<BTreeSet<_>>();
        for object in &rendered.0 {
            let namespace = namespace(object);
            let known = namespace.is_empty()
                || namespaces.contains(namespace)
                || (overlay == OVERLAYS[0] && namespace == "monitoring");
            assert!(known, "{overlay}: {} in {namespace}", name(object));
        }
    }
}

#[test]
fn our_namespace_enforces_the_restricted_standard() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        let labels = &rendered.one("Namespace", NAMESPACE)["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
        assert_eq!(labels["pod-security.kubernetes.io/warn"], "restricted");
    }
}

#[test]
fn every_pod_drops_what_it_does_not_need() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        for workload in ["Deployment", "DaemonSet"].iter().flat_map(|kind| rendered.all(kind)) {
            let who = format!("{overlay}: {}", name(workload));
            let pod = &workload["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{who}");
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{who}");
            for key in ["hostPID", "hostIPC"] {
                assert!(pod[key].is_null(), "{who}: {key}");
            }
            for volume in pod["volumes"].as_array().into_iter().flatten() {
                assert!(volume["hostPath"].is_null(), "{who}: hostPath");
            }
            for container in pod["containers"].as_array().expect("containers") {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{who}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{who}");
                assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{who}");
                assert!(context["capabilities"]["add"].is_null(), "{who}");
                let resources = &container["resources"];
                for amount in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
                    assert!(resources.pointer(amount).is_some(), "{who}: no {amount}");
                }
                let image = container["image"].as_str().unwrap_or_default();
                let tag = image.rsplit_once(':').map(|(_, tag)| tag);
                assert!(tag.is_some_and(|tag| tag != "latest"), "{who}: image {image}");
            }
        }
    }
}

#[test]
fn the_operator_is_deployed_as_documented() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        let deployment = rendered.one("Deployment", OPERATOR);
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(deployment["spec"]["replicas"], 2);
        assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
        assert_eq!(pod["serviceAccountName"], OPERATOR);
        assert!(pod["hostNetwork"].is_null());
        assert_eq!(pod["containers"].as_array().map(Vec::len), Some(1));
        let container = &pod["containers"][0];
        assert_eq!(container["args"][0], "run");
        let image = container["image"].as_str().unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(image, format!("traffic-operator/traffic-operator:{version}"));
        for (variable, field) in
            [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")]
        {
            let env = container["env"].as_array().into_iter().flatten();
            let found = env.clone().find(|env| env["name"] == variable);
            let found = found.unwrap_or_else(|| panic!("{overlay}: no {variable}"));
            assert_eq!(found["valueFrom"]["fieldRef"]["fieldPath"], field);
        }
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
        // What selects the pods selects these.
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let service = rendered.one("Service", "traffic-operator-metrics");
        assert!(selects(&service["spec"]["selector"], labels));
        assert_eq!(service["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
        let budget = rendered.one("PodDisruptionBudget", OPERATOR);
        assert!(selects(&budget["spec"]["selector"]["matchLabels"], labels));
        assert_eq!(budget["spec"]["minAvailable"], 1);
    }
}

#[test]
fn prometheus_finds_the_operator() {
    let rendered = render(OVERLAYS[0]);
    let monitor = rendered.one("PodMonitor", OPERATOR);
    let deployment = rendered.one("Deployment", OPERATOR);
    let template = &deployment["spec"]["template"];
    assert_eq!(namespace(monitor), NAMESPACE);
    assert!(selects(&monitor["spec"]["selector"]["matchLabels"], &template["metadata"]["labels"]));
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"], template["spec"]["containers"][0]["ports"][0]["name"]);
    // `namespace` is the TrafficWatch's; without this it arrives as exported_namespace.
    assert_eq!(endpoint["honorLabels"], true);

    let binding = rendered.one("RoleBinding", "prometheus-k8s");
    assert_eq!(namespace(binding), NAMESPACE);
    assert_eq!(binding["subjects"][0]["name"], "prometheus-k8s");
    assert_eq!(binding["subjects"][0]["namespace"], "monitoring");
    let rules = rendered.one("Role", "prometheus-k8s")["rules"].as_array().expect("rules").clone();
    let pods =
        rules.iter().find(|rule| contains(&rule["resources"], "pods")).expect("a rule on pods");
    for rule in &rules {
        assert_eq!(rule["verbs"], serde_json::json!(["get", "list", "watch"]));
    }
    assert!(contains(&pods["apiGroups"], ""));
}

#[test]
fn nothing_passes_but_what_is_listed() {
    for (overlay, monitoring) in
        OVERLAYS.into_iter().zip(["monitoring", "traffic-operator-monitoring"])
    {
        let rendered = render(overlay);
        let deny = rendered.one("NetworkPolicy", "default-deny");
        assert_eq!(namespace(deny), NAMESPACE);
        assert_eq!(deny["spec"]["podSelector"], serde_json::json!({}));
        assert_eq!(deny["spec"]["policyTypes"], serde_json::json!(["Ingress", "Egress"]));
        assert!(deny["spec"]["ingress"].is_null() && deny["spec"]["egress"].is_null());

        let deployment = rendered.one("Deployment", OPERATOR);
        let pod = &deployment["spec"]["template"]["metadata"]["labels"];
        let ours: Vec<_> = rendered
            .all("NetworkPolicy")
            .into_iter()
            .filter(|policy| namespace(policy) == NAMESPACE && name(policy) != "default-deny")
            .collect();
        for policy in &ours {
            assert!(
                selects(&policy["spec"]["podSelector"]["matchLabels"], pod),
                "{}",
                name(policy)
            );
        }
        let ingress = passages(&ours, "ingress", "from");
        assert_eq!(ingress, [format!("TCP/8080 namespace={monitoring}")], "{overlay}");
        let egress = passages(&ours, "egress", "to");
        let expected = [
            "TCP/443 anywhere".to_owned(),
            "TCP/53 cidr=169.254.20.10/32".to_owned(),
            "TCP/53 namespace=kube-system".to_owned(),
            "TCP/6443 anywhere".to_owned(),
            format!("TCP/9090 namespace={monitoring} pod=prometheus"),
            "UDP/53 cidr=169.254.20.10/32".to_owned(),
            "UDP/53 namespace=kube-system".to_owned(),
        ];
        assert_eq!(egress, expected, "{overlay}");
    }
}

#[test]
fn prometheus_lets_the_operator_in() {
    for (overlay, policy, place) in [
        (OVERLAYS[0], "prometheus-k8s-from-traffic-operator", "monitoring"),
        (OVERLAYS[1], "prometheus", "traffic-operator-monitoring"),
    ] {
        let rendered = render(overlay);
        let policy = rendered.one("NetworkPolicy", policy);
        assert_eq!(namespace(policy), place);
        // A policy that also isolated egress would cut Prometheus off from its targets.
        assert_eq!(policy["spec"]["policyTypes"], serde_json::json!(["Ingress"]));
        let ingress = passages(&[policy], "ingress", "from");
        assert_eq!(
            ingress,
            [format!("TCP/9090 namespace={NAMESPACE} pod={OPERATOR}")],
            "{overlay}"
        );
    }
    // kube-prometheus' own pods, on which its own policy lies already: on pods without any policy
    // ours would shut out everybody else.
    let rendered = render(OVERLAYS[0]);
    let policy = rendered.one("NetworkPolicy", "prometheus-k8s-from-traffic-operator");
    let selector = &policy["spec"]["podSelector"]["matchLabels"];
    assert_eq!(selector["app.kubernetes.io/part-of"], "kube-prometheus");
    assert_eq!(selector["app.kubernetes.io/name"], "prometheus");
}

#[test]
fn the_standalone_exporter_measures_the_node_and_not_itself() {
    let rendered = render(OVERLAYS[1]);
    let exporter = rendered.one("DaemonSet", "node-exporter");
    let pod = &exporter["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["tolerations"], serde_json::json!([{"operator": "Exists"}]));
    let args = pod["containers"][0]["args"].as_array().expect("args");
    for arg in
        ["--collector.netdev", "--collector.netclass", "--collector.netclass.ignore-invalid-speed"]
    {
        assert!(args.iter().any(|a| a == arg), "no {arg}");
    }
}

#[test]
fn the_standalone_operator_asks_the_standalone_prometheus() {
    let rendered = render(OVERLAYS[1]);
    let service = rendered.one("Service", "prometheus");
    let port = &service["spec"]["ports"][0]["port"];
    let url = format!("http://{}.{}.svc:{port}", name(service), namespace(service));
    let deployment = rendered.one("Deployment", OPERATOR);
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    assert!(contains(&args, &format!("--prometheus-url={url}")), "{args} and {url}");

    let config = rendered.all("ConfigMap").into_iter().find(|map| {
        name(map).starts_with("prometheus-") && map["data"]["prometheus.yml"].is_string()
    });
    let config = config.expect("a ConfigMap with prometheus.yml");
    let dir = Scratch::new("prometheus");
    let text = config["data"]["prometheus.yml"].as_str().unwrap_or_default();
    promtool(&["check", "config", "--syntax-only", &dir.write("prometheus.yml", text)]);
    let prometheus = rendered.one("Deployment", "prometheus");
    let mounted = &prometheus["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"];
    assert_eq!(mounted, name(config));
}

#[test]
fn samples_are_trafficwatches_that_can_stand_together() {
    let mut keys = BTreeMap::new();
    for file in files_in("deploy/samples", "yaml") {
        for document in documents_of(&read(&file)) {
            if kind(&document) != "TrafficWatch" {
                continue;
            }
            let name = name(&document).to_owned();
            let watch: traffic_operator::api::TrafficWatch = serde_json::from_value(document)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            // The same key only as another form of the same object.
            let previous = keys.insert(watch.label_key(), name.clone());
            assert!(previous.is_none_or(|previous| previous == name), "{}", file.display());
        }
    }
    assert!(keys.contains_key("trafficwatch-sample.traffic.example.com/unfit"));
}

// --- Reading ------------------------------------------------------------------------------------

#[derive(Deserialize)]
struct Alert {
    #[serde(rename = "alert")]
    name: String,
    expr: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AlertTests {
    tests: Vec<AlertTest>,
}

#[derive(Deserialize)]
struct AlertTest {
    #[serde(default)]
    alert_rule_test: Vec<AlertExpectation>,
}

#[derive(Deserialize)]
struct AlertExpectation {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<Value>,
}

fn rule_spec() -> Value {
    yaml::<Value>(&root().join("monitoring/prometheusrule.yaml"))["spec"].clone()
}

fn alerts() -> Vec<Alert> {
    let groups = rule_spec()["groups"].as_array().expect("groups").clone();
    let rules =
        groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default());
    let alerts: Vec<Alert> = rules
        .filter(|rule| rule["alert"].is_string())
        .map(|rule| serde_json::from_value(rule).expect("an alert"))
        .collect();
    assert!(!alerts.is_empty());
    alerts
}

/// Every dashboard with the name of its file.
fn dashboards() -> Vec<(String, Value)> {
    let files = files_in("grafana", "json");
    assert!(!files.is_empty());
    files
        .into_iter()
        .map(|file| {
            let value = serde_json::from_str(&read(&file))
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            (file.display().to_string(), value)
        })
        .collect()
}

/// The queries of all panels, with the place where each stands.
fn panel_expressions() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (file, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().into_iter().flatten() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let place = format!("{file}: {}", panel["title"]);
                all.push((place, target["expr"].as_str().unwrap_or_default().to_owned()));
            }
        }
    }
    all
}

/// Every PromQL text that we ship, with the place where it stands.
fn expressions() -> Vec<(String, String)> {
    let mut all = panel_expressions();
    for (file, dashboard) in dashboards() {
        for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
            if let Some(query) = variable["query"]["query"].as_str() {
                all.push((format!("{file}: {}", variable["name"]), query.to_owned()));
            }
        }
    }
    all.extend(alerts().into_iter().map(|alert| (alert.name, alert.expr)));
    all
}

/// The names of our own metrics in a text: `traffic_operator_*` and `process_*`.
fn metric_names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| word.starts_with("traffic_operator_") || word.starts_with("process_"))
        // A prefix in prose (`traffic_operator_`) is no name.
        .filter(|word| !word.ends_with('_'))
        .map(str::to_owned)
        .collect()
}

fn is_exported(name: &str) -> bool {
    let histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .filter(|family| family.ends_with("_seconds"));
    NAMES.contains(&name) || histogram.is_some_and(|family| NAMES.contains(&family))
}

fn documents() -> Vec<PathBuf> {
    let mut files = files_in("docs", "md");
    files.extend(files_in("docs/runbooks", "md"));
    files.push(root().join("README.md"));
    files
}

// --- Kubernetes objects -------------------------------------------------------------------------

/// What `kubectl kustomize` makes of a directory.
struct Rendered(Vec<Value>);

fn render(dir: &str) -> Rendered {
    let text = run(&tool("kubectl"), &["kustomize", &root().join(dir).to_string_lossy()]);
    Rendered(documents_of(&text))
}

impl Rendered {
    fn all(&self, kind_: &str) -> Vec<&Value> {
        self.0.iter().filter(|object| kind(object) == kind_).collect()
    }

    fn one(&self, kind_: &str, name_: &str) -> &Value {
        let mut found = self.all(kind_);
        found.retain(|object| name(object) == name_);
        // A Role of one name may stand in two namespaces; ours is the one that is meant.
        if found.len() > 1 {
            found.retain(|object| namespace(object) == NAMESPACE);
        }
        assert_eq!(found.len(), 1, "{kind_} {name_}");
        found[0]
    }
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

fn contains(list: &Value, text: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|item| item == text))
}

fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Whether a set of matchLabels selects these labels. An empty one would select everything.
fn selects(selector: &Value, labels: &Value) -> bool {
    selector
        .as_object()
        .is_some_and(|map| !map.is_empty() && map.iter().all(|(key, value)| labels[key] == *value))
}

/// The connections that policies allow, one line for each port and peer, sorted.
fn passages(policies: &[&Value], direction: &str, peers: &str) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for policy in policies {
        for rule in policy["spec"][direction].as_array().into_iter().flatten() {
            let ports = rule["ports"].as_array().cloned().unwrap_or_default();
            assert!(!ports.is_empty(), "{}: a rule for every port", name(policy));
            let peers = match rule[peers].as_array() {
                None => vec!["anywhere".to_owned()],
                Some(peers) => peers.iter().map(peer).collect(),
            };
            for port in &ports {
                for peer in &peers {
                    let protocol = port["protocol"].as_str().unwrap_or("TCP");
                    lines.insert(format!("{protocol}/{} {peer}", port["port"]));
                }
            }
        }
    }
    lines.into_iter().collect()
}

fn peer(peer: &Value) -> String {
    let label = |selector: &str, key: &str| {
        let labels = &peer[selector]["matchLabels"];
        labels[key].as_str().map(str::to_owned)
    };
    let mut parts = Vec::new();
    if let Some(cidr) = peer["ipBlock"]["cidr"].as_str() {
        parts.push(format!("cidr={cidr}"));
    }
    if let Some(namespace) = label("namespaceSelector", "kubernetes.io/metadata.name") {
        parts.push(format!("namespace={namespace}"));
    }
    if let Some(pod) = label("podSelector", "app.kubernetes.io/name") {
        parts.push(format!("pod={pod}"));
    }
    assert!(!parts.is_empty(), "a peer that is not understood: {peer}");
    parts.join(" ")
}

// --- Files and programs -------------------------------------------------------------------------

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_yaml::from_str(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn to_yaml(value: &Value) -> String {
    serde_yaml::to_string(value).expect("YAML of JSON")
}

/// The documents of a YAML stream that hold anything.
fn documents_of(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("YAML"))
        .filter(|document| !document.is_null())
        .collect()
}

/// The files of a directory with an extension, sorted.
fn files_in(dir: &str, extension: &str) -> Vec<PathBuf> {
    let dir = root().join(dir);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("directory entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

/// A directory of one test's own below the build's, empty at first.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("observability").join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        Self(dir)
    }

    /// Writes a file and returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path.to_string_lossy().into_owned()
    }
}

fn tool(name: &str) -> PathBuf {
    lab::tools::ensure(name)
        .unwrap_or_else(|error| panic!("{error:#}\nTry: cargo run --bin lab -- tools"))
}

fn promtool(args: &[&str]) {
    run(&tool("promtool"), args);
}

/// Runs a program that has to succeed and returns what it printed.
fn run(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{} {}\n{}{}",
        program.display(),
        args.join(" "),
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
