//! Axes, and numbers as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Marks on an axis of values, from below the smallest to above the largest.
pub(super) fn ticks(smallest: f64, largest: f64, most: usize, unit: &str) -> Vec<f64> {
    // Bytes are counted in powers of two, so that their marks are whole numbers of MiB too.
    let base = if unit == "bytes" { power(largest.abs().max(1.0), 1024.0) } else { 1.0 };
    let (smallest, largest) = (smallest / base, largest / base);
    let span = if largest > smallest { largest - smallest } else { largest.abs().max(1.0) };
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let raw = span / most.max(1) as f64;
    let decade = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    let step = step.into_iter().find(|step| *step >= raw * 0.999).unwrap_or(raw);
    let first = (smallest / step).floor();
    // A line at the very top could be taken for the frame.
    let last = (largest.max(smallest + span) / step + 0.02).ceil();
    let mut marks = Vec::new();
    let mut mark = first;
    while mark <= last {
        marks.push(mark * step * base);
        mark += 1.0;
    }
    marks
}

/// The largest power of `base` that a number reaches.
fn power(value: f64, base: f64) -> f64 {
    let mut power = 1.0;
    while value >= power * base {
        power *= base;
    }
    power
}

/// Marks on an axis of time, in Unix seconds.
pub(super) fn time_ticks(from: f64, to: f64, most: usize) -> Vec<f64> {
    const STEPS: [f64; 13] = [
        60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0,
        86_400.0, 604_800.0,
    ];
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let raw = (to - from) / most.max(1) as f64;
    let step = STEPS.into_iter().find(|step| *step >= raw).unwrap_or(604_800.0);
    let mut marks = Vec::new();
    let mut mark = (from / step).ceil() * step;
    while mark <= to {
        marks.push(mark);
        mark += step;
    }
    marks
}

/// An hour and minute, UTC.
pub(super) fn time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%H:%M").to_string()
}

/// A day, hour and minute, UTC.
pub(super) fn day_time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Reports whether a unit is one that our dashboards use.
pub(super) fn knows(unit: &str) -> bool {
    ["none", "short", "percent", "percentunit", "s", "bps", "bytes", "ops", "reqps", "sishort"]
        .contains(&unit)
}

/// A value in its unit.
pub(super) fn format(value: f64, unit: &str, decimals: Option<usize>) -> String {
    let (value, unit) = match unit {
        "percent" => (value, "%"),
        "percentunit" => (value * 100.0, "%"),
        "s" => duration(value),
        "bps" => prefixed(value, 1000.0, &["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"]),
        "bytes" => prefixed(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        "sishort" => prefixed(value, 1000.0, &["", "k", "M", "G", "T"]),
        "short" => prefixed(value, 1000.0, &["", "K", "Mil", "Bil", "Tri"]),
        "ops" => (value, "ops/s"),
        "reqps" => (value, "req/s"),
        _ => (value, ""),
    };
    let number = decimals.map_or_else(|| plain(value), |decimals| format!("{value:.decimals$}"));
    match unit {
        "" => number,
        "%" => format!("{number}%"),
        unit => format!("{number} {unit}"),
    }
}

fn duration(seconds: f64) -> (f64, &'static str) {
    match seconds.abs() {
        0.0 => (0.0, "s"),
        size if size < 0.001 => (seconds * 1e6, "µs"),
        size if size < 1.0 => (seconds * 1e3, "ms"),
        size if size < 120.0 => (seconds, "s"),
        size if size < 7200.0 => (seconds / 60.0, "min"),
        size if size < 172_800.0 => (seconds / 3600.0, "hour"),
        _ => (seconds / 86_400.0, "day"),
    }
}

fn prefixed(value: f64, step: f64, units: &[&'static str]) -> (f64, &'static str) {
    let mut value = value;
    let mut unit = 0;
    // A value that would be shown as 1000 belongs to the next unit.
    while value.abs() >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    (value, units[unit])
}

/// Three figures, and no zeros at the end.
fn plain(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 1e-6 => {
            // Below one: three figures after the zeros.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 8")]
            let zeros = (-size.log10()).ceil() as usize;
            zeros + 2
        }
        _ => return format!("{value:.1e}"),
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
