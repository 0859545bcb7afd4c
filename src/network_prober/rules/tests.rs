//! The rules of each prober affect only that prober.
use super::*;

fn pace(period: Duration) -> Pace {
    let second = Duration::from_secs(1);
    Pace { period, timeout: period.min(second), interval: 30 * second }
}

/// Every rule: its name and its expression.
fn all(prober: &str, period: Duration) -> Vec<(String, String)> {
    let rules = rules(prober, pace(period), None);
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    rules.map(|r| (text(&r, "record") + &text(&r, "alert"), text(&r, "expr"))).collect()
}

#[test]
fn everything_recorded_is_listed() {
    let rules = all("shop/web", Duration::from_secs(10));
    let mut recorded: Vec<_> =
        rules.iter().map(|(name, _)| name.as_str()).filter(|n| n.contains(':')).collect();
    let mut names = NAMES.to_vec();
    recorded.sort_unstable();
    names.sort_unstable();
    assert_eq!(recorded, names);
}

#[test]
fn every_selector_is_about_this_prober() {
    for prober in ["shop/web", r#"odd"} or vector(1)"#] {
        for (name, expr) in all(prober, Duration::from_millis(100)) {
            for selector in expr.split("netprober").skip(1) {
                let labels = selector.split_once('{').unwrap().1;
                let own = [format!("job={}", string(prober)), format!("prober={}", string(prober))];
                assert!(own.iter().any(|own| labels.starts_with(own)), "{name}: {selector}");
            }
        }
    }
}

#[test]
fn half_of_the_probes_are_enough_but_never_none() {
    let minutes = Duration::from_mins;
    for (window, period, expected) in [
        (minutes(5), Duration::from_secs(10), 10),
        (minutes(1), Duration::from_secs(10), 3),
        (minutes(5), Duration::from_millis(100), 10),
        (minutes(5), minutes(1), 2),
        (minutes(1), minutes(5), 1),
        (minutes(1), Duration::ZERO, 10),
    ] {
        assert_eq!(enough(window, period), expected, "{window:?} {period:?}");
    }
}

#[test]
fn limits_are_bounds_of_buckets_below_the_timeout() {
    for (millis, limit) in [
        (60_000, 0.1),
        (1000, 0.1),
        (200, 0.1),
        (199, 0.05),
        (100, 0.05),
        (50, 0.025),
        (1, 0.0005),
        (0, 0.0002),
    ] {
        let timeout = Duration::from_millis(millis);
        assert!(RTT_BOUNDS.contains(&limit));
        let pace = Pace { timeout, ..pace(Duration::from_mins(1)) };
        let rules = rules("shop/web", pace, None)["groups"][0]["rules"].clone();
        let mut rules = rules.as_array().unwrap().iter();
        let alert = rules.find(|rule| rule["alert"] == "NetworkProberLatencyHigh").unwrap();
        assert_eq!(alert["expr"].as_str().unwrap().split("> ").last(), Some(&*limit.to_string()));
    }
}

#[test]
fn rules_are_evaluated_as_often_as_agents_are_scraped() {
    let second = Duration::from_secs(1);
    for (interval, text) in [(2 * second, "2s"), (30 * second, "30s"), (600 * second, "1m")] {
        let rules = rules("shop/web", Pace { interval, ..pace(10 * second) }, None);
        assert_eq!(rules["groups"][0]["interval"], text);
    }
    assert_eq!(interval(Duration::from_nanos(1_500_000_001)), "1s500ms");
}

#[test]
fn runbooks_are_at_the_configured_address_and_without_one_there_is_no_link() {
    let pace = pace(Duration::from_secs(10));
    for (runbooks, expected) in [
        (None, Value::Null),
        (
            Some("https://docs.example.org/r/"),
            "https://docs.example.org/r/NetworkProberSilent.md".into(),
        ),
        (
            Some("https://docs.example.org"),
            "https://docs.example.org/NetworkProberSilent.md".into(),
        ),
    ] {
        let rules = rules("shop/web", pace, runbooks)["groups"][0]["rules"].clone();
        let mut rules = rules.as_array().unwrap().iter();
        let alert = rules.find(|rule| rule["alert"] == "NetworkProberSilent").unwrap();
        assert_eq!(alert["annotations"]["runbook_url"], expected);
    }
}

/// One Prometheus may have the series of several clusters, with nodes of the same name.
#[test]
fn every_aggregation_keeps_clusters_apart() {
    for (name, expr) in all("shop/web", Duration::from_secs(10)) {
        for word in [" by (", " on ("] {
            for labels in expr.split(word).skip(1) {
                let labels = labels.split(')').next().unwrap();
                assert!(labels.split(", ").any(|label| label == "cluster"), "{name}: {labels}");
            }
        }
    }
}
