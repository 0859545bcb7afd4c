//! Panels of type stat: a few large numbers.

use anyhow::{Result, ensure};

use super::ask::Answer;
use super::model::Panel;
use super::scale;
use super::svg::{Area, Svg, color, cut, width};

pub(super) fn draw(svg: &mut Svg, panel: &Panel, answers: &[Answer], area: Area) -> Result<()> {
    let values: Vec<_> = answers
        .iter()
        .flat_map(|answer| answer.series.iter().map(|series| (answer.id.as_str(), series)))
        .filter_map(|(id, series)| Some((panel.look(id, &series.name), series, series.last()?)))
        .collect();
    let named = panel.options["textMode"] == "value_and_name";
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let count = values.len().max(1) as f64;
    // One below the other, or side by side.
    let below = panel.options["orientation"] == "horizontal";
    let mut tile = if below {
        Area { height: area.height / count, ..area }
    } else {
        Area { width: area.width / count, ..area }
    };
    for (look, series, value) in values {
        ensure!(scale::knows(look.unit()), "the unit {:?} is not known", look.unit());
        let text = scale::format(value, look.unit(), look.decimals());
        let ink =
            color(look.fixed_color().or_else(|| look.threshold_color(value)).unwrap_or("text"));
        let room = tile.height - if named { 20.0 } else { 0.0 };
        let widest = 44.0 * (tile.width - 12.0) / width(&text, 44.0);
        let size = (room * 0.6).min(44.0).min(widest).max(10.0);
        let base = tile.y + room / 2.0 + size * 0.36;
        svg.colored((tile.x + 4.0, base), "big", ink, size, &text);
        if named {
            let name = cut(&series.name, 13.0, tile.width - 8.0);
            svg.colored((tile.x + 4.0, tile.bottom() - 4.0), "soft", ink, 13.0, &name);
        }
        if below {
            tile.y += tile.height;
        } else {
            tile.x += tile.width;
        }
    }
    Ok(())
}
