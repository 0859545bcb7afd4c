//! The result of the whole demo.

use std::fmt::Write;

use super::stage::Stage;
use super::table::Row;
use lab::checks::Check;

/// Judges all steps together.
pub(super) fn all(stage: &Stage<'_>, steps: usize) -> Vec<Check> {
    let rows = &stage.rows;
    let reported = |rows: usize| format!("{rows} steps");
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    let lost: u64 = rows.iter().map(|row| row.lost).sum();
    let missing = sum(|row| row.missing);
    let needless = sum(|row| row.needless.len());
    let mut figure = format!("{missing} pairs, {lost} probes in {}", reported(rows.len()));
    for wrong in stage.wrong.iter().take(3) {
        let _ = write!(figure, "; {wrong}");
    }
    let above: Vec<&str> =
        rows.iter().filter(|row| above(row)).map(|row| row.step.as_str()).collect();
    let fullest = rows.iter().map(|row| row.paths).max().unwrap_or(0);
    let settled = rows.iter().filter(|row| row.step.contains("reflector") && row.peers > 0);
    let peers: Vec<usize> = settled.map(|row| row.peers).collect();
    // One for each zone, and the one between reflectors.
    let wanted = stage.zones.len() + 1;
    let many: Vec<&str> = rows
        .iter()
        .filter(|row| row.changed.len() > row.needed)
        .map(|row| row.step.as_str())
        .collect();
    vec![
        Check::new("the demo ran all its steps", rows.len() >= steps, reported(rows.len())),
        Check::new(
            "no route was missing between unchanged nodes",
            missing == 0 && lost == 0 && stage.wrong.is_empty() && !rows.is_empty(),
            figure,
        ),
        Check::new(
            "no session between them was closed that stays",
            needless == 0,
            format!("{needless} of {} session ends that were closed", sum(|row| row.resets)),
        ),
        Check::new(
            "no more nodes changed than a step needs",
            many.is_empty(),
            format!("{} in all steps; more in: {many:?}", sum(|row| row.changed.len())),
        ),
        Check::new(
            "tables stay within the estimate",
            above.is_empty(),
            format!("at most {fullest} paths; above it in: {above:?}"),
        ),
        Check::new(
            "BGPPeers do not grow with nodes",
            peers.iter().all(|peers| *peers == wanted) && !peers.is_empty(),
            format!("groups + 1 = {wanted} for {} nodes", stage.site.ground.machines().len()),
        ),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "hundreds")]
fn above(row: &Row) -> bool {
    // While it takes everything away the operator estimates nothing any more.
    row.peers > 0 && row.paths as f64 > row.estimate + row.twice as f64
}
