#![expect(clippy::needless_pass_by_value, reason = "JSON literals are written in place")]
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{
    inspect::doctor::{self, CheckResult},
    network_prober::measurement::{Measurement, NodeFigures, Silent},
    text::plain,
};

/// Returns the text without its colors.
fn text(checks: &[Check]) -> String {
    plain(&doctor::text(checks))
}

fn prober(status: Value) -> NetworkProber {
    serde_json::from_value(json!({
        "metadata": {"name": "mesh", "namespace": "probing"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}}, "status": status,
    }))
    .unwrap()
}

fn status(ready: (&str, &str), not_injected: Value) -> Value {
    json!({"selected": 3, "injected": 3, "notInjected": not_injected, "conditions": [
        {"type": "Ready", "status": ready.0, "reason": ready.1, "message": "said",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

fn webhook() -> Webhook {
    Webhook {
        object: "traffic-operator".into(),
        name: "mesh.probing.probes.bigmikes.io".into(),
        service: Some(("ns".into(), "traffic-operator-webhook".into(), 443)),
        path: "/mutate/probing/mesh".into(),
        bundle: Some(b"PEM".to_vec()),
        namespaces: LabelSelector::default(),
    }
}

fn tried(injected: bool) -> Tried {
    Tried { namespace: "probing".into(), injected }
}

fn shown(result: Result<(), Trouble>) -> Shown {
    Shown {
        service: "ns/traffic-operator-webhook".into(),
        pod: "op-1".into(),
        object: "traffic-operator".into(),
        result,
    }
}

fn measured(figures: Measurement) -> BTreeMap<String, Measured> {
    let measured = Measured { endpoint: "default".into(), problem: None, figures: Some(figures) };
    [("probing/mesh".to_owned(), measured)].into()
}

fn figures() -> Measurement {
    let node = NodeFigures {
        node: "n".into(),
        zone: String::new(),
        loss: Some(0.0),
        p99: None,
        bad: false,
    };
    Measurement { scraped: 3, measured_nodes: 1, nodes: vec![node], ..Measurement::default() }
}

fn healthy() -> Probing {
    let there = ChildKind::MONITORING.map(|kind| ((kind, "probing/mesh".to_owned()), Ok(true)));
    Probing {
        probers: Ok(vec![prober(status(("True", "Serving"), json!([])))]),
        configuration: true,
        webhooks: Ok(vec![webhook()]),
        shown: vec![shown(Ok(()))],
        called: [("probing/mesh".to_owned(), Ok(tried(true)))].into(),
        monitoring: there.into(),
        measured: measured(figures()),
    }
}

#[test]
fn all_as_it_should_be() {
    let checks = checks(&healthy());
    let text = text(&checks);
    assert!(checks.iter().all(|check| check.verdict == CheckResult::Ok), "{text}");
    for expected in [
        "1 entries for 1 NetworkProbers",
        "op-1 show a certificate that the API server trusts",
        "probing/mesh: a pod that was created in probing (dry run) got an agent",
        "probing/mesh: 3 of 3 agents scraped, paths between 1 nodes recorded",
        "probing/mesh: 3 pods have one, and all start",
        "probing/mesh: all 3 selected pods have an agent",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let none = Probing { probers: Ok(vec![]), ..healthy() };
    assert_eq!(super::checks(&none)[0].message, "there is no NetworkProber");
}

#[test]
fn a_certificate_that_the_api_server_does_not_trust_is_named_with_its_pod() {
    let refused = |text: &str| Err(Trouble::Refused(text.to_owned()));
    let mut untrusted = healthy();
    untrusted.shown = vec![shown(refused("UnknownIssuer"))];
    let found = text(&checks(&untrusted));
    assert!(found.contains("FAIL  webhook     pod op-1 shows no certificate"), "{found}");
    assert!(found.contains("UnknownIssuer") && found.contains("logs op-1"), "{found}");
}

/// A port-forward that hangs says nothing about the certificate, and deleting its Secret
/// replaces a good one.
#[tokio::test]
async fn a_handshake_that_is_late_is_no_certificate_that_is_refused() {
    let deadline = std::time::Duration::from_millis(1);
    let late = within(deadline, std::future::pending()).await;
    assert_eq!(late, Err(Trouble::NotReached("no answer within 0 s".into())));
    let mut slow = healthy();
    slow.shown = vec![shown(late)];
    let found = text(&checks(&slow));
    assert!(found.contains("WARN  webhook     the certificate of pod op-1"), "{found}");
    assert!(!found.contains("FAIL") && !found.contains("deleting the Secret"), "{found}");
}

#[test]
fn the_object_of_all_webhooks_is_missing() {
    let missing = Probing { configuration: false, webhooks: Ok(vec![]), ..healthy() };
    let found = text(&checks(&missing));
    for expected in [
        "FAIL  webhook     the MutatingWebhookConfiguration traffic-operator is missing",
        "kubectl apply --server-side -f deploy/base/webhook.yaml",
        "probing/mesh",
    ] {
        assert!(found.contains(expected), "{expected} is not in\n{found}");
    }
    assert!(!found.contains("has an entry for"), "said once: {found}");
}

type Break = fn(&mut Probing);

#[test]
fn what_is_broken_is_found_and_says_what_next() {
    let cases: [(&str, CheckResult, Break, &[&str]); 11] = [
        (
            "webhook",
            CheckResult::Fail,
            |p| p.webhooks = Ok(vec![]),
            &[
                "no MutatingWebhookConfiguration has an entry for probing/mesh",
                "describe networkprober mesh",
            ],
        ),
        (
            "webhook",
            CheckResult::Warn,
            |p| p.webhooks = Err("forbidden".into()),
            &["forbidden", "ask for"],
        ),
        (
            "webhook",
            CheckResult::Fail,
            |p| p.webhooks.as_mut().unwrap()[0].bundle = None,
            &["has no caBundle"],
        ),
        (
            "webhook",
            CheckResult::Fail,
            |p| p.shown[0].result = Err(Trouble::NoPod("no ready pod".into())),
            &["nobody answers behind the Service ns/traffic-operator-webhook: no ready pod"],
        ),
        (
            "webhook",
            CheckResult::Warn,
            |p| p.shown[0].result = Err(Trouble::NotReached("you may not".into())),
            &["you may not", "pods/portforward"],
        ),
        (
            "monitoring",
            CheckResult::Warn,
            |p| p.monitoring.values_mut().for_each(|there| *there = Ok(false)),
            &["probing/mesh has no PodMonitor", "probing/mesh has no PrometheusRule"],
        ),
        (
            "monitoring",
            CheckResult::Fail,
            |p| p.measured = measured(Measurement::default()),
            &["default scrapes none of the 3 agents", "get podmonitor mesh"],
        ),
        (
            "monitoring",
            CheckResult::Warn,
            |p| p.measured = measured(Measurement { scraped: 3, ..Measurement::default() }),
            &["records no path", "get prometheusrule mesh"],
        ),
        (
            "agents",
            CheckResult::Fail,
            |p| p.probers = Ok(vec![prober(status(("False", "AgentFailing"), json!([])))]),
            &["Ready=False AgentFailing: said", "kubectl describe"],
        ),
        (
            "agents",
            CheckResult::Warn,
            |p| {
                let agent = Silent { namespace: "shop".into(), pod: "web-1".into(), peers: 3 };
                p.measured =
                    measured(Measurement { silent_agents: 1, silent: vec![agent], ..figures() });
            },
            &["1 agents probe no peer: shop/web-1", "explain pod -n shop web-1"],
        ),
        (
            "coverage",
            CheckResult::Warn,
            |p| {
                let why = json!([{"reason": "SharedProcesses", "count": 2}]);
                p.probers = Ok(vec![prober(status(("True", "Serving"), why))]);
            },
            &[
                "3 of 3 selected pods",
                "explain prober -n probing mesh",
                "2 SharedProcesses: its containers",
            ],
        ),
    ];
    for (name, verdict, break_it, expected) in cases {
        let mut probing = healthy();
        break_it(&mut probing);
        let found: Vec<_> = checks(&probing)
            .into_iter()
            .filter(|check| check.name == name && check.verdict == verdict)
            .collect();
        let text = text(&found);
        for expected in expected {
            assert!(text.contains(expected), "{name}: {expected:?} is not in\n{text}");
        }
        assert!(found.iter().all(|check| check.fix.is_some()), "{text}");
    }
}

/// Returns a server with a certificate, and the authority that signed it as PEM.
fn server(host: &str) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&own, &issuer).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(leaf.der().to_vec())],
            PrivatePkcs8KeyDer::from(own.serialize_der()).into(),
        )
        .unwrap();
    (TlsAcceptor::from(std::sync::Arc::new(config)), authority.pem())
}

#[tokio::test]
async fn a_certificate_is_believed_only_under_its_name_and_by_its_authority() {
    let host = "traffic-operator-webhook.ns.svc";
    let (acceptor, authority) = server(host);
    let (_, other) = server(host);
    let ask = async |host: &str, bundle: &str| {
        let (near, far) = tokio::io::duplex(16 << 10);
        let acceptor = acceptor.clone();
        let served = tokio::spawn(async move { acceptor.accept(far).await.map(drop) });
        let result = trusts(near, host, bundle.as_bytes()).await;
        let _ = served.await;
        result
    };
    assert_eq!(ask(host, &authority).await, Ok(()));
    // While the authority changes, both are in the bundle.
    assert_eq!(ask(host, &format!("{other}{authority}")).await, Ok(()));
    let refused = ask(host, &other).await.unwrap_err();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    assert!(ask("other.ns.svc", &authority).await.is_err());
    assert_eq!(ask(host, "").await.unwrap_err(), "the caBundle is empty");
}
