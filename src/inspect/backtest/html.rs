//! A backtest as one HTML file: a timeline of the nodes, and the results of other thresholds.
//!
//! The file loads nothing. States also differ by pattern, for people who cannot distinguish the
//! colors.
use std::fmt::Write;

use k8s_openapi::jiff::Timestamp;

use super::{Backtest, Change, NodeRun, Summary, seconds, unit};
use crate::{api::traffic_watch::NodeState, text::figures::value};

/// Maximum number of drawn nodes: those with the most time unfit. More would be unreadable.
const ROWS: usize = 200;

/// Maximum number of listed transitions.
const TRANSITIONS: usize = 1000;

/// Left edge of the timeline: the names are left of it.
const LEFT: f64 = 190.0;

/// Width of the timeline, in pixels.
const WIDTH: f64 = 900.0;

/// The height of a node's row.
const ROW: f64 = 22.0;

/// Top edge of the first row: the time axis is above.
const TOP: f64 = 26.0;

/// Number of labels on the time axis.
const TICKS: u32 = 6;

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--line:#d0d7de;--soft:#57606a}
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--line:#30363d;--soft:#9da7b1}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:2rem auto;max-width:1120px;padding:0 1rem}
h1{font-size:1.35rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .7rem;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}tr.own{font-weight:600}
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--fg)}
.scroll{overflow-x:auto}.soft{color:var(--soft)}.warning{border-left:4px solid #bf8700;padding-left:.7rem}";

const PATTERNS: &str = "<defs>\
<pattern id=\"Unfit\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect width=\"6\" height=\"6\" fill=\"#cf222e\"/><rect width=\"2\" height=\"6\" fill=\"#82071e\"/></pattern>\
<pattern id=\"Suppressed\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<rect width=\"6\" height=\"6\" fill=\"#d4a72c\"/><rect width=\"6\" height=\"2\" fill=\"#7d4e00\"/></pattern>\
<pattern id=\"Unknown\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<rect width=\"6\" height=\"6\" fill=\"#afb8c1\"/><circle cx=\"3\" cy=\"3\" r=\"1.2\" fill=\"#424a53\"/></pattern>\
<pattern id=\"Fit\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<rect width=\"6\" height=\"6\" fill=\"#4ac26b\"/></pattern></defs>";

/// The whole file.
#[must_use]
pub fn html(backtest: &Backtest) -> String {
    let watch = escaped(&backtest.watch);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Backtest of {watch}</title>\n<style>{STYLE}</style></head>\n<body>\n\
         <h1>Backtest of {watch}</h1>\n<p>{:.0} to {:.0}, a judgment every {}</p>\n",
        backtest.from,
        backtest.to,
        seconds(backtest.step_seconds)
    );
    for warning in &backtest.warnings {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escaped(warning));
    }
    page.push_str("<ul>\n");
    for measure in &backtest.measures {
        let shown = |x| escaped(&value(x, &measure.unit));
        let _ = writeln!(
            page,
            "<li>{}: unfit above {}, fit again at or below {}</li>",
            escaped(&measure.name),
            shown(measure.max),
            shown(measure.recover)
        );
    }
    let evaluations = &backtest.run.evaluations;
    let _ = writeln!(
        page,
        "<li>{} judgments ok, {} with low coverage, {} failed</li>\n\
         <li>the limit held nodes back in {} judgments, for {} of node time</li>\n</ul>",
        evaluations.ok,
        evaluations.low_coverage,
        evaluations.failed,
        backtest.run.breaker.judgments,
        seconds(backtest.run.breaker.node_seconds)
    );
    timeline(&mut page, backtest);
    thresholds(&mut page, backtest);
    transitions(&mut page, backtest);
    page.push_str("</body></html>\n");
    page
}

fn timeline(page: &mut String, backtest: &Backtest) {
    let mut nodes: Vec<_> = backtest.run.nodes.iter().collect();
    nodes.sort_by(|a, b| b.unfit_seconds.total_cmp(&a.unfit_seconds));
    let more = nodes.len().saturating_sub(ROWS);
    nodes.truncate(ROWS);
    let bottom = ROW.mul_add(f64::from(u32::try_from(nodes.len()).unwrap_or_default()), TOP);
    let (right, height) = (LEFT + WIDTH, bottom + 34.0);
    let _ = write!(
        page,
        "<h2>Timeline</h2>\n<div class=\"scroll\"><svg viewBox=\"0 0 {} {height}\" role=\"img\" \
         aria-label=\"States of {} nodes over time\">{PATTERNS}\n",
        right + 10.0,
        nodes.len()
    );
    let axis = Axis { from: backtest.from, to: backtest.to };
    for tick in 0..=TICKS {
        let share = f64::from(tick) / f64::from(TICKS);
        let x = LEFT + WIDTH * share;
        let anchor = if tick == 0 {
            "start"
        } else if tick == TICKS {
            "end"
        } else {
            "middle"
        };
        let _ = writeln!(
            page,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"currentColor\" \
             stroke-opacity=\".15\"/><text x=\"{x:.1}\" y=\"16\" text-anchor=\"{anchor}\">{}</text>",
            axis.moment(share)
        );
    }
    for (i, node) in nodes.iter().enumerate() {
        let y = ROW.mul_add(f64::from(u32::try_from(i).unwrap_or_default()), TOP);
        row(page, &axis, node, y);
    }
    legend(page, bottom + 12.0);
    page.push_str("</svg></div>\n");
    if more > 0 {
        let _ = writeln!(page, "<p class=\"soft\">{more} more nodes, with less time unfit</p>");
    }
}

fn row(page: &mut String, axis: &Axis, node: &NodeRun, y: f64) {
    let name = escaped(&node.name);
    let _ = writeln!(
        page,
        "<g><title>{name}: unfit {}, {} times</title><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        seconds(node.unfit_seconds),
        node.times_unfit,
        LEFT - 8.0,
        y + 15.0,
        shortened(&node.name)
    );
    for span in &node.spans {
        let (x, end) = (axis.x(span.from), axis.x(span.to));
        let state = span.state.as_str();
        let _ = writeln!(
            page,
            "<rect x=\"{x:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" fill=\"url(#{state})\">\
             <title>{name}: {state} from {:.0} to {:.0}</title></rect>",
            y + 3.0,
            // A thinner bar would be invisible.
            (end - x).max(0.5),
            ROW - 6.0,
            span.from,
            span.to
        );
    }
    page.push_str("</g>\n");
}

fn legend(page: &mut String, y: f64) {
    for (i, state) in (0u32..).zip(NodeState::ALL) {
        let x = f64::from(i).mul_add(130.0, LEFT);
        let state = state.as_str();
        let _ = write!(
            page,
            "<rect x=\"{x}\" y=\"{y}\" width=\"18\" height=\"14\" fill=\"url(#{state})\"/>\
             <text x=\"{}\" y=\"{}\">{state}</text>",
            x + 24.0,
            y + 12.0
        );
    }
}

/// The time axis, which begins at [`LEFT`].
struct Axis {
    from: Timestamp,
    to: Timestamp,
}

impl Axis {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a history are below 2^53")]
    fn x(&self, at: Timestamp) -> f64 {
        let ms = |t: Timestamp| t.as_millisecond() - self.from.as_millisecond();
        let whole = ms(self.to).max(1) as f64;
        (ms(at) as f64 / whole).clamp(0.0, 1.0).mul_add(WIDTH, LEFT)
    }

    /// Returns a moment as `11-20 17:00`: the year is above.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "as above")]
    fn moment(&self, share: f64) -> String {
        let (from, to) = (self.from.as_second(), self.to.as_second());
        let second = from + ((to - from) as f64 * share) as i64;
        let at = Timestamp::from_second(second).unwrap_or(self.from);
        let text = format!("{at:.0}");
        text.get(5..16).unwrap_or(&text).replace('T', " ")
    }
}

fn thresholds(page: &mut String, backtest: &Backtest) {
    let unit = unit(backtest);
    page.push_str(
        "<h2>Thresholds</h2>\n<div class=\"scroll\"><table><tr><th class=\"n\">Threshold</th>\
         <th class=\"n\">Nodes unfit</th><th class=\"n\">Time unfit</th><th class=\"n\">Transitions</th>\
         <th class=\"n\">Flaps</th><th class=\"n\">Held back</th></tr>\n",
    );
    for s in &backtest.thresholds {
        let Summary { nodes_unfit, transitions, flaps, .. } = s;
        let _ = writeln!(
            page,
            "<tr{}><td class=\"n\">{}{}</td><td class=\"n\">{nodes_unfit}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{transitions}</td><td class=\"n\">{flaps}</td><td class=\"n\">{}</td></tr>",
            if s.configured { " class=\"own\"" } else { "" },
            escaped(&value(s.threshold, unit)),
            if s.configured { " (as configured)" } else { "" },
            seconds(s.unfit_seconds),
            seconds(s.breaker.node_seconds)
        );
    }
    page.push_str("</table></div>\n");
}

fn transitions(page: &mut String, backtest: &Backtest) {
    let all = &backtest.run.transitions;
    let unit = unit(backtest);
    let _ = write!(
        page,
        "<h2>Transitions: {}</h2>\n<div class=\"scroll\"><table><tr><th>Time</th><th>Node</th>\
         <th>From</th><th>To</th><th>Reason</th><th class=\"n\">Value</th></tr>\n",
        all.len()
    );
    for Change { transition, value: x } in all.iter().take(TRANSITIONS) {
        let _ = writeln!(
            page,
            "<tr><td>{:.0}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
            transition.at,
            escaped(&transition.node),
            transition.from.as_str(),
            transition.to.as_str(),
            escaped(&transition.reason),
            x.map_or("-".into(), |x| escaped(&value(x, unit)))
        );
    }
    page.push_str("</table></div>\n");
    if all.len() > TRANSITIONS {
        let _ = writeln!(page, "<p class=\"soft\">{} more</p>", all.len() - TRANSITIONS);
    }
}

/// Shortens a name to fit left of the timeline.
fn shortened(name: &str) -> String {
    const FITS: usize = 26;
    if name.chars().count() <= FITS {
        return escaped(name);
    }
    let start: String = name.chars().take(FITS - 1).collect();
    format!("{}…", escaped(&start))
}

/// Escapes text for HTML: a node's name comes from a label of an untrusted series.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        inspect::backtest::{Run, Span},
        traffic_watch::overview::{MeasureView, TransitionView},
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn backtest(node: &str) -> Backtest {
        let span = |state, from, to| Span { state, from: at(from), to: at(to) };
        let transition = TransitionView {
            at: at(60),
            node: node.into(),
            from: NodeState::Fit,
            to: NodeState::Unfit,
            reason: "Measured".into(),
        };
        let run = Run {
            transitions: vec![Change { transition, value: Some(71.5) }],
            nodes: vec![NodeRun {
                name: node.into(),
                unfit_seconds: 40.0,
                spans: vec![span(NodeState::Fit, 0, 60), span(NodeState::Unfit, 60, 100)],
                ..NodeRun::default()
            }],
            ..Run::default()
        };
        Backtest {
            watch: "default/web".into(),
            from: at(0),
            to: at(100),
            step_seconds: 10.0,
            measures: vec![MeasureView {
                name: "bandwidth".into(),
                unit: "percent".into(),
                max: 60.0,
                recover: 54.0,
                endpoint: "default".into(),
                query: "x".into(),
                problem: None,
            }],
            warnings: vec![],
            thresholds: vec![run.summary(60.0, true), run.summary(30.0, false)],
            run,
        }
    }

    #[test]
    fn spans_lie_where_their_time_is() {
        let page = html(&backtest("node-1"));
        // 60 of 100 seconds of 900 units, right of 190.
        assert!(page.contains("<rect x=\"190.00\" y=\"29\" width=\"540.00\""), "{page}");
        assert!(
            page.contains(
                "<rect x=\"730.00\" y=\"29\" width=\"360.00\" height=\"16\" fill=\"url(#Unfit)\""
            ),
            "{page}"
        );
        assert!(page.contains("60 % (as configured)") && page.contains("71.5 %"), "{page}");
    }

    #[test]
    fn no_text_becomes_markup_and_nothing_is_loaded() {
        let page = html(&backtest("<script>alert('&\"')</script>"));
        assert!(!page.contains("<script"), "{page}");
        assert!(
            page.contains("&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;"),
            "{page}"
        );
        for outside in ["http:", "https:", "src=", "href=", "@import", "url(h"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
