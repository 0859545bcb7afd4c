//! Valid and invalid files of endpoints.
use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn parse(text: &str) -> anyhow::Result<BTreeMap<String, EndpointConfig>> {
    file::parse(text, TIMEOUT)
}

/// Returns an endpoint `default` with these fields in addition to its URL.
fn with(fields: &str) -> String {
    format!("endpoints:\n  default:\n    url: https://prometheus:9090\n    {fields}\n")
}

#[test]
fn reads_everything() {
    let text = r#"
endpoints:
  default:
    url: https://thanos-querier.openshift-monitoring.svc:9091
    timeout: 7s
    bearerTokenFile: /token
    tls: {caFile: /ca, certFile: /cert, keyFile: /key, serverName: thanos.example.com}
    headers: {X-Scope-OrgID: tenant}
    headerFiles: {X-Api-Key: /key}
    parameters: {partial_response: "false"}
    allowedNamespaces: [monitoring, "*"]
  other:
    url: http://mimir/prometheus/
    basicAuth: {username: u, passwordFile: /password}
  open:
    url: https://[::1]:9090
    tls: {insecureSkipVerify: true}
  collector:
    url: http://mimir/prometheus
    exporter: otel
    selector: job="otel"
  kubelet:
    url: http://mimir/prometheus
    exporter: cadvisor
  chosen:
    url: http://mimir/prometheus
    selector: job="node"
"#;
    let endpoints = parse(text).unwrap();
    let default = &endpoints["default"];
    assert_eq!(default.timeout, Duration::from_secs(7));
    assert!(matches!(&default.auth, Auth::Bearer(path) if path == Path::new("/token")));
    assert_eq!(default.tls.server_name.as_deref(), Some("thanos.example.com"));
    assert_eq!(default.headers.len(), 2);
    assert_eq!(default.parameters, [("partial_response", "false".to_owned())]);
    let allowed = default.allowed_namespaces.as_deref();
    assert_eq!(allowed, Some(&["monitoring".to_owned(), "*".to_owned()][..]));
    assert_eq!(endpoints["other"].allowed_namespaces, None);
    assert_eq!(endpoints["other"].timeout, TIMEOUT);
    assert!(matches!(&endpoints["other"].auth, Auth::Basic { username, .. } if username == "u"));
    assert!(endpoints["open"].tls.insecure_skip_verify);
    let links = |name: &str| {
        let links = endpoints[name].links.as_ref()?;
        Some((links.exporter, links.believed.to_string()))
    };
    let usual = LinkExporter::Cadvisor.usual_selector().unwrap().to_owned();
    assert_eq!(links("other"), None);
    assert_eq!(links("collector"), Some((LinkExporter::Otel, r#"job="otel""#.into())));
    assert_eq!(links("kubelet"), Some((LinkExporter::Cadvisor, usual)));
    assert_eq!(links("chosen"), Some((LinkExporter::NodeExporter, r#"job="node""#.into())));
}

#[test]
fn mistakes_are_refused_by_endpoint_and_field() {
    let header = |name: &str| with(&format!("headers: {{{name}: x}}"));
    for (text, words) in [
        ("endpoints: [".into(), vec!["line 2"]),
        (String::new(), vec!["endpoints"]),
        ("endpoint: {}".into(), vec!["unknown field `endpoint`", "endpoints"]),
        ("endpoints: {A: {url: 'http://a'}}".into(), vec!["endpoint A", "DNS label"]),
        ("endpoints: {a.b: {url: 'http://a'}}".into(), vec!["endpoint a.b", "DNS label"]),
        ("endpoints: {'': {url: 'http://a'}}".into(), vec!["DNS label"]),
        ("endpoints: {a: {}}".into(), vec!["endpoints.a", "missing field `url`"]),
        ("endpoints: {a: {url: a:9090}}".into(), vec!["endpoint a", "url", "http://"]),
        ("endpoints: {a: {url: a}}".into(), vec!["endpoint a", "url", "no URL"]),
        ("endpoints: {a: {url: 'ftp://a'}}".into(), vec!["endpoint a", "url", "http://"]),
        (
            "endpoints: {a: {url: 'https://u:hunter2@a'}}".into(),
            vec!["endpoint a", "url", "use basicAuth"],
        ),
        ("endpoints: {a: {url: 'https://a?x=y'}}".into(), vec!["url", "use parameters"]),
        ("endpoints: {a: {url: 'https://a#x'}}".into(), vec!["url", "fragment"]),
        ("endpoints: {a: {url: 'https://a/api/v1/'}}".into(), vec!["url", "/api/v1"]),
        ("endpoints: {a: {url: 'http://a'}, a: {url: 'http://b'}}".into(), vec!["duplicate", "a"]),
        (with("allowedNamespaces: team-a"), vec!["allowedNamespaces", "line 4"]),
        (with("allowedNamespaces: [team-*]"), vec!["endpoint default", "\"team-*\" is no name"]),
        (with("allowedNamespaces: [5]"), vec!["allowedNamespaces", "put it in quotes"]),
        (with("exporter: telegraf"), vec!["endpoint default", "exporter", "node-exporter, otel"]),
        (with("exporter: otel"), vec!["endpoint default", "selector: is needed", "job="]),
        (with("selector: job="), vec!["endpoint default", "selector"]),
        (with("token: x"), vec!["endpoints.default", "unknown field `token`", "bearerTokenFile"]),
        (with("timeout: 10"), vec!["endpoints.default.timeout", "put it in quotes", "line 4"]),
        (with("timeout: ten"), vec!["endpoint default", "timeout", "for example 10s"]),
        (with("timeout: 0s"), vec!["endpoint default", "timeout", "more than zero"]),
        (with("bearerTokenFile: ''"), vec!["endpoint default", "bearerTokenFile", "name a file"]),
        (
            with("bearerTokenFile: /t\n    basicAuth: {username: u, passwordFile: /p}"),
            vec!["endpoint default", "bearerTokenFile and basicAuth", "leave one"],
        ),
        (with("basicAuth: u:hunter2"), vec!["endpoints.default.basicAuth", "expected a map with"]),
        (with("basicAuth: 12345678"), vec!["endpoints.default.basicAuth", "expected a map with"]),
        (
            with("basicAuth: {username: u, password: hunter2}"),
            vec!["basicAuth", "unknown field `password`", "passwordFile"],
        ),
        (with("basicAuth: {username: u}"), vec!["basicAuth", "missing field `passwordFile`"]),
        (
            with("basicAuth: {username: 'u:v', passwordFile: /p}"),
            vec!["basicAuth: username", "colon"],
        ),
        (with("tls: {certFile: /c}"), vec!["endpoint default: tls", "certFile needs keyFile"]),
        (with("tls: {keyFile: /c}"), vec!["endpoint default: tls", "keyFile needs certFile"]),
        (with("tls: {ca: /c}"), vec!["endpoints.default.tls", "unknown field `ca`", "caFile"]),
        (with("tls: {caFile: ''}"), vec!["tls: caFile", "name a file"]),
        (with("tls: {serverName: 10.0.0.1}"), vec!["tls: serverName", "DNS name"]),
        (with("tls: {serverName: 'a b'}"), vec!["tls: serverName", "DNS name"]),
        (with("tls: {insecureSkipVerify: 'yes'}"), vec!["insecureSkipVerify", "boolean"]),
        (
            with("tls: {insecureSkipVerify: true, caFile: /c}"),
            vec!["tls: insecureSkipVerify and caFile"],
        ),
        (
            "endpoints: {a: {url: 'http://a', tls: {caFile: /c}}}".into(),
            vec!["endpoint a: tls", "https://"],
        ),
        (header("Authorization"), vec!["headers: Authorization", "bearerTokenFile"]),
        (header("Host"), vec!["headers: Host", "cannot be set"]),
        (header("content-type"), vec!["headers: content-type", "cannot be set"]),
        (header("'X Y'"), vec!["headers", "\"X Y\" is no header name"]),
        (with(r#"headers: {X-A: "hunter2\nX-B: 1"}"#), vec!["headers: x-a", "characters"]),
        (with("headers: {X-A: 12345678}"), vec!["headers.X-A", "put it in quotes"]),
        (with("headers: {X-A: a, x-a: b}"), vec!["headers: x-a is set twice"]),
        (
            with("headers: {X-A: a}\n    headerFiles: {x-a: /b}"),
            vec!["headerFiles: x-a is set twice"],
        ),
        (with("headerFiles: {X-A: ''}"), vec!["headerFiles: x-a", "name a file"]),
        (with("headerFiles: {Host: /h}"), vec!["headerFiles: Host", "cannot be set"]),
        (with("parameters: {partial_response: false}"), vec!["partial_response", "in quotes"]),
        (with("parameters: {'': x}"), vec!["parameters", "empty"]),
        (with("parameters: {query: up}"), vec!["parameters: query"]),
        (with("parameters: {time: '1'}"), vec!["parameters: time"]),
        (with("parameters: {timeout: '1'}"), vec!["parameters: timeout"]),
        (with("parameters: {start: '1'}"), vec!["parameters: start"]),
        (with("parameters: {end: '1'}"), vec!["parameters: end"]),
        (with("parameters: {step: '1'}"), vec!["parameters: step"]),
    ] {
        let Err(error) = parse(&text) else { panic!("accepted: {text}") };
        let error = format!("{error:#}");
        for word in words {
            assert!(error.contains(word), "{text}\n{error}\nlacks {word:?}");
        }
        for secret in ["hunter2", "12345678"] {
            assert!(!error.contains(secret), "{error}");
        }
    }
}

#[test]
fn the_flag_is_the_endpoint_default_unless_the_file_has_one() {
    let default = |file: Option<&Path>, url: Option<&str>| {
        EndpointsConfig::load(file, url, TIMEOUT).map(|config| config.0["default"].url.to_string())
    };
    assert_eq!(default(None, None).unwrap(), format!("{DEFAULT_URL}/"));
    assert_eq!(default(None, Some("http://a")).unwrap(), "http://a/");
    let directory = crate::prometheus::testing::Directory::new();
    let other = directory.write("other.yaml", "endpoints: {other: {url: 'http://b'}}");
    assert_eq!(default(Some(&other), Some("http://a")).unwrap(), "http://a/");
    assert_eq!(default(Some(&other), None).unwrap(), format!("{DEFAULT_URL}/"));
    let file = directory.write("default.yaml", &with(""));
    assert_eq!(default(Some(&file), None).unwrap(), "https://prometheus:9090/");
    let error = format!("{:#}", default(Some(&file), Some("http://a")).unwrap_err());
    for word in ["--prometheus-url", "default.yaml", "leave one"] {
        assert!(error.contains(word), "{error}");
    }
    let error = default(Some(Path::new("/nowhere")), None).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("/nowhere: --prometheus-config"), "{error}");
    for url in ["", "prometheus:9090", "ftp://prometheus", "http://", "/path", "http://:hunter2@"] {
        let error = format!("{:#}", default(None, Some(url)).unwrap_err());
        assert!(error.contains("--prometheus-url") && !error.contains("hunter2"), "{url}: {error}");
    }
}

#[test]
fn debug_shows_no_values() {
    let fields = "headers: {X-A: hunter2}\n    parameters: {token: hunter2}";
    let shown = format!("{:?}", parse(&with(fields)).unwrap());
    assert!(shown.contains("x-a") && shown.contains("token"), "{shown}");
    let flag = EndpointsConfig::load(None, Some("http://u:hunter2@a/?hunter2"), TIMEOUT).unwrap();
    let shown = shown + &format!("{flag:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn credentials_over_plain_http_are_noticed() {
    let basic = "basicAuth: {username: u, passwordFile: /p}";
    for (url, fields, expected) in [
        ("http://prometheus:9090", basic, true),
        ("http://prometheus:9090", "bearerTokenFile: /t", true),
        ("http://prometheus:9090", "headerFiles: {X-Key: /t}", true),
        ("http://prometheus:9090", "headers: {X-Scope-OrgID: a}", false),
        ("http://localhost:9090", basic, false),
        ("http://127.0.0.1:9090", basic, false),
        ("http://[::1]:9090", basic, false),
        ("https://prometheus:9090", basic, false),
    ] {
        let text = format!("endpoints:\n  a:\n    url: {url}\n    {fields}\n");
        assert_eq!(parse(&text).unwrap()["a"].exposes_credentials(), expected, "{text}");
    }
}

#[test]
fn hosts_have_names_in_any_alphabet_and_in_their_ascii_form() {
    for host in ["prometheus.bücher.example", "prometheus.xn--bcher-kva.example"] {
        let text = format!("endpoints:\n  a:\n    url: https://{host}\n");
        let endpoints = parse(&text).unwrap();
        assert_eq!(endpoints["a"].url.host_str(), Some("prometheus.xn--bcher-kva.example"));
    }
}

#[test]
fn every_example_of_the_documentation_is_accepted() {
    let page = include_str!("../../../docs/reference/prometheus.md");
    let blocks: Vec<_> = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| block.contains("endpoints:\n"))
        .collect();
    assert!(blocks.len() >= 8, "{} blocks", blocks.len());
    for block in blocks {
        let endpoints = parse(block).unwrap_or_else(|error| panic!("{error:#}\n{block}"));
        assert!(endpoints.contains_key(DEFAULT), "{block}");
    }
    // Every field is in an example or in the table.
    for field in
        ["bearerTokenFile", "passwordFile", "insecureSkipVerify", "serverName", "headerFiles"]
    {
        assert!(page.contains(field), "{field}");
    }
}

proptest! {
    /// An edited file has endpoints that can be used, or it is refused with a reason.
    #[test]
    fn an_edited_file_is_read_or_refused_with_a_reason(
        at: prop::sample::Index, gone in 0..4_usize, other in ".{0,60}",
        written in "([-: '\"\n#&*{},/0-9]|\\[|\\]|null|\\PC){0,3}",
    ) {
        let text = with("timeout: 7s\n    headers: {X-A: b}\n    allowedNamespaces: [a, '*']");
        let at = at.index(text.len());
        let end = (at + gone).min(text.len());
        for text in [format!("{}{written}{}", &text[..at], &text[end..]), with(&other), other] {
            match parse(&text) {
                Ok(endpoints) => {
                    prop_assert!(endpoints.values().all(|one| !one.timeout.is_zero()), "{text}");
                    prop_assert!(endpoints.keys().all(|name| !name.is_empty()), "{text}");
                }
                Err(error) => prop_assert!(!format!("{error:#}").trim().is_empty(), "{text}"),
            }
        }
    }
}
