//! Calico's selector language: the texts that its parser accepts and refuses, and their meaning.
use proptest::{collection, prelude::*};

use super::super::{Labels, MAX_DEPTH, Selector, SelectorError};

fn matches(text: &str, labels: &[(&str, &str)]) -> bool {
    let selector = Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let labels: Labels = labels.iter().copied().collect();
    selector.matches(&labels)
}

#[test]
fn what_selects_what() {
    let labels = [("zone", "eu-1"), ("rr", ""), ("a.b/c-d_e", "x y"), ("in", "has")];
    let rows = [
        ("", true),
        (" \t ", true),
        ("all()", true),
        ("all( )", true),
        ("global()", true),
        ("!all()", false),
        ("has(rr)", true),
        ("has( zone )", true),
        ("has(none)", false),
        ("!has(none)", true),
        ("!!has(none)", false),
        ("! has(rr)", false),
        ("zone == 'eu-1'", true),
        ("zone==\"eu-1\"", true),
        ("zone == 'EU-1'", false),
        ("rr == ''", true),
        ("none == ''", false),
        ("zone != 'eu-2'", true),
        ("none != 'eu-1'", true),
        ("!zone == 'eu-1'", false),
        ("zone in {'eu-0', 'eu-1'}", true),
        ("zone in{'eu-0','eu-1',}", true),
        ("zone in {}", false),
        ("none in {''}", false),
        ("zone not in {'eu-0'}", true),
        ("zone notin {'eu-1'}", false),
        ("none not in {'eu-1'}", true),
        ("zone contains 'u-'", true),
        ("zone contains'u-'", true),
        ("none contains ''", false),
        ("zone starts with 'eu'", true),
        ("zone startswith 'u'", false),
        ("zone ends with '-1'", true),
        ("zone ends\twith '-'", false),
        ("a.b/c-d_e == 'x y'", true),
        ("in == 'has'", true),
        ("in in {'has'}", true),
        ("has(in) && has(rr)", true),
        ("has(none) && has(rr) || has(zone)", true),
        ("has(zone) || has(rr) && has(none)", true),
        ("(has(zone) || has(rr)) && has(none)", false),
        ("!(has(zone) && has(none))", true),
        ("((has(rr)))", true),
        ("zone == \"it's\"", false),
    ];
    for (text, expected) in rows {
        assert_eq!(matches(text, &labels), expected, "{text}");
    }
}

#[test]
fn mistakes_have_a_place() {
    let rows = [
        ("has(", 0, "has( needs the name of a label"),
        ("has()", 0, "has( needs the name of a label"),
        ("has(a", 0, "has( is never closed"),
        ("all(", 0, "expected ) at once"),
        ("a", 1, "expected an operator after the label"),
        ("a b", 2, "expected an operator after the label"),
        ("a = 'b'", 2, "expected =="),
        ("a == b", 5, "expected a text in quotes"),
        ("a == 'b", 5, "this quote is never closed"),
        ("a ==", 4, "expected a text in quotes"),
        ("a in 'b'", 5, "expected {"),
        ("a in {'b' 'c'}", 10, "expected }"),
        ("a in {,}", 6, "expected }"),
        ("a in {'b'", 9, "expected }"),
        ("a starts 'b'", 2, "expected an operator after the label"),
        ("has(a) & has(b)", 7, "expected &&"),
        ("has(a) | has(b)", 7, "expected ||"),
        ("has(a) has(b)", 7, "expected &&, || or the end"),
        ("has(a) &&", 9, "the selector ends where a condition is expected"),
        ("(has(a)", 7, "expected )"),
        ("has(a))", 6, "expected &&, || or the end"),
        ("== 'a'", 0, "expected a label, has(…), all() or ("),
        ("all()\n", 5, "unexpected character"),
        ("zöne == 'a'", 1, "expected an operator after the label"),
        ("a == 'ö' §", 9, "unexpected character"),
        ("()", 1, "expected a label, has(…), all() or ("),
        ("has (a)", 4, "expected an operator after the label"),
    ];
    for (text, position, problem) in rows {
        let error = Selector::parse(text).unwrap_err();
        assert_eq!(error, SelectorError { position, problem }, "{text}");
    }
    let reported = Selector::parse("a = 'b'").unwrap_err().to_string();
    assert_eq!(reported, "at character 3: expected ==");
}

#[test]
fn the_longest_and_the_deepest() {
    let nested = |depth: usize| format!("{}has(a){}", "(".repeat(depth), ")".repeat(depth));
    assert!(matches(&nested(MAX_DEPTH), &[("a", "")]));
    let error = Selector::parse(&nested(MAX_DEPTH + 1)).unwrap_err();
    assert!(error.position == MAX_DEPTH && error.is_depth(), "{error}");
    // One after the other is no nesting.
    assert!(matches(&vec!["(has(a))"; 2 * MAX_DEPTH].join("&&"), &[("a", "")]));
    // Longer than Calico accepts since 3.32, as one from before may be.
    let names: Vec<_> = (0..400).map(|i| format!("'worker-{i}.example.internal'")).collect();
    let long = format!("kubernetes.io/hostname in {{{}}}", names.join(", "));
    assert!(long.len() > 4096 * 2);
    let of = |name| matches(&long, &[("kubernetes.io/hostname", name)]);
    assert!(of("worker-399.example.internal") && !of("worker-400.example.internal"));
    assert!(matches(&format!("{}has(b)", "!".repeat(1000)), &[("b", "")]));
}

#[test]
fn labels_are_set_and_removed() {
    let labels: Labels = [("b", "2"), ("a", "1"), ("b", "3")].into_iter().collect();
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "3")]);
    let changed = labels.with(&[("a", None), ("c", Some("")), ("none", None)]);
    assert_eq!(changed.iter().collect::<Vec<_>>(), [("b", "3"), ("c", "")]);
    assert_eq!((labels.get("a"), changed.get("a"), changed.get("c")), (Some("1"), None, Some("")));
}

/// Words of selectors in any order, some of which are selectors.
fn salad() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "has(",
        "rr",
        ")",
        "all()",
        "global()",
        "!",
        "&&",
        "||",
        "(",
        "==",
        "!=",
        "'",
        "'a'",
        "\"b\"",
        "in",
        "not",
        "notin",
        "{",
        "}",
        ",",
        "contains",
        "starts with",
        "ends",
        "a.b/c",
        "é",
        "\t",
        "\n",
    ]);
    let words = collection::vec((word, any::<bool>()), 0..14);
    words.prop_map(|words| {
        words.iter().flat_map(|(word, space)| [*word, if *space { " " } else { "" }]).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A selector is kept as it is, and so are its place in an error and what its negation means.
    #[test]
    fn any_text_is_a_selector_or_refused_with_a_place_in_it(
        words in salad(), other in ".{0,40}",
        labels in collection::btree_map("[a-c]|rr", "[ab]?", 0..4),
    ) {
        let labels: Labels = labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        for text in [words, other] {
            match Selector::parse(&text) {
                Ok(selector) => {
                    prop_assert_eq!(selector.as_str(), &text);
                    let blank = text.trim_matches([' ', '\t']).is_empty();
                    let negated = Selector::parse(&format!("!({text})"));
                    prop_assert_eq!(negated.is_err(), blank, "{}", text);
                    if let Ok(negated) = negated {
                        let (no, yes) = (negated.matches(&labels), selector.matches(&labels));
                        prop_assert_ne!(no, yes, "{}", text);
                    }
                }
                Err(SelectorError { position, problem }) => {
                    prop_assert!(position <= text.chars().count() && !problem.is_empty(), "{text}");
                }
            }
        }
    }
}
