//! The weights of streams: from Prometheus, or from the list.
use std::{collections::BTreeMap, sync::Arc, time::Instant};

use super::{limits, settings::Weights};
use crate::{
    api::swarm::Stream,
    prometheus::{Class, QueryError, decode},
};

/// The label that names the stream.
const STREAM: &str = "stream";

/// The largest accepted weight: even with the maximum number of streams, the sum is still a number.
const LARGEST: f64 = 1e300;

/// The scale of the numbers that are placed by: the heaviest stream has this weight.
const HEAVIEST: f64 = 1e6;

/// One answer of Prometheus.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// From 0 to 1e300, one for each stream.
    pub weights: BTreeMap<Arc<str>, f64>,
    /// Number of elements that do not count: without a name, twice, NaN, infinite,
    /// negative, above 1e300.
    pub rejected: usize,
}

impl Measured {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is not a vector, or may be partial.
    pub fn read(status: u16, content_type: &str, body: &[u8]) -> Result<Self, QueryError> {
        let mut seen: BTreeMap<Arc<str>, Option<f64>> = BTreeMap::new();
        let mut rejected = 0;
        let warnings = decode::vector(status, content_type, body, |element| {
            let value = element.value.filter(|value| (0.0..=LARGEST).contains(value));
            match (element.labels.get(STREAM), value) {
                (Some(stream), Some(value))
                    // Any other name in an answer is not a stream.
                    if limits::name("", stream).is_ok()
                        && (seen.len() < limits::STREAMS || seen.contains_key(stream)) =>
                {
                    let twice = seen.contains_key(stream);
                    rejected += usize::from(twice);
                    seen.insert(stream.into(), (!twice).then_some(value));
                }
                _ => rejected += 1,
            }
            Ok(())
        })?;
        // A sum over half of the series would be a small weight, and streams would move by it.
        decode::whole(&warnings)?;
        let weights = seen.into_iter().filter_map(|(stream, value)| Some((stream, value?)));
        let weights: BTreeMap<_, _> = weights.collect();
        if weights.is_empty() && rejected > 0 {
            let message = format!(
                "no element names a stream by the label {STREAM:?} and has a value from 0 to {LARGEST:e}"
            );
            return Err(QueryError::new(Class::BadAnswer, message));
        }
        Ok(Self { weights, rejected })
    }
}

/// Merges the old and the new weights: a stream without a new value keeps its last one; one that is
/// no longer a stream is dropped.
#[must_use]
pub fn remember(
    known: &BTreeMap<Arc<str>, f64>,
    measured: &Measured,
    streams: &[Stream],
) -> BTreeMap<Arc<str>, f64> {
    let each = streams.iter().filter_map(|stream| {
        let (name, value) = measured
            .weights
            .get_key_value(&*stream.id)
            .or_else(|| known.get_key_value(&*stream.id))?;
        Some((Arc::clone(name), *value))
    });
    each.collect()
}

/// The weight of each stream, in the unit of its source: measured ones with the mean for those that
/// were never measured; those of the list if nothing was.
#[must_use]
pub fn of(streams: &[Stream], measured: &BTreeMap<Arc<str>, f64>) -> Vec<f64> {
    if measured.is_empty() {
        return streams.iter().map(|stream| f64::from(stream.weight)).collect();
    }
    #[expect(clippy::cast_precision_loss, reason = "streams are fewer than 2^52")]
    let mean = measured.values().sum::<f64>() / measured.len() as f64;
    streams.iter().map(|stream| measured.get(&*stream.id).copied().unwrap_or(mean)).collect()
}

/// Returns integer weights for the placement, none of them 0.
#[must_use]
pub fn scaled(weights: &[f64]) -> Vec<u64> {
    let heaviest = weights.iter().copied().fold(0.0, f64::max);
    let scale = |weight: &f64| {
        if heaviest <= 0.0 {
            return 1;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to HEAVIEST"
        )]
        let scaled = (weight / heaviest * HEAVIEST).round() as u64;
        scaled.max(1)
    };
    weights.iter().map(scale).collect()
}

/// The load of one worker.
#[derive(Clone, Copy, Default)]
struct Load {
    weight: f64,
    /// The part of it that is pinned.
    pinned: f64,
    streams: usize,
    /// Number of streams that may go elsewhere.
    movable: usize,
}

/// Returns the weight of each worker between which streams can move for balance, and its number of
/// streams. `takes` says of each worker whether it takes streams at all.
///
/// A worker with a dedicated stream takes no other, so it is none of them; nor is one that carries
/// more than the mean by its pinned streams alone, of which none can leave.
#[must_use]
pub fn loads(
    streams: &[Stream],
    weights: &[f64],
    places: &[Option<usize>],
    takes: &[bool],
) -> (Vec<f64>, Vec<usize>) {
    let mut each: Vec<_> = takes.iter().map(|takes| takes.then(Load::default)).collect();
    for ((stream, weight), place) in streams.iter().zip(weights).zip(places) {
        let Some(worker) = place.and_then(|place| each.get_mut(place)) else { continue };
        if stream.dedicated {
            *worker = None;
        }
        let Some(load) = worker else { continue };
        load.weight += weight;
        load.streams += 1;
        if stream.pin.is_some() {
            load.pinned += weight;
        } else {
            load.movable += 1;
        }
    }
    let mut all: Vec<Load> = each.into_iter().flatten().collect();
    loop {
        let before = all.len();
        let mean = mean(all.iter().map(|load| load.weight), before);
        all.retain(|load| load.movable > 0 || load.pinned <= mean);
        if all.len() == before {
            return all.iter().map(|load| (load.weight, load.streams)).unzip();
        }
    }
}

fn mean(all: impl Iterator<Item = f64>, count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "workers are fewer than 2^52")]
    let count = count.max(1) as f64;
    all.sum::<f64>() / count
}

/// Returns the weight of the heaviest worker as a multiple of the mean; 1 if all weights are 0.
#[must_use]
pub fn ratio(loads: &[f64]) -> f64 {
    let mean = mean(loads.iter().copied(), loads.len());
    let heaviest = loads.iter().copied().fold(0.0, f64::max);
    if mean > 0.0 { heaviest / mean } else { 1.0 }
}

/// Returns whether streams must move for balance, and since when the heaviest worker carries too
/// much.
///
/// A worker without streams is put to use at once: it was added to be.
#[must_use]
pub fn rebalances(
    rules: &Weights,
    loads: &[f64],
    counts: &[usize],
    heavy: Option<Instant>,
    now: Instant,
) -> (bool, Option<Instant>) {
    let idle = counts.contains(&0) && counts.iter().any(|count| *count > 1);
    if ratio(loads) <= rules.rebalance_above {
        return (idle, None);
    }
    let since = heavy.unwrap_or(now);
    (idle || now.saturating_duration_since(since) >= rules.for_, Some(since))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stream(id: &str, weight: u32) -> Stream {
        Stream { id: id.into(), weight, pin: None, dedicated: false }
    }

    fn answer(result: &str) -> Result<Measured, QueryError> {
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#
        );
        Measured::read(200, "application/json", body.as_bytes())
    }

    fn element(labels: &str, value: &str) -> String {
        format!(r#"{{"metric":{{{labels}}},"value":[1,"{value}"]}}"#)
    }

    #[test]
    fn only_evidence_is_a_weight() {
        let all = [
            element(r#""stream":"a""#, "5"),
            element(r#""stream":"b""#, "NaN"),
            element(r#""stream":"c""#, "-1"),
            element(r#""stream":"d""#, "+Inf"),
            element(r#""x":"e""#, "3"),
            element(r#""stream":"f""#, "1"),
            element(r#""stream":"f""#, "2"),
            element(r#""stream":"g""#, "0"),
        ];
        let measured = answer(&all.join(",")).unwrap();
        let weights: Vec<_> = measured.weights.iter().map(|(k, v)| (&**k, *v)).collect();
        assert_eq!(weights, [("a", 5.0), ("g", 0.0)]);
        assert_eq!(measured.rejected, 5);
        assert_eq!(answer("").unwrap(), Measured::default());
        let error = answer(&element(r#""x":"e""#, "3")).unwrap_err().to_string();
        assert!(error.contains("label \"stream\""), "{error}");
    }

    /// A weight that is there may lack half of what it sums up.
    #[test]
    fn weights_of_a_partial_answer_are_none() {
        let one = element(r#""stream":"a""#, "5");
        for sign in [r#""warnings":["store-2 did not answer"]"#, r#""isPartial":true"#] {
            let body = format!(
                r#"{{"status":"success",{sign},"data":{{"resultType":"vector","result":[{one}]}}}}"#
            );
            let error = Measured::read(200, "application/json", body.as_bytes()).unwrap_err();
            assert_eq!(error.class, Class::BadAnswer);
            assert!(error.to_string().contains("warns of its own answer"), "{error}");
        }
        // Notes that say nothing about completeness are no warnings.
        let body = format!(
            r#"{{"status":"success","infos":["x"],"data":{{"resultType":"vector","result":[{one}]}}}}"#
        );
        let measured = Measured::read(200, "application/json", body.as_bytes()).unwrap();
        assert_eq!(measured.weights.len(), 1);
    }

    #[test]
    fn more_names_than_streams_can_be_are_not_kept() {
        let all: Vec<_> = (0..limits::STREAMS + 10)
            .map(|i| element(&format!(r#""stream":"{i}""#), "1"))
            .collect();
        let measured = answer(&all.join(",")).unwrap();
        assert_eq!((measured.weights.len(), measured.rejected), (limits::STREAMS, 10));
        let long = format!(r#""stream":"{}""#, "x".repeat(300));
        let measured = answer(&[element(&long, "1"), all[0].clone()].join(",")).unwrap();
        assert_eq!((measured.weights.len(), measured.rejected), (1, 1));
    }

    /// Their sum would be no number, and autoscale would ask for as many workers as it may.
    #[test]
    fn weights_whose_sum_is_no_number_are_no_evidence() {
        let both = |value: &str| {
            let ids = ["a", "b"].map(|id| element(&format!(r#""stream":"{id}""#), value));
            answer(&ids.join(","))
        };
        let error = both("1.7e308").unwrap_err().to_string();
        assert!(error.contains("a value from 0 to 1e300"), "{error}");
        let streams = [stream("a", 1), stream("b", 1), stream("c", 1)];
        let known = remember(&BTreeMap::new(), &both("1e300").unwrap(), &streams);
        assert!((of(&streams, &known).iter().sum::<f64>() / 1e300 - 3.0).abs() < 1e-9);
        let most = vec![LARGEST; limits::STREAMS];
        assert!(most.iter().sum::<f64>().is_finite());
    }

    #[test]
    fn the_length_of_a_stream_is_counted_in_characters() {
        let measured = answer(&element(&format!(r#""stream":"{}""#, "é".repeat(253)), "1"));
        assert_eq!(measured.unwrap().rejected, 0);
    }

    /// Rule 1: absence is never a verdict.
    #[test]
    fn missing_data_keeps_the_old_weight() {
        let streams = [stream("a", 1), stream("b", 1), stream("c", 1)];
        let first = answer(&element(r#""stream":"a""#, "5")).unwrap();
        let known = remember(&BTreeMap::new(), &first, &streams);
        let second = answer(&element(r#""stream":"b""#, "1")).unwrap();
        let known = remember(&known, &second, &streams);
        assert_eq!(of(&streams, &known), [5.0, 1.0, 3.0]);
        let known = remember(&known, &Measured::default(), &streams);
        assert_eq!(of(&streams, &known), [5.0, 1.0, 3.0]);
        // Without any, the list's own.
        assert_eq!(of(&[stream("a", 7)], &BTreeMap::new()), [7.0]);
    }

    #[test]
    fn whole_numbers_keep_the_proportions() {
        assert_eq!(scaled(&[1.0, 2.0, 4.0]), [250_000, 500_000, 1_000_000]);
        assert_eq!(scaled(&[0.0, 1e9]), [1, 1_000_000]);
        assert_eq!(scaled(&[0.0, 0.0]), [1, 1]);
        assert_eq!(scaled(&[3.0, 3.0]), [1_000_000, 1_000_000]);
    }

    #[test]
    fn only_workers_between_which_streams_move_have_a_load() {
        let plain = |id: &str| stream(id, 1);
        let dedicated = Stream { dedicated: true, ..stream("d", 1) };
        let pinned = |id: &str, to: &str| Stream { pin: Some(to.into()), ..stream(id, 1) };
        let of = |streams: &[Stream], weights: &[f64], places: &[usize], takes: &[bool]| {
            let places: Vec<_> = places.iter().copied().map(Some).collect();
            loads(streams, weights, &places, takes)
        };
        let two = [plain("a"), plain("b")];
        let all = [true; 3];
        assert_eq!(of(&two, &[2.0, 3.0], &[0, 1], &all), (vec![2.0, 3.0, 0.0], vec![1, 1, 0]));
        let drained = [true, true, false];
        assert_eq!(of(&two, &[2.0, 3.0], &[0, 1], &drained), (vec![2.0, 3.0], vec![1, 1]));
        // Whatever else is there still.
        let three = [plain("a"), dedicated, plain("b"), plain("c")];
        let loads = of(&three, &[2.0, 90.0, 1.0, 4.0], &[0, 1, 1, 2], &all);
        assert_eq!(loads, (vec![2.0, 4.0], vec![1, 1]));
        // A pinned stream counts on its worker, unless it is more than the part of one by itself.
        let four = [pinned("p", "w-0"), plain("a"), plain("b")];
        assert_eq!(of(&four, &[3.0, 2.0, 4.0], &[0, 1, 2], &all).0, [3.0, 2.0, 4.0]);
        assert_eq!(of(&four, &[9.0, 2.0, 4.0], &[0, 1, 2], &all).0, [2.0, 4.0]);
        let shared = of(&four, &[9.0, 2.0, 4.0], &[0, 0, 2], &all).0;
        assert_eq!(shared, [11.0, 0.0, 4.0], "the other can leave");
        assert_eq!(of(&[], &[], &[], &[false; 3]), (vec![], vec![]));
    }

    #[test]
    fn balance_waits_for_the_threshold_and_its_time() {
        let rules = Weights {
            interval: Duration::from_secs(30),
            rebalance_above: 1.3,
            for_: Duration::from_mins(10),
        };
        let start = Instant::now();
        let at = |minutes| start + Duration::from_mins(minutes);
        let counts = [3, 3];
        assert_eq!(rebalances(&rules, &[10.0, 10.0], &counts, None, start), (false, None));
        // 1.29 times the mean is not above.
        let (moves, heavy) = rebalances(&rules, &[18.0, 10.0], &counts, Some(start), at(20));
        assert_eq!((moves, heavy), (false, None));
        let (moves, heavy) = rebalances(&rules, &[20.0, 10.0], &counts, None, start);
        assert_eq!((moves, heavy), (false, Some(start)));
        let loads = [20.0, 10.0];
        assert!(!rebalances(&rules, &loads, &counts, heavy, at(9)).0);
        assert!(rebalances(&rules, &loads, &counts, heavy, at(10)).0);
        // A worker that was added is put to use at once.
        assert!(rebalances(&rules, &[10.0, 10.0, 0.0], &[3, 3, 0], None, start).0);
        assert!(!rebalances(&rules, &[10.0, 0.0], &[1, 0], None, start).0, "nothing to share");
    }
}
