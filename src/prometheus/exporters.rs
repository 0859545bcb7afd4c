//! Selects the accepted series of the built-in queries. No other code does so.
use std::collections::BTreeMap;

use super::{decode::Labels, promql::Matchers, promql::string, shortened};

/// The label that distinguishes the measures of a built-in query.
pub const MEASURE: &str = "measure";

/// The measure of jobs with series that are not accepted: the label `job` has their name.
pub const OTHER_JOB: &str = "other_job";

/// Maximum number of such jobs to request and name: enough to recognize your own.
const JOBS: usize = 5;

/// Maximum length of a stored job name, in bytes; a name is untrusted text.
const LONGEST_JOB: usize = 100;

/// The job of the node exporter that kube-prometheus installs, and of the one in `deploy/`.
pub const NODE_EXPORTER: &str = r#"job="node-exporter""#;

/// The job that docs/reference/routereflectorset.md gives to `bird_exporter`.
pub const BIRD_EXPORTER: &str = r#"job="bird-exporter""#;

/// The accepted series, and their labels for nodes: the same for every command and the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exporters {
    /// Labels that may name a node, in addition to `instance`.
    pub node_labels: Vec<String>,
    /// The node exporter's series.
    pub node_exporter: Matchers,
    /// The series of `bird_exporter`.
    pub bird_exporter: Matchers,
    /// Where links are read at endpoints that say so; elsewhere, the node exporter's series.
    pub links: BTreeMap<String, Links>,
}

/// The series about links of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Who writes them.
    pub exporter: LinkExporter,
    /// The accepted ones.
    pub believed: Matchers,
}

/// A program that counts the bytes of links, under names of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkExporter {
    /// Prometheus' node exporter, the only one that knows the speed of a link.
    #[default]
    NodeExporter,
    /// The receiver `hostmetrics` of an OpenTelemetry collector, scraped or pushed.
    Otel,
    /// The kubelet's cAdvisor.
    Cadvisor,
}

impl LinkExporter {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NodeExporter, Self::Otel, Self::Cadvisor];

    /// Returns the query for the jobs that have its series.
    #[must_use]
    pub fn jobs(self) -> String {
        let (metric, own) = self.counter(true);
        named(&format!("count by (job) ({})", Matchers::default().select(metric, own)))
    }

    /// The name in the file of endpoints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeExporter => "node-exporter",
            Self::Otel => "otel",
            Self::Cadvisor => "cadvisor",
        }
    }

    /// The counter of sent or received bytes, and the matchers that select its series.
    #[must_use]
    pub fn counter(self, sent: bool) -> (&'static str, &'static str) {
        match (self, sent) {
            (Self::NodeExporter, true) => ("node_network_transmit_bytes_total", ""),
            (Self::NodeExporter, false) => ("node_network_receive_bytes_total", ""),
            (Self::Otel, true) => ("system_network_io_bytes_total", r#"direction="transmit""#),
            (Self::Otel, false) => ("system_network_io_bytes_total", r#"direction="receive""#),
            // Of the node, and not of a container.
            (Self::Cadvisor, true) => ("container_network_transmit_bytes_total", r#"id="/""#),
            (Self::Cadvisor, false) => ("container_network_receive_bytes_total", r#"id="/""#),
        }
    }

    /// The label that names the link.
    #[must_use]
    pub fn device(self) -> &'static str {
        match self {
            Self::NodeExporter | Self::Otel => "device",
            Self::Cadvisor => "interface",
        }
    }

    /// The matchers of its series where a configuration gives none; `None` if it has to.
    #[must_use]
    pub fn usual_selector(self) -> Option<&'static str> {
        match self {
            Self::NodeExporter => Some(NODE_EXPORTER),
            // A collector has the job that its owner gave it.
            Self::Otel => None,
            Self::Cadvisor => Some(r#"job="kubelet",metrics_path="/metrics/cadvisor""#),
        }
    }
}

impl Links {
    /// Returns the selector of the counter of sent or received bytes, with more matchers.
    #[must_use]
    pub fn select(&self, sent: bool, more: &str) -> String {
        let (metric, own) = self.exporter.counter(sent);
        self.believed.select(metric, &both(own, more))
    }

    /// Returns the selector of the speeds of links, in bytes per second, if the exporter knows them.
    #[must_use]
    pub fn speed(&self, more: &str) -> Option<String> {
        let knows = self.exporter == LinkExporter::NodeExporter;
        knows.then(|| self.believed.select("node_network_speed_bytes", more))
    }

    /// Returns the query for jobs with such series, if none is accepted.
    #[must_use]
    pub fn other_jobs(&self, sent: bool, more: &str) -> Option<String> {
        let (metric, own) = self.exporter.counter(sent);
        other_jobs(metric, &both(own, more), &self.believed)
    }

    /// Returns the query for jobs with series of sent bytes that are not accepted.
    #[must_use]
    pub fn all_other_jobs(&self) -> String {
        let every = Self { exporter: self.exporter, believed: Matchers::default() };
        let (every, accepted) = (every.select(true, ""), self.select(true, ""));
        named(&format!("count by (job) ({every} unless {accepted})"))
    }
}

fn both(some: &str, more: &str) -> String {
    let parts: Vec<_> = [some, more].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(",")
}

impl Exporters {
    /// Accepts the series of every job.
    #[must_use]
    pub fn any(node_labels: &[&str]) -> Self {
        let node_labels = node_labels.iter().map(|label| (*label).to_owned()).collect();
        Self { node_labels, ..Self::default() }
    }

    /// Returns the series about links at an endpoint.
    #[must_use]
    pub fn links(&self, endpoint: &str) -> Links {
        let usual =
            || Links { exporter: LinkExporter::NodeExporter, believed: self.node_exporter.clone() };
        self.links.get(endpoint).cloned().unwrap_or_else(usual)
    }
}

/// Returns the query for jobs with series of a metric, if no series is accepted: jobs that were not
/// configured, or forged ones. `None` if every series is accepted.
#[must_use]
pub fn other_jobs(metric: &str, own: &str, believed: &Matchers) -> Option<String> {
    if believed.is_empty() {
        return None;
    }
    let (all, some) = (Matchers::default().select(metric, own), believed.select(metric, own));
    Some(named(&format!("count by (job) ({all}) unless on () count({some})")))
}

fn named(jobs: &str) -> String {
    let (top, name) = (format!("topk({JOBS}, {jobs})"), string(OTHER_JOB));
    format!("label_replace({top}, \"{MEASURE}\", {name}, \"\", \"\")")
}

/// Adds the job of an element of such an answer, in order, each once.
pub fn note_job(jobs: &mut Vec<String>, job: &str) {
    let job = shortened(job.to_owned(), LONGEST_JOB);
    if jobs.len() < JOBS && !jobs.contains(&job) {
        jobs.push(job);
        jobs.sort_unstable();
    }
}

/// Describes why nothing is measured although these jobs have series.
#[must_use]
pub fn untrusted(exporter: &str, flag: &str, jobs: &[String]) -> String {
    let jobs = jobs.join(", ");
    format!("no series of {exporter} matches {flag}; jobs that have such series: {jobs}")
}

/// Describes the same for the node exporter.
#[must_use]
pub fn untrusted_nodes(jobs: &[String]) -> String {
    untrusted(
        "the exporter",
        "the selector of the endpoint (--node-exporter-selector, if it names none)",
        jobs,
    )
}

/// The job of an element.
#[must_use]
pub fn job_of<'a>(labels: &'a Labels<'_>) -> Option<&'a str> {
    let is_job = labels.get(MEASURE) == Some(OTHER_JOB);
    is_job.then(|| labels.get("job").filter(|job| !job.is_empty()).unwrap_or("(no label job)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_jobs_are_asked_for_only_where_some_are_not_believed() {
        let believed: Matchers = NODE_EXPORTER.parse().unwrap();
        assert_eq!(other_jobs("m", "a=\"b\"", &Matchers::default()), None);
        let asked = other_jobs("m", "a=\"b\"", &believed).unwrap();
        assert!(asked.contains(r#"count by (job) (m{a="b"}) unless on ()"#), "{asked}");
        assert!(BIRD_EXPORTER.parse::<Matchers>().is_ok());
    }

    #[test]
    fn names_of_jobs_are_short_few_and_in_order() {
        let mut jobs = vec![];
        for job in ["z", "a", "a", &"x".repeat(1 << 20), "c", "d", "e", "f"] {
            note_job(&mut jobs, job);
        }
        assert_eq!(jobs.len(), JOBS);
        assert!(jobs.iter().all(|job| job.len() <= LONGEST_JOB + 3) && jobs.is_sorted());
    }
}
