//! The families of a process: their labels, names and help texts.
use std::sync::{Arc, Mutex, OnceLock};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

use super::Part;

/// Bounds for operations with a network round trip: 1 ms to 10 s, the deadline of every call.
const SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Bounds for the time that a pod's creation waits: 100 µs to the webhook's timeout.
const ADMISSION_SECONDS: [f64; 9] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.025, 0.25, 2.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn seconds<L: Clone + Eq + std::hash::Hash>() -> Histograms<L> {
    Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram)
}

macro_rules! labels {
    ($($set:ident { $($label:ident: $value:ty),* })*) => {
        $(
            #[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
            pub(super) struct $set {
                $(pub(super) $label: $value,)*
            }
        )*
    };
}

labels! {
    ApiCall { verb: &'static str, resource: String, code: u16 }
    Certificate { certificate: &'static str }
    Code { code: u16 }
    Controller { controller: &'static str }
    Endpoint { endpoint: String }
    Failure { controller: &'static str, namespace: String, reason: &'static str }
    Injection { result: &'static str, skip_reason: &'static str }
    Outcome { controller: &'static str, result: &'static str }
    Port { server: &'static str }
    Reason { reason: &'static str }
    RequestResult { endpoint: String, result: &'static str }
    Resource { resource: &'static str }
}

macro_rules! families {
    ($($field:ident: $family:ty = $new:expr, $name:literal, $help:literal;)*) => {
        pub(super) struct Inner {
            pub(super) parts: Mutex<Vec<Arc<Part>>>,
            /// Exists only in processes that may lead.
            pub(super) leader: OnceLock<Gauge>,
            $(pub(super) $field: $family,)*
        }

        impl Inner {
            pub(super) fn new() -> Self {
                Self { parts: Mutex::default(), leader: OnceLock::default(), $($field: $new,)* }
            }

            /// The library appends `_total` to counters and `_info` to infos.
            pub(super) fn register(&self, r: &mut Registry) {
                $(r.register($name, $help, self.$field.clone());)*
                let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
                r.register("build", "The version of this process", version);
            }
        }
    };
}

families! {
    reconcile: Family<Outcome, Counter> = Family::default(),
        "reconcile", "Reconciliations by controller and result";
    reconcile_errors: Family<Failure, Counter> = Family::default(),
        "reconcile_errors", "Failed reconciliations by controller, namespace and reason";
    reconcile_duration: Histograms<Controller> = seconds(),
        "reconcile_duration_seconds", "Duration of a reconciliation";
    prometheus_requests: Family<RequestResult, Counter> = Family::default(),
        "prometheus_requests", "Requests to Prometheus by endpoint and result";
    prometheus_duration: Histograms<Endpoint> = seconds(),
        "prometheus_request_duration_seconds", "Duration of a request to Prometheus";
    samples_rejected: Family<Reason, Counter> = Family::default(),
        "samples_rejected", "Rejected series of a response by reason";
    api_requests: Family<ApiCall, Counter> = Family::default(),
        "api_requests", "Requests to the Kubernetes API; code 0 means no response";
    events_dropped: Counter = Counter::default(),
        "events_dropped", "Events that were dropped because they could not be written in time";
    unreadable_objects: Family<Resource, Counter> = Family::default(),
        "unreadable_objects", "Objects that were left out because they cannot be read";
    unlisted_watches: Family<Resource, Gauge> = Family::default(),
        "unlisted_watches", "Watches, or kinds, that have not seen all of their objects once";
    restored_objects: Family<Resource, Counter> = Family::default(),
        "restored_objects", "Objects that were written again because another client had changed them";
    watch_restarts: Family<Resource, Counter> = Family::default(),
        "watch_restarts", "Watches that failed and were restarted";
    store_objects: Family<Resource, Gauge> = Family::default(),
        "store_objects", "Objects kept in memory";
    injections: Family<Injection, Counter> = Family::default(),
        "injector_requests", "Admission requests for pods by result and reason";
    injection_duration: Histogram = Histogram::new(ADMISSION_SECONDS),
        "injector_request_duration_seconds", "Duration of an admission request";
    certificates: Family<Certificate, Gauge> = Family::default(),
        "injector_cert_not_after_seconds", "Expiry of the webhook's certificates, in Unix seconds";
    pinglist_agents: Gauge = Gauge::default(),
        "networkprober_pinglist_agents",
        "Agents that wait for a change of their list of peers at this replica";
    pinglist_requests: Family<Code, Counter> = Family::default(),
        "networkprober_pinglist_requests", "Responses to requests for lists of peers";
    scrapes: Family<Code, Counter> = Family::default(),
        "scrapes", "Requests for /metrics by status code";
    refused_connections: Family<Port, Counter> = Family::default(),
        "connections_refused",
        "Connections closed because a server reached its limit, in total or for one address";
}
