//! Metrics, rules, dashboards and documentation agree, and the documentation is complete.
use crate::files::{read, root};
use crate::names;
use crate::reading::{documents, expressions, metric_names};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use traffic_operator::api::{NetworkProber, RouteReflectorSet, Swarm};
use traffic_operator::webhook::injection::SkipReason;

#[test]
fn only_exported_metrics_are_asked_for() {
    for (place, expression) in expressions() {
        for name in metric_names(&expression) {
            assert!(names::is_known(&name), "{place} asks for {name}, which no process exports");
        }
    }
}

#[test]
fn only_exported_metrics_are_documented() {
    for file in documents() {
        for name in metric_names(&read(&file)) {
            assert!(
                names::is_known(&name),
                "{} names {name}, which no process exports",
                file.display()
            );
        }
    }
}

#[test]
fn every_exported_metric_is_documented() {
    let page = read(&root().join("docs/reference/metrics.md"));
    let missing: Vec<_> =
        names::all().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/metrics.md lacks {missing:?}");
}

#[test]
fn names_end_where_they_should() {
    let text = "rate(traffic_operator_x_seconds_bucket{a=\"b\"}[5m]) / process_open_fds `traffic_operator_y_` \
                netprober:pair_z:ratio5m{c=\"netprober:\"}";
    let names: Vec<_> = metric_names(text).into_iter().collect();
    let expected =
        ["netprober:pair_z:ratio5m", "process_open_fds", "traffic_operator_x_seconds_bucket"];
    assert_eq!(names, expected);
}

/// Pages that document the fields of each kind.
const PAGES: &[(&str, &[&str])] = &[
    ("TrafficWatch", &["docs/reference/trafficwatch.md", "docs/reference/policies.md"]),
    ("NetworkProber", &["docs/reference/networkprober.md"]),
    ("Swarm", &["docs/reference/swarm.md"]),
    ("RouteReflectorSet", &["docs/reference/routereflectorset.md"]),
];

/// Embedded types, which are documented elsewhere.
const EMBEDDED: [&str; 11] = [
    ".spec.deployment",
    ".spec.nodeSelector",
    ".candidates.nodeSelector",
    ".candidates.preferred",
    ".candidates.forbidden",
    ".candidates.tolerations",
    ".spec.podSelector",
    ".spec.namespaceSelector",
    ".status.conditions",
    ".injection.resources.requests",
    ".injection.resources.limits",
];

/// The paths of all fields below a schema, as the pages write them: `nodes.<name>.state`,
/// `criteria[].max`.
fn fields(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if EMBEDDED.iter().any(|end| path.ends_with(end)) {
            found.push(path);
            continue;
        }
        let parts = found.len();
        fields(field, &path, found);
        fields(&field["items"], &format!("{path}[]"), found);
        fields(&field["additionalProperties"], &format!("{path}.<name>"), found);
        if found.len() == parts {
            found.push(path);
        }
    }
}

/// Reports whether a page documents a field: a field of the spec in a table row that begins with
/// its path, a field of the status in a row or in a sample, by its name.
fn is_documented(pages: &str, path: &str) -> bool {
    let mut rows = pages.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    if let Some(path) = path.strip_prefix(".spec.") {
        return rows.any(|cell| cell.split('`').skip(1).step_by(2).any(|name| name == path));
    }
    let (_, name) = path.rsplit_once('.').expect("a path");
    pages.contains(&format!("`{name}`")) || pages.contains(&format!("{name}:"))
}

#[test]
fn every_field_is_documented() {
    for kind in traffic_operator::api::KINDS {
        let crd = serde_json::to_value((kind.crd)()).expect("JSON");
        let name = crd["spec"]["names"]["kind"].as_str().expect("kind");
        let (_, pages) = PAGES
            .iter()
            .find(|(kind, _)| *kind == name)
            .unwrap_or_else(|| panic!("no page for {name}"));
        let text: String = pages.iter().map(|page| read(&root().join(page))).collect();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut all = Vec::new();
        fields(schema, "", &mut all);
        all.retain(|path| path.starts_with(".spec.") || path.starts_with(".status."));
        assert!(all.len() > 20, "{name}: {all:?}");
        let missing: Vec<_> = all.iter().filter(|path| !is_documented(&text, path)).collect();
        assert!(missing.is_empty(), "{pages:?} do not document {missing:?}");
    }
}

/// The generated reference has limits and defaults that the hand-written tables do not repeat.
#[test]
fn the_page_of_each_kind_leads_to_its_generated_fields() {
    for (kind, pages) in PAGES {
        let target = format!("(fields/{}.md)", kind.to_lowercase());
        let page = read(&root().join(pages[0]));
        assert!(page.contains(&target), "{} does not lead to {target}", pages[0]);
    }
}

/// Every reason for a pod without an agent has a row on the page, with the remedy.
#[test]
fn every_reason_to_have_no_agent_is_documented() {
    let page = read(&root().join("docs/reference/networkprober.md"));
    for reason in SkipReason::ALL {
        assert!(page.contains(&format!("\n| {reason} | ")), "no row for {reason}");
    }
    let defaults: NetworkProber = serde_json::from_value(serde_json::json!({
        "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
        "metadata": {}, "spec": {"podSelector": {}, "neighbors": {}}
    }))
    .expect("a NetworkProber");
    // The documented default is the default.
    let spec = serde_json::to_value(defaults.spec).expect("JSON");
    for (path, written) in [
        ("/httpPort", "`\"8080\"`"),
        ("/httpPrometheusPort", "`\"2112\"`"),
        ("/pollingPeriod", "`10s`"),
        ("/neighbors/inZone", "`8`"),
        ("/neighbors/perOtherZone", "`2`"),
        ("/monitoring/interval", "`30s`"),
        ("/injection/resources/requests", "`{cpu: 10m, memory: 16Mi}`"),
        ("/injection/resources/limits", "`{memory: 64Mi}`"),
    ] {
        let value = spec.pointer(path).unwrap_or_else(|| panic!("{path} has no default"));
        let text = written.trim_matches('`');
        let same: Value = serde_yaml::from_str(text).expect("YAML");
        assert_eq!(*value, same, "{path}");
        let field = path.trim_start_matches('/').replace('/', ".");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{field}` | ")));
        assert!(row.is_some_and(|row| row.contains(written)), "{field}: not {written}");
    }
}

/// The defaults on the page match the code.
#[test]
fn the_defaults_of_a_swarm_are_those_of_the_page() {
    let page = read(&root().join("docs/reference/swarm.md"));
    let spec = json!({
        "workload": {"name": "w"}, "streams": [{"id": "a"}],
        "weights": {"query": "x"}, "autoscale": {"maxWeightPerWorker": 1, "max": 2}
    });
    let swarm: Swarm = serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm", "metadata": {}, "spec": spec
    }))
    .expect("a Swarm");
    let spec = serde_json::to_value(swarm.spec).expect("JSON");
    for (path, value, written) in [
        ("/workload/kind", json!("StatefulSet"), "; `StatefulSet` |"),
        ("/streams/0/weight", json!(1), ", `1` |"),
        ("/configMap/key", json!("config.yml"), "`config.yml`"),
        ("/configMap/immutable", json!(false), "`false`"),
        ("/policy", json!("Sticky"), "; `Sticky` |"),
        ("/handover", json!("Exclusive"), "; `Exclusive` |"),
        ("/refresh/maxUnavailable", json!(1), ", `1` |"),
        ("/refresh/timeout", json!("120s"), "`2m`"),
        ("/refresh/port", json!(9090), "`9090`"),
        ("/refresh/path", json!("/internal/version"), "`/internal/version`"),
        ("/weights/prometheus", json!("default"), "`default`"),
        ("/weights/interval", json!("30s"), "`30s`"),
        ("/weights/rebalanceAbove", json!("1.3"), "`\"1.3\"`"),
        ("/weights/for", json!("600s"), "`10m`"),
        ("/autoscale/min", json!(1), ", `1` |"),
        ("/autoscale/cooldown", json!("300s"), "`5m`"),
        ("/mode", json!("Enforce"), "; `Enforce` |"),
        ("/paused", json!(false), "`false`"),
    ] {
        assert_eq!(spec.pointer(path), Some(&value), "{path}");
        let field = path.trim_start_matches('/').replace("/0/", "[].").replace('/', ".");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{field}` | ")));
        assert!(row.is_some_and(|row| row.contains(written)), "{field}: not {written}");
    }
}

/// The same for route reflectors.
#[test]
fn the_defaults_of_a_route_reflector_set_are_those_of_the_page() {
    let page = read(&root().join("docs/reference/routereflectorset.md"));
    let set: RouteReflectorSet = serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "RouteReflectorSet",
        "metadata": {}, "spec": {}
    }))
    .expect("a RouteReflectorSet");
    let spec = serde_json::to_value(set.spec).expect("JSON");
    for (path, value, written) in [
        ("/count/scope", json!("Cluster"), "; `Cluster` |"),
        ("/count/ratio", json!("0.005"), "`\"0.005\"` |"),
        ("/count/min", json!(3), ", `3` |"),
        ("/count/max", json!(25), ", `25` |"),
        ("/count/rounding", json!("Ceil"), "; `Ceil` |"),
        ("/topology", json!("Auto"), "; `Auto` |"),
        ("/zoneLabel", json!("topology.kubernetes.io/zone"), "`topology.kubernetes.io/zone` |"),
        ("/nodeLabel", json!("calico-route-reflector"), "`calico-route-reflector` |"),
        ("/candidates/demoteAfter", json!("600s"), ", `10m` |"),
        ("/candidates/replaceAfter", json!("180s"), ", `3m` |"),
        ("/peersPerClient", json!(3), ", `3` |"),
        ("/clusterID/pool", json!("224.0.0.0/16"), ", `224.0.0.0/16` |"),
        ("/transition/gate", json!("Prometheus"), "; `Prometheus` |"),
        ("/transition/prometheus", json!("default"), ", `default` |"),
        ("/transition/wait", json!("90s"), ", `90s` |"),
        ("/transition/timeout", json!("300s"), ", `5m` |"),
        ("/transition/maxPerZone", json!(1), ", `1` |"),
        ("/mesh", json!("Leave"), "; `Leave` |"),
        ("/datastore/type", json!("Kubernetes"), "; `Kubernetes` |"),
        ("/deletionPolicy", json!("Retain"), "; `Retain` |"),
        ("/mode", json!("Enforce"), "; `Enforce` |"),
        ("/paused", json!(false), "`false` |"),
    ] {
        assert_eq!(spec.pointer(path), Some(&value), "{path}");
        let field = path.trim_start_matches('/').replace('/', ".");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{field}` | ")));
        assert!(row.is_some_and(|row| row.contains(written)), "{field}: not {written}");
    }
}

/// The page of the kind that users meet first documents all of its fields, in tables and samples.
#[test]
fn every_field_of_a_traffic_watch_is_on_its_page() {
    let page = read(&root().join("docs/reference/trafficwatch.md"));
    let crd = serde_json::to_value((traffic_operator::api::KINDS[0].crd)()).expect("JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    for part in ["spec", "status"] {
        let fields = schema[part]["properties"].as_object().expect("fields");
        for field in fields.keys().filter(|field| *field != "conditions") {
            let named = [format!("`{field}`"), format!("{field}:")];
            let found = named.iter().any(|name| page.contains(name));
            assert!(found, "docs/reference/trafficwatch.md does not document {part}.{field}");
        }
    }
}

#[test]
fn every_flag_is_documented() {
    let page = read(&root().join("docs/reference/flags.md"));
    let command = <traffic_operator::cli::Cli as clap::CommandFactory>::command();
    let run = command.find_subcommand("run").expect("run");
    for flag in run.get_arguments().filter_map(clap::Arg::get_long).filter(|flag| *flag != "help") {
        assert!(page.contains(&format!("`--{flag}`")), "docs/reference/flags.md lacks --{flag}");
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
        assert!(documented(target), "CONTRIBUTING.md does not document `make {target}`");
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

/// The index leads to every page but the runbooks, to which the page of alerts leads.
#[test]
fn every_page_is_in_the_index() {
    let docs = root().join("docs");
    let index = read(&docs.join("README.md"));
    for page in documents() {
        let Ok(path) = page.strip_prefix(&docs) else { continue };
        let path = path.display().to_string();
        if path != "README.md" && !path.starts_with("runbooks/") {
            assert!(index.contains(&format!("({path})")), "docs/README.md does not lead to {path}");
        }
    }
}

/// Returns the anchors of a page's headings.
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
