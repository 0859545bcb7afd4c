//! Panels of type stat: a few large numbers.

use anyhow::{Result, ensure};

use super::ask::Answer;
use super::model::Panel;
use super::scale;
use super::svg::{Area, Svg, colour, cut, width};

pub(super) fn draw(svg: &mut Svg, panel: &Panel, answers: &[Answer], area: Area) -> Result<()> {
    let values: Vec<_> = answers
        .iter()
        .flat_map(|answer| answer.series.iter().map(|series| (answer.id.as_str(), series)))
        .filter_map(|(id, series)| Some((panel.look(id, series), series, series.last()?)))
        .collect();
    let named = panel.options["textMode"] == "value_and_name";
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let tile = area.width / values.len().max(1) as f64;
    let mut x = area.x;
    for (look, series, value) in values {
        ensure!(scale::knows(look.unit()), "the unit {:?} is not known", look.unit());
        let text = scale::format(value, look.unit(), look.decimals());
        let ink =
            colour(look.fixed_colour().or_else(|| look.threshold_colour(value)).unwrap_or("text"));
        let room = area.height - if named { 20.0 } else { 0.0 };
        let size = (room * 0.6).min(44.0).min(44.0 * (tile - 12.0) / width(&text, 44.0)).max(10.0);
        let base = area.y + room / 2.0 + size * 0.36;
        svg.coloured((x + 4.0, base), "big", ink, size, &text);
        if named {
            let name = cut(&series.name, 13.0, tile - 8.0);
            svg.coloured((x + 4.0, area.bottom() - 4.0), "soft", ink, 13.0, &name);
        }
        x += tile;
    }
    Ok(())
}
