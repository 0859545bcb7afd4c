//! Panels of type state-timeline: one bar for each series, colored by its value.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::ask::Answer;
use super::lines::{place, time_axis, whole};
use super::model::Panel;
use super::scale;
use super::svg::{Area, Svg, color, cut, palette, width};

/// A lower bar cannot be distinguished from its neighbor.
const THINNEST: f64 = 7.0;

pub(super) fn draw(
    svg: &mut Svg,
    panel: &Panel,
    answers: &[Answer],
    area: Area,
    span: (Timestamp, Timestamp),
) {
    let rows: Vec<_> = answers
        .iter()
        .flat_map(|answer| answer.series.iter().map(move |series| (answer, series)))
        .filter(|(_, series)| !series.points.is_empty())
        .collect();
    let longest = rows.iter().map(|(_, series)| width(&series.name, 12.0)).fold(0.0, f64::max);
    let left = longest.min(area.width / 4.0) + 10.0;
    let bars = area.within(left, 4.0, 8.0, 40.0);
    time_axis(svg, bars, span);
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let height = (bars.height / rows.len().max(1) as f64).clamp(THINNEST, 34.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pixels")]
    let fitting = ((bars.height / height) + 1e-6) as usize;
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut y = bars.y;
    for (answer, series) in rows.iter().take(fitting) {
        let look = panel.look(&answer.id, &series.name);
        let size = (height * 0.7).min(12.0);
        let name = cut(&series.name, size, left - 8.0);
        svg.colored((area.x, y + height / 2.0 + size * 0.36), "", color("text"), size, &name);
        for part in whole(&series.points, answer.step) {
            // Each value holds until the next one.
            for run in part.chunk_by(|a, b| same(a.1, b.1)) {
                let value = run[0].1;
                let (text, ink) = look.mapped(&scale::format(value, "none", Some(0)));
                let text = text.map_or_else(|| scale::format(value, "none", None), str::to_owned);
                let ink = ink.map_or_else(|| palette(seen.len()), color);
                let ink = seen.entry(text).or_insert_with(|| ink.to_owned()).clone();
                let from = place(run[0].0, bars, span);
                let to = place(run[run.len() - 1].0 + answer.step, bars, span);
                let bar =
                    Area { x: from, y: y + height * 0.12, width: to - from, height: height * 0.76 };
                svg.filled(bar, &ink);
            }
        }
        y += height;
    }
    if rows.len() > fitting {
        let note = format!("and {} more", rows.len() - fitting);
        svg.text_end((area.right(), area.bottom() - 2.0), "tick", &note);
    }
    let mut x = area.x;
    for (text, ink) in &seen {
        svg.filled(Area { x, y: area.bottom() - 11.0, width: 10.0, height: 10.0 }, ink);
        svg.text((x + 15.0, area.bottom() - 2.0), "legend", text);
        x += width(text, 11.0) + 34.0;
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}
