//! Images that the repository names: none of them may belong to another party, now or later.
use std::{collections::BTreeSet, path::Path};

use crate::files::{read, root};

/// The name of our own images. `.invalid` is reserved (RFC 2606): no registry can have such a name.
const OURS: &str = "registry.invalid/traffic-operator:";

/// The OLM catalog that offers the bundle.
const CATALOG: &str = "registry.invalid/traffic-operator-catalog:";

/// Other images that we name: each with its registry, from publishers that own their names.
const OTHERS: [&str; 6] = [
    "docker.io/library/busybox:",
    "docker.io/library/nginx:",
    "docker.io/czerwonk/bird_exporter",
    "quay.io/operator-framework/scorecard-test:",
    "quay.io/prometheus/node-exporter:",
    "quay.io/prometheus/prometheus:",
];

/// Examples of names that users choose: reserved names, too (RFC 2606).
const EXAMPLES: [&str; 2] = ["registry.example.com/", "example.com/"];

/// The agent of the original's sample, which applies here unchanged.
const ORIGINAL: &str = "networkprober-original.yaml";

/// Returns the values of `image:` in a text, whether YAML or examples in the documentation.
fn images(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rest in text.split("image: ").skip(1) {
        let end = rest.find([' ', '\n', '}', ',', '`', ')']).unwrap_or(rest.len());
        found.insert(rest[..end].trim_matches(['"', '\'']).to_owned());
    }
    found
}

/// Reports whether the file is a definition or its copy: that has fields of this name and no image.
fn is_definition(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".traffic.example.com.yaml") || name.ends_with(".probes.bigmikes.io.yaml")
}

fn walk(dir: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "md") {
            files.push(path);
        }
    }
}

#[test]
fn no_image_has_a_name_that_someone_else_may_own() {
    let mut files = vec![root().join("README.md")];
    for dir in ["deploy", "docs", "e2e/manifests"] {
        walk(&root().join(dir), &mut files);
    }
    let mut ours = 0;
    for file in files.iter().filter(|file| !file.ends_with(ORIGINAL) && !is_definition(file)) {
        for image in images(&read(file)) {
            // A template of the chart, which renders our own.
            let known = image.starts_with(OURS)
                || image == "{{"
                || OTHERS.iter().chain(&EXAMPLES).chain([&CATALOG]).any(|k| image.starts_with(k));
            assert!(known, "{}: image {image}", file.display());
            ours += usize::from(image.starts_with(OURS));
        }
    }
    assert!(ours >= 4, "{ours}: the search finds nothing");
}

#[test]
fn the_page_for_clusters_without_internet_lists_every_image() {
    let page = read(&root().join("docs/operations/air-gapped.md"));
    let mut files = Vec::new();
    for dir in ["base", "chart/files", "overlays", "samples"] {
        walk(&root().join("deploy").join(dir), &mut files);
    }
    let mut count = 0;
    for file in files.iter().filter(|file| !file.ends_with(ORIGINAL) && !is_definition(file)) {
        for image in images(&read(file)).iter().filter(|image| !image.starts_with(OURS)) {
            assert!(page.contains(&format!("`{image}`")), "{}: {image}", file.display());
            count += 1;
        }
    }
    assert!(count >= 5, "{count}: the search finds nothing");
}
