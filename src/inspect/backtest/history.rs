//! Reads history piece by piece, and judges step by step.
use std::{num::NonZeroU64, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::jiff::Timestamp;

use super::{
    Backtest, Change,
    record::{Judged, Recorder},
    thresholds,
};
use crate::{
    api::{TrafficWatch, traffic_watch::NodeState},
    inspect::{
        cluster::name_of, evaluate, offers::Offers, population::Population, progress::Progress,
    },
    nodes::Identity,
    prometheus::{
        Answer, Class, Client, Endpoints, Exporters, QueryError, decode, exporters::untrusted_nodes,
    },
    traffic_watch::{
        Transition,
        overview::{MeasureView, TransitionView},
        replay::{Grid, Inquiry, Recording, Replay, with_threshold},
    },
};

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
}
