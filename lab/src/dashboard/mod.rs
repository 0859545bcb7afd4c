//! Pictures of Grafana dashboards, drawn from a Prometheus and without Grafana.
//!
//! A picture shows what the dashboard's file defines: its panels' queries, grid, units, colors,
//! mappings, thresholds and transformations. `model` reads the file, `ask` queries the data,
//! `scale` makes axes and formats numbers, `svg` writes, and each type of panel has its own file.
//! An unsupported element of a dashboard is an error, not an approximation.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;

mod ask;
mod lines;
mod model;
mod scale;
mod stat;
mod svg;
mod table;
#[cfg(test)]
mod tests;
mod timeline;

use ask::{Answer, Prometheus};
use model::{Dashboard, Grid, Panel};
use svg::{Area, Svg};

/// Pixels of one of the grid's 24 columns, and of one row's height; as wide as a page shows it.
const COLUMN: f64 = 50.0;
const ROW: f64 = 30.0;
/// Pixels between panels.
const GAP: f64 = 4.0;
/// Maximum number of points of a line: one for every few pixels, and fewer if the picture becomes
/// too large.
const POINTS: [u32; 3] = [240, 120, 60];
/// The largest picture in bytes: larger ones are slow to load in a page.
const LARGEST: usize = 250_000;
/// Height of the dashboard's title.
const HEADER: f64 = 40.0;

/// The inputs of a drawing.
#[derive(Debug, Clone)]
pub struct Options {
    /// URL of Prometheus.
    pub prometheus: String,
    /// Start of the picture, before now.
    pub from: Duration,
    /// Value of `$__rate_interval`: four scrape intervals.
    pub rate_interval: Duration,
    /// Leave folded rows as they are, which is how Grafana opens a dashboard.
    pub folded: bool,
}

/// A picture, and what is missing in it.
#[derive(Debug)]
pub struct Picture {
    /// The whole document.
    pub svg: String,
    /// Titles of panels without data.
    pub empty: Vec<String>,
}

/// Draws a dashboard into a file and returns its size in bytes.
///
/// # Errors
///
/// As [`draw`], if the file cannot be written, and, unless that is allowed, if a panel has no data.
/// The picture is written even then, so that the missing data is visible.
pub async fn write(file: &Path, options: &Options, out: &Path, allow_empty: bool) -> Result<usize> {
    let picture = draw(file, options).await?;
    std::fs::write(out, &picture.svg).with_context(|| format!("writing {}", out.display()))?;
    ensure!(
        allow_empty || picture.empty.is_empty(),
        "panels without data: {} (the picture is in {})",
        picture.empty.join(", "),
        out.display()
    );
    Ok(picture.svg.len())
}

/// Draws a dashboard.
///
/// # Errors
///
/// If the dashboard holds something unsupported, or Prometheus refuses a query or does not answer;
/// the error names the panel.
pub async fn draw(file: &Path, options: &Options) -> Result<Picture> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let dashboard: Dashboard = serde_json::from_str(&text)
        .with_context(|| format!("{} is no dashboard", file.display()))?;
    let now = Timestamp::now();
    for points in POINTS {
        let picture = draw_at(&dashboard, options, now, points).await?;
        if picture.svg.len() < LARGEST {
            return Ok(picture);
        }
    }
    bail!("{}: too many series for a picture of {LARGEST} bytes", file.display())
}

async fn draw_at(
    dashboard: &Dashboard,
    options: &Options,
    now: Timestamp,
    points: u32,
) -> Result<Picture> {
    let prometheus = Prometheus::new(options, now, points)?;
    let panels = dashboard.panels(options.folded);
    let rows = panels.iter().map(|(_, grid)| grid.bottom()).max().unwrap_or(0);
    let size = (24.0 * COLUMN + 2.0 * GAP, HEADER + f64::from(rows) * ROW + 2.0 * GAP);
    let mut svg = Svg::new(size, &dashboard.title, &dashboard.description);
    svg.text((3.0 * GAP, 26.0), "title", &dashboard.title);
    let span = format!("{} to {} UTC", scale::day_time(prometheus.from), scale::time(now));
    svg.text_end((size.0 - 3.0 * GAP, 26.0), "soft", &span);
    let mut empty = Vec::new();
    for (panel, grid) in panels {
        let answers = prometheus
            .ask(dashboard, panel)
            .await
            .with_context(|| format!("panel {:?}", panel.title))?;
        let span = (prometheus.from, prometheus.now);
        let has_data = draw_panel(&mut svg, (panel, grid), &answers, span, options.folded)
            .with_context(|| format!("panel {:?}", panel.title))?;
        if !has_data {
            empty.push(panel.title.clone());
        }
    }
    Ok(Picture { svg: svg.finish(), empty })
}

/// Draws one panel in its place and returns whether there was anything to draw. A panel that says
/// what it means to have no data (`noValue`) is complete without any.
fn draw_panel(
    svg: &mut Svg,
    (panel, grid): (&Panel, Grid),
    answers: &[Answer],
    span: (Timestamp, Timestamp),
    folded: bool,
) -> Result<bool> {
    let area = Area {
        x: GAP + f64::from(grid.x) * COLUMN,
        y: HEADER + GAP + f64::from(grid.y) * ROW,
        width: f64::from(grid.w) * COLUMN,
        height: f64::from(grid.h) * ROW,
    };
    if panel.kind == "row" {
        let mark = if folded && !panel.panels.is_empty() { "▸ " } else { "" };
        svg.text((area.x + GAP, area.y + 20.0), "row", &format!("{mark}{}", panel.title));
        return Ok(true);
    }
    let area = area.within(GAP, GAP, GAP, GAP);
    svg.open(&panel.title, &panel.description);
    svg.rect(area, "panel");
    // An error rather than a guess: an unsupported override would change the picture's meaning.
    let unknown = panel.unknown_matcher();
    ensure!(unknown.is_none(), "overrides that match {unknown:?} are not known");
    let title = svg::cut(&panel.title, 13.0, area.width - 20.0);
    svg.text((area.x + 10.0, area.y + 18.0), "head", &title);
    let inner = area.within(10.0, 26.0, 10.0, 8.0);
    let has_data = answers.iter().any(Answer::has_data);
    let absence = panel.default("noValue").as_str();
    if has_data {
        match panel.kind.as_str() {
            "stat" => stat::draw(svg, panel, answers, inner)?,
            "timeseries" => lines::draw(svg, panel, answers, inner, span)?,
            "state-timeline" => timeline::draw(svg, panel, answers, inner, span),
            "table" => table::draw(svg, panel, answers, inner)?,
            other => bail!("panels of type {other:?} cannot be drawn"),
        }
    } else {
        let middle = (inner.x + inner.width / 2.0, inner.y + inner.height / 2.0);
        svg.text_middle(middle, "none", absence.unwrap_or("no data"));
    }
    svg.close();
    Ok(has_data || absence.is_some())
}
