//! The judgment outside of a running operator: of the present, or step by step over a history.
//!
//! The operator's own code queries, reads and plans here; this module only replaces the cluster and
//! the clock.
use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{apimachinery::pkg::api::resource::Quantity, jiff::Timestamp};

use super::{
    check_deployment,
    conflict::Claim,
    evidence::Evaluation,
    limits::Headroom,
    live,
    memory::{Memory, Transition},
    observed::Observed,
    overview::{MeasureView, NodeView},
    plan::{Edit, plan},
    reading::{Devices, Measurement, Names, Subject},
    reservation::Seen,
    settings::Settings,
};
use crate::{
    api::{TrafficWatch, traffic_watch::NodeState},
    controller::{Error, Verdict},
    nodes::{Identity, NodeFacts, Offer},
    prometheus::{Answer, Class, Exporters, QueryError, decode, exporters::note_job},
    selector::Selector,
};

/// The queries of one judgment.
#[derive(Clone, Debug)]
pub struct Inquiry {
    settings: Settings,
    exporters: Exporters,
}

/// The moments of a recording, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The first, since the Unix epoch.
    pub start: i64,
    /// Between two of them.
    pub step: i64,
    /// Number of queries.
    pub len: usize,
}

impl Grid {
    /// One moment.
    #[must_use]
    pub fn at(&self, place: usize) -> i64 {
        self.start
            .saturating_add(self.step.saturating_mul(i64::try_from(place).unwrap_or(i64::MAX)))
    }

    /// The place of a moment, if it is before the end. Servers that move what was asked for to
    /// moments of their own would be read as servers without samples.
    fn place(&self, seconds: f64) -> Result<Option<usize>, QueryError> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "milliseconds of this age fit; `as` saturates"
        )]
        let since = (seconds * 1000.0).round() as i64 - self.start;
        if since % self.step != 0 {
            let message = format!(
                "the server answers for other times than those that were asked for: {seconds} s is \
                 {} ms after one of them; a --step of whole seconds may help",
                since.rem_euclid(self.step)
            );
            return Err(QueryError::new(Class::BadAnswer, message));
        }
        Ok(usize::try_from(since / self.step).ok().filter(|place| *place < self.len))
    }
}

/// The answer to one measure over some moments.
#[derive(Debug)]
pub struct Recording {
    tracks: Vec<Track>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Track {
    subject: Subject,
    device: Option<Arc<str>>,
    values: Box<[Option<f64>]>,
}

impl Inquiry {
    /// Returns the queries of a spec.
    ///
    /// # Errors
    /// When the spec is invalid.
    pub fn of(watch: &TrafficWatch, exporters: &Exporters) -> Result<Self, Error> {
        Ok(Self { settings: Settings::of(watch)?, exporters: exporters.clone() })
    }

    /// The nodes that are judged.
    #[must_use]
    pub fn selector(&self) -> &Selector {
        &self.settings.selector
    }

    /// The measures, each with its PromQL and the endpoint of the query.
    #[must_use]
    pub fn measures(&self) -> Vec<MeasureView> {
        let criteria = self.settings.criteria.iter();
        criteria.map(|criterion| MeasureView::of(criterion, &self.exporters)).collect()
    }

    /// Sorts the answer of now to one measure, by its place among [`Self::measures`].
    ///
    /// # Errors
    /// When it cannot be judged.
    pub fn read(
        &self,
        measure: usize,
        answer: &Answer,
        identity: &Identity,
    ) -> Result<Measurement, QueryError> {
        let names = Names { identity, labels: &self.exporters.node_labels };
        let question = &self.settings.criteria[measure].request.question;
        Measurement::read(answer.status, &answer.content_type, &answer.body, question, names)
    }

    /// Sorts the answer of a time range to one measure, by its place among [`Self::measures`].
    ///
    /// # Errors
    /// When it cannot be judged.
    pub fn record(
        &self,
        measure: usize,
        answer: &Answer,
        identity: &Identity,
        grid: Grid,
    ) -> Result<Recording, QueryError> {
        let names = Names { identity, labels: &self.exporters.node_labels };
        let question = &self.settings.criteria[measure].request.question;
        let mut devices = Devices::default();
        let mut tracks = Vec::new();
        let warnings =
            decode::matrix(answer.status, &answer.content_type, &answer.body, |series| {
                let subject = names.subject(question, &series.labels)?;
                let device = series.labels.get("device").map(|device| devices.get(device));
                let mut values = vec![None; grid.len].into_boxed_slice();
                for (time, value) in &series.samples {
                    if let Some(place) = grid.place(*time)? {
                        values[place] = Some(*value);
                    }
                }
                tracks.push(Track { subject, device, values });
                Ok(())
            })?;
        Ok(Recording { tracks, warnings })
    }
}

impl Recording {
    /// The answer as it was in one of the moments.
    #[must_use]
    pub fn at(&self, place: usize, identity: &Identity) -> Measurement {
        let mut reading = Measurement::empty(identity);
        reading.warnings.clone_from(&self.warnings);
        for track in &self.tracks {
            if let Some(value) = track.values.get(place).copied().flatten() {
                reading.take(&track.subject, Some(value), track.device.clone());
            }
        }
        reading.settle();
        reading
    }

    /// Adds the jobs that had the series while none of them was trusted.
    pub fn note_other_jobs(&self, jobs: &mut Vec<String>) {
        for track in &self.tracks {
            if let Subject::OtherJob(job) = &track.subject {
                note_job(jobs, job);
            }
        }
    }

    /// Returns the number of series.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.tracks.len()
    }
}

/// An extended resource, and the amount that each node would offer of it.
pub type Offers<'a> = (Arc<str>, Vec<(&'a str, u64)>);

/// One `TrafficWatch`, judged again and again.
#[derive(Debug)]
pub struct Replay {
    watch: TrafficWatch,
    memory: Arc<Memory>,
    /// The labels as the operator would have written them; `None` is one it removed.
    labels: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Offers of nodes, as the operator would have written them.
    offers: BTreeMap<Arc<str>, Offer>,
    tick: u64,
}

/// Returns the same object with another threshold for its first measure.
#[must_use]
pub fn with_threshold(watch: &TrafficWatch, max: f64) -> TrafficWatch {
    let mut watch = watch.clone();
    let spec = &mut watch.spec;
    if spec.max_bandwidth_percent.is_some() {
        spec.max_bandwidth_percent = Some(max.to_string());
    } else if spec.max_bandwidth.is_some() {
        spec.max_bandwidth = Some(Quantity(max.to_string()));
    } else if let Some(first) = spec.criteria.first_mut() {
        first.max = Quantity(max.to_string());
    }
    watch
}

/// The result of one judgment.
#[derive(Debug)]
pub struct Step {
    /// The result of the measurement.
    pub evaluation: Evaluation,
    /// The conditions that the pass would set.
    pub conditions: Vec<Verdict>,
    /// The nodes that entered another state.
    pub transitions: Vec<Transition>,
    /// Number of nodes with a changed offer.
    pub changed_offers: usize,
}

impl Replay {
    /// Begins with an object that no judgment was made for yet, and not paused. Its Deployment
    /// determines where its pods can go, unless only the names of the nodes are known.
    #[must_use]
    pub fn new(watch: &TrafficWatch, names_only: bool) -> Self {
        let mut watch = watch.clone();
        watch.spec.paused = false;
        if names_only || check_deployment(&watch).is_err() {
            watch.spec.deployment = None;
        }
        watch.status = None;
        let (labels, offers) = (BTreeMap::new(), BTreeMap::new());
        Self { watch, memory: Arc::default(), labels, offers, tick: 0 }
    }

    /// Judges once. The label of a node stays until a judgment here changes it.
    ///
    /// # Errors
    /// When the spec is invalid.
    pub fn step(
        &mut self,
        now: Timestamp,
        mut nodes: Vec<NodeFacts>,
        readings: &[Result<Arc<Measurement>, QueryError>],
    ) -> Result<Step, Error> {
        for node in &mut nodes {
            if let Some(label) = self.labels.get(&node.name) {
                node.label.clone_from(label);
            }
        }
        self.tick += 1;
        // Without a cluster the answers name the nodes: where a query fails, there may be none.
        let asked = !nodes.is_empty() || readings.iter().any(Result::is_err);
        let observed = Observed {
            now,
            tick: self.tick,
            nodes: nodes.into(),
            strays: vec![],
            readings: asked.then(|| readings.to_vec()),
            memory: Arc::clone(&self.memory),
            claim: Claim::Ours,
            // The ceiling over all objects is the running operator's.
            headroom: Headroom::UNLIMITED,
            insecure: false,
            deployment: None,
            pods: Ok(vec![]),
            reservation: Seen {
                offers: self.offers.iter().map(|(node, o)| (Arc::clone(node), *o)).collect(),
                // The requests of pods were not recorded.
                requested: Some(BTreeMap::new()),
                ..Seen::default()
            },
        };
        let plan = plan(&self.watch, &observed)?;
        for write in plan.desired.nodes {
            match write.label {
                Edit::Set(unfit) => {
                    let value = if unfit { "true" } else { "false" };
                    self.labels.insert(write.node, Some(value.into()));
                }
                Edit::Remove => drop(self.labels.insert(write.node, None)),
                Edit::Keep => {}
            }
        }
        let mut changed_offers = 0;
        let figures = plan.desired.memory.as_ref().and_then(|memory| memory.reservation.as_ref());
        for (node, figures) in figures.iter().flat_map(|memory| memory.iter()) {
            // A decision is written in the next pass at the latest.
            let offer = figures.amount.map(Offer::of);
            if let Some(offer) = offer.filter(|offer| self.offers.get(node) != Some(offer)) {
                self.offers.insert(Arc::clone(node), offer);
                changed_offers += 1;
            }
        }
        self.memory = plan.desired.memory.map(Arc::new).unwrap_or_default();
        self.watch.status = Some(plan.status);
        Ok(Step {
            // Each step is a separate tick: the measurement is always counted.
            evaluation: plan.desired.evaluation.unwrap_or(Evaluation::Failed),
            conditions: plan.conditions,
            transitions: plan.desired.transitions,
            changed_offers,
        })
    }

    /// The extended resource that nodes would offer, and the amount of each; none if the spec
    /// offers nothing.
    #[must_use]
    pub fn offers(&self) -> Option<Offers<'_>> {
        let memory = self.memory.reservation.as_ref()?;
        let amounts = memory.iter();
        let offers = amounts.filter_map(|(node, figures)| Some((&**node, figures.amount?)));
        Some((Arc::clone(&memory.resource), offers.collect()))
    }

    /// The state of every node, and whether it is marked unfit: one without evidence keeps its
    /// mark.
    pub fn states(&self) -> impl Iterator<Item = (&Arc<str>, NodeState, bool)> {
        let nodes = self.memory.nodes.iter();
        nodes.map(|(name, node)| (name, node.state, node.marked == Some(true)))
    }

    /// The last value of a node's first measure.
    #[must_use]
    pub fn value(&self, node: &str) -> Option<f64> {
        let first = self.memory.nodes.get(node)?.sides().next()?;
        first.last.as_ref().map(|last| last.value)
    }

    /// Returns the number of nodes that may be unfit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.memory.limit
    }

    /// Returns the number of nodes that can take the pods.
    #[must_use]
    pub fn room(&self) -> usize {
        self.memory.room
    }

    /// Every node with all known facts.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        let (memory, consecutive) = (&self.memory, self.watch.spec.consecutive);
        let view = |(name, node)| live::node_view(name, node, &memory.criteria, consecutive);
        let mut nodes: Vec<NodeView> = memory.nodes.iter().map(view).collect();
        for node in &mut nodes {
            node.reservation = live::reservation_view(memory, &node.name);
        }
        nodes
    }
}

#[cfg(test)]
mod tests;
