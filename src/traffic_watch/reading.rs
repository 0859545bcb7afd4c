//! One answer of Prometheus, sorted by node: what each series is about, the numbers of each node, and
//! why there may be none.
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::query::{MEASURE, Measure, OWN_AGE, Question, SCRAPES};
use crate::{
    nodes::{Identity, Resolution, ShortNames, SortedCursor, Trail},
    prometheus::{
        Class, QueryError,
        decode::{self, Labels, Series},
        exporters::{job_of, note_job},
        shortened,
    },
};

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
            Common::Differs => measure(question, labels)?,
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
        let measure = || measure(question, labels);
        turn.measure = Common::of(labels, measuring(question), measure);
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

/// The longest name of a device that is kept, in bytes: the kernel's have 15, labels of an author's
/// query may be anything. It appears in status and metrics.
const LONGEST_DEVICE: usize = 64;

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
            let new: Arc<str> = shortened(device.to_owned(), LONGEST_DEVICE).into();
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
fn measuring(question: &Question) -> &'static str {
    match question {
        Question::Own(_) => OWN_AGE.0,
        Question::BuiltIn { .. } => MEASURE,
    }
}

/// Returns the measure of a series of a node; `None` if the series belongs to no node, or was not
/// queried.
fn measure(question: &Question, labels: &Labels<'_>) -> Option<Measure> {
    match question {
        Question::Own(_) if labels.get(OWN_AGE.0) == Some(OWN_AGE.1) => Some(Measure::OwnAge),
        Question::Own(_) => Some(Measure::Own),
        Question::BuiltIn { .. } => labels.get(MEASURE).and_then(Measure::from_name),
    }
}

impl<'a> Names<'a> {
    /// The labels that may name a node, in their order.
    fn all(&self) -> impl Iterator<Item = &'a str> + use<'a> {
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

/// Maximum number of links of a node: more than a node has pods. It bounds the work for an answer
/// that names others.
const LINKS: usize = 1024;

/// The numbers of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMeasurement {
    links: Vec<Link>,
    own: Value,
    /// True if there are more than [`LINKS`].
    too_many: bool,
}

/// The numbers of one link; those of the node itself belong to a link without a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub device: Option<Arc<str>>,
    /// By [`Measure::index`], as the two sets say.
    numbers: [f64; Measure::ALL.len()],
    /// The measures that have a number, usable or not.
    present: u16,
    /// The measures with two numbers, or with one that proves nothing.
    unusable: u16,
}

/// The number of a node, of a query of the author's.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// There was none.
    #[default]
    Absent,
    /// This one, and the device that the series names.
    One(f64, Option<Arc<str>>),
    /// Two series claim the place, or the value is not a number.
    Unusable,
}

impl Link {
    fn of(device: Option<Arc<str>>) -> Self {
        Self { device, numbers: [0.0; _], present: 0, unusable: 0 }
    }

    fn put(&mut self, measure: Measure, number: Option<f64>) {
        let bit = 1 << measure.index();
        // One target that answers is enough.
        if measure == Measure::Up && self.has(measure) {
            self.numbers[measure.index()] =
                self.numbers[measure.index()].max(number.unwrap_or_default());
            return;
        }
        // An age is that of a clock, which may be ahead.
        let signed = matches!(measure, Measure::Age | Measure::AgeBefore | Measure::OwnAge);
        let usable = number.filter(|number| number.is_finite() && (signed || *number >= 0.0));
        if self.present & bit != 0 || usable.is_none() {
            self.unusable |= bit;
        }
        self.present |= bit;
        self.numbers[measure.index()] = usable.unwrap_or_default();
    }

    /// Reports whether there is a number, usable or not.
    #[must_use]
    pub fn has(&self, measure: Measure) -> bool {
        self.present & (1 << measure.index()) != 0
    }

    /// Returns a number; none if there is none.
    ///
    /// # Errors
    /// When it proves nothing: two series claim its place, or it is no number.
    pub fn number(&self, measure: Measure) -> Result<Option<f64>, NoEvidence> {
        if self.unusable & (1 << measure.index()) != 0 {
            return Err(NoEvidence::InvalidSample);
        }
        Ok(self.has(measure).then(|| self.numbers[measure.index()]))
    }
}

impl NodeMeasurement {
    /// Stores a number; a second one makes it unusable.
    pub fn put(&mut self, measure: Measure, number: Option<f64>, device: Option<Arc<str>>) {
        if measure == Measure::Own {
            self.own = match (number, &self.own) {
                (Some(number), Value::Absent) => Value::One(number, device),
                _ => Value::Unusable,
            };
            return;
        }
        if let Some(link) = self.links.iter_mut().find(|link| link.device == device) {
            link.put(measure, number);
        } else if self.links.len() < LINKS {
            // Nearly every node has one or two.
            self.links.reserve_exact(1 + self.links.len() / 2);
            self.links.push(Link::of(device));
            self.put(measure, number, self.links[self.links.len() - 1].device.clone());
        } else {
            self.too_many = true;
        }
    }

    /// Returns its links.
    ///
    /// # Errors
    /// When there are too many of them.
    pub fn links(&self) -> Result<&[Link], NoEvidence> {
        if self.too_many { Err(NoEvidence::InvalidSample) } else { Ok(&self.links) }
    }

    /// Returns the result of a query of the author's.
    #[must_use]
    pub fn own(&self) -> &Value {
        &self.own
    }

    /// Reports whether any link has a number, usable or not.
    #[must_use]
    pub fn has(&self, measure: Measure) -> bool {
        match measure {
            Measure::Own => self.own != Value::Absent,
            measure => self.links.iter().any(|link| link.has(measure)),
        }
    }

    /// Reports whether there is none at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.own == Value::Absent
    }
}

/// Why there is no evidence about a node. The words appear in status and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoEvidence {
    /// The request failed.
    MetricsUnavailable,
    /// Fewer than half of the nodes have data: the measurement is broken, not the nodes.
    LowCoverage,
    /// Nothing in the answer is about this node.
    NoSample,
    /// Its exporter does not answer: `up` is 0.
    ExporterDown,
    /// Its exporter answers, and no device matches.
    NoDevice,
    /// No link speed is known, or that of a link that may be the fullest is not, and no capacity is
    /// configured.
    SpeedUnknown,
    /// The capacity annotation is no quantity, or the node carries a multiple of its capacity.
    InvalidCapacity,
    /// `NaN`, infinite, negative, or two values.
    InvalidSample,
    /// Older than `maxSampleAge`.
    StaleSample,
    /// The samples cover the window only partly, or the answer is partial: there is at least as much
    /// load as it shows, and perhaps more than the threshold.
    PartialWindow,
}

impl NoEvidence {
    /// Reports whether there is no sample at all.
    #[must_use]
    pub fn is_absence(self) -> bool {
        matches!(self, Self::NoSample | Self::ExporterDown | Self::NoDevice)
    }

    /// The reason in status and metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::MetricsUnavailable => "MetricsUnavailable",
            Self::LowCoverage => "LowCoverage",
            Self::NoSample => "NoSample",
            Self::ExporterDown => "ExporterDown",
            Self::NoDevice => "NoDevice",
            Self::SpeedUnknown => "SpeedUnknown",
            Self::InvalidCapacity => "InvalidCapacity",
            Self::InvalidSample => "InvalidSample",
            Self::StaleSample => "StaleSample",
            Self::PartialWindow => "PartialWindow",
        }
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
impl NodeMeasurement {
    /// The same with these numbers of a link.
    pub fn with(mut self, device: &str, numbers: &[(Measure, f64)]) -> Self {
        for (measure, number) in numbers {
            self.put(*measure, Some(*number), (!device.is_empty()).then(|| device.into()));
        }
        self
    }

    /// The same with a link that sent this many bytes per second throughout a window of two minutes,
    /// by a sample of this age.
    pub fn sending(self, device: &str, bytes: f64, age: f64) -> Self {
        use Measure::{Age, AgeBefore, TransmitRate, TransmitTotal, TransmitTotalBefore};
        let rate = [(TransmitRate, bytes), (TransmitTotal, 7.0), (TransmitTotalBefore, 7.0)];
        self.with(device, &rate).with(device, &[(Age, age), (AgeBefore, 120.0)])
    }
}

#[cfg(test)]
mod tests;
