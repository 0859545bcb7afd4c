//! The loads of a node's links, by the facts about them.
use std::{sync::Arc, time::Duration};

use super::{
    super::{
        query::{Counter, Measure, counters},
        reading::{Link, NodeMeasurement},
    },
    NoEvidence,
};
use crate::api::traffic_watch::Direction;

/// How long before the window a sample may lie for the load since then to be that of the window, as
/// a part of the window: one of the four scrapes that it holds at least. The query knows it too.
const BEFORE: f64 = 0.25;

/// How old the youngest sample may be, as a part of the window: an older one says too little of it.
const AGE: f64 = 0.5;

/// The load of a link in one direction, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// It carries at least this much.
    pub least: f64,
    /// It carries at most this much: the same if that is known, and infinite if nothing is.
    pub most: f64,
}

/// One link in one direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkLoad<'a> {
    /// Its name.
    pub device: Option<&'a Arc<str>>,
    /// Bits per second that it carries, if that is known.
    pub speed: Result<Option<f64>, NoEvidence>,
    /// Its load.
    pub load: Load,
}

impl Load {
    /// Reports whether the load is known.
    #[expect(clippy::float_cmp, reason = "one is a copy of the other")]
    pub fn is_exact(&self) -> bool {
        self.least == self.most
    }
}

/// The loads of all links, for each direction that counts.
///
/// # Errors
/// Why there are none.
pub(super) fn loads(
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
pub(super) fn has_data(reading: &NodeMeasurement, counter: &Counter) -> bool {
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
