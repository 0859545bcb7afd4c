//! `doctor`: checks that everything the operator needs is available.
use std::{collections::BTreeMap, fmt::Write, time::Duration};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use serde::Serialize;

use super::{cluster::Listed, leader::Leadership};
use crate::{
    api::TrafficWatch,
    nodes::NodeObject,
    prometheus::{
        Exporters, QueryError,
        exporters::{LinkExporter, Links},
    },
    text::Tone,
};

mod cluster;
mod gather;
mod probing;
mod series;
mod served;
mod watches;

pub use gather::{Right, Subject, gather, rights};
pub use probing::{Probing, figures as gather_figures};
pub use series::{BirdExporters, gather as gather_endpoint};
pub use served::{Routes, Served, Streams};

/// Maximum number of names of one kind in a line.
const NAMED: usize = 5;

/// The facts that the checks use.
#[derive(Debug)]
pub struct Facts {
    /// The current time.
    pub now: Timestamp,
    /// The API server's version.
    pub server: Result<String, String>,
    /// The definitions of this binary, and those installed.
    pub definitions:
        Vec<(CustomResourceDefinition, Result<Option<CustomResourceDefinition>, String>)>,
    /// The account whose rights were checked.
    pub subject: Subject,
    /// The rights that the operator needs, and whether the account has them.
    pub rights: Vec<(Right, Result<bool, String>)>,
    /// The Lease.
    pub leadership: Result<Option<Leadership>, String>,
    /// The controller's Deployment.
    pub deployment: Replicas,
    /// The webhook's process; absent if the kind that needs it does not run.
    pub webhook: Option<WebhookProcess>,
    /// The operator's namespace.
    pub namespace: String,
    /// The cluster's nodes, or the error of reading them.
    pub nodes: Result<Vec<NodeObject>, String>,
    /// The objects.
    pub watches: Result<Listed<TrafficWatch>, String>,
    /// The `DeviceClass`es that stand for an extended resource: their names, and the resource's.
    pub device_classes: Result<Vec<(String, String)>, String>,
    /// The `NetworkProber`s; absent if the kind does not run.
    pub probing: Option<Probing>,
    /// The `Swarm`s.
    pub streams: Streams,
    /// The `RouteReflectorSet`s.
    pub routes: Routes,
    /// The accepted series of exporters, and their labels for nodes.
    pub exporters: Exporters,
    /// The report of each Prometheus.
    pub endpoints: Vec<Endpoint>,
}

/// The wanted and available replicas of a Deployment, if it exists.
pub type Replicas = Result<Option<(i32, i32)>, String>;

/// The Deployment of the webhook.
#[derive(Debug)]
pub struct WebhookProcess {
    /// Replicas of the webhook's Deployment.
    pub deployment: Replicas,
    /// The rights that its account needs, and whether it has them; empty without the Deployment.
    pub rights: Vec<(Right, Result<bool, String>)>,
}

/// The report of one Prometheus.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its name in the operator's configuration.
    pub name: String,
    /// Its URL, without credentials.
    pub url: String,
    /// The result of a first request.
    pub answers: Result<(), QueryError>,
    /// The series about links that are accepted.
    pub links: Links,
    /// The exporters with such series.
    pub exporters: Result<Vec<Exporter>, QueryError>,
    /// The targets that Prometheus cannot scrape: `up` is 0.
    pub down: Result<Vec<Exporter>, QueryError>,
    /// Jobs with series that are not accepted.
    pub other_jobs: Result<Vec<String>, QueryError>,
    /// Other kinds of exporters with their jobs, if no series is accepted.
    pub other_exporters: Vec<(LinkExporter, String)>,
    /// The answers to each kind of query that the objects need.
    pub asked: Vec<Asked>,
}

/// The labels that distinguish one exporter's series: job, instance, and those that may name a
/// node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exporter(pub BTreeMap<String, String>);

/// The answers for the objects with the same devices and window.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The devices that count.
    pub devices: String,
    /// The window of the rate.
    pub window: Duration,
    /// The objects, by namespace and name; empty for the defaults.
    pub watches: Vec<String>,
    /// Per exporter: samples of its poorest series within the window.
    pub samples: Result<Vec<(Exporter, f64)>, QueryError>,
    /// Exporters that know the speed of at least one of the devices.
    pub speeds: Result<Vec<Exporter>, QueryError>,
    /// Devices of which there is more than one series.
    pub duplicates: Result<Duplicates, QueryError>,
    /// Devices of exporters none of whose devices counts.
    pub others: Result<Vec<String>, QueryError>,
}

/// Devices whose bytes are counted by more than one series.
#[derive(Clone, Debug, Default)]
pub struct Duplicates {
    /// The number of exporters that have such devices.
    pub exporters: usize,
    /// Some of the series, with all their labels.
    pub series: Vec<BTreeMap<String, String>>,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// The check passed.
    Ok,
    /// It works only in part, or not for all nodes.
    Warn,
    /// It does not work.
    Fail,
}

/// One checked item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The subject of the check.
    pub name: &'static str,
    /// The result.
    pub verdict: CheckResult,
    /// The findings.
    pub message: String,
    /// The advice, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The facts behind it, one per line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl Check {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, verdict: CheckResult::Ok, message: message.into(), fix: None, details: vec![] }
    }

    fn warn(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self { verdict: CheckResult::Warn, fix, ..Self::ok(name, message) }
    }

    fn fail(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: CheckResult::Fail, ..Self::warn(name, message, fix) }
    }

    fn with(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }
}

/// Judges everything.
#[must_use]
pub fn checks(facts: &Facts) -> Vec<Check> {
    let server = cluster::server(facts);
    // Without the API server, nothing else in the cluster can be checked.
    if server.verdict == CheckResult::Fail {
        let endpoints = facts.endpoints.iter().map(|endpoint| series::answers(facts, endpoint));
        return [server].into_iter().chain(endpoints).collect();
    }
    let mut checks = vec![server];
    checks.extend(cluster::definitions(facts));
    checks.push(cluster::rights(facts));
    checks.extend(cluster::rights_of_the_webhook(facts));
    checks.extend(cluster::deployments(facts));
    checks.push(cluster::leader(facts));
    for endpoint in &facts.endpoints {
        checks.push(series::answers(facts, endpoint));
        checks.extend(series::checks(facts, endpoint));
    }
    checks.extend(watches::checks(facts));
    checks.extend(facts.probing.iter().flat_map(probing::checks));
    checks.extend(facts.streams.checks());
    checks.extend(facts.routes.checks());
    checks
}

/// Returns the first few of many names.
fn some(names: &[String]) -> String {
    let mut text = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED {
        text = format!("{text} and {} more", names.len() - NAMED);
    }
    text
}

/// Maximum number of printed details of one check; the JSON has them all.
const DETAILS: usize = 10;

/// Returns one line per check, its fix below it, and the count of each verdict.
#[must_use]
pub fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        // Writing to a String cannot fail.
        let word = tone(check.verdict).paint(&format!("{:<5}", word(check.verdict)));
        let _ = writeln!(text, "{word} {:<11} {}", check.name, check.message);
        if let Some(fix) = &check.fix {
            let _ = writeln!(text, "{:18}fix: {fix}", "");
        }
        // The message names the first few itself.
        let new: Vec<_> = check.details.iter().filter(|d| !check.message.contains(*d)).collect();
        for detail in new.iter().take(DETAILS) {
            let _ = writeln!(text, "{:18}- {detail}", "");
        }
        if new.len() > DETAILS {
            let more = new.len() - DETAILS;
            let _ = writeln!(text, "{:18}- {more} more: -o json lists them", "");
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (ok, warn, fail) =
        (count(CheckResult::Ok), count(CheckResult::Warn), count(CheckResult::Fail));
    let _ = writeln!(text, "{ok} ok, {warn} to look at, {fail} failed");
    text
}

fn tone(verdict: CheckResult) -> Tone {
    match verdict {
        CheckResult::Ok => Tone::Good,
        CheckResult::Warn => Tone::Notable,
        CheckResult::Fail => Tone::Bad,
    }
}

fn word(verdict: CheckResult) -> &'static str {
    match verdict {
        CheckResult::Ok => "ok",
        CheckResult::Warn => "WARN",
        CheckResult::Fail => "FAIL",
    }
}

#[cfg(test)]
mod tests;
