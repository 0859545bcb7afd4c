//! The rendered manifests, as `kubectl kustomize` prints them.
use crate::files::{NAMESPACE, OPERATOR, OVERLAYS, Scratch, promtool, read, root};
use crate::objects::{contains, kind, name, namespace, passages, render, selects};
use crate::processes::PROCESSES;
use std::collections::BTreeSet;
use traffic_operator::manifests::WEBHOOK;

/// Path of a pod's service account token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

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

/// What the restricted standard, which the API server enforces for the operator, leaves open.
#[test]
fn every_container_has_requests_a_limit_of_memory_and_a_file_system_that_it_cannot_write() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        for workload in ["Deployment", "DaemonSet"].iter().flat_map(|kind| rendered.all(kind)) {
            let containers = &workload["spec"]["template"]["spec"]["containers"];
            for container in containers.as_array().expect("containers") {
                let context = &container["securityContext"];
                assert_eq!(
                    context["readOnlyRootFilesystem"],
                    true,
                    "{overlay}: {}",
                    name(workload)
                );
                // Also where a namespace enforces nothing.
                assert_eq!(context["allowPrivilegeEscalation"], false, "{overlay}");
                assert_eq!(context["capabilities"], serde_json::json!({"drop": ["ALL"]}));
                for amount in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
                    let given = container["resources"].pointer(amount);
                    assert!(given.is_some(), "{overlay}: {}: no {amount}", name(workload));
                }
            }
        }
    }
}

#[test]
fn the_operator_is_deployed_as_documented() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        for (name, component, more) in PROCESSES {
            let deployment = rendered.one("Deployment", name);
            let pod = &deployment["spec"]["template"]["spec"];
            assert_eq!(deployment["spec"]["replicas"], 2);
            assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
            assert_eq!(pod["serviceAccountName"], name);
            assert!(pod["hostNetwork"].is_null());
            assert_eq!(pod["containers"].as_array().map(Vec::len), Some(1));
            let container = &pod["containers"][0];
            assert_eq!(container["name"], "operator", "the webhook reads its image by that name");
            assert_eq!(container["args"][0], "run");
            assert_eq!(container["args"][1], format!("--component={component}"), "{overlay}");
            let image = container["image"].as_str().unwrap_or_default();
            let version = env!("CARGO_PKG_VERSION");
            assert_eq!(image, format!("registry.invalid/traffic-operator:{version}"));
            for (variable, field) in
                [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")]
            {
                let env = container["env"].as_array().into_iter().flatten();
                let found = env.clone().find(|env| env["name"] == variable);
                let found = found.unwrap_or_else(|| panic!("{overlay}: no {variable}"));
                assert_eq!(found["valueFrom"]["fieldRef"]["fieldPath"], field);
            }
            for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
                let expected = serde_json::json!({"path": path, "port": "probes"});
                assert_eq!(container[probe]["httpGet"], expected, "{overlay}");
            }
            let ports = container["ports"].as_array().into_iter().flatten();
            let ports = ports.map(|port| (port["name"].clone(), port["containerPort"].clone()));
            let expected = [("metrics", 8080), ("probes", 8081)].iter().chain(more);
            let expected = expected.map(|(name, port)| ((*name).into(), (*port).into()));
            assert_eq!(ports.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{name}");
            // Not both replicas on one node.
            let labels = &deployment["spec"]["template"]["metadata"]["labels"];
            let spread = &pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"];
            let budget = rendered.one("PodDisruptionBudget", name);
            // With one replica, minAvailable would hold up every drain.
            assert_eq!(budget["spec"]["maxUnavailable"], 1);
            assert!(budget["spec"]["minAvailable"].is_null());
            let budget = &budget["spec"]["selector"]["matchLabels"];
            let own = &deployment["spec"]["selector"]["matchLabels"];
            for selector in [spread, budget, own] {
                let others = PROCESSES.iter().filter(|(other, ..)| *other != name);
                assert!(selects(selector, labels), "{name}: {selector}");
                for (other, ..) in others {
                    let pod = &rendered.one("Deployment", other)["spec"]["template"];
                    assert!(!selects(selector, &pod["metadata"]["labels"]), "{name}: {selector}");
                }
            }
        }
    }
}

#[test]
fn prometheus_finds_the_operator() {
    let rendered = render(OVERLAYS[0]);
    let monitor = rendered.one("ServiceMonitor", OPERATOR);
    let service = rendered.one("Service", "traffic-operator-metrics");
    assert_eq!(namespace(monitor), NAMESPACE);
    assert!(selects(&monitor["spec"]["selector"]["matchLabels"], &service["metadata"]["labels"]));
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    // Without its account's token every scrape is refused.
    assert_eq!(endpoint["scheme"], "https");
    assert_eq!(endpoint["bearerTokenFile"], TOKEN);
    // `namespace` is that of the TrafficWatch; otherwise it arrives as exported_namespace.
    assert_eq!(endpoint["honorLabels"], true);

    let binding = rendered.one("RoleBinding", "prometheus-k8s");
    assert_eq!(namespace(binding), NAMESPACE);
    assert_eq!(binding["subjects"][0]["name"], "prometheus-k8s");
    assert_eq!(binding["subjects"][0]["namespace"], "monitoring");
    let rules = rendered.one("Role", "prometheus-k8s")["rules"].as_array().expect("rules").clone();
    let pods =
        rules.iter().find(|rule| contains(&rule["resources"], "pods")).expect("a rule on pods");
    for resource in ["services", "endpoints"] {
        assert!(contains(&pods["resources"], resource), "a ServiceMonitor finds {resource}");
    }
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

        let of = |name_: &str| -> Vec<_> {
            let pod = &rendered.one("Deployment", name_)["spec"]["template"]["metadata"]["labels"];
            let policies = rendered.all("NetworkPolicy").into_iter();
            let policies = policies.filter(|policy| {
                namespace(policy) == NAMESPACE
                    && name(policy) != "default-deny"
                    && selects(&policy["spec"]["podSelector"]["matchLabels"], pod)
            });
            policies.collect()
        };
        let (controller, webhook) = (of(OPERATOR), of(WEBHOOK));
        let all = rendered.all("NetworkPolicy").into_iter();
        for policy in all.filter(|policy| namespace(policy) == NAMESPACE) {
            let known = controller.iter().chain(&webhook).any(|known| name(known) == name(policy));
            assert!(known || name(policy) == "default-deny", "{}", name(policy));
        }
        let scrape = format!("TCP/8080 namespace={monitoring}");
        assert_eq!(passages(&controller, "ingress", "from"), [&*scrape], "{overlay}");
        // The API server has no label, and agents are everywhere: both authenticate themselves.
        let anywhere = [9443, 9444].map(|port| format!("TCP/{port} anywhere"));
        let ingress = passages(&webhook, "ingress", "from");
        assert_eq!(ingress, [&[scrape][..], &anywhere].concat(), "{overlay}");
        let common = [
            "TCP/443 anywhere",
            "TCP/53 cidr=169.254.20.10/32",
            "TCP/53 namespace=kube-system",
            "TCP/5353 namespace=openshift-dns",
            "TCP/6443 anywhere",
            "UDP/53 cidr=169.254.20.10/32",
            "UDP/53 namespace=kube-system",
            "UDP/5353 namespace=openshift-dns",
        ];
        // The webhook queries neither Prometheus nor workers.
        assert_eq!(passages(&webhook, "egress", "to"), common, "{overlay}");
        let expected = [
            &common[..5],
            // The operator queries workers in any namespace.
            &["TCP/9090 any pod", &format!("TCP/9090 namespace={monitoring} pod=prometheus")],
            &common[5..],
        ];
        assert_eq!(passages(&controller, "egress", "to"), expected.concat(), "{overlay}");
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
            // The second is the pod of `helm test`.
            [format!("TCP/9090 namespace={NAMESPACE} pod={OPERATOR}|{OPERATOR}-doctor")],
            "{overlay}"
        );
    }
    // kube-prometheus' own pods, which its own policy already selects: on pods without any policy,
    // ours would shut out every other client.
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
    let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let variable = serde_json::json!({"name": "TRAFFIC_OPERATOR_PROMETHEUS_URL", "value": url});
    assert!(env.as_array().expect("env").contains(&variable), "{env} and {url}");

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

/// The account of kube-prometheus has this right by its own role; the standalone one needs ours.
#[test]
fn the_standalone_prometheus_may_read_the_metrics() {
    let rendered = render(OVERLAYS[1]);
    let name_ = "traffic-operator-monitoring-prometheus";
    let role = rendered.one("ClusterRole", name_);
    let expected = serde_json::json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    assert_eq!(role["rules"], expected, "and nothing else");
    let binding = rendered.one("ClusterRoleBinding", name_);
    assert_eq!(name_of(&binding["roleRef"]), name_);
    let pod = &rendered.one("Deployment", "prometheus")["spec"]["template"]["spec"];
    assert_eq!(binding["subjects"][0]["name"], pod["serviceAccountName"]);
    assert_eq!(binding["subjects"][0]["namespace"], "traffic-operator-monitoring");
    assert!(pod["automountServiceAccountToken"].is_null(), "it has a token");
    let config = read(&root().join("deploy/overlays/standalone/prometheus.yml"));
    let config: serde_json::Value = serde_yaml::from_str(&config).expect("YAML");
    let jobs = config["scrape_configs"].as_array().expect("jobs");
    let job = jobs.iter().find(|job| job["job_name"] == OPERATOR).expect("our job");
    // The pods of both Deployments, at the port that both have.
    let kept = job["relabel_configs"][0]["regex"].as_str().expect("regex");
    assert_eq!(kept, "traffic-operator(-webhook)?;metrics");
    assert_eq!(job["scheme"], "https");
    assert_eq!(job["authorization"]["credentials_file"], TOKEN);
}

/// The agents of a `NetworkProber` are in the namespaces of its pods, which kube-prometheus' own
/// roles do not cover.
#[test]
fn prometheus_finds_agents_in_every_namespace() {
    let rendered = render(OVERLAYS[0]);
    let binding = rendered.one("ClusterRoleBinding", "traffic-operator-prometheus-k8s");
    assert_eq!(binding["subjects"][0]["name"], "prometheus-k8s");
    assert_eq!(binding["subjects"][0]["namespace"], "monitoring");
    let role = rendered.one("ClusterRole", name_of(&binding["roleRef"]));
    let expected = serde_json::json!(
        [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    );
    assert_eq!(role["rules"], expected, "and nothing else");
}

fn name_of(reference: &serde_json::Value) -> &str {
    reference["name"].as_str().unwrap_or_default()
}
