//! One answer of Prometheus, sorted by node.
use std::sync::Arc;

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

use names::unmapped;
pub use names::{Devices, Names, Subject};
#[cfg(test)]
pub use numbers::OneNode;
pub use numbers::{NodeMeasurement, Numbers, Value};

/// The label of the link that a number is about.
const DEVICE: &str = "device";

/// Maximum number of unmatched series to name, and of bytes for each.
const NAMED_UNMAPPED: (usize, usize) = (3, 100);

/// The result of one request, shared by everyone with the same request.
#[derive(Debug, Default, PartialEq)]
pub struct Measurement {
    names: Arc<[Arc<str>]>,
    /// In the order of the names.
    numbers: Numbers,
    /// Series that belong to no node: how many, and the first of them.
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
    /// Numbers of hosts, of which only the whole answer shows whether they are nodes.
    undecided: Vec<(Subject, Option<f64>, Option<Arc<str>>)>,
}

impl Measurement {
    /// The numbers of one node; all absent if nothing is about it.
    #[must_use]
    pub fn get(&self, node: &str) -> Option<NodeMeasurement<'_>> {
        let place = self.names.binary_search_by(|name| (**name).cmp(node)).ok()?;
        self.numbers.node(place)
    }

    /// The same for one node after the other, by name.
    pub fn in_turn<'a>(&'a self) -> impl FnMut(&Arc<str>) -> Option<NodeMeasurement<'a>> {
        let mut cursor = SortedCursor::default();
        move |node| self.numbers.node(cursor.find(&self.names, |name| name, node)?)
    }

    /// A reading without any number, to be filled by [`Self::take`].
    #[must_use]
    pub fn empty(identity: &Identity) -> Self {
        let names = Arc::clone(identity.names());
        let numbers = Numbers::of(names.len());
        Self { names, numbers, ..Self::default() }
    }

    /// The totals alone.
    #[must_use]
    pub fn totals(&self) -> Self {
        let names = Arc::clone(&self.names);
        Self { names, numbers: self.numbers.only(Measure::Total), ..Self::default() }
    }

    /// Takes over the totals of another answer if it is about the same nodes.
    pub fn take_totals(&mut self, other: &Self) {
        if is_equal(&self.names, &other.names) {
            self.numbers.copy(Measure::Total, &other.numbers);
        }
    }

    /// Reports whether a node is measured whose total is missing.
    #[must_use]
    pub fn lacks_totals(&self) -> bool {
        let mut nodes = (0..self.names.len()).filter_map(|place| self.numbers.node(place));
        nodes.any(|node| node.has(Measure::Age) && !node.has(Measure::Total))
    }

    /// Reports whether it is about these nodes.
    #[must_use]
    pub fn is_about(&self, nodes: &Identity) -> bool {
        is_equal(&self.names, nodes.names())
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
        if undecided.is_empty() {
            return;
        }
        let mut names = ShortNames::default();
        let has_numbers = |place: &usize| self.numbers.node(*place).is_some_and(|n| !n.is_empty());
        let exact = (0..self.names.len()).filter(has_numbers);
        exact.for_each(|place| names.meet(Resolution::Node(place)));
        for (subject, ..) in &undecided {
            if let Subject::Short(place, _, host) = subject {
                names.meet(Resolution::Short(*place, host));
            }
        }
        for (subject, value, device) in undecided {
            let Subject::Short(place, measure, host) = &subject else { continue };
            let settled = match names.settle(Resolution::Short(*place, host)) {
                Resolution::Node(place) => Subject::Node(place, *measure),
                _ => unmapped(*measure, host),
            };
            self.take(&settled, value, device);
        }
    }

    /// Stores one number.
    pub fn take(&mut self, subject: &Subject, value: Option<f64>, device: Option<Arc<str>>) {
        match subject {
            Subject::Node(place, measure) => self.put(*place, *measure, value, device),
            Subject::Scrapes => self.scrapes = value,
            Subject::OtherJob(job) => note_job(&mut self.other_jobs, job),
            Subject::Unmapped(name) => self.unmapped(name),
            Subject::Short(..) => self.undecided.push((subject.clone(), value, device)),
            // An exporter has many series, and counts once.
            Subject::Counted => {}
        }
    }

    fn put(
        &mut self,
        place: usize,
        measure: Measure,
        value: Option<f64>,
        device: Option<Arc<str>>,
    ) {
        let value = value.map_or(Value::Unusable, |value| Value::One(value, device));
        self.numbers.put(place, measure, value);
    }

    fn unmapped(&mut self, name: &str) {
        self.unmapped.0 += 1;
        if self.unmapped.1.len() < NAMED_UNMAPPED.0 {
            self.unmapped.1.push(shortened(name.to_owned(), NAMED_UNMAPPED.1));
            self.unmapped.1.sort_unstable();
        }
    }
}

/// Compares the names of nodes, which are the same list until a node comes or goes.
fn is_equal(a: &Arc<[Arc<str>]>, b: &Arc<[Arc<str>]>) -> bool {
    Arc::ptr_eq(a, b) || a == b
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
    pub fn of(nodes: std::collections::BTreeMap<Arc<str>, OneNode>) -> Self {
        let names = nodes.keys().cloned().collect();
        let mut numbers = Numbers::of(nodes.len());
        for (place, node) in nodes.into_values().enumerate() {
            for measure in Measure::ALL {
                if node.reading().has(measure) {
                    numbers.put(place, measure, node.reading().get(measure).cloned());
                }
            }
        }
        Self { names, numbers, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::Class;

    fn read(result: &serde_json::Value) -> Result<Measurement, QueryError> {
        let addresses = [Arc::from("10.0.0.1")];
        let identity = Identity::new(vec![("node-1".into(), &addresses)]);
        let body = serde_json::json!({
            "status": "success", "data": {"resultType": "vector", "result": result}
        });
        let question = Question::BuiltIn {
            devices: "eth0".into(),
            direction: crate::api::traffic_watch::Direction::Transmit,
            window: std::time::Duration::from_secs(20),
            speed: false,
        };
        let names = Names { identity: &identity, labels: &[] };
        Measurement::read(200, "application/json", body.to_string().as_bytes(), &question, names)
    }

    fn series(instance: &str, measure: &str, value: &str) -> serde_json::Value {
        serde_json::json!({
            "metric": {"instance": instance, "measure": measure, "device": "eth0"}, "value": [0, value]
        })
    }

    #[test]
    fn sorts_by_node_and_names_what_belongs_to_none() {
        let reading = read(&serde_json::json!([
            series("10.0.0.1:9100", "transmit_percent", "8"),
            series("node-1", "age", "1"),
            series("10.0.0.9:9100", "age", "1"),
            series("10.0.0.9:9100", "total", "1"),
        ]))
        .unwrap();
        let node = reading.get("node-1").unwrap();
        assert_eq!(node.get(Measure::TransmitPercent), Value::One(8.0, Some(&"eth0".into())));
        assert_eq!(node.get(Measure::TransmitBytes), Value::Absent);
        assert_eq!(reading.unmapped, (1, vec!["10.0.0.9:9100".into()]));
    }

    #[test]
    fn t07_a_machine_of_another_domain_is_not_our_node() {
        // Our exporter is down but for its age.
        let reading = read(&serde_json::json!([
            series("node-1.other.example:9100", "transmit_percent", "90"),
            series("node-1.other.example:9100", "age", "1"),
            series("10.0.0.1:9100", "age", "70"),
        ]))
        .unwrap();
        let node = reading.get("node-1").unwrap();
        assert_eq!(node.get(Measure::TransmitPercent), Value::Absent);
        assert_eq!(node.get(Measure::Age), Value::One(70.0, Some(&"eth0".into())));
        assert_eq!(reading.unmapped, (1, vec!["node-1.other.example".into()]));
        // Alone it is ours: exporters may know nodes by their full names only.
        let alone = serde_json::json!([series("node-1.our.example", "transmit_percent", "8")]);
        let reading = read(&alone).unwrap();
        let value = reading.get("node-1").unwrap().get(Measure::TransmitPercent);
        assert_eq!(value, Value::One(8.0, Some(&"eth0".into())));
    }

    #[test]
    fn two_series_for_one_number_are_none() {
        let reading = read(&serde_json::json!([
            series("10.0.0.1:9100", "transmit_percent", "8"),
            series("node-1", "transmit_percent", "9"),
        ]))
        .unwrap();
        let value = reading.get("node-1").unwrap().get(Measure::TransmitPercent);
        assert_eq!(value, Value::Unusable);
    }

    #[test]
    fn s17_names_of_a_hostile_server_are_short() {
        let long = "x".repeat(1 << 20);
        let mut named = series("node-1", "transmit_percent", "8");
        named["metric"]["device"] = long.as_str().into();
        let reading = read(&serde_json::json!([named, series(&long, "age", "1")])).unwrap();
        let Value::One(_, Some(device)) =
            reading.get("node-1").unwrap().get(Measure::TransmitPercent)
        else {
            panic!("{reading:?}")
        };
        assert!(device.len() < 100, "{}", device.len());
        assert!(reading.unmapped.1[0].len() < 110);
        let error = read(&serde_json::json!([series(&long, &long, "1")])).unwrap_err();
        assert!(error.message.len() < 1100);
    }

    #[test]
    fn s04_jobs_that_nobody_believes_are_named_and_are_about_no_node() {
        let job = |name: &str| {
            serde_json::json!({
                "metric": {"job": name, "measure": "other_job"}, "value": [0, "4"]
            })
        };
        let reading = read(&serde_json::json!([job("node"), job("a"), job("")])).unwrap();
        assert_eq!(reading.other_jobs, ["(no label job)", "a", "node"]);
        assert_eq!(reading.unmapped.0, 0);
        assert!(reading.get("node-1").is_some_and(|node| node.is_empty()));
    }

    #[test]
    fn a_series_nobody_asked_for_spoils_the_answer() {
        let error = read(&serde_json::json!([series("node-1", "other", "8")])).unwrap_err();
        assert_eq!(error.class, Class::BadAnswer);
    }
}
