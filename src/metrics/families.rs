//! Names and help texts of the families of a process.
use prometheus_client::{metrics::info::Info, registry::Registry};

use super::Inner;

impl Inner {
    /// The library appends `_total` to counters and `_info` to infos.
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("reconcile", "Reconciliations by controller and result", self.reconcile.clone());
        r.register(
            "reconcile_errors",
            "Failed reconciliations by controller and reason",
            self.reconcile_errors.clone(),
        );
        r.register(
            "reconcile_duration_seconds",
            "Duration of a reconciliation",
            self.reconcile_duration.clone(),
        );
        r.register(
            "prometheus_requests",
            "Requests to Prometheus by endpoint and result",
            self.prometheus_requests.clone(),
        );
        r.register(
            "prometheus_request_duration_seconds",
            "Duration of a request to Prometheus",
            self.prometheus_duration.clone(),
        );
        r.register(
            "samples_rejected",
            "Rejected series of a response by reason",
            self.samples_rejected.clone(),
        );
        r.register(
            "api_requests",
            "Requests to the Kubernetes API; code 0 means no response",
            self.api_requests.clone(),
        );
        r.register(
            "events_dropped",
            "Events that were dropped because they could not be written in time",
            self.events_dropped.clone(),
        );
        r.register(
            "watch_restarts",
            "Watches that failed and were restarted",
            self.watch_restarts.clone(),
        );
        r.register("store_objects", "Objects kept in memory", self.store_objects.clone());
        r.register(
            "injector_requests",
            "Admission requests for pods by result and reason",
            self.injections.clone(),
        );
        r.register(
            "injector_request_duration_seconds",
            "Duration of an admission request",
            self.injection_duration.clone(),
        );
        r.register(
            "injector_cert_not_after_seconds",
            "Expiry of the webhook's certificates, in Unix seconds",
            self.certificates.clone(),
        );
        r.register(
            "networkprober_pinglist_agents",
            "Agents that wait for a change of their list of peers at this replica",
            self.pinglist_agents.clone(),
        );
        r.register(
            "networkprober_pinglist_requests",
            "Responses to requests for lists of peers",
            self.pinglist_requests.clone(),
        );
        r.register("scrapes", "Requests for /metrics by status code", self.scrapes.clone());
        r.register(
            "connections_refused",
            "Connections closed because a server reached its limit, in total or for one address",
            self.refused_connections.clone(),
        );
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "The version of this process", version);
    }
}
