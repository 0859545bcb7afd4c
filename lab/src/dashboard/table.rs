//! Panels of type table: the last values of several queries, joined by their labels.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::ask::Answer;
use super::model::Panel;
use super::scale;
use super::svg::{Area, Svg, color, cut, width};

/// Height of a row.
const ROW: f64 = 21.0;

/// A cell: a label or a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Number(f64),
}

/// One row: cells by the name of the column.
pub(super) type Row = BTreeMap<String, Cell>;

pub(super) fn draw(svg: &mut Svg, panel: &Panel, answers: &[Answer], area: Area) -> Result<()> {
    let (columns, rows) = arranged(panel, answers)?;
    let shown: Vec<Vec<(String, String)>> = rows
        .iter()
        .map(|row| columns.iter().map(|column| cell(panel, column, row.get(column))).collect())
        .collect::<Result<_>>()?;
    let widths: Vec<f64> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let cells = shown.iter().map(|row| width(&row[i].0, 12.0));
            cells.fold(width(column, 13.0), f64::max)
        })
        .collect();
    // Every column gets what it needs and its part of the rest.
    let total: f64 = widths.iter().sum();
    let places: Vec<f64> = widths
        .iter()
        .scan(area.x, |x, width| {
            let here = *x;
            *x += width / total * area.width;
            Some(here)
        })
        .collect();
    for ((column, x), width) in columns.iter().zip(&places).zip(&widths) {
        let text = cut(column, 13.0, width / total * area.width - 8.0);
        svg.text((*x, area.y + 14.0), "head", &text);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pixels")]
    let fitting = ((area.height - ROW) / ROW).floor().max(1.0) as usize;
    // The last line is for the count of what does not fit.
    let fitting = if shown.len() > fitting { fitting - 1 } else { fitting };
    let mut y = area.y + ROW;
    for row in shown.iter().take(fitting) {
        svg.line((area.x, y), (area.right(), y), "grid", None);
        for (((text, ink), x), width) in row.iter().zip(&places).zip(&widths) {
            let text = cut(text, 12.0, width / total * area.width - 8.0);
            svg.colored((*x, y + 15.0), "", ink, 12.0, &text);
        }
        y += ROW;
    }
    if shown.len() > fitting {
        let note = format!("and {} more rows", shown.len() - fitting);
        svg.text((area.x, y + 14.0), "tick", &note);
    }
    Ok(())
}

/// A cell's text and color.
fn cell(panel: &Panel, column: &str, cell: Option<&Cell>) -> Result<(String, String)> {
    let look = panel.column(column);
    Ok(match cell {
        None => (String::new(), color("text").to_owned()),
        Some(Cell::Text(text)) => {
            let (instead, ink) = look.mapped(text);
            (instead.unwrap_or(text).to_owned(), color(ink.unwrap_or("text")).to_owned())
        }
        Some(Cell::Number(value)) => {
            ensure!(scale::knows(look.unit()), "the unit {:?} is not known", look.unit());
            // Grafana colors the background; text in that color is as clear, and easier to read
            // in both themes.
            let colored = look.get("custom.cellOptions")["type"].is_string();
            let ink = colored.then(|| look.threshold_color(*value)).flatten();
            let (instead, mapped) = look.mapped(&scale::format(*value, "none", None));
            let text = scale::format(*value, look.unit(), look.decimals());
            let text = instead.map_or(text, str::to_owned);
            (text, color(mapped.or(ink).unwrap_or("text")).to_owned())
        }
    })
}

/// The columns in their order, and the rows, as the transformations make them.
pub(super) fn arranged(panel: &Panel, answers: &[Answer]) -> Result<(Vec<String>, Vec<Row>)> {
    let mut rows = merged(answers);
    let mut columns: Vec<String> = rows
        .iter()
        .flat_map(BTreeMap::keys)
        .cloned()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    for transformation in &panel.transformations {
        match transformation.id.as_str() {
            "merge" => {}
            "organize" => {
                let options = &transformation.options;
                columns.retain(|column| options["excludeByName"][column] != true);
                let place = |column: &String| options["indexByName"][column].as_u64();
                columns.sort_by_key(|column| place(column).unwrap_or(u64::MAX));
                let renamed = |column: &str| {
                    let name = options["renameByName"][column].as_str();
                    name.unwrap_or(column).to_owned()
                };
                rows = rows
                    .into_iter()
                    .map(|row| row.into_iter().map(|(key, cell)| (renamed(&key), cell)).collect())
                    .collect();
                columns = columns.iter().map(|column| renamed(column)).collect();
            }
            "groupingToMatrix" => (columns, rows) = matrix(&rows, &transformation.options),
            other => anyhow::bail!("the transformation {other:?} is not known"),
        }
    }
    // The sort is stable: the first order counts most, so it comes last.
    for order in panel.options["sortBy"].as_array().into_iter().flatten().rev() {
        sort(&mut rows, order);
    }
    Ok((columns, rows))
}

/// One row for each value of one column, one column for each value of another.
fn matrix(rows: &[Row], options: &Value) -> (Vec<String>, Vec<Row>) {
    let option = |name: &str| options[name].as_str().unwrap_or_default();
    let text = |row: &Row, column: &str| match row.get(column) {
        Some(Cell::Text(text)) => text.clone(),
        Some(Cell::Number(number)) => number.to_string(),
        None => String::new(),
    };
    // Grafana's name for the first column.
    let corner = format!("{}\\{}", option("rowField"), option("columnField"));
    let mut columns = BTreeSet::new();
    let mut by_name: BTreeMap<String, Row> = BTreeMap::new();
    for row in rows {
        let (name, column) = (text(row, option("rowField")), text(row, option("columnField")));
        let new = by_name.entry(name.clone()).or_default();
        new.insert(corner.clone(), Cell::Text(name));
        if let Some(value) = row.get(option("valueField")) {
            new.insert(column.clone(), value.clone());
        }
        columns.insert(column);
    }
    (std::iter::once(corner).chain(columns).collect(), by_name.into_values().collect())
}

/// Joins the answers' elements by the labels that all answers have, as Grafana's "merge" does.
fn merged(answers: &[Answer]) -> Vec<Row> {
    let labels = |answer: &Answer| -> BTreeSet<String> {
        answer.series.iter().flat_map(|series| series.labels.keys().cloned()).collect()
    };
    let filled = answers.iter().filter(|answer| answer.has_data());
    let common = filled.clone().map(labels).reduce(|all, own| &all & &own).unwrap_or_default();
    let mut rows: Vec<Row> = Vec::new();
    let mut by_key: BTreeMap<Vec<Option<String>>, Vec<usize>> = BTreeMap::new();
    for answer in filled {
        for series in &answer.series {
            let Some(value) = series.last() else { continue };
            let mut new: Row = BTreeMap::new();
            for (key, text) in &series.labels {
                new.insert(key.clone(), Cell::Text(text.clone()));
            }
            // With a single query, the column carries no number.
            let name =
                if answers.len() == 1 { "Value".into() } else { format!("Value #{}", answer.id) };
            new.insert(name, Cell::Number(value));
            let key = common.iter().map(|label| series.labels.get(label).cloned()).collect();
            let same_key = by_key.entry(key).or_default();
            let fits = |row: &Row| new.iter().all(|(k, cell)| row.get(k).is_none_or(|c| c == cell));
            if let Some(at) = same_key.iter().copied().find(|at| fits(&rows[*at])) {
                rows[at].extend(new);
            } else {
                same_key.push(rows.len());
                rows.push(new);
            }
        }
    }
    rows
}

fn sort(rows: &mut [Row], order: &Value) {
    let column = order["displayName"].as_str().unwrap_or_default();
    rows.sort_by(|a, b| {
        let ordering = match (a.get(column), b.get(column)) {
            (Some(Cell::Number(a)), Some(Cell::Number(b))) => a.total_cmp(b),
            (Some(Cell::Text(a)), Some(Cell::Text(b))) => a.cmp(b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        if order["desc"] == true { ordering.reverse() } else { ordering }
    });
}
