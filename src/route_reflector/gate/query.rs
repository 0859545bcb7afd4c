//! The default query to Prometheus, and the decoding of its answer.
use std::{collections::BTreeMap, sync::Arc};

use super::{Measured, Protocol, Wanted, whole};
use crate::{
    nodes::{Identity, Resolution, ShortNames},
    prometheus::{
        Exporters, QueryError, decode,
        exporters::{MEASURE, job_of, note_job, other_jobs},
    },
};

/// The measure of how long ago a node was scraped, in seconds by the clock of Prometheus itself.
const AGE: &str = "age";

/// The measure of names that some node has an established session under.
const NAME: &str = "name";

/// Prefix of the measure of established sessions of a set; its tag follows.
const SET: &str = "set_";

/// Counts the established sessions of each set by the series of `bird_exporter`, each name once;
/// also queries when they were scraped, and with which nodes any node has a session.
#[must_use]
pub fn query(exporters: &Exporters, wanted: &Wanted) -> String {
    let by = by(&exporters.node_labels);
    let (metric, believed, bgp) = ("bird_protocol_up", &exporters.bird_exporter, r#"proto="BGP""#);
    let established = format!(r#"{bgp},state="Established""#);
    let (up, all) = (believed.select(metric, &established), believed.select(metric, bgp));
    let tagged = |text: &str, measure: &str| {
        format!(r#"label_replace({text}, "{MEASURE}", "{measure}", "", "")"#)
    };
    let mut parts = Vec::new();
    for set in wanted.sets() {
        // Names of letters, digits and _ alone: Prometheus looks each up, and runs no regular
        // expression.
        let names: Vec<_> = set.names.keys().map(ToString::to_string).collect();
        let names = format!(r#"{established},name=~"{}""#, names.join("|"));
        let up = believed.select(metric, &names);
        let distinct = format!("count by ({by}) (group by ({by}, name) ({up} == 1))");
        parts.push(tagged(&distinct, &format!("{SET}{}", set.tag)));
    }
    // An age needs one clock; a time would need ours and theirs to agree.
    parts.push(tagged(&format!("time() - min by ({by}) (timestamp({all}))"), AGE));
    parts.push(tagged(&format!("group by (name) ({up})"), NAME));
    parts.extend(other_jobs(metric, bgp, believed));
    parts.join(" or ")
}

fn by(node_labels: &[String]) -> String {
    let mut labels = vec!["instance"];
    labels.extend(node_labels.iter().map(String::as_str).filter(|label| *label != "instance"));
    labels.join(", ")
}

/// The query.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The sessions; `None` with a query of an author's.
    pub wanted: Option<Arc<Wanted>>,
    /// The time of the query, in seconds since 1970 by our clock.
    pub at: f64,
}

/// The content of one element.
#[derive(Clone, Copy)]
enum Said {
    /// A number of sessions, of a query of an author's.
    Number(f64),
    /// A number of sessions of this set.
    Set(usize, f64),
    Age(f64),
}

impl Measured {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is not a vector, or may be partial.
    pub fn read(
        (status, content_type, body): (u16, &str, &[u8]),
        identity: &Identity,
        node_labels: &[String],
        asked: &Asked,
    ) -> Result<Self, QueryError> {
        let mut measured = Self { asked: asked.wanted.clone(), ..Self::default() };
        let (mut names, mut undecided, mut twice) = (ShortNames::default(), vec![], vec![]);
        let sets = asked.wanted.iter().flat_map(|wanted| wanted.sets()).enumerate();
        let sets: BTreeMap<&str, usize> = sets.map(|(place, set)| (&*set.tag, place)).collect();
        let said = |measure: Option<&str>, value: f64| {
            let number = Some(value).filter(|value| *value >= 0.0);
            match measure {
                _ if asked.wanted.is_none() => number.map(Said::Number),
                Some(AGE) => Some(Said::Age(value.max(0.0))),
                Some(measure) => {
                    let place = *sets.get(measure.strip_prefix(SET)?)?;
                    number.map(|number| Said::Set(place, number))
                }
                None => None,
            }
        };
        let warnings = decode::vector(status, content_type, body, |element| {
            if let Some(job) = job_of(&element.labels) {
                note_job(&mut measured.other_jobs, job);
                return Ok(());
            }
            let measure = element.labels.get(MEASURE);
            if measure == Some(NAME) && asked.wanted.is_some() {
                let name = element.labels.get("name").and_then(|name| name.parse().ok());
                measured.seen.extend(name.map(|name: Protocol| name.address));
                return Ok(());
            }
            let found = identity.resolve(node_labels, |label| element.labels.get(label));
            let value = element.value.filter(|value| value.is_finite());
            names.meet(found);
            match (found, value.and_then(|value| said(measure, value))) {
                (Resolution::Node(place), Some(said)) => {
                    measured.take(&identity.names()[place], said, asked.at, &mut twice);
                }
                (Resolution::Short(place, host), Some(said)) => {
                    undecided.push((place, Box::<str>::from(host), said));
                }
                _ => measured.rejected += 1,
            }
            Ok(())
        })?;
        // A node that is missing may have all of its sessions, and the next step waits for them.
        decode::whole(&warnings)?;
        for (place, host, said) in undecided {
            match names.settle(Resolution::Short(place, &host)) {
                Resolution::Node(place) => {
                    measured.take(&identity.names()[place], said, asked.at, &mut twice);
                }
                _ => measured.rejected += 1,
            }
        }
        for name in twice {
            measured.rejected += 1;
            measured.nodes.remove(&name);
            measured.sets.retain(|(node, _), _| *node != name);
        }
        Ok(measured)
    }

    fn take(&mut self, node: &Arc<str>, said: Said, at: f64, twice: &mut Vec<Arc<str>>) {
        let counted = self.nodes.entry(Arc::clone(node)).or_default();
        let again = match said {
            Said::Age(age) => {
                // If there are two exporters, the older one counts.
                let sampled = at - age;
                counted.sampled = Some(counted.sampled.map_or(sampled, |known| known.min(sampled)));
                false
            }
            Said::Number(number) => counted.established.replace(whole(number)).is_some(),
            Said::Set(place, number) => {
                self.sets.insert((Arc::clone(node), place), whole(number)).is_some()
            }
        };
        if again {
            twice.push(Arc::clone(node));
        }
    }
}
