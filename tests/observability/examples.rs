//! The examples in the documentation can be applied.
use traffic_operator::inspect::spec;

use crate::files::read;
use crate::reading::documents;

/// Returns the YAML examples of a page.
fn examples(page: &str) -> Vec<&str> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks.filter_map(|rest| rest.split_once("\n```").map(|(text, _)| text)).collect()
}

/// Returns an example as a whole object; `None` if it is part of something else.
fn whole(example: &str) -> Option<String> {
    // Other objects name the kind as well, for example the Kustomization of Flux.
    if example.lines().any(|line| line == "kind: TrafficWatch") {
        return Some(example.to_owned());
    }
    example.starts_with("spec:").then(|| {
        let head = "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch";
        format!("{head}\nmetadata:\n  name: example\n{example}")
    })
}

#[test]
fn every_trafficwatch_that_is_shown_can_be_applied() {
    let mut count = 0;
    for file in documents() {
        let text = read(&file);
        for example in examples(&text).into_iter().filter_map(whole) {
            let read = spec::read(&example, spec::DEFAULT);
            assert!(read.is_ok(), "{}: {:#}\n{example}", file.display(), read.unwrap_err());
            count += 1;
        }
    }
    assert!(count >= 4, "{count} examples");
}
