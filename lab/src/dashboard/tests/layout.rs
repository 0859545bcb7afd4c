//! Tables, axes and numbers, without a Prometheus.

use serde_json::json;

use super::panel;
use crate::dashboard::ask::{Answer, Series};
use crate::dashboard::model::Panel;
use crate::dashboard::{scale, table};

fn series(labels: &[(&str, &str)], value: f64) -> Series {
    let labels =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Series { labels, name: String::new(), points: vec![(0.0, value)] }
}

#[test]
fn tables_join_by_common_labels_and_keep_what_has_no_partner() {
    let answer = |id: &str, series| Answer { id: id.to_owned(), series, step: 1.0 };
    let answers = [
        answer(
            "A",
            vec![
                series(&[("node", "a"), ("state", "Fit")], 1.0),
                series(&[("node", "b"), ("state", "Unfit")], 1.0),
            ],
        ),
        answer("B", vec![series(&[("node", "a")], 5.0), series(&[("node", "c")], 9.0)]),
    ];
    let panel: Panel = serde_json::from_value(panel("table", "", &json!({
        "transformations": [{"id": "merge"}, {"id": "organize", "options": {
            "excludeByName": {"Value #A": true}, "indexByName": {"node": 0, "state": 1, "Value #B": 2},
            "renameByName": {"node": "Node", "Value #B": "Value"}}}],
        "options": {"sortBy": [{"displayName": "Value", "desc": true}]},
    })))
    .unwrap();
    let (columns, rows) = table::arranged(&panel, &answers).unwrap();
    assert_eq!(columns, ["Node", "state", "Value"]);
    let nodes: Vec<_> =
        rows.iter().map(|row| format!("{:?} {:?}", row.get("Node"), row.get("Value"))).collect();
    assert_eq!(
        nodes,
        [
            "Some(Text(\"c\")) Some(Number(9.0))",
            "Some(Text(\"a\")) Some(Number(5.0))",
            "Some(Text(\"b\")) None"
        ]
    );
}

#[test]
fn pairs_become_a_matrix() {
    let pair = |from: &str, to: &str, value| series(&[("src_node", from), ("dst_node", to)], value);
    let pairs = vec![pair("b", "a", 2.0), pair("a", "c", 1.0), pair("b", "c", 3.0)];
    let answers = [Answer { id: "A".to_owned(), series: pairs, step: 1.0 }];
    let panel: Panel = serde_json::from_value(panel(
        "table",
        "",
        &json!({
            "transformations": [{"id": "groupingToMatrix", "options": {
                "rowField": "src_node", "columnField": "dst_node", "valueField": "Value"}}],
        }),
    ))
    .unwrap();
    let (columns, rows) = table::arranged(&panel, &answers).unwrap();
    assert_eq!(columns, ["src_node\\dst_node", "a", "c"]);
    let cells = |row: &table::Row| columns.iter().map(|c| row.get(c).cloned()).collect::<Vec<_>>();
    let text = |text: &str| Some(table::Cell::Text(text.to_owned()));
    let number = |number| Some(table::Cell::Number(number));
    assert_eq!(cells(&rows[0]), [text("a"), None, number(1.0)]);
    assert_eq!(cells(&rows[1]), [text("b"), number(2.0), number(3.0)]);
}

#[test]
fn axes_have_few_round_marks() {
    for (smallest, largest, most, unit, expected) in [
        (0.0, 97.0, 4, "percent", vec![0.0, 50.0, 100.0]),
        (0.0, 1.0, 2, "none", vec![0.0, 0.5, 1.0, 1.5]),
        (0.0, 0.0, 2, "none", vec![0.0, 0.5, 1.0, 1.5]),
        (-3.0, 3.0, 3, "none", vec![-4.0, -2.0, 0.0, 2.0, 4.0]),
        (0.0, 17.0 * 1_048_576.0, 2, "bytes", vec![0.0, 10_485_760.0, 20_971_520.0]),
    ] {
        let marks = scale::ticks(smallest, largest, most, unit);
        assert_eq!(marks.len(), expected.len(), "{smallest} to {largest}: {marks:?}");
        assert!(marks.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{marks:?}");
    }
    assert_eq!(scale::time_ticks(30.0, 330.0, 5), [60.0, 120.0, 180.0, 240.0, 300.0]);
}

#[test]
fn numbers_are_shown_in_their_units() {
    for (value, unit, decimals, expected) in [
        (81.237, "percent", None, "81.2%"),
        (0.5, "percentunit", Some(1), "50.0%"),
        (0.0042, "s", None, "4.2 ms"),
        (0.0, "s", None, "0 s"),
        (300.0, "s", None, "5 min"),
        (8.12e8, "bps", None, "812 Mb/s"),
        (999_999.0, "bps", None, "1 Mb/s"),
        (18_874_368.0, "bytes", None, "18 MiB"),
        (0.00512, "none", None, "0.00512"),
        (1500.0, "sishort", None, "1.5 k"),
        (1e-9, "none", None, "1.0e-9"),
        (0.2, "reqps", None, "0.2 req/s"),
        (3.0, "none", Some(0), "3"),
    ] {
        assert_eq!(scale::format(value, unit, decimals), expected, "{value} {unit}");
    }
}
