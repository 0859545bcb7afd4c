//! Whether the sessions that a step stands on are up.
//!
//! Sessions are counted, not asked whether one is down: a BIRD that is dead has no series at all.
use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use crate::{
    nodes::{Identity, Resolution, ShortNames},
    prometheus::{
        Exporters, QueryError, decode,
        exporters::{MEASURE, job_of, note_job, other_jobs, untrusted},
    },
};

/// How long after a step a sample must have been taken to be of the time after it: the watch that
/// tells Calico's confd, its rendering, and BIRD's reload. Sessions that a reload resets are down then.
pub const SETTLE_SECONDS: f64 = 5.0;

/// The measure of when the samples were taken.
const SAMPLED: &str = "sampled";

/// How many nodes are named where the gate is shut.
const NAMED: usize = 3;

/// What is counted where no query is given: established sessions by the series of `bird_exporter`, without
/// those to `excluded` addresses, and when they were scraped.
///
/// Calico names a session by its kind and its neighbour's address: `Node_10_0_0_1`.
#[must_use]
pub fn query(exporters: &Exporters, excluded: &[IpAddr]) -> String {
    let by = by(&exporters.node_labels);
    let except = if excluded.is_empty() {
        String::new()
    } else {
        let names: Vec<_> = excluded.iter().map(|address| escaped(*address)).collect();
        format!(r#",name!~"(Mesh|Global|Node)_({})""#, names.join("|"))
    };
    let (metric, believed, bgp) = ("bird_protocol_up", &exporters.bird_exporter, r#"proto="BGP""#);
    let established = format!(r#"{bgp},state="Established"{except}"#);
    let (up, all) = (believed.select(metric, &established), believed.select(metric, bgp));
    let mut text = format!(
        r#"count by ({by}) ({up} == 1) or label_replace(min by ({by}) (timestamp({all})), "{MEASURE}", "{SAMPLED}", "", "")"#
    );
    if let Some(jobs) = other_jobs(metric, bgp, believed) {
        text = format!("{text} or {jobs}");
    }
    text
}

fn by(node_labels: &[String]) -> String {
    let mut labels = vec!["instance"];
    labels.extend(node_labels.iter().map(String::as_str).filter(|label| *label != "instance"));
    labels.join(", ")
}

/// An address as Calico writes it into the name of a session.
fn escaped(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "_")
}

/// The sessions of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// How many are established; absent of a node that was scraped and has none.
    pub established: Option<u32>,
    /// When that was seen, in seconds since 1970, if it is known.
    pub sampled: Option<f64>,
}

/// What was measured, by node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The nodes that there is evidence of.
    pub nodes: BTreeMap<Arc<str>, Counted>,
    /// How many series were no evidence: not finite, negative, of no node, two for one node.
    pub rejected: usize,
    /// Jobs that have the series, where none of them is believed.
    pub other_jobs: Vec<String>,
}

impl Measured {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is no vector.
    pub fn read(
        (status, content_type, body): (u16, &str, &[u8]),
        identity: &Identity,
        node_labels: &[String],
    ) -> Result<Self, QueryError> {
        let mut measured = Self::default();
        let (mut names, mut undecided, mut twice) = (ShortNames::default(), vec![], vec![]);
        decode::vector(status, content_type, body, |element| {
            if let Some(job) = job_of(&element.labels) {
                note_job(&mut measured.other_jobs, job);
                return Ok(());
            }
            let found = identity.resolve(node_labels, |label| element.labels.get(label));
            let value = element.value.filter(|value| value.is_finite() && *value >= 0.0);
            let sampled = element.labels.get(MEASURE) == Some(SAMPLED);
            names.meet(found);
            match (found, value) {
                (Resolution::Node(place), Some(value)) => {
                    measured.take(&identity.names()[place], value, sampled, &mut twice);
                }
                (Resolution::Short(place, host), Some(value)) => {
                    undecided.push((place, Box::<str>::from(host), value, sampled));
                }
                _ => measured.rejected += 1,
            }
            Ok(())
        })?;
        for (place, host, value, sampled) in undecided {
            match names.settle(Resolution::Short(place, &host)) {
                Resolution::Node(place) => {
                    measured.take(&identity.names()[place], value, sampled, &mut twice);
                }
                _ => measured.rejected += 1,
            }
        }
        for name in twice {
            measured.rejected += 1;
            measured.nodes.remove(&name);
        }
        Ok(measured)
    }

    fn take(&mut self, node: &Arc<str>, value: f64, sampled: bool, twice: &mut Vec<Arc<str>>) {
        let counted = self.nodes.entry(Arc::clone(node)).or_default();
        if sampled {
            // Of two exporters the older counts.
            counted.sampled = Some(counted.sampled.map_or(value, |known| known.min(value)));
        } else if counted.established.is_some() {
            twice.push(Arc::clone(node));
        } else {
            counted.established = Some(whole(value));
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; checked")]
fn whole(value: f64) -> u32 {
    value as u32
}

/// Why the gate is shut.
#[derive(Clone, Debug, PartialEq)]
pub enum Shut {
    /// The time after the last step is not over: seconds that are left.
    Waiting(u64),
    /// Nothing could be asked, or what was asked failed.
    Unavailable(String),
    /// Nodes with fewer sessions than they are to have: node, established, expected.
    Missing(Vec<(Arc<str>, u32, u32)>),
    /// No series is believed; these jobs have some.
    Untrusted(Vec<String>),
    /// Nodes of which nothing is known.
    NoEvidence(Vec<Arc<str>>),
    /// Nodes that were not looked at since the last step.
    Stale(Vec<Arc<str>>),
}

impl Shut {
    /// A word for the condition.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Waiting(_) | Self::Stale(_) => "WaitingForSamples",
            Self::Unavailable(_) | Self::Untrusted(_) | Self::NoEvidence(_) => "GateUnavailable",
            Self::Missing(_) => "WaitingForSessions",
        }
    }

    /// Whether nothing can be known, rather than something is known to be missing.
    #[must_use]
    pub fn is_blind(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Untrusted(_) | Self::NoEvidence(_))
    }
}

/// No figures that change at every pass: each new text is a write.
impl fmt::Display for Shut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(_) => f.write_str("the time after the last step is not over"),
            Self::Unavailable(text) => write!(f, "sessions cannot be counted: {text}"),
            Self::Missing(nodes) => {
                f.write_str("sessions are not established: ")?;
                list(f, nodes, |f, (node, established, expected)| {
                    write!(f, "{node} has {established} of {expected}")
                })
            }
            Self::Untrusted(jobs) => {
                let why = untrusted("bird_exporter", "--bird-exporter-selector", jobs);
                write!(f, "sessions cannot be counted: {why}")
            }
            Self::NoEvidence(nodes) => {
                f.write_str("no sessions are measured on ")?;
                list(f, nodes, |f, node| f.write_str(node))
            }
            Self::Stale(nodes) => {
                f.write_str("not measured since the last step: ")?;
                list(f, nodes, |f, node| f.write_str(node))
            }
        }
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    all: &[T],
    each: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, one) in all.iter().take(NAMED).enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        each(f, one)?;
    }
    match all.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

/// Whether every node has the sessions it is to have, measured after the last step.
///
/// # Errors
/// Why not: what is known to be missing before what is not known.
pub fn judge(
    expected: &BTreeMap<Arc<str>, u32>,
    measured: &Measured,
    last_step: Option<f64>,
) -> Result<(), Shut> {
    let (mut missing, mut unknown, mut stale) = (vec![], vec![], vec![]);
    for (node, &expected) in expected.iter().filter(|(_, expected)| **expected > 0) {
        let Some(counted) = measured.nodes.get(node) else {
            unknown.push(Arc::clone(node));
            continue;
        };
        let is_old = match (last_step, counted.sampled) {
            (Some(step), Some(sampled)) => sampled < step + SETTLE_SECONDS,
            _ => false,
        };
        let established = counted.established.unwrap_or(0);
        if is_old {
            stale.push(Arc::clone(node));
        } else if established < expected {
            missing.push((Arc::clone(node), established, expected));
        }
    }
    if !missing.is_empty() {
        return Err(Shut::Missing(missing));
    }
    if !unknown.is_empty() && measured.nodes.is_empty() && !measured.other_jobs.is_empty() {
        return Err(Shut::Untrusted(measured.other_jobs.clone()));
    }
    if !unknown.is_empty() {
        return Err(Shut::NoEvidence(unknown));
    }
    if !stale.is_empty() {
        return Err(Shut::Stale(stale));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        let address: [Arc<str>; 1] = ["10.0.0.1".into()];
        Identity::new(vec![("a".into(), &address), ("b".into(), &[])])
    }

    fn read(elements: &[(&str, &str)]) -> Measured {
        let elements: Vec<_> = elements
            .iter()
            .map(|(labels, value)| format!(r#"{{"metric":{{{labels}}},"value":[1,"{value}"]}}"#))
            .collect();
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{}]}}}}"#,
            elements.join(",")
        );
        Measured::read((200, "application/json", body.as_bytes()), &identity(), &["node".into()])
            .unwrap()
    }

    fn expected(nodes: &[(&str, u32)]) -> BTreeMap<Arc<str>, u32> {
        nodes.iter().map(|(node, count)| ((*node).into(), *count)).collect()
    }

    #[test]
    fn the_query_counts_without_the_sessions_to_nodes_that_are_down() {
        assert_eq!(
            query(
                &Exporters::any(&["node"]),
                &["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]
            ),
            "count by (instance, node) (bird_protocol_up{proto=\"BGP\",state=\"Established\",\
             name!~\"(Mesh|Global|Node)_(10_0_0_1|fd00__1)\"} == 1) or label_replace(min by (instance, node) \
             (timestamp(bird_protocol_up{proto=\"BGP\"})), \"measure\", \"sampled\", \"\", \"\")"
        );
        assert!(!query(&Exporters::default(), &[]).contains("name"));
    }

    #[test]
    fn s04_the_gate_counts_sessions_of_the_job_that_is_believed_and_names_the_others() {
        let exporters = Exporters {
            bird_exporter: crate::prometheus::exporters::BIRD_EXPORTER.parse().unwrap(),
            ..Exporters::any(&["node"])
        };
        let text = query(&exporters, &["10.0.0.1".parse().unwrap()]);
        let (asked, other) = text.split_once(" or label_replace(topk(").unwrap();
        for selector in asked.split("bird_protocol_up{").skip(1) {
            let labels = selector.split_once('}').unwrap().0;
            assert!(labels.ends_with(r#"job="bird-exporter""#), "{selector}");
        }
        assert!(other.contains("unless on () count("), "{other}");
        crate::prometheus::promql::check_vector(&text).unwrap();

        let forged = (r#""job":"team-a/forged","measure":"other_job""#, "12");
        let wanted = expected(&[("a", 2)]);
        let shut = judge(&wanted, &read(&[forged]), None).unwrap_err();
        assert!(shut.is_blind() && shut.reason() == "GateUnavailable", "{shut:?}");
        let said = shut.to_string();
        assert!(said.contains("--bird-exporter-selector"), "{said}");
        assert!(said.ends_with("jobs that have such series: team-a/forged"), "{said}");
        // Where something is believed the others do not matter.
        let measured = read(&[(r#""instance":"a""#, "2"), forged]);
        assert_eq!(judge(&wanted, &measured, None), Ok(()));
    }

    #[test]
    fn only_what_is_one_number_of_one_node_is_evidence() {
        let sampled = r#""instance":"b","measure":"sampled""#;
        let measured = read(&[
            (r#""instance":"10.0.0.1:9324""#, "5"),
            (r#""node":"b""#, "2"),
            (r#""instance":"b:1""#, "3"),
            (sampled, "100"),
            (r#""instance":"x""#, "1"),
            (r#""instance":"a","measure":"sampled""#, "NaN"),
        ]);
        assert_eq!(measured.rejected, 3);
        let a = Counted { established: Some(5), sampled: None };
        assert_eq!(measured.nodes.into_iter().collect::<Vec<_>>(), [("a".into(), a)]);
        // A node that was scraped and has no session has none; that is evidence.
        let counted = Counted { established: None, sampled: Some(100.0) };
        assert_eq!(read(&[(sampled, "100")]).nodes["b"], counted);
    }

    #[test]
    fn t07_the_sessions_of_a_machine_of_another_domain_are_not_our_nodes() {
        let ours = (r#""instance":"10.0.0.1:9324""#, "2");
        let foreign = (r#""instance":"a.other.example:9324""#, "9");
        for answer in [[ours, foreign], [foreign, ours]] {
            let measured = read(&answer);
            assert_eq!(measured.nodes["a"].established, Some(2));
            assert_eq!(measured.rejected, 1);
        }
        assert_eq!(
            read(&[foreign]).nodes["a"].established,
            Some(9),
            "a.our.example, for all we know"
        );
    }

    /// Rule 1: a BIRD that is dead has no series at all.
    #[test]
    fn absence_never_opens_the_gate() {
        let wanted = expected(&[("a", 2), ("b", 1)]);
        let one = r#""instance":"a""#;
        let shut = judge(&wanted, &read(&[(one, "2")]), None).unwrap_err();
        assert_eq!(shut.to_string(), "no sessions are measured on b");
        assert!(shut.is_blind());
        let sampled = r#""instance":"b","measure":"sampled""#;
        let shut = judge(&wanted, &read(&[(one, "2"), (sampled, "9")]), None).unwrap_err();
        assert_eq!(shut.to_string(), "sessions are not established: b has 0 of 1");
        assert!(!shut.is_blind());
        let two = r#""instance":"b""#;
        assert_eq!(judge(&wanted, &read(&[(one, "3"), (two, "1")]), None), Ok(()));
        // Nothing is expected of a node that is to have no session.
        assert_eq!(judge(&expected(&[("z", 0)]), &Measured::default(), None), Ok(()));
    }

    #[test]
    fn samples_of_before_the_step_say_nothing_of_it() {
        let (one, sampled) = (r#""instance":"a""#, r#""instance":"a","measure":"sampled""#);
        let wanted = expected(&[("a", 2)]);
        for (at, open) in [("104", false), ("105", true), ("200", true)] {
            let measured = read(&[(one, "2"), (sampled, at)]);
            assert_eq!(judge(&wanted, &measured, Some(100.0)).is_ok(), open, "{at}");
        }
        let shut = judge(&wanted, &read(&[(one, "2"), (sampled, "1")]), Some(100.0)).unwrap_err();
        assert_eq!(shut.reason(), "WaitingForSamples");
        assert_eq!(shut.to_string(), "not measured since the last step: a");
    }
}
