//! `backtest`: judges a history as the operator does.
use std::{collections::BTreeMap, fmt::Write, num::NonZeroU64, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::{
    cluster::name_of,
    evaluate,
    offers::{Offers, OffersRun},
    population::Population,
    progress::Progress,
};
use crate::{
    api::{TrafficWatch, traffic_watch::NodeState},
    nodes::Identity,
    prometheus::{
        Answer, Class, Client, Endpoints, Exporters, QueryError, decode, exporters::untrusted_nodes,
    },
    text::{
        figures::{span, value},
        table,
    },
    traffic_watch::{
        Evaluation, Transition,
        overview::{MeasureView, TransitionView},
        replay::{Grid, Inquiry, Recording, Replay, with_threshold},
    },
};

mod html;

pub use html::html;

/// The results of judging one history.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backtest {
    /// `namespace/name`.
    pub watch: String,
    /// The first judgment.
    pub from: Timestamp,
    /// The end: one step after the last judgment.
    pub to: Timestamp,
    /// Seconds between two judgments.
    pub step_seconds: f64,
    /// The measures; the thresholds vary that of the first.
    pub measures: Vec<MeasureView>,
    /// The limits of the answer.
    pub warnings: Vec<String>,
    /// The outcome of the unchanged spec.
    pub run: Run,
    /// A summary for each threshold, including that of the spec.
    pub thresholds: Vec<Summary>,
}

/// The outcome of one spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Judgments by the result of the measurement.
    pub evaluations: Evaluations,
    /// Every change of a node's state, by time.
    pub transitions: Vec<Change>,
    /// The nodes by name.
    pub nodes: Vec<NodeRun>,
    /// The time for which too many nodes were above the threshold.
    pub breaker: Breaker,
    /// Offers of nodes to pods over the time, if the spec has them offer anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offers: Option<OffersRun>,
}

/// Judgments by the result of the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evaluations {
    /// Nodes were judged.
    pub ok: u64,
    /// Too few nodes had data.
    pub low_coverage: u64,
    /// There was no usable answer.
    pub failed: u64,
}

impl Evaluations {
    fn count(&mut self, evaluation: Evaluation) {
        match evaluation {
            Evaluation::Ok => self.ok += 1,
            Evaluation::LowCoverage => self.low_coverage += 1,
            Evaluation::Failed => self.failed += 1,
        }
    }
}

/// A node entered a state.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The change.
    #[serde(flatten)]
    pub transition: TransitionView,
    /// The value of the first measure; none without evidence.
    pub value: Option<f64>,
}

/// One node over the whole time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRun {
    /// Name of the node.
    pub name: String,
    /// Seconds for which it was marked unfit, with or without evidence.
    pub unfit_seconds: f64,
    /// Seconds for which it would have been unfit without the limit.
    pub suppressed_seconds: f64,
    /// Seconds without evidence.
    pub unknown_seconds: f64,
    /// Seconds for which it was fit.
    pub fit_seconds: f64,
    /// The number of times that it became unfit.
    pub times_unfit: u32,
    /// The number of times that it became unfit again within an hour.
    pub flaps: u32,
    /// Its states in their order.
    pub spans: Vec<Span>,
}

/// One state of a node for some time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Span {
    /// State of the node during that time.
    pub state: NodeState,
    /// From this moment.
    pub from: Timestamp,
    /// Up to this one.
    pub to: Timestamp,
}

/// The time for which too many nodes were above the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Number of judgments in which the limit held a node back.
    pub judgments: u64,
    /// Seconds, summed over these nodes.
    pub node_seconds: f64,
}

/// A run in one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The threshold of the first measure.
    pub threshold: f64,
    /// True if it is the one of the spec.
    pub configured: bool,
    /// Nodes that were unfit at any time.
    pub nodes_unfit: usize,
    /// Seconds unfit, summed over the nodes.
    pub unfit_seconds: f64,
    /// Changes of state.
    pub transitions: usize,
    /// Times a node became unfit again within an hour.
    pub flaps: u32,
    /// The time for which the limit held nodes back.
    pub breaker: Breaker,
}

impl Run {
    /// Returns the run in one line.
    fn summary(&self, threshold: f64, configured: bool) -> Summary {
        Summary {
            threshold,
            configured,
            nodes_unfit: self.nodes.iter().filter(|node| node.unfit_seconds > 0.0).count(),
            unfit_seconds: self.nodes.iter().map(|node| node.unfit_seconds).sum(),
            transitions: self.transitions.len(),
            flaps: self.nodes.iter().map(|node| node.flaps).sum(),
            breaker: self.breaker,
        }
    }
}

/// Prometheus refuses to answer with more than 11,000 points of a series.
const MAX_POINTS: usize = 10_000;

/// Number of points to request before the number of series is known.
const FIRST_POINTS: usize = 100;

/// The intended size of an answer: a quarter of the largest that is read.
const AIM_BYTES: usize = 8 << 20;

/// Size of one point in an answer: `[1790000000.123,"12.34567890123456"],`.
const POINT_BYTES: usize = 40;

/// The longest history, in steps: a year at one judgment every 30 seconds.
const MAX_STEPS: i64 = 1_051_200;

/// The covered period, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first judgment.
    pub from: i64,
    /// No judgment is after this.
    pub to: i64,
    /// Time between two judgments.
    pub step: i64,
}

impl Range {
    fn steps(&self) -> anyhow::Result<usize> {
        ensure!(self.from < self.to, "--from must be before --to");
        ensure!(self.step >= 1, "--step must be at least 1ms");
        let steps = (self.to - self.from) / self.step + 1;
        ensure!(
            steps <= MAX_STEPS,
            "{steps} judgments are more than {MAX_STEPS}: choose a longer --step or a later --from"
        );
        Ok(usize::try_from(steps)?)
    }
}

/// Variations of the spec to try.
#[derive(Clone, Copy, Debug)]
pub struct Variations<'a> {
    /// Other thresholds of the first measure; empty for the usual ones.
    pub thresholds: &'a [f64],
    /// The units that a pod requests of what nodes offer.
    pub pod_request: Option<NonZeroU64>,
}

/// Judges a whole history, once for each threshold.
///
/// # Errors
/// When the history cannot be read, or the spec is wrong.
pub async fn run(
    watch: &TrafficWatch,
    endpoints: &Endpoints,
    exporters: &Exporters,
    mut population: Population,
    range: Range,
    variations: Variations<'_>,
    progress: &Progress,
) -> anyhow::Result<Backtest> {
    let inquiry = Inquiry::of(watch, exporters)?;
    let measures = inquiry.measures();
    let first = measures.first().context("the spec measures nothing")?;
    let all =
        thresholds(first.max, &first.unit, variations.thresholds).map_err(anyhow::Error::msg)?;
    #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53 ms")]
    let step_seconds = range.step as f64 / 1000.0;
    let mut runs: Vec<_> = all
        .iter()
        .map(|max| {
            let mut watch = with_threshold(watch, *max);
            // The clock of nodes without evidence goes on by an interval with each judgment.
            watch.spec.interval = Duration::from_millis(range.step.unsigned_abs()).into();
            (Replay::new(&watch, population.grows()), Recorder::new(step_seconds))
        })
        .collect();
    let source = Source {
        inquiry: &inquiry,
        measures: &measures,
        endpoints,
        node_labels: &exporters.node_labels,
    };
    let mut other_jobs = vec![];
    let mut size = Size::new(range.step);
    // VictoriaMetrics and Thanos' query frontend answer for multiples of the step, whatever the start.
    let whole = range.step.saturating_mul(i64::try_from(size.whole)?);
    let range = Range { from: range.from - range.from.rem_euclid(whole), ..range };
    let (mut done, total) = (0, range.steps()?);
    while done < total {
        progress.enter(format!("{}: {done} of {total} judgments", name_of(watch)));
        let grid = Grid {
            start: range.from + range.step * i64::try_from(done)?,
            step: range.step,
            len: size.len().min(total - done),
        };
        let (recordings, identity) = match source.fetch(grid, &mut population).await {
            Ok(fetched) => fetched,
            Err(error) if size.shrink(&error) => continue,
            Err(error) => {
                let at = Timestamp::from_millisecond(grid.start)?;
                return Err(error).with_context(|| format!("history from {at:.0}"));
            }
        };
        for recording in &recordings {
            recording.note_other_jobs(&mut other_jobs);
        }
        for place in 0..grid.len {
            let now = Timestamp::from_millisecond(grid.at(place))?;
            let end = Timestamp::from_millisecond(grid.at(place + 1))?;
            let nodes = population.select(inquiry.selector(), "", grid.at(place));
            let readings: Vec<_> = recordings
                .iter()
                .map(|recording| Ok(Arc::new(recording.at(place, &identity))))
                .collect();
            for (replay, recorder) in &mut runs {
                let step = replay.step(now, nodes.clone(), &readings)?;
                let changes = step.transitions.iter().map(|t| change(now, t, replay));
                let judged = replay.states();
                let judged = judged.map(|(node, state, marked)| Judged { node, state, marked });
                recorder.take((now, end), step.evaluation, changes, judged);
                let offers = Offers::of(replay, variations.pod_request);
                recorder.offer(offers.as_ref(), step.changed_offers);
            }
        }
        done += grid.len;
        size.fit(recordings.iter().map(Recording::len).max().unwrap_or_default());
    }
    let runs: Vec<_> = runs.into_iter().map(|(_, recorder)| recorder.finish()).collect();
    let is_configured = |max: &f64| max.total_cmp(&first.max).is_eq();
    let summaries = runs.iter().zip(&all).map(|(run, max)| run.summary(*max, is_configured(max)));
    let thresholds = summaries.collect();
    let configured = all.iter().position(is_configured).and_then(|i| runs.into_iter().nth(i));
    let end = range.from + range.step * i64::try_from(total)?;
    let mut warnings = evaluate::warnings(watch, &population);
    if !other_jobs.is_empty() {
        warnings.push(format!("for some of the time {}", untrusted_nodes(&other_jobs)));
    }
    Ok(Backtest {
        watch: name_of(watch),
        from: Timestamp::from_millisecond(range.from)?,
        to: Timestamp::from_millisecond(end)?,
        step_seconds,
        measures,
        warnings,
        run: configured.context("the spec's own threshold was not run")?,
        thresholds,
    })
}

fn change(at: Timestamp, transition: &Transition, replay: &Replay) -> Change {
    let Transition { node, from, to, reason, .. } = transition;
    let transition = TransitionView {
        at,
        node: node.to_string(),
        from: *from,
        to: *to,
        reason: reason.to_string(),
    };
    // A node without evidence has no current value, only an earlier one.
    let value = replay.value(node).filter(|_| *to != NodeState::Unknown);
    Change { transition, value }
}

/// Number of steps in one request.
struct Size {
    points: usize,
    most: usize,
    /// Number of steps between two that are on whole seconds, where a query may begin.
    whole: usize,
}

impl Size {
    /// Returns the initial size, for steps of some milliseconds.
    fn new(step: i64) -> Self {
        let in_second = usize::try_from(step.rem_euclid(1000)).unwrap_or_default();
        let whole = (1..=1000).find(|steps| steps * in_second % 1000 == 0).unwrap_or(1);
        Self { points: FIRST_POINTS, most: MAX_POINTS, whole }
    }

    fn len(&self) -> usize {
        (self.points / self.whole).max(1) * self.whole
    }

    /// Adapts to the number of series, for an answer of the intended size.
    fn fit(&mut self, series: usize) {
        self.points = (AIM_BYTES / (POINT_BYTES * series.max(1))).clamp(1, self.most);
    }

    /// Reduces the size, if that may prevent the error; returns true if so.
    fn shrink(&mut self, error: &QueryError) -> bool {
        // Too large for us, too many samples for Prometheus, or too slow.
        let may_help =
            matches!(error.class, Class::BadAnswer | Class::QueryFailed | Class::Timeout);
        if !may_help || self.points <= self.whole {
            return false;
        }
        self.points = (self.points / 4).max(1);
        self.most = self.points;
        true
    }
}

struct Source<'a> {
    inquiry: &'a Inquiry,
    measures: &'a [MeasureView],
    endpoints: &'a Endpoints,
    node_labels: &'a [String],
}

impl Source<'_> {
    async fn fetch(
        &self,
        grid: Grid,
        population: &mut Population,
    ) -> Result<(Vec<Recording>, Arc<Identity>), QueryError> {
        let mut answers = Vec::new();
        for measure in self.measures {
            let client = evaluate::client(self.endpoints, &measure.endpoint)?;
            answers.push(range(client, &measure.query, grid).await?);
        }
        if population.grows() {
            for answer in &answers {
                self.meet(answer, population)?;
            }
        }
        let identity = population.identity();
        let recordings = answers
            .iter()
            .enumerate()
            .map(|(i, answer)| self.inquiry.record(i, answer, &identity, grid));
        Ok((recordings.collect::<Result<_, _>>()?, identity))
    }

    /// Adds the nodes of an answer to the population, each from its first sample on.
    fn meet(&self, answer: &Answer, population: &mut Population) -> Result<(), QueryError> {
        decode::matrix(answer.status, &answer.content_type, &answer.body, |series| {
            if let Some((time, _)) = series.samples.first() {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "milliseconds fit; `as` saturates"
                )]
                let since = (time * 1000.0).round() as i64;
                population.meet(&series.labels, self.node_labels, since);
            }
            Ok(())
        })
        .map(drop)
    }
}

async fn range(client: &Client, promql: &str, grid: Grid) -> Result<Answer, QueryError> {
    // The start is a whole second. Samples after the end are ignored.
    let start = grid.at(0).div_euclid(1000);
    let end = grid.at(grid.len.saturating_sub(1)).saturating_add(999).div_euclid(1000);
    let step = Duration::from_millis(u64::try_from(grid.step).unwrap_or(1));
    client.query_range(promql, start, end, step, client.timeout(), |a| Ok(evaluate::owned(a))).await
}

/// Fractions of the configured threshold to try by default.
const PARTS: [f64; 5] = [0.5, 0.75, 0.9, 1.1, 1.25];

/// Returns the thresholds by size, including the configured one. No value is ever above 100
/// percent.
fn thresholds(configured: f64, unit: &str, asked: &[f64]) -> Result<Vec<f64>, String> {
    let most = if unit == "percent" { 100.0 } else { f64::INFINITY };
    if let Some(wrong) = asked.iter().find(|x| !x.is_finite() || **x <= 0.0 || **x > most) {
        let range = if most.is_finite() { " and at most 100" } else { "" };
        return Err(format!("--thresholds: {wrong} must be greater than 0{range}"));
    }
    let mut all: Vec<_> = if asked.is_empty() {
        // Rounded, to avoid values such as 59.99999999999999.
        let rounded = |x: f64| format!("{x:.6e}").parse().unwrap_or(x);
        PARTS.iter().map(|part| rounded(configured * part)).filter(|x| *x <= most).collect()
    } else {
        asked.to_vec()
    };
    all.push(configured);
    all.sort_by(f64::total_cmp);
    all.dedup();
    Ok(all)
}

/// Unfit again within this many seconds is a flap: the hour over which the dashboards count.
const FLAP_SECONDS: i64 = 3600;

/// The record of one run.
#[derive(Debug)]
struct Recorder {
    step_seconds: f64,
    run: Run,
    nodes: BTreeMap<Arc<str>, Account>,
}

#[derive(Debug, Default)]
struct Account {
    run: NodeRun,
    marked: bool,
    became_unfit: Option<Timestamp>,
}

/// The judgment of one node.
#[derive(Clone, Copy, Debug)]
struct Judged<'a> {
    /// Name of the judged node.
    pub node: &'a Arc<str>,
    /// State after the judgment.
    pub state: NodeState,
    /// True if it is marked unfit.
    pub marked: bool,
}

impl Recorder {
    /// Creates a recorder of judgments that each hold for one step.
    fn new(step_seconds: f64) -> Self {
        Self { step_seconds, run: Run::default(), nodes: BTreeMap::new() }
    }

    /// Records one judgment, which holds until `end`.
    fn take<'a>(
        &mut self,
        (now, end): (Timestamp, Timestamp),
        evaluation: Evaluation,
        changes: impl IntoIterator<Item = Change>,
        judged: impl Iterator<Item = Judged<'a>>,
    ) {
        self.run.evaluations.count(evaluation);
        self.run.transitions.extend(changes);
        let mut held = false;
        for Judged { node, state, marked } in judged {
            let account = self.nodes.entry(Arc::clone(node)).or_default();
            account.enter(now, end, state);
            account.mark(now, marked);
            // The mark keeps pods away: a node without evidence may be marked as well.
            if marked {
                account.run.unfit_seconds += self.step_seconds;
            }
            match state {
                NodeState::Unfit => {}
                NodeState::Suppressed => account.run.suppressed_seconds += self.step_seconds,
                NodeState::Unknown => account.run.unknown_seconds += self.step_seconds,
                NodeState::Fit => account.run.fit_seconds += self.step_seconds,
            }
            if state == NodeState::Suppressed {
                held = true;
                self.run.breaker.node_seconds += self.step_seconds;
            }
        }
        self.run.breaker.judgments += u64::from(held);
    }

    /// Records what nodes would offer after a judgment.
    fn offer(&mut self, offers: Option<&Offers>, changed: usize) {
        if let Some(offers) = offers {
            OffersRun::add(&mut self.run.offers, offers, changed);
        }
    }

    /// Returns the complete record.
    fn finish(self) -> Run {
        let nodes = self
            .nodes
            .into_iter()
            .map(|(name, account)| NodeRun { name: name.to_string(), ..account.run });
        Run { nodes: nodes.collect(), ..self.run }
    }
}

impl Account {
    fn enter(&mut self, now: Timestamp, end: Timestamp, state: NodeState) {
        match self.run.spans.last_mut() {
            Some(span) if span.state == state => span.to = end,
            _ => self.run.spans.push(Span { state, from: now, to: end }),
        }
    }

    fn mark(&mut self, now: Timestamp, marked: bool) {
        if marked && !self.marked {
            self.run.times_unfit += 1;
            let again = self
                .became_unfit
                .is_some_and(|last| now.as_second() - last.as_second() < FLAP_SECONDS);
            self.run.flaps += u32::from(again);
            self.became_unfit = Some(now);
        }
        self.marked = marked;
    }
}

/// The number of transitions and nodes that are printed; the JSON has them all.
const LISTED: usize = 50;

/// Prints the judged history, node by node, and with other thresholds.
#[must_use]
pub fn text(backtest: &Backtest) -> String {
    let Backtest { watch, from, to, run, .. } = backtest;
    let evaluations = &run.evaluations;
    let mut text = format!("{watch} from {from:.0} to {to:.0}\n");
    for warning in &backtest.warnings {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  warning: {warning}");
    }
    let _ = writeln!(
        text,
        "{} judgments, one every {}: {} ok, {} with low coverage, {} failed",
        evaluations.ok + evaluations.low_coverage + evaluations.failed,
        seconds(backtest.step_seconds),
        evaluations.ok,
        evaluations.low_coverage,
        evaluations.failed
    );
    for measure in &backtest.measures {
        let shown = |x| value(x, &measure.unit);
        let _ = writeln!(
            text,
            "{}: unfit above {}, fit again at or below {}",
            measure.name,
            shown(measure.max),
            shown(measure.recover)
        );
    }
    let unit = unit(backtest);
    let _ = writeln!(text, "\nTransitions: {}", run.transitions.len());
    listed(&mut text, &run.transitions, |some| {
        let rows: Vec<_> = some.iter().map(|change| transition(change, unit)).collect();
        table(["TIME", "NODE", "FROM", "TO", "REASON", "VALUE"], &rows)
    });
    let mut nodes: Vec<_> = run.nodes.iter().collect();
    nodes.sort_by(|a, b| b.unfit_seconds.total_cmp(&a.unfit_seconds));
    let _ = writeln!(text, "\nNodes: {}", nodes.len());
    listed(&mut text, &nodes, |some| {
        let rows: Vec<_> = some.iter().map(|node| row(node)).collect();
        table(["NODE", "UNFIT", "SUPPRESSED", "UNKNOWN", "TIMES UNFIT", "FLAPS"], &rows)
    });
    let _ = writeln!(
        text,
        "\nThe limit held nodes back in {} judgments, for {} of node time.",
        run.breaker.judgments,
        seconds(run.breaker.node_seconds)
    );
    if let Some(offers) = &run.offers {
        let _ = write!(text, "\n{}", offers.text());
    }
    text.push_str("\nOther thresholds:\n");
    let rows: Vec<_> = backtest.thresholds.iter().map(|s| summary(s, unit)).collect();
    let head = ["THRESHOLD", "NODES UNFIT", "TIME UNFIT", "TRANSITIONS", "FLAPS", "HELD BACK", ""];
    text.push_str(&table(head, &rows));
    text
}

/// The unit of the first measure.
fn unit(backtest: &Backtest) -> &str {
    backtest.measures.first().map(|measure| measure.unit.as_str()).unwrap_or_default()
}

fn listed<T>(text: &mut String, all: &[T], table: impl Fn(&[T]) -> String) {
    if all.is_empty() {
        return;
    }
    let some = &all[..all.len().min(LISTED)];
    text.push_str(&table(some));
    if all.len() > LISTED {
        let _ = writeln!(text, "{} more: -o json lists them", all.len() - LISTED);
    }
}

fn transition(change: &Change, unit: &str) -> [String; 6] {
    let it = &change.transition;
    [
        format!("{:.0}", it.at),
        it.node.clone(),
        it.from.as_str().into(),
        it.to.as_str().into(),
        it.reason.clone(),
        change.value.map_or("-".into(), |x| value(x, unit)),
    ]
}

fn row(node: &NodeRun) -> [String; 6] {
    [
        node.name.clone(),
        seconds(node.unfit_seconds),
        seconds(node.suppressed_seconds),
        seconds(node.unknown_seconds),
        node.times_unfit.to_string(),
        node.flaps.to_string(),
    ]
}

fn summary(s: &Summary, unit: &str) -> [String; 7] {
    [
        value(s.threshold, unit),
        s.nodes_unfit.to_string(),
        seconds(s.unfit_seconds),
        s.transitions.to_string(),
        s.flaps.to_string(),
        seconds(s.breaker.node_seconds),
        if s.configured { "as configured" } else { "" }.into(),
    ]
}

/// Formats a time that is a sum of steps.
fn seconds(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a history has far fewer seconds; `as` saturates"
    )]
    let whole = seconds.round() as i64;
    if seconds > 0.0 && whole == 0 { format!("{seconds}s") } else { span(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stay_below_the_limits_of_points_and_bytes() {
        let mut size = Size::new(30_000);
        size.fit(12);
        assert_eq!(size.points, MAX_POINTS);
        size.fit(20_000);
        assert_eq!(size.points, 10);
        let slow = QueryError::new(Class::Timeout, "slow");
        assert!(size.shrink(&slow) && size.shrink(&slow) && !size.shrink(&slow));
        size.fit(12);
        assert_eq!(size.points, 1, "what failed is not tried again");
        let mut size = Size::new(30_000);
        assert!(!size.shrink(&QueryError::new(Class::Unauthorized, "401")));
    }

    #[test]
    fn every_query_begins_on_a_whole_second() {
        for (step, whole) in [(30_000, 1), (1, 1000), (1_500, 2), (2_600, 5), (999, 1000)] {
            let mut size = Size::new(step);
            assert_eq!(size.whole, whole, "{step}");
            let slow = QueryError::new(Class::Timeout, "slow");
            for _ in 0..10 {
                assert_eq!(i64::try_from(size.len()).unwrap() * step % 1000, 0, "{step}");
                size.shrink(&slow);
            }
            size.fit(1_000_000);
            assert_eq!(size.len(), whole, "{step}");
        }
    }

    #[test]
    fn a_range_needs_a_direction_and_an_end() {
        let steps = |from, to, step| Range { from, to, step }.steps();
        assert_eq!(steps(0, 20_000, 10_000).unwrap(), 3);
        assert!(steps(5, 5, 10).is_err());
        assert!(steps(0, i64::MAX / 2, 1).unwrap_err().to_string().contains("--step"));
    }

    #[test]
    fn parts_of_the_configured_one_unless_others_are_asked_for() {
        assert_eq!(thresholds(60.0, "percent", &[]), Ok(vec![30.0, 45.0, 54.0, 60.0, 66.0, 75.0]));
        assert_eq!(thresholds(90.0, "percent", &[]), Ok(vec![45.0, 67.5, 81.0, 90.0, 99.0]));
        assert_eq!(thresholds(60.0, "percent", &[70.0, 60.0]), Ok(vec![60.0, 70.0]));
        assert_eq!(thresholds(8e8, "bits_per_second", &[1e9]), Ok(vec![8e8, 1e9]));
        assert!(thresholds(60.0, "percent", &[170.0]).unwrap_err().contains("at most 100"));
        assert!(thresholds(60.0, "", &[0.0]).is_err());
    }

    /// One node's states, ten minutes each.
    fn recorded(states: &[NodeState]) -> Run {
        let mut recorder = Recorder::new(600.0);
        let node = Arc::from("a");
        let at = |i: usize| Timestamp::from_second(600 * i64::try_from(i).unwrap()).unwrap();
        for (i, state) in states.iter().enumerate() {
            let judged = Judged { node: &node, state: *state, marked: *state == NodeState::Unfit };
            recorder.take((at(i), at(i + 1)), Evaluation::Ok, [], [judged].into_iter());
        }
        recorder.finish()
    }

    #[test]
    fn time_is_kept_by_state() {
        use NodeState::{Fit, Suppressed, Unfit, Unknown};
        let run = recorded(&[Fit, Unfit, Unfit, Suppressed, Unknown]);
        let node = &run.nodes[0];
        let times =
            [node.fit_seconds, node.unfit_seconds, node.suppressed_seconds, node.unknown_seconds];
        assert_eq!(times.map(seconds), ["10m", "20m", "10m", "10m"]);
        assert_eq!(node.spans.len(), 4);
        assert_eq!((run.breaker.judgments, seconds(run.breaker.node_seconds)), (1, "10m".into()));
        assert_eq!(run.evaluations.ok, 5);
    }

    /// All samples are stale and `onUnknown` is Unfit: the node is Unknown, and marked.
    #[test]
    fn time_unfit_is_the_time_of_the_mark() {
        let mut recorder = Recorder::new(600.0);
        let (node, at) = (Arc::from("a"), |s| Timestamp::from_second(s).unwrap());
        for (second, marked) in [(0, true), (600, true), (1200, false)] {
            let judged = Judged { node: &node, state: NodeState::Unknown, marked };
            let times = (at(second), at(second + 600));
            recorder.take(times, Evaluation::Ok, [], [judged].into_iter());
        }
        let node = &recorder.finish().nodes[0];
        assert_eq!([node.unfit_seconds, node.unknown_seconds].map(seconds), ["20m", "30m"]);
        assert_eq!(node.times_unfit, 1);
    }

    #[test]
    fn unfit_again_within_an_hour_is_a_flap() {
        use NodeState::{Fit, Unfit};
        let twice = recorded(&[Unfit, Fit, Unfit]);
        assert_eq!((twice.nodes[0].times_unfit, twice.nodes[0].flaps), (2, 1));
        // Six steps of ten minutes are the hour.
        let later = recorded(&[Unfit, Fit, Fit, Fit, Fit, Fit, Unfit]);
        assert_eq!((later.nodes[0].times_unfit, later.nodes[0].flaps), (2, 0));
        let summary = twice.summary(60.0, true);
        assert_eq!((summary.flaps, summary.nodes_unfit), (1, 1));
        assert_eq!(seconds(summary.unfit_seconds), "20m");
    }
}
