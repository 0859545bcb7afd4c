//! The samples: those on the pages, and how the operator reads them.
use crate::files::{documents_of, files_in, read, root};
use crate::objects::{kind, name};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use traffic_operator::api::{Swarm, TrafficWatch};
use traffic_operator::placement::assignment::{Item, Policy, Rules, Standing, Worker, assign};

/// The samples on the pages are those of the repository.
#[test]
fn the_samples_of_the_pages_are_those_of_the_repository() {
    for (page, sample) in [
        ("tutorials/measure-between-pods", "networkprober"),
        ("operations/migration", "networkprober-original"),
        ("tutorials/streams", "swarm"),
        ("tutorials/route-reflectors", "routereflectorset-migrate"),
    ] {
        let page = read(&root().join(format!("docs/{page}.md")));
        let text = read(&root().join(format!("deploy/samples/{sample}.yaml")));
        let first = text.split("\n---\n").next().expect("a document");
        let lines: Vec<_> = first.lines().filter(|line| !line.starts_with('#')).collect();
        let shown = format!("```yaml\n{}\n```", lines.join("\n"));
        // Within a list it is indented.
        let indented = shown.replace('\n', "\n   ");
        let found = page.contains(&shown) || page.contains(&indented);
        assert!(found, "{sample} is not on the page as it is:\n{shown}");
    }
}

/// A worker looks for its part at one path, and for the key of its answers next to the parts.
#[test]
fn the_sample_of_several_files_mounts_every_part_where_its_workers_look() {
    let sample = documents_of(&read(&root().join("deploy/samples/swarm-files.yaml")));
    let swarm: Swarm = serde_json::from_value(sample[0].clone()).expect("a Swarm");
    let files = swarm.spec.config_map.files;
    let pod = &sample[1]["spec"]["template"]["spec"];
    let argument = format!("--config-files={files}");
    assert_eq!(pod["containers"][0]["args"], json!(["agent", "worker", argument]));
    let item = |name: &str, key: &str, path: String| json!({"configMap": {"name": name, "items": [{"key": key, "path": path}]}});
    let key = "acknowledge.key";
    let mut sources = vec![item(&swarm.config_map(), key, key.into())];
    for (i, part) in swarm.parts().iter().enumerate() {
        sources.push(item(part, "config.yml", format!("part-{i}/config.yml")));
    }
    assert_eq!(pod["volumes"][0]["projected"]["sources"], json!(sources));
    assert!(files > 1 && sample[1]["metadata"]["name"] == *swarm.spec.workload.name);
}

/// The time at which the Swarm of the page was created.
const BEGAN: u64 = 1_790_000_000;

/// The files that the page shows: with three workers, and with four.
#[test]
fn the_files_of_the_page_are_those_that_the_sample_gives() {
    let page = read(&root().join("docs/tutorials/streams.md"));
    let sample = documents_of(&read(&root().join("deploy/samples/swarm.yaml")));
    let swarm: Swarm = serde_json::from_value(sample[0].clone()).expect("a Swarm");
    let jobs = swarm.spec.jobs.expect("jobs");
    let items: Vec<_> =
        jobs.iter().map(|id| Item { id, weight: 1, pin: None, dedicated: false }).collect();
    let names: Vec<_> = (0..4).map(|n| format!("{}-{n}", swarm.spec.workload.name)).collect();
    let workers: Vec<_> = names.iter().map(|id| Worker { id, standing: Standing::Full }).collect();
    let rules =
        Rules { policy: Policy::Sticky, max_per_worker: None, max_moves: None, balance: true };
    let three = assign(&items, &workers[..3], &vec![None; jobs.len()], &rules).owners;
    let four = assign(&items, &workers, &three, &rules).owners;
    let list = |owners: &[Option<usize>], worker: usize| -> Vec<&str> {
        let own = jobs.iter().zip(owners).filter(|(_, owner)| **owner == Some(worker));
        own.map(|(id, _)| id.as_str()).collect()
    };
    let file = |owners: &[Option<usize>], version: u64, count: usize| {
        let share = |worker: usize| {
            let streams = list(owners, worker);
            // The first file, the one that takes streams, and the one that gives them.
            let version = BEGAN
                + match streams.len().cmp(&list(&three, worker).len()) {
                    Ordering::Equal => 1,
                    Ordering::Less => 3,
                    Ordering::Greater => 4,
                };
            (names[worker].clone(), json!({"jobs": streams, "version": version}))
        };
        let workloads: serde_json::Map<_, _> = (0..count).map(share).collect();
        json!({"workloads": workloads, "version": version})
    };
    let shown: Vec<Value> = page
        .split("config\\.yml}'\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(|text| serde_yaml::from_str(text).expect("YAML"))
        .collect();
    assert_eq!(shown, [file(&three, BEGAN + 1, 3), file(&four, BEGAN + 4, 4)]);
    let gets: Vec<_> = list(&four, 3).into_iter().map(|id| format!("\"{id}\"")).collect();
    let (jobs, version) = (gets.join(","), BEGAN + 4);
    let answer = format!(r#"{{"jobs":[{jobs}],"version":{version},"worker":"{}"}}"#, names[3]);
    assert!(page.contains(&answer), "not on the page: {answer}");
}

#[test]
fn samples_are_trafficwatches_that_can_stand_together() {
    let mut keys = BTreeMap::new();
    for file in files_in("deploy/samples", "yaml") {
        for document in documents_of(&read(&file)) {
            if kind(&document) != "TrafficWatch" {
                continue;
            }
            let name = name(&document).to_owned();
            let watch: TrafficWatch = serde_json::from_value(document)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            // The same key is allowed only in another form of the same object.
            let previous = keys.insert(watch.label_key(), name.clone());
            assert!(previous.is_none_or(|previous| previous == name), "{}", file.display());
        }
    }
    assert!(keys.contains_key("trafficwatch-sample.traffic.example.com/unfit"));
}
