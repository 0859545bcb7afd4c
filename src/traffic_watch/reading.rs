//! One answer of Prometheus, sorted by node.
use std::{collections::HashSet, sync::Arc};

use super::query::{Measure, Question};
use crate::{
    nodes::{Identity, Resolution, ShortNames, SortedCursor, Trail},
    prometheus::{
        QueryError,
        decode::{self, Labels, Series},
        exporters::note_job,
        shortened,
    },
};

mod names;
mod numbers;

pub use names::{Devices, Names, Subject};
pub use numbers::{Link, NodeMeasurement, Value};

/// The label of the link that a number is about.
const DEVICE: &str = "device";

/// Maximum number of unmatched series to name, and of bytes for each.
const NAMED_UNMAPPED: (usize, usize) = (3, 100);

/// The result of one request, shared by everyone with the same request.
#[derive(Debug, Default, PartialEq)]
pub struct Measurement {
    names: Arc<[Arc<str>]>,
    /// In the order of the names.
    nodes: Box<[NodeMeasurement]>,
    /// Exporters that belong to no node: how many, and the first of them.
    pub unmapped: (usize, Vec<String>),
    /// The scrapes in the window of `rate`, of the target that has most of them.
    pub scrapes: Option<f64>,
    /// Jobs that have the series, if none of them is accepted.
    pub other_jobs: Vec<String>,
    /// The server's warnings.
    pub warnings: Vec<String>,
    /// The time at which the request was sent, in Unix seconds, if known: ages of samples count
    /// from it, however long the answer took.
    pub asked: Option<f64>,
    /// The time at which the server evaluated the query, by its own clock, in Unix seconds, if
    /// known: however late the request arrives, one scrape has one time by this clock.
    pub evaluated: Option<f64>,
    /// The revision of the node store at that time, if known: a node that came later is not the one
    /// that was measured, even under its name.
    pub revision: Option<u64>,
    /// Their names until the answer ends: an exporter has many series, and counts once.
    named: HashSet<Box<str>>,
    /// Numbers of hosts, of which only the whole answer shows whether they are nodes.
    undecided: Vec<(Subject, Option<f64>, Option<Arc<str>>)>,
}

impl Measurement {
    /// The numbers of one node; all absent if nothing is about it.
    #[must_use]
    pub fn get(&self, node: &str) -> Option<&NodeMeasurement> {
        let place = self.names.binary_search_by(|name| (**name).cmp(node)).ok()?;
        self.nodes.get(place)
    }

    /// The same for one node after the other, by name.
    pub fn in_turn<'a>(&'a self) -> impl FnMut(&Arc<str>) -> Option<&'a NodeMeasurement> {
        let mut cursor = SortedCursor::default();
        move |node| self.nodes.get(cursor.find(&self.names, |name| name, node)?)
    }

    /// Reports whether numbers may be missing, of nodes or of single links. What the engine warns of
    /// is about what a query computes, and not about what it read.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.warnings.iter().any(|warning| !warning.starts_with("PromQL "))
    }

    /// A reading without any number, to be filled by [`Self::take`].
    #[must_use]
    pub fn empty(identity: &Identity) -> Self {
        let names = Arc::clone(identity.names());
        let nodes = vec![NodeMeasurement::default(); names.len()].into();
        Self { names, nodes, ..Self::default() }
    }

    /// Sorts an answer by node.
    ///
    /// # Errors
    /// When it is not a vector, or has unrequested contents.
    pub fn read(
        status: u16,
        content_type: &str,
        body: &[u8],
        question: &Question,
        names: Names<'_>,
    ) -> Result<Self, QueryError> {
        let mut sorter = Sorter::new(names.identity);
        let take = |series: Series<'_>| sorter.take(question, names, &series);
        let warnings = decode::vector(status, content_type, body, take)?;
        Ok(sorter.end(names.identity, warnings))
    }

    /// Decides about short names, after the last number.
    pub fn settle(&mut self) {
        let undecided = std::mem::take(&mut self.undecided);
        let mut names = ShortNames::default();
        for (place, _) in self.nodes.iter().enumerate().filter(|(_, node)| !node.is_empty()) {
            names.meet(Resolution::Node(place));
        }
        for (subject, ..) in &undecided {
            if let Subject::Short(place, _, host) = subject {
                names.meet(Resolution::Short(*place, host));
            }
        }
        for (subject, value, device) in undecided {
            let Subject::Short(place, measure, host) = &subject else { continue };
            let settled = match names.settle(Resolution::Short(*place, host)) {
                Resolution::Node(place) => Subject::Node(place, *measure),
                _ if *measure == Measure::Up => Subject::Nobody,
                _ => Subject::Unmapped(host.to_string()),
            };
            self.take(&settled, value, device);
        }
        self.named = HashSet::default();
    }

    /// Stores one number.
    pub fn take(&mut self, subject: &Subject, value: Option<f64>, device: Option<Arc<str>>) {
        match subject {
            Subject::Node(place, measure) => self.put(*place, *measure, value, device),
            Subject::Scrapes => self.scrapes = value,
            Subject::OtherJob(job) => note_job(&mut self.other_jobs, job),
            Subject::Unmapped(name) => self.unmapped(name),
            Subject::Nobody => {}
            Subject::Short(..) => self.undecided.push((subject.clone(), value, device)),
        }
    }

    fn put(
        &mut self,
        place: usize,
        measure: Measure,
        value: Option<f64>,
        device: Option<Arc<str>>,
    ) {
        if let Some(node) = self.nodes.get_mut(place) {
            node.put(measure, value, device);
        }
    }

    fn unmapped(&mut self, name: &str) {
        if self.named.contains(name) {
            return;
        }
        self.named.insert(name.into());
        self.unmapped.0 += 1;
        if self.unmapped.1.len() < NAMED_UNMAPPED.0 {
            self.unmapped.1.push(shortened(name.to_owned(), NAMED_UNMAPPED.1));
            self.unmapped.1.sort_unstable();
        }
    }
}

/// Sorts the series of one answer by node, in the order of arrival.
#[derive(Debug)]
pub struct Sorter {
    reading: Measurement,
    devices: Devices,
    trail: Trail,
    turn: Turn,
}

/// The properties that a run of series has in common.
#[derive(Debug, Default)]
struct Turn {
    number: Option<u64>,
    /// The labels that may name the node, by their places.
    naming: Vec<usize>,
    measure: Common<Measure>,
    device: Common<Arc<str>>,
}

/// The value of a label in a run of series.
#[derive(Debug, Default)]
enum Common<T> {
    /// Each series has it.
    #[default]
    Differs,
    /// The same in all of them, or nothing.
    Same(Option<T>),
}

impl<T> Common<T> {
    fn of(labels: &Labels<'_>, name: &str, get: impl FnOnce() -> Option<T>) -> Self {
        let stays = labels.place(name).is_none_or(|place| labels.staying(place).is_some());
        if stays { Self::Same(get()) } else { Self::Differs }
    }
}

impl Sorter {
    /// An answer of which nothing was read yet.
    #[must_use]
    pub fn new(identity: &Identity) -> Self {
        Self {
            reading: Measurement::empty(identity),
            devices: Devices::default(),
            trail: identity.take_trail(),
            turn: Turn::default(),
        }
    }

    /// Reads one series of the answer to `question`.
    ///
    /// # Errors
    /// When it was not requested.
    pub fn take(
        &mut self,
        question: &Question,
        names: Names<'_>,
        series: &Series<'_>,
    ) -> Result<(), QueryError> {
        self.reading.evaluated = series.time.or(self.reading.evaluated);
        if self.usual(question, names, series).is_some() {
            return Ok(());
        }
        let subject = names.subject(question, &series.labels)?;
        let device = series.labels.get(DEVICE).map(|device| self.devices.get(device));
        self.reading.take(&subject, series.value, device);
        Ok(())
    }

    /// Takes the number of a node that the first of its names leads to: nearly every series.
    fn usual(&mut self, question: &Question, names: Names<'_>, series: &Series<'_>) -> Option<()> {
        let labels = &series.labels;
        let number = labels.turn()?;
        if self.turn.number != Some(number) {
            self.begin_turn(number, question, names, labels);
        }
        let turn = &self.turn;
        let measure = match turn.measure {
            Common::Same(measure) => measure?,
            Common::Differs => names::measure(question, labels)?,
        };
        let name = turn.naming.iter().find_map(|place| labels.at(*place))?;
        let Resolution::Node(node) = self.trail.find(names.identity, name) else { return None };
        let device = match &turn.device {
            Common::Same(device) => device.clone(),
            Common::Differs => labels.get(DEVICE).map(|device| self.devices.get(device)),
        };
        self.reading.put(node, measure, series.value, device);
        Some(())
    }

    fn begin_turn(
        &mut self,
        number: u64,
        question: &Question,
        names: Names<'_>,
        labels: &Labels<'_>,
    ) {
        let (turn, devices) = (&mut self.turn, &mut self.devices);
        turn.number = Some(number);
        turn.naming.clear();
        turn.naming.extend(names.all().filter_map(|name| labels.place(name)));
        let device = || labels.get(DEVICE).map(|device| devices.get(device));
        turn.device = Common::of(labels, DEVICE, device);
        let measure = || names::measure(question, labels);
        turn.measure = Common::of(labels, names::measuring(question), measure);
    }

    /// The whole answer, and the warnings of the server.
    #[must_use]
    pub fn end(self, identity: &Identity, warnings: Vec<String>) -> Measurement {
        identity.keep_trail(self.trail);
        let mut reading = Measurement { warnings, ..self.reading };
        reading.settle();
        reading
    }
}

#[cfg(test)]
impl Measurement {
    /// A reading of chosen numbers.
    pub fn of(nodes: std::collections::BTreeMap<Arc<str>, NodeMeasurement>) -> Self {
        let names = nodes.keys().cloned().collect();
        Self { names, nodes: nodes.into_values().collect(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
