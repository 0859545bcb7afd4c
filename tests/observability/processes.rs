//! The operator's two processes as deployed: the controllers, and the webhook.
use traffic_operator::{manifests::WEBHOOK, webhook::certificates::PINGLISTS};

use crate::{
    files::{NAMESPACE, OPERATOR, OVERLAYS},
    objects::{name, namespace, render, selects},
};

/// A Deployment, its component, and the ports that it has beside metrics and probes.
pub type Process = (&'static str, &'static str, &'static [(&'static str, u16)]);

/// The processes of the operator.
pub const PROCESSES: [Process; 2] = [
    (OPERATOR, "controller", &[]),
    (WEBHOOK, "webhook", &[("webhook", 9443), ("pinglists", 9444)]),
];

/// Every listening port has a Service, and every Service leads to a pod that listens.
#[test]
fn services_lead_to_the_processes_that_listen() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        for (service, port, target) in [
            ("traffic-operator-metrics", 8080, "metrics"),
            (WEBHOOK, 443, "webhook"),
            (PINGLISTS, 443, "pinglists"),
        ] {
            let service = rendered.one("Service", service);
            let ports = &service["spec"]["ports"];
            assert_eq!(
                (&ports[0]["port"], &ports[0]["targetPort"]),
                (&port.into(), &target.into())
            );
            for (name, _, more) in PROCESSES {
                let pod = &rendered.one("Deployment", name)["spec"]["template"];
                let listens = target == "metrics" || more.iter().any(|(port, _)| *port == target);
                let selected = selects(&service["spec"]["selector"], &pod["metadata"]["labels"]);
                assert_eq!(selected, listens, "{overlay}: {target} of {name}");
            }
        }
    }
}

/// The account of the process that every pod can reach has one role of its own in each scope, and
/// no other.
#[test]
fn the_accounts_share_no_role() {
    for overlay in OVERLAYS {
        let rendered = render(overlay);
        for account in [OPERATOR, WEBHOOK] {
            assert_eq!(namespace(rendered.one("ServiceAccount", account)), NAMESPACE);
        }
        let bindings =
            ["ClusterRoleBinding", "RoleBinding"].map(|kind| rendered.all(kind)).concat();
        let mut of_webhook = Vec::new();
        for binding in bindings {
            let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
            for subject in binding["subjects"].as_array().into_iter().flatten() {
                if subject["name"] == WEBHOOK {
                    of_webhook.push(role);
                } else {
                    assert_ne!(role, WEBHOOK, "{overlay}: {}", name(binding));
                }
            }
        }
        assert_eq!(of_webhook, [WEBHOOK; 2], "{overlay}");
    }
}
