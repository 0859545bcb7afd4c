//! Converts the numbers of a node into evidence, or the reason why there is none.
use std::{fmt, sync::Arc, time::Duration};

use super::{
    query::{Counter, Measure, counters},
    reading::{Link, NoEvidence, NodeMeasurement, Value},
};
use crate::api::traffic_watch::Direction;

/// The multiple of its speed that no link carries: virtual cards carry several times what they
/// report.
const IMPOSSIBLE: f64 = 10.0;

/// The speed that a link of unknown speed is taken to have when its traffic is weighed, in bits per
/// second: 100 Mbit/s, the slowest that network cards and management ports of servers still have.
/// Traffic below the threshold on such a link is below it on any faster link.
const SLOWEST_LINK: f64 = 100e6;

/// The evidence of a measurement about one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The value that is compared with the threshold, in the measure's unit.
    pub value: f64,
    /// Percent of capacity in use, if that is known.
    pub percent: Maybe,
    /// The busiest link, if the link speeds are known.
    pub device: Option<Arc<str>>,
    /// Bytes sent since the counters began.
    pub total: Maybe,
    /// Seconds since the sample; of queries of the author's known only of selectors.
    pub age: Maybe,
    /// Bits per second over all links, of the busier direction; unknown where the value cannot be
    /// converted, and where it is only known to be on one side of the threshold.
    pub bits: Maybe,
    /// Bits per second that the node can carry, if that is known: as configured, or of its fastest
    /// link where the speed was queried.
    pub capacity: Maybe,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evaluation {
    /// Nodes were judged.
    Ok,
    /// Too few nodes had data.
    LowCoverage,
    /// The request failed.
    Failed,
}

impl Evaluation {
    /// The metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LowCoverage => "low_coverage",
            Self::Failed => "failed",
        }
    }
}

/// The unit of a measure's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent of link capacity.
    Percent,
    /// Bits per second, from `maxBandwidth`.
    BitsPerSecond,
    /// The author knows.
    Own,
}

impl Unit {
    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Percent => "percent",
            Self::BitsPerSecond => "bits_per_second",
            Self::Own => "",
        }
    }
}

/// The rules of evidence for one measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The unit of its threshold.
    pub unit: Unit,
    /// The direction of the built-in measurement; `None` for a custom query.
    pub direction: Option<Direction>,
    /// The time over which the built-in measurement measures.
    pub window: Duration,
    /// The oldest sample that counts, where its age is known.
    pub max_age: Duration,
    /// The thresholds, in the unit: above the first a node is unfit, at or below the second fit
    /// whichever it was.
    pub thresholds: (f64, f64),
}

impl Rules {
    /// Derives the evidence from the numbers of one node. `capacity` is in bits per second; an
    /// error is one that was configured but cannot be read. A `partial` answer may lack some of the
    /// load.
    ///
    /// # Errors
    /// Why they prove nothing.
    pub fn evidence(
        &self,
        reading: Option<&NodeMeasurement>,
        capacity: Result<Option<f64>, ()>,
        partial: bool,
    ) -> Result<Evidence, NoEvidence> {
        let reading = reading.ok_or(NoEvidence::NoSample)?;
        match self.direction {
            Some(direction) => self.built_in(direction, reading, capacity, partial),
            None => self.own(reading, capacity).and_then(|evidence| {
                let proves = !partial || evidence.value > self.thresholds.0;
                if proves { Ok(evidence) } else { Err(NoEvidence::PartialWindow) }
            }),
        }
    }

    /// A query of the author's: one number. How old it is says only whether it was seen before,
    /// where it is known at all: the author knows how often there is another.
    fn own(
        &self,
        reading: &NodeMeasurement,
        capacity: Result<Option<f64>, ()>,
    ) -> Result<Evidence, NoEvidence> {
        let (value, device) = match reading.own() {
            Value::Absent => return Err(NoEvidence::NoSample),
            Value::One(value, device) if value.is_finite() && *value >= 0.0 => (*value, device),
            Value::One(..) | Value::Unusable => return Err(NoEvidence::InvalidSample),
        };
        let percent = match self.unit {
            Unit::Percent => Some(value),
            Unit::BitsPerSecond => capacity.ok().flatten().map(|capacity| value / capacity * 100.0),
            Unit::Own => None,
        };
        let mut ages = reading.links()?.iter().map(|link| link.number(Measure::OwnAge));
        let age = ages.next().and_then(Result::ok).flatten().map(|age| age.max(0.0));
        let capacity = capacity.ok().flatten();
        let bits = match self.unit {
            Unit::Percent => capacity.map(|capacity| value / 100.0 * capacity),
            Unit::BitsPerSecond => Some(value),
            Unit::Own => None,
        };
        Ok(Evidence {
            value,
            percent: percent.into(),
            device: device.clone(),
            total: Maybe::default(),
            age: age.into(),
            bits: bits.into(),
            capacity: capacity.into(),
        })
    }

    fn built_in(
        &self,
        direction: Direction,
        reading: &NodeMeasurement,
        capacity: Result<Option<f64>, ()>,
        partial: bool,
    ) -> Result<Evidence, NoEvidence> {
        let up = reading.links()?.iter().find_map(|link| link.number(Measure::Up).ok().flatten());
        if up == Some(0.0) {
            return Err(NoEvidence::ExporterDown);
        }
        if up.is_some() && !self.has_data(reading) && !reading.has(Measure::AgeBefore) {
            return Err(NoEvidence::NoDevice);
        }
        let directions = loads(reading, direction, self.window, self.max_age)?;
        if self.unit == Unit::Percent && capacity.is_err() {
            return Err(NoEvidence::InvalidCapacity);
        }
        let (capacity, (max, _)) = (capacity.ok().flatten(), self.thresholds);
        let mut links = directions.iter().flatten();
        // The counter jumped, or went back a little, which `rate` takes for a new beginning.
        if links.any(|link| {
            link.speed.is_ok_and(|it| it.is_some_and(|it| link.load.least > it * IMPOSSIBLE))
        }) {
            return Err(NoEvidence::InvalidSample);
        }
        let least = self.weigh(&directions, capacity, |load| load.least)?;
        // No node carries a multiple of what it can carry.
        if self.unit == Unit::Percent && capacity.is_some_and(|it| least.bits > it * IMPOSSIBLE) {
            return Err(NoEvidence::InvalidCapacity);
        }
        // Fit is a statement about every link; unfit is one about the link that is known to be
        // full.
        if least.hidden && least.value <= max {
            return Err(NoEvidence::SpeedUnknown);
        }
        // bytes / capacity may overflow though both were finite.
        if !least.value.is_finite() {
            return Err(NoEvidence::InvalidSample);
        }
        let age = age(reading)?.ok_or(NoEvidence::StaleSample)?;
        // A sample from the future comes from a clock that is wrong by this difference.
        if age.abs() > self.max_age.as_secs_f64() {
            return Err(NoEvidence::StaleSample);
        }
        let links = || directions.iter().flatten();
        let is_exact = !partial && links().all(|link| link.load.is_exact());
        let bits = Some(least.bits).filter(|bits| is_exact && bits.is_finite());
        let shown = if is_exact || least.value > max {
            least
        } else {
            let most = self.weigh(&directions, capacity, |load| load.most)?;
            if partial || most.hidden || most.value > max {
                return Err(NoEvidence::PartialWindow);
            }
            most
        };
        let speeds = links().filter_map(|link| link.speed.ok().flatten());
        let capacity = capacity.or(speeds.max_by(f64::total_cmp));
        Ok(Evidence {
            value: shown.value,
            percent: shown.percent.filter(|percent| percent.is_finite()).into(),
            device: shown.device.cloned(),
            total: total(reading, direction).into(),
            age: Some(age.max(0.0)).into(),
            bits: bits.into(),
            capacity: capacity.filter(|bits| bits.is_finite()).into(),
        })
    }

    /// Compares the links of a node, in the directions that count, by what each carries at least or
    /// at most.
    fn weigh<'a>(
        &self,
        directions: &[Vec<LinkLoad<'a>>],
        capacity: Option<f64>,
        side: impl Fn(&Load) -> f64,
    ) -> Result<Weighed<'a>, NoEvidence> {
        let mut worst: Option<Weighed<'a>> = None;
        let (mut hidden, mut most_bits) = (false, 0.0_f64);
        let (_, fit) = self.thresholds;
        for links in directions {
            let bits: f64 = links.iter().map(|link| side(&link.load)).sum();
            most_bits = most_bits.max(bits);
            let mut fullest: Option<(f64, Option<&'a Arc<str>>)> = None;
            for link in links {
                let Ok(Some(speed)) = link.speed else { continue };
                let percent = side(&link.load) / speed * 100.0;
                if fullest.is_none_or(|(most, _)| percent > most) {
                    fullest = Some((percent, link.device));
                }
            }
            let (percent, device) = fullest.unzip();
            let (value, percent) = match (self.unit, capacity) {
                // The link still identifies the busy device, if its speed is known.
                (unit, Some(capacity)) => {
                    let percent = bits / capacity * 100.0;
                    (if unit == Unit::Percent { percent } else { bits }, Some(percent))
                }
                (Unit::Percent, None) => {
                    let mut other = 0.0_f64;
                    for link in links {
                        if link.speed?.is_none() {
                            other = other.max(side(&link.load));
                        }
                    }
                    hidden |= other / SLOWEST_LINK * 100.0 > fit;
                    (percent.ok_or(NoEvidence::SpeedUnknown)?, percent)
                }
                // An absolute threshold needs neither speed nor capacity.
                _ => (bits, percent),
            };
            if worst.as_ref().is_none_or(|worst| value > worst.value) {
                let device = device.flatten();
                worst = Some(Weighed { value, percent, device, hidden: false, bits });
            }
        }
        let worst = worst.ok_or(NoEvidence::NoSample)?;
        Ok(Weighed { hidden, bits: most_bits, ..worst })
    }

    /// Reports whether the answer has data about this node at all; what coverage counts.
    #[must_use]
    pub fn has_data(&self, reading: &NodeMeasurement) -> bool {
        match self.direction {
            None => reading.has(Measure::Own),
            Some(direction) => counters(direction).iter().all(|one| has_data(reading, one)),
        }
    }
}

/// The load of a node, by its fullest link or all of them.
struct Weighed<'a> {
    /// The value that is compared with the threshold.
    value: f64,
    /// Percent of capacity in use, if that is known.
    percent: Option<f64>,
    /// The busiest link, if the link speeds are known.
    device: Option<&'a Arc<str>>,
    /// True if a link of unknown speed may be the fullest.
    hidden: bool,
    /// Bits per second over all links, of the busier direction.
    bits: f64,
}

/// Seconds since the youngest sample.
fn age(reading: &NodeMeasurement) -> Result<Option<f64>, NoEvidence> {
    let mut youngest = None::<f64>;
    for link in reading.links()? {
        if let Some(age) = link.number(Measure::Age)? {
            youngest = Some(youngest.map_or(age, |youngest| youngest.min(age)));
        }
    }
    Ok(youngest)
}

/// Bytes that a node has sent, over all links.
fn total(reading: &NodeMeasurement, direction: Direction) -> Option<f64> {
    let measure = match direction {
        Direction::Receive => Measure::Total,
        Direction::Transmit | Direction::Busiest => Measure::TransmitTotal,
    };
    let links = reading.links().ok()?.iter();
    links.filter_map(|link| link.number(measure).ok().flatten()).reduce(|all, one| all + one)
}

/// How long before the window a sample may lie for the load since then to be that of the window, as
/// a part of the window: one of the four scrapes that it holds at least. The query knows it too.
const BEFORE: f64 = 0.25;

/// How old the youngest sample may be, as a part of the window: an older one says too little of it.
const AGE: f64 = 0.5;

/// The load of a link in one direction, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// It carries at least this much.
    least: f64,
    /// It carries at most this much: the same if that is known, and infinite if nothing is.
    most: f64,
}

/// One link in one direction.
#[derive(Clone, Debug, PartialEq)]
struct LinkLoad<'a> {
    /// Its name.
    device: Option<&'a Arc<str>>,
    /// Bits per second that it carries, if that is known.
    speed: Result<Option<f64>, NoEvidence>,
    /// Its load.
    load: Load,
}

impl Load {
    /// Reports whether the load is known.
    #[expect(clippy::float_cmp, reason = "one is a copy of the other")]
    fn is_exact(&self) -> bool {
        self.least == self.most
    }
}

/// The loads of all links, for each direction that counts.
///
/// # Errors
/// Why there are none.
fn loads(
    reading: &NodeMeasurement,
    direction: Direction,
    window: Duration,
    max_age: Duration,
) -> Result<Vec<Vec<LinkLoad<'_>>>, NoEvidence> {
    let (window, max_age) = (window.as_secs_f64(), max_age.as_secs_f64());
    let links = reading.links()?;
    let of = |counter: &Counter| {
        let mut loads = Vec::with_capacity(links.len());
        for link in links {
            if let Some(load) = load(link, counter, window, max_age.min(window * AGE))? {
                let speed = link.number(Measure::Speed);
                let speed = speed.map(|speed| speed.map(bits).filter(|speed| *speed > 0.0));
                loads.push(LinkLoad { device: link.device.as_ref(), speed, load });
            }
        }
        // Both directions are required: the missing one may be the busy one.
        if has_data(reading, counter) { Ok(loads) } else { Err(NoEvidence::NoSample) }
    };
    counters(direction).iter().map(of).collect()
}

/// Reports whether anything is known of a counter now.
fn has_data(reading: &NodeMeasurement, counter: &Counter) -> bool {
    reading.has(counter.rate) || reading.has(counter.total)
}

/// The load of one link; none if nothing is known of it.
///
/// Between two samples of a counter lies what the link carried in that time, exactly. With only one,
/// and if the counter began again in between, it carried at least the rate of the samples within the
/// window: a window that they cover only partly makes that too low.
fn load(
    link: &Link,
    counter: &Counter,
    window: f64,
    oldest: f64,
) -> Result<Option<Load>, NoEvidence> {
    let Counter { rate, total, before, earlier, .. } = counter;
    if ![rate, total, before].iter().any(|measure| link.has(**measure)) {
        return Ok(None);
    }
    let least = link.number(*rate)?.map_or(0.0, bits);
    let unknown = Load { least, most: f64::INFINITY };
    let now = link.number(*total)?.zip(link.number(Measure::Age)?);
    let before = link.number(*before)?.zip(link.number(Measure::AgeBefore)?);
    let Some((total, age)) = now else { return Ok(Some(unknown)) };
    // A sample from the future comes from a clock that is ahead.
    let age = age.max(0.0);
    let Some((total_before, age_before)) = before else {
        let earlier = link.number(*earlier)?.filter(|earlier| *earlier <= total && age <= oldest);
        return Ok(Some(earlier.map_or(unknown, |earlier| {
            // Its sample is up to a quarter of a window older than the window.
            let carried = bits(total - earlier);
            let least = least.max(carried / (window * (1.0 + BEFORE) - age));
            Load { least, most: least.max(carried / (window - age)) }
        })));
    };
    let between = age_before - age;
    if age > oldest || between <= 0.0 || total < total_before {
        return Ok(Some(unknown));
    }
    let carried = bits(total - total_before);
    if age_before <= window * (1.0 + BEFORE) {
        // A counter that began again and has passed its old value shows in its rate.
        let load = least.max(carried / between);
        return Ok(Some(Load { least: load, most: load }));
    }
    // All of it may lie within the window.
    Ok(Some(Load { least, most: least.max(carried / (window - age)) }))
}

fn bits(bytes: f64) -> f64 {
    bytes * 8.0
}

/// A number that may be unknown, in the memory of a number: an `Option` takes twice as much.
#[derive(Clone, Copy)]
pub struct Maybe(f64);

impl Maybe {
    /// Returns the number if it is known.
    #[must_use]
    pub fn get(self) -> Option<f64> {
        (!self.0.is_nan()).then_some(self.0)
    }

    /// Returns the number, `NaN` if it is unknown.
    #[must_use]
    pub fn or_nan(self) -> f64 {
        self.0
    }
}

impl From<Option<f64>> for Maybe {
    fn from(number: Option<f64>) -> Self {
        Self(number.unwrap_or(f64::NAN))
    }
}

impl Default for Maybe {
    fn default() -> Self {
        None.into()
    }
}

impl PartialEq for Maybe {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Maybe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests;
