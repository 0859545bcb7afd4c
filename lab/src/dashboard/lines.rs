//! Panels of type timeseries: lines over time, with axes and a legend.

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::ask::{Answer, Series};
use super::model::Panel;
use super::scale;
use super::svg::{Area, Svg, color, cut, palette, width};

/// Height of a line of the legend.
const LEGEND_LINE: f64 = 16.0;
/// Maximum number of lines of the legend: more would leave no room for the picture.
const LEGEND_LINES: usize = 4;

/// One line and its style.
struct Line<'a> {
    series: &'a Series,
    color: &'a str,
    dashed: bool,
    unit: &'a str,
    step: f64,
}

pub(super) fn draw(
    svg: &mut Svg,
    panel: &Panel,
    answers: &[Answer],
    area: Area,
    span: (Timestamp, Timestamp),
) -> Result<()> {
    let unit = panel.default("unit").as_str().unwrap_or("none");
    ensure!(scale::knows(unit), "the unit {unit:?} is not known");
    let looks: Vec<_> = answers
        .iter()
        .flat_map(|answer| answer.series.iter().map(move |series| (answer, series)))
        .filter(|(_, series)| !series.points.is_empty())
        .map(|(answer, series)| (panel.look(&answer.id, &series.name), answer.step, series))
        .collect();
    let lines: Vec<Line> = looks
        .iter()
        .enumerate()
        .map(|(index, (look, step, series))| Line {
            series,
            color: look.fixed_color().map_or_else(|| palette(index), color),
            dashed: look.get("custom.lineStyle")["fill"] == "dash",
            unit: look.unit(),
            step: *step,
        })
        .collect();
    let room = legend(svg, panel, &lines, area);
    let plot = area.within(0.0, 4.0, 8.0, room);
    curves(svg, panel, &lines, plot, span, unit);
    Ok(())
}

fn curves(
    svg: &mut Svg,
    panel: &Panel,
    lines: &[Line],
    area: Area,
    (from, to): (Timestamp, Timestamp),
    unit: &str,
) {
    let values = || lines.iter().flat_map(|line| &line.series.points).map(|point| point.1);
    let limits = limits(panel);
    let smallest = values().chain(panel.default("min").as_f64()).fold(f64::INFINITY, f64::min);
    let shown = limits.iter().map(|(value, _)| *value);
    let largest = values().chain(shown).fold(f64::NEG_INFINITY, f64::max);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pixels")]
    let most = (area.height / 32.0).max(2.0) as usize;
    let ticks = scale::ticks(smallest, largest, most, unit);
    let (bottom, top) = (ticks[0], ticks[ticks.len() - 1]);
    let labels: Vec<String> = ticks.iter().map(|tick| scale::format(*tick, unit, None)).collect();
    let left = labels.iter().map(|label| width(label, 11.0)).fold(0.0, f64::max) + 8.0;
    let area = area.within(left, 4.0, 0.0, 18.0);
    let y = |value: f64| area.bottom() - (value - bottom) / (top - bottom) * area.height;
    for (tick, label) in ticks.iter().zip(&labels) {
        svg.line((area.x, y(*tick)), (area.right(), y(*tick)), "grid", None);
        svg.text_end((area.x - 6.0, y(*tick) + 4.0), "tick", label);
    }
    time_axis(svg, area, (from, to));
    for (value, name) in limits {
        svg.line((area.x, y(value)), (area.right(), y(value)), "limit", Some(color(name)));
    }
    let x = |time: f64| place(time, area, (from, to));
    for line in lines {
        let parts: Vec<Vec<(f64, f64)>> = whole(&line.series.points, line.step)
            .into_iter()
            .map(|part| part.iter().map(|(time, value)| (x(*time), y(*value))).collect::<Vec<_>>())
            .map(|part| straightened(&part))
            .collect();
        svg.path(&parts, if line.dashed { "line dash" } else { "line" }, line.color);
    }
}

/// The thresholds to draw, with the names of their colors.
fn limits(panel: &Panel) -> Vec<(f64, &str)> {
    let mode = panel.default("custom.thresholdsStyle.mode").as_str().unwrap_or("off");
    let steps = panel.default("thresholds.steps").as_array();
    let steps = steps.filter(|_| mode != "off").map_or(&[][..], Vec::as_slice);
    steps
        .iter()
        .filter_map(|step| Some((step["value"].as_f64()?, step["color"].as_str()?)))
        .collect()
}

/// Draws the marks of time below an area.
pub(super) fn time_axis(svg: &mut Svg, area: Area, span: (Timestamp, Timestamp)) {
    let (from, to) = (unix(span.0), unix(span.1));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pixels")]
    let most = (area.width / 70.0).max(2.0) as usize;
    for tick in scale::time_ticks(from, to, most) {
        let x = place(tick, area, span);
        svg.line((x, area.y), (x, area.bottom()), "grid", None);
        #[allow(clippy::cast_possible_truncation, reason = "whole seconds")]
        if let Ok(time) = Timestamp::from_second(tick as i64) {
            svg.text_middle((x, area.bottom() + 14.0), "tick", &scale::time(time));
        }
    }
}

/// Returns the horizontal position of a time.
pub(super) fn place(time: f64, area: Area, (from, to): (Timestamp, Timestamp)) -> f64 {
    let (from, to) = (unix(from), unix(to));
    area.x + ((time - from) / (to - from)).clamp(0.0, 1.0) * area.width
}

fn unix(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

/// The parts of a series without a gap.
pub(super) fn whole(points: &[(f64, f64)], step: f64) -> Vec<&[(f64, f64)]> {
    points.chunk_by(|a, b| b.0 - a.0 <= step * 1.5).collect()
}

/// Leaves out invisible points: those less than a third of a pixel off the line between the others.
fn straightened(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const OFF: f64 = 0.33;
    let [first, .., last] = points else { return points.to_vec() };
    let line = |x: f64| first.1 + (last.1 - first.1) * (x - first.0) / (last.0 - first.0);
    let off = |point: &(f64, f64)| (point.1 - line(point.0)).abs();
    let farthest =
        (1..points.len() - 1).max_by(|a, b| off(&points[*a]).total_cmp(&off(&points[*b])));
    match farthest {
        Some(at) if off(&points[at]) > OFF => {
            let mut kept = straightened(&points[..=at]);
            kept.pop();
            kept.extend(straightened(&points[at..]));
            kept
        }
        _ => vec![*first, *last],
    }
}

/// Draws the legend at the bottom and returns its height.
fn legend(svg: &mut Svg, panel: &Panel, lines: &[Line], area: Area) -> f64 {
    if panel.options["legend"]["showLegend"] == false {
        return 0.0;
    }
    let with_figures = panel.options["legend"]["displayMode"] == "table";
    let entries: Vec<(String, &Line)> = lines
        .iter()
        .map(|line| {
            let points = &line.series.points;
            let largest = points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
            let text = match line.series.last() {
                Some(last) if with_figures => format!(
                    "{}: {}, at most {}",
                    line.series.name,
                    scale::format(last, line.unit, None),
                    scale::format(largest, line.unit, None)
                ),
                _ => line.series.name.clone(),
            };
            (cut(&text, 11.0, area.width - 24.0), line)
        })
        .collect();
    // The position of each entry: its row, and the distance from the left.
    let mut places = Vec::new();
    let (mut row, mut x) = (0, 0.0);
    for (text, _) in &entries {
        let wide = width(text, 11.0) + 34.0;
        if x > 0.0 && x + wide > area.width {
            (row, x) = (row + 1, 0.0);
        }
        places.push((row, x));
        x += wide;
    }
    let rows = (row + 1).min(LEGEND_LINES);
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let height = rows as f64 * LEGEND_LINE + 2.0;
    let mut left = 0;
    for ((text, line), (row, x)) in entries.iter().zip(places) {
        // The last place of the last line is for what does not fit.
        if row >= rows {
            left += 1;
            continue;
        }
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let y = area.bottom() - height + 14.0 + row as f64 * LEGEND_LINE;
        let class = if line.dashed { "line dash" } else { "line" };
        svg.line((area.x + x, y - 4.0), (area.x + x + 14.0, y - 4.0), class, Some(line.color));
        svg.text((area.x + x + 18.0, y), "legend", text);
    }
    if left > 0 {
        let note = format!("and {left} more");
        svg.text_end((area.right(), area.y + 6.0), "tick", &note);
    }
    height
}
