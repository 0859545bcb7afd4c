use proptest::prelude::*;

use super::*;

fn refusal(text: &str) -> String {
    check_vector(text).unwrap_err().to_string()
}

#[test]
fn queries_of_every_kind_are_accepted() {
    for text in [
        "up",
        "max by (node) (up) and on(node) (x > bool 0)",
        "avg_over_time(rate(up[5m])[1h:30s])",
        "# why\nsum without (device) (\n  rate(a{job=\"x\",device=~\"(eth|en)[0-9].*\"}[2m] offset 5m)\n)\n",
        "{__name__=~\"node_.*\"}",
        "{\"http.status\", job=\"x\"}",
        "label_replace(up, \"node\", \"$1\", \"instance\", \"(.*):.*\")",
        "histogram_quantile(0.9, sum by (le, node) (rate(b[5m])))",
        "up @ end() offset -300",
        "absent(up) or vector(1)",
        "a unless on () b / ignoring (x) group_left c",
        // Valid for Prometheus, not for Rust's regular expressions; and one that excludes "".
        r#"up{a=~"\\Qx.y\\E"}"#,
        r#"{job!~"|test"}"#,
        "-up ^ 2 atan2 0x1F",
        "up{a='é'} offset 1.5",
    ] {
        assert_eq!(check_vector(text), Ok(()), "{text}");
    }
    let recommended = "max by (instance) (
      sum by (instance, device) (rate(node_network_transmit_bytes_total{job=\"node-exporter\",device=~\"(eth|en[opsx]|em|ib)[0-9].*|p[0-9]+p[0-9]+.*\"}[2m]))
      / max by (instance, device) (node_network_speed_bytes{job=\"node-exporter\"} > 0))
    and on (instance) (max by (instance) (up{job=\"node-exporter\"}) == 1)";
    assert_eq!(check_vector(recommended), Ok(()));
}

#[test]
fn what_is_no_instant_vector_is_refused() {
    for (text, found) in [
        ("1", "a scalar"),
        ("time() + 1", "a scalar"),
        ("scalar(up)", "a scalar"),
        ("up[5m]", "a range (a matrix)"),
        ("(rate(up[5m])[1h:1m])", "a range (a matrix)"),
        ("\"up\"", "a string"),
    ] {
        let expected =
            format!("gives {found}, where one value per node (an instant vector) is needed");
        assert_eq!(refusal(text), expected);
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, expected) in [
        ("", "is empty"),
        (" \n", "is empty"),
        ("# up", "is only a comment"),
        ("up{", "column 3: unexpected end of input inside braces"),
        ("sum(a) + sum(b", "column 13: unclosed left parenthesis"),
        ("up) + 1", "column 3: unexpected right parenthesis ')'"),
        ("up + é", "column 6: unexpected character: 'é'"),
        ("é\nup + é", "line 1, column 1: unexpected character: 'é'"),
        ("up{a='é'} + \"x", "column 13: unterminated quoted string \""),
        ("up offset 5x", "column 12: bad number or duration syntax: 5x"),
        ("up +", "column 4: is no PromQL from here on: +"),
        ("up by (x)", "column 4: is no PromQL from here on: by (x)"),
        ("sum(up by (node)) or up", "column 8: is no PromQL from here on: by (node)) or up"),
        (
            "up and up keep_common_labels_please",
            "column 11: is no PromQL from here on: keep_common_labels_p…",
        ),
        ("* up", "column 1: is no PromQL from here on: * up"),
        ("sum(foo(up)) + 1", "column 8: unknown function with name 'foo'"),
        (
            "sum(rate(up)) + 1",
            "column 10: expected type matrix in call to function 'rate', got vector",
        ),
        (
            "{a=\"b\"} + {}",
            "column 11: vector selector must contain at least one non-empty matcher",
        ),
        (
            "a\n+ on (b)\n  c[5m]",
            "line 3, column 5: binary expression must contain only scalar and instant vector types",
        ),
    ] {
        assert_eq!(refusal(text), expected, "{text}");
    }
    let position = check_vector("é +\n é").unwrap_err().position;
    assert_eq!(position, Some(Position { offset: 0, line: Some(1), column: 1 }));
}

/// The message is in a condition and in the log, and a terminal obeys escape sequences.
#[test]
fn no_control_character_of_a_query_is_in_a_message() {
    let text = "up # \u{1b}]0;x\u{7}\n by (x)";
    let expected = "line 1, column 4: is no PromQL from here on: #  ]0;x   by (x)";
    assert_eq!(refusal(text), expected);
    for text in ["up !\u{1b}", "up \u{9b}31m", "{\u{1b}}", "up[\u{7}]", "up{a=\"\u{1b}[31m"] {
        let message = refusal(text);
        assert!(!message.contains(char::is_control), "{message:?}");
    }
}

#[test]
fn a_long_word_of_a_query_is_not_repeated_in_full() {
    let message = refusal(&format!("{}(up)", "x".repeat(10_000)));
    assert!(message.len() < 350, "{message}");
    let message = refusal(&format!("up offset 5{}", "x".repeat(10_000)));
    assert!(message.len() < 350, "{message}");
}

#[test]
fn numbers_that_are_no_durations_do_not_end_the_process() {
    for number in ["NaN", "Inf", "1e300", "-Inf", "+ 1e20", "# c\n nan"] {
        for text in
            [format!("up offset {number}"), format!("up[5m:{number}]"), format!("up[{number}]")]
        {
            assert!(check_vector(&text).is_err(), "{text}");
        }
    }
    assert_eq!(refusal("up offset 1e300"), "column 11: 1e300 is no duration");
    // Elsewhere they are numbers.
    assert_eq!(check_vector("up > 1e300 or up == NaN"), Ok(()));
}

#[test]
fn no_nesting_or_chain_overflows_the_stack() {
    let half = |open: &str, close: &str| {
        let count = (MAX_BYTES - 2) / (open.len() + close.len());
        format!("{}up{}", open.repeat(count), close.repeat(count))
    };
    let texts = [
        "(".repeat(MAX_BYTES),
        half("(", ")"),
        half("sum(", ")"),
        half("abs(-(1+", "))"),
        half("-", ""),
        half("up+", ""),
        half("up^", ""),
        half("a and on()", ""),
        half("", "[1m:1m]"),
        half("", " offset 1m"),
        half("-rate(", "[5m:])"),
        "{".repeat(MAX_BYTES),
        "[".repeat(MAX_BYTES),
        "up{a=\"".to_owned() + &"\\".repeat(MAX_BYTES - 8),
        // The allowed maximum of everything.
        format!("{}{}up{}", "-".repeat(4_700), "-abs(".repeat(99), ")".repeat(99)),
        format!("{}up", "up^".repeat(2_499)),
        format!("{}up", "up+".repeat(2_499)),
    ];
    // Half of what a thread of the runtime has.
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let check = move || {
        for text in texts {
            let _ = check_vector(&text);
        }
    };
    thread.spawn(check).unwrap().join().unwrap();
    assert_eq!(refusal(&"(".repeat(MAX_BYTES)), "unclosed left parenthesis");
    let deep = format!("{}up{}", "(".repeat(101), ")".repeat(101));
    assert_eq!(refusal(&deep), "column 101: is nested more than 100 levels deep");
    assert_eq!(check_vector(&format!("{}up{}", "(".repeat(100), ")".repeat(100))), Ok(()));
    assert_eq!(
        refusal(&"x".repeat(MAX_BYTES + 1)),
        "has 16385 bytes, where at most 16384 are allowed"
    );
    assert!(refusal(&half("up+", "")).ends_with("has more than 5000 words and signs"));
}

/// Words of PromQL in any order.
fn salad() -> impl Strategy<Value = String> {
    let words = [
        "up",
        "sum",
        "rate",
        "by",
        "without",
        "on",
        "group_left",
        "offset",
        "bool",
        "and",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "[5m]",
        "[5m:",
        ":",
        ",",
        "=",
        "=~",
        "!~",
        "!=",
        "\"x\"",
        "'",
        "\"(\"",
        "`",
        "\\",
        "#",
        "\n",
        "@",
        "end()",
        "1",
        "1e300",
        "NaN",
        "Inf",
        "0x",
        "5m",
        "1y2w",
        "-",
        "+",
        "^",
        "/",
        "99999999999999999999y",
        "1e",
        "fill",
        "(0)",
        "é",
        "\u{0}",
        "$",
        "a=",
        "label_replace",
        "quantile_over_time",
        "topk",
        "info",
        "9223372036854775808",
    ];
    let word = (proptest::sample::select(words.to_vec()), any::<bool>());
    proptest::collection::vec(word, 0..16).prop_map(|words| {
        words
            .into_iter()
            .map(|(word, space)| word.to_owned() + if space { " " } else { "" })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn never_panics_on_words_of_promql(text in salad()) {
        if let Err(error) = check_vector(&text) {
            prop_assert!(error.position.is_none_or(|p| p.offset <= text.len()));
        }
    }

    #[test]
    fn never_panics_on_any_text(text in ".{0,200}") {
        let _ = check_vector(&text).map_err(|error| error.to_string());
    }
}

proptest! {
    /// Of a query with a slip of the pen every place that is named lies in it.
    #[test]
    fn an_edited_query_is_refused_with_a_place_in_it(
        query in proptest::sample::select(vec![
            "max by (node) (up) and on(node) (x > bool 0)",
            "avg_over_time(rate(up{job=\"é\",a=~'b|c'}[5m])[1h:30s])",
            "# why\nsum without (device) (\n  rate(a{device!~\"(eth|en)[0-9].*\"}[2m] offset 5m)\n)\n",
            "label_replace(up, \"node\", \"$1\", \"instance\", \"(.*):.*\") * on () group_left 0x1F",
        ]),
        at: proptest::sample::Index, gone in 0..3_usize,
        written in "([-+*/%^(){},:=~!<>@#\"'` \n0-9a-z]|\\[|\\]|\\\\|\\PC){0,3}",
    ) {
        let all: Vec<char> = query.chars().collect();
        let start = at.index(all.len() + 1);
        let end = (start + gone).min(all.len());
        let (before, after) = (all[..start].iter(), all[end..].iter());
        let text: String = before.copied().chain(written.chars()).chain(after.copied()).collect();
        let checked = check_vector(&text);
        if let Err(error) = &checked {
            prop_assert!(!error.message.trim().is_empty());
            if let Some(place) = error.position {
                prop_assert!(text.is_char_boundary(place.offset), "{text:?}: {place:?}");
                let before = &text[..place.offset];
                prop_assert_eq!(place, Position::of(&text, place.offset));
                prop_assert!(place.column > 0 && place.column <= before.chars().count() + 1);
            }
        }
        // Blanks mean nothing.
        prop_assert_eq!(check_vector(&format!(" {text}\n")).is_ok(), checked.is_ok(), "{:?}", text);
    }
}
