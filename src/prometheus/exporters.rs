//! Selects the accepted series of the built-in queries. No other code does so.
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
}

impl Exporters {
    /// Accepts the series of every job.
    #[must_use]
    pub fn any(node_labels: &[&str]) -> Self {
        let node_labels = node_labels.iter().map(|label| (*label).to_owned()).collect();
        Self { node_labels, ..Self::default() }
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

/// Returns the query for jobs with series of a metric that are not accepted, whether or not others
/// are.
#[must_use]
pub fn all_other_jobs(metric: &str, believed: &Matchers) -> String {
    named(&format!("count by (job) ({metric} unless {})", believed.select(metric, "")))
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
    untrusted("the node exporter", "--node-exporter-selector", jobs)
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
