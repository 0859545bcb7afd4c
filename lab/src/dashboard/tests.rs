//! Dashboards drawn from a Prometheus with scripted answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::model::Dashboard;
use super::{Options, Picture, draw_at, write};

mod layout;

/// The received requests: path and parameters.
type Asked = Arc<Mutex<Vec<(String, BTreeMap<String, String>)>>>;
/// The answer to a query: a result or an error.
type Answers = fn(&str, &str) -> Result<Value, &'static str>;

struct Scripted {
    url: String,
    asked: Asked,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Scripted {
    async fn start(answers: Answers) -> Self {
        let asked = Asked::default();
        let app = Router::new().fallback(answer).with_state((Arc::clone(&asked), answers));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/prefix/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, asked, server }
    }

    fn options(&self) -> Options {
        Options {
            prometheus: self.url.clone(),
            from: Duration::from_mins(15),
            rate_interval: Duration::from_secs(8),
            folded: false,
        }
    }

    fn asked(&self) -> Vec<(String, BTreeMap<String, String>)> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(
    State((asked, answers)): State<(Asked, Answers)>,
    uri: Uri,
    body: String,
) -> (StatusCode, String) {
    let form: BTreeMap<String, String> =
        form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let path = uri.path().to_owned();
    let said = answers(&path, &form["query"]);
    asked.lock().unwrap_or_else(PoisonError::into_inner).push((path, form));
    match said {
        Ok(result) => {
            let reply = json!({"status": "success", "data": {"resultType": "x", "result": result}});
            (StatusCode::OK, reply.to_string())
        }
        Err(error) => {
            let reply = json!({"status": "error", "errorType": "bad_data", "error": error});
            (StatusCode::BAD_REQUEST, reply.to_string())
        }
    }
}

const NOW: i64 = 1_767_225_600;

async fn drawn(scripted: &Scripted, panels: Value) -> anyhow::Result<Picture> {
    drawn_with(&scripted.options(), panels).await
}

async fn drawn_with(options: &Options, panels: Value) -> anyhow::Result<Picture> {
    let dashboard = json!({
        "title": "Nodes <all>", "description": "What & why", "panels": panels,
        "templating": {"list": [
            {"name": "datasource", "type": "datasource"},
            {"name": "name", "type": "query", "allValue": ".+"},
            {"name": "namespace", "type": "query"},
            {"name": "top", "type": "custom", "current": {"value": "20"}},
        ]},
    });
    let dashboard: Dashboard = serde_json::from_value(dashboard)?;
    draw_at(&dashboard, options, Timestamp::from_second(NOW)?, 240).await
}

fn panel(kind: &str, expr: &str, more: &Value) -> Value {
    let mut panel = json!({
        "type": kind, "title": format!("a {kind}"), "description": "d",
        "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8}, "options": {}, "fieldConfig": {"defaults": {"unit": "none"}},
        "targets": [{"refId": "A", "expr": expr, "legendFormat": "{{node}} of {{ ns }}"}],
    });
    let (Some(panel_fields), Some(more)) = (panel.as_object_mut(), more.as_object()) else {
        panic!("objects");
    };
    panel_fields.extend(more.clone());
    panel
}

/// A line from 0 to 100 and back, with a gap, and a series that is NaN throughout.
#[allow(clippy::unnecessary_wraps, reason = "a script may refuse")]
#[allow(clippy::cast_precision_loss, reason = "minutes")]
fn hill(path: &str, _: &str) -> Result<Value, &'static str> {
    let labels = json!({"node": "n1", "ns": "<script>&"});
    if path.ends_with("/query") {
        return Ok(json!([{"metric": labels, "value": [NOW, "42.5"]}]));
    }
    let times = (NOW - 900..=NOW).step_by(4).filter(|time| !(NOW - 300..NOW - 200).contains(time));
    let values: Vec<_> = times
        .map(|time| {
            json!([time, format!("{:.1}", 100.0 - (time - (NOW - 450)).abs() as f64 / 5.0)])
        })
        .collect();
    Ok(json!([
        {"metric": labels, "values": values},
        {"metric": {"node": "n2"}, "values": [[NOW - 4, "NaN"], [NOW, "NaN"]]},
    ]))
}

#[tokio::test]
async fn queries_are_asked_for_all_values_of_the_variables() {
    let scripted = Scripted::start(hill).await;
    let query = "rate(a{b=~\"$namespace\", c=~\"${name}\"}[$__rate_interval]) + d[$__range]";
    let panels = json!([
        panel("timeseries", query, &json!({})),
        panel("stat", "up", &json!({"targets": [{"refId": "A", "expr": "up", "instant": true}]})),
    ]);
    drawn(&scripted, panels).await.unwrap();
    let asked = scripted.asked();
    assert_eq!(asked[0].0, "/prefix/api/v1/query_range");
    let form = &asked[0].1;
    assert_eq!(form["query"], "rate(a{b=~\".*\", c=~\".+\"}[8s]) + d[900s]");
    assert_eq!(
        (form["start"].as_str(), form["end"].as_str(), form["step"].as_str()),
        ("1767224700.000", "1767225600.000", "4")
    );
    assert_eq!(asked[1].0, "/prefix/api/v1/query");
    assert_eq!(asked[1].1["time"], "1767225600.000");
    let error = drawn(&scripted, json!([panel("stat", "a{b=\"$other\"}", &json!({}))])).await;
    assert!(
        format!("{:#}", error.unwrap_err()).contains("a variable that the dashboard does not have")
    );
}

#[tokio::test]
async fn lines_have_axes_units_limits_and_a_legend() {
    let scripted = Scripted::start(hill).await;
    let more = json!({
        "fieldConfig": {"defaults": {
            "unit": "percent", "min": 0, "custom": {"thresholdsStyle": {"mode": "line"}},
            "thresholds": {"steps": [{"color": "green", "value": null}, {"color": "red", "value": 90}]},
        }, "overrides": [{"matcher": {"id": "byFrameRefID", "options": "A"},
            "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash"}}, {"id": "color", "value": {"mode": "fixed", "fixedColor": "orange"}}]}]},
        "options": {"legend": {"displayMode": "table", "showLegend": true}},
    });
    let picture = drawn(&scripted, json!([panel("timeseries", "up", &more)])).await.unwrap();
    let svg = &picture.svg;
    assert!(picture.empty.is_empty());
    for text in [
        ">40%</text>",
        ">100%</text>",
        ">23:50</text>",
        "class=\"limit\" stroke=\"#d0202f\"",
        "class=\"line dash\" stroke=\"#d97706\"",
        ">n1 of &lt;script&gt;&amp;: 10%, at most 99.6%</text>",
        "<title id=\"title\">Nodes &lt;all&gt;</title>",
        "<desc id=\"description\">What &amp; why</desc>",
        ">2025-12-31 23:45 to 00:00 UTC</text>",
    ] {
        assert!(svg.contains(text), "no {text} in {svg}");
    }
    assert!(!svg.contains("<script>") && !svg.contains("NaN") && !svg.contains("n2"), "{svg}");
    // Two parts with a gap between them, and straight where they are straight.
    let path = svg.split("<path d=\"").find(|path| path.matches('M').count() == 2).unwrap();
    let path = path.split('"').next().unwrap();
    assert!(path.matches('l').count() <= 4, "{path}");
}

#[tokio::test]
async fn stats_are_colored_by_threshold_and_named() {
    let scripted = Scripted::start(hill).await;
    let more = json!({
        "targets": [{"refId": "A", "expr": "up", "legendFormat": "{{node}}", "instant": true}],
        "options": {"textMode": "value_and_name"},
        "fieldConfig": {"defaults": {"unit": "s", "decimals": 0, "thresholds": {"steps": [
            {"color": "green", "value": null}, {"color": "orange", "value": 40}, {"color": "red", "value": 60}]}}},
    });
    let svg = drawn(&scripted, json!([panel("stat", "up", &more)])).await.unwrap().svg;
    assert!(svg.contains("fill:#d97706") && svg.contains(">42 s</text>"), "{svg}");
    assert!(svg.contains(">n1</text>"), "{svg}");
}

#[tokio::test]
async fn timelines_merge_what_is_alike_and_say_what_it_means() {
    #[allow(clippy::unnecessary_wraps, reason = "a script may refuse")]
    fn states(_: &str, _: &str) -> Result<Value, &'static str> {
        let state = |time: i64| if time < NOW - 450 { "0" } else { "1" };
        let values: Vec<_> =
            (NOW - 900..=NOW).step_by(4).map(|time| json!([time, state(time)])).collect();
        Ok(json!([{"metric": {"node": "n1"}, "values": values}]))
    }
    let scripted = Scripted::start(states).await;
    let more = json!({"fieldConfig": {"defaults": {"mappings": [{"type": "value", "options": {
        "0": {"text": "Fit", "color": "green"}, "1": {"text": "Unfit", "color": "red"}}}]}}});
    let svg = drawn(&scripted, json!([panel("state-timeline", "up", &more)])).await.unwrap().svg;
    // Each color once as a bar, once in the legend.
    assert_eq!(svg.matches("fill=\"#2f8a3b\"").count(), 2, "{svg}");
    assert_eq!(svg.matches("fill=\"#d0202f\"").count(), 2, "{svg}");
    for text in [">Fit</text>", ">Unfit</text>", ">n1 of</text>"] {
        assert!(svg.contains(text), "no {text} in {svg}");
    }
}

#[tokio::test]
async fn what_is_empty_is_drawn_so_and_named() {
    fn nothing(path: &str, query: &str) -> Result<Value, &'static str> {
        if query == "up" { hill(path, query) } else { Ok(json!([])) }
    }
    let scripted = Scripted::start(nothing).await;
    let mut other = panel("timeseries", "down", &json!({}));
    other["title"] = json!("gone");
    let panels = json!([{"type": "row", "title": "Row", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}}, panel("timeseries", "up", &json!({})), other]);
    let picture = drawn(&scripted, panels).await.unwrap();
    assert_eq!(picture.empty, ["gone"]);
    assert_eq!(picture.svg.matches(">no data</text>").count(), 1, "{}", picture.svg);
    assert!(picture.svg.contains("class=\"row\">Row</text>"), "{}", picture.svg);
}

#[tokio::test]
async fn folded_rows_are_drawn_unfolded_one_below_the_other_or_as_they_are() {
    let scripted = Scripted::start(hill).await;
    let place = |y: u32| json!({"gridPos": {"x": 0, "y": y, "w": 24, "h": 8}});
    let row = |title: &str, y: u32, inner: Value| {
        json!({"type": "row", "title": title, "collapsed": true, "panels": [inner],
               "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
    };
    let inner = |y| panel("timeseries", "topk($top, up)", &place(y));
    let panels = json!([row("one", 0, inner(1)), row("two", 1, inner(2))]);
    let svg = drawn(&scripted, panels.clone()).await.unwrap().svg;
    // Two rows, each of one line of the grid and eight for its panel.
    assert!(svg.contains(&format!("height=\"{}\"", 40 + 18 * 30 + 8)), "{svg}");
    assert!(svg.contains("y=\"64\" class=\"row\">one<"), "{svg}");
    assert!(svg.contains("y=\"334\" class=\"row\">two<"), "{svg}");
    assert_eq!(scripted.asked()[0].1["query"], "topk(20, up)");

    let asked = scripted.asked().len();
    let folded = Options { folded: true, ..scripted.options() };
    let svg = drawn_with(&folded, panels).await.unwrap().svg;
    assert!(svg.contains(&format!("height=\"{}\"", 40 + 2 * 30 + 8)), "{svg}");
    assert!(svg.contains("y=\"94\" class=\"row\">▸ two<"), "{svg}");
    assert_eq!(scripted.asked().len(), asked, "nothing is asked for panels that nobody sees");
}

#[tokio::test]
async fn an_absence_that_has_a_meaning_is_drawn_with_it_and_not_missed() {
    let scripted = Scripted::start(|_, _| Ok(json!([]))).await;
    let more = json!({"fieldConfig": {"defaults": {"unit": "none", "noValue": "All are fit."}}});
    let picture = drawn(&scripted, json!([panel("table", "up", &more)])).await.unwrap();
    assert!(picture.empty.is_empty(), "{:?}", picture.empty);
    assert!(picture.svg.contains(">All are fit.</text>"), "{}", picture.svg);
}

#[tokio::test]
async fn numbers_of_a_table_are_shown_as_the_words_that_they_stand_for() {
    #[allow(clippy::unnecessary_wraps, reason = "a script may refuse")]
    fn ranks(_: &str, _: &str) -> Result<Value, &'static str> {
        let node = |name: &str, rank: &str| json!({"metric": {"node": name}, "value": [NOW, rank]});
        Ok(json!([node("n1", "1"), node("n2", "3")]))
    }
    let scripted = Scripted::start(ranks).await;
    let more = json!({
        "fieldConfig": {"defaults": {"unit": "none"}, "overrides": [{"matcher": {"id": "byName", "options": "State"},
            "properties": [{"id": "mappings", "value": [{"type": "value", "options": {
                "3": {"text": "Unfit", "color": "red"}, "1": {"text": "Unknown", "color": "blue"}}}]}]}]},
        "options": {"sortBy": [{"displayName": "State", "desc": true}]},
        "transformations": [{"id": "organize", "options": {"renameByName": {"Value": "State", "node": "Node"},
            "indexByName": {"Value": 0, "node": 1}, "excludeByName": {}}}],
        "targets": [{"refId": "A", "expr": "up", "instant": true}],
    });
    let svg = drawn(&scripted, json!([panel("table", "up", &more)])).await.unwrap().svg;
    let (unfit, unknown) = (svg.find(">Unfit<").unwrap(), svg.find(">Unknown<").unwrap());
    assert!(unfit < unknown && svg.contains("fill:#d0202f"), "{svg}");
}

#[tokio::test]
async fn without_data_the_picture_is_written_and_the_command_fails() {
    let scripted = Scripted::start(|_, _| Ok(json!([]))).await;
    let name = format!("lab-draw-{}", crate::workspace::unique());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory).unwrap();
    let (file, out) = (directory.join("in.json"), directory.join("out.svg"));
    let dashboard = json!({"title": "t", "panels": [panel("stat", "up", &json!({}))]});
    std::fs::write(&file, dashboard.to_string()).unwrap();
    let failed = write(&file, &scripted.options(), &out, false).await.unwrap_err().to_string();
    let written = std::fs::read_to_string(&out).unwrap();
    let allowed = write(&file, &scripted.options(), &out, true).await;
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(failed.starts_with("panels without data: a stat"), "{failed}");
    assert!(written.contains("no data"), "{written}");
    assert_eq!(allowed.unwrap(), written.len());
}

#[tokio::test]
async fn what_is_refused_or_not_understood_names_the_panel() {
    fn refuses(_: &str, query: &str) -> Result<Value, &'static str> {
        if query == "up" { hill("", query) } else { Err("parse error at char 3") }
    }
    let scripted = Scripted::start(refuses).await;
    let bad_unit = json!({"fieldConfig": {"defaults": {"unit": "furlongs"}}});
    let bad_match = json!({"fieldConfig": {"overrides": [{"matcher": {"id": "byType", "options": "x"}, "properties": []}]}});
    for (panel, text) in [
        (
            panel("timeseries", "up(", &json!({})),
            "Prometheus refuses it (400 Bad Request): parse error at char 3",
        ),
        (panel("heatmap", "up", &json!({})), "panels of type \"heatmap\" cannot be drawn"),
        (panel("timeseries", "up", &bad_unit), "the unit \"furlongs\" is not known"),
        (
            panel("timeseries", "up", &bad_match),
            "overrides that match Some(\"byType\") are not known",
        ),
    ] {
        let title = panel["title"].as_str().unwrap().to_owned();
        let error = format!("{:#}", drawn(&scripted, json!([panel])).await.unwrap_err());
        assert!(error.contains(text) && error.contains(&title), "{error}");
    }
}

/// The dashboard that we ship holds nothing that cannot be drawn, and its picture is small.
#[tokio::test]
async fn the_shipped_dashboards_can_be_drawn() {
    let scripted = Scripted::start(|path, query| {
        let mut series = hill(path, query)?;
        if query.contains("_node_state") && path.ends_with("_range") {
            let values: Vec<_> = (NOW - 900..=NOW).step_by(4).map(|t| json!([t, "1"])).collect();
            series[0]["values"] = values.into();
        }
        // Six nodes of two objects each.
        let mut all = Vec::new();
        for i in 0..12 {
            let mut one = series[0].clone();
            one["metric"] = json!({"namespace": "default", "name": format!("w{}", i % 2), "node": format!("node-{i}"), "state": "Fit"});
            all.push(one);
        }
        Ok(Value::Array(all))
    })
    .await;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../grafana");
    let mut count = 0;
    for file in std::fs::read_dir(directory).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&file).unwrap();
            let dashboard: Dashboard = serde_json::from_str(&text).unwrap();
            let now = Timestamp::from_second(NOW).unwrap();
            let picture = draw_at(&dashboard, &scripted.options(), now, 240).await.unwrap();
            assert!(picture.empty.is_empty(), "{:?}", picture.empty);
            assert!(picture.svg.len() < 250_000, "{} bytes", picture.svg.len());
            count += 1;
        }
    }
    assert!(count > 0);
}
