//! Identification of a series: the node, and the kind of number.
use std::{collections::HashMap, sync::Arc};

use super::super::query::{MEASURE, Measure, OWN_AGE, Question, SCRAPES};
use crate::{
    nodes::{Identity, Resolution},
    prometheus::{Class, QueryError, decode::Labels, exporters::job_of, shortened},
};

/// The longest name of a device that is kept, in bytes: the kernel's have 15, labels of an author's
/// query may be anything. It appears in status and metrics.
const DEVICE: usize = 64;

/// Names of devices, each stored once: a handful on thousands of nodes.
#[derive(Debug, Default)]
pub struct Devices {
    known: HashMap<String, Arc<str>>,
    /// The last requested one: most nodes have the same.
    last: Option<(String, Arc<str>)>,
}

impl Devices {
    /// The shared text of a name.
    pub fn get(&mut self, device: &str) -> Arc<str> {
        if let Some((name, text)) = &self.last
            && name == device
        {
            return Arc::clone(text);
        }
        let text = self.known.get(device).cloned().unwrap_or_else(|| {
            let new: Arc<str> = shortened(device.to_owned(), DEVICE).into();
            self.known.insert(device.to_owned(), Arc::clone(&new));
            new
        });
        self.last = Some((device.to_owned(), Arc::clone(&text)));
        text
    }
}

/// The subject of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The node at this place among the names, and which of its numbers.
    Node(usize, Measure),
    /// Perhaps the node at this place, by this host name: the whole answer decides.
    Short(usize, Measure, Box<str>),
    /// Number of scrapes in the window.
    Scrapes,
    /// A job that is not trusted.
    OtherJob(Box<str>),
    /// No known node; the name in the series.
    Unmapped(String),
    /// No known node, and none is missed: a target without series of its own.
    Nobody,
}

/// The mapping of series to nodes.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The names of the nodes.
    pub identity: &'a Identity,
    /// Labels that may name a node, beside `instance`.
    pub labels: &'a [String],
}

/// Returns the label by which [`measure`] identifies the measure.
pub(super) fn measuring(question: &Question) -> &'static str {
    match question {
        Question::Own(_) => OWN_AGE.0,
        Question::BuiltIn { .. } => MEASURE,
    }
}

/// Returns the measure of a series of a node; `None` if the series belongs to no node, or was not
/// queried.
pub(super) fn measure(question: &Question, labels: &Labels<'_>) -> Option<Measure> {
    match question {
        Question::Own(_) if labels.get(OWN_AGE.0) == Some(OWN_AGE.1) => Some(Measure::OwnAge),
        Question::Own(_) => Some(Measure::Own),
        Question::BuiltIn { .. } => labels.get(MEASURE).and_then(Measure::from_name),
    }
}

impl<'a> Names<'a> {
    /// The labels that may name a node, in their order.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.labels.iter().map(String::as_str).chain(["instance"])
    }

    /// Returns the subject of a series in the answer to `question`.
    ///
    /// # Errors
    /// When it was not requested.
    pub fn subject(&self, question: &Question, labels: &Labels<'_>) -> Result<Subject, QueryError> {
        let Some(measure) = measure(question, labels) else {
            if labels.get(MEASURE) == Some(SCRAPES) {
                return Ok(Subject::Scrapes);
            }
            if let Some(job) = job_of(labels) {
                return Ok(Subject::OtherJob(job.into()));
            }
            let message = format!("answer has a series that was not asked for: {labels}");
            return Err(QueryError::new(Class::BadAnswer, message));
        };
        Ok(match self.identity.resolve(self.labels, |label| labels.get(label)) {
            Resolution::Node(place) => Subject::Node(place, measure),
            Resolution::Short(place, host) => Subject::Short(place, measure, host.into()),
            Resolution::Ambiguous | Resolution::Unknown if measure == Measure::Up => {
                Subject::Nobody
            }
            Resolution::Ambiguous | Resolution::Unknown => {
                // The first of these labels that exists decides.
                let decides = self.all().find_map(|label| Some((label, labels.get(label)?)));
                Subject::Unmapped(decides.map_or_else(
                    || "(no label that names a node)".into(),
                    |(label, value)| format!("{label}={value}"),
                ))
            }
        })
    }
}
