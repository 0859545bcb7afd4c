//! The house rules for all kinds; and the committed manifests are the generated ones.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use traffic_operator::{
    api::{CATEGORY, KINDS},
    manifests::{self, bundle, fields},
};

use crate::rendering::root;

#[test]
fn committed_manifests_are_the_generated_ones() {
    let deploy = root().join("deploy");
    assert!(manifests::has_sources(&deploy));
    let generated = manifests::files().expect("manifests");
    let packages = manifests::packages(&generated, &deploy).expect("chart and bundle");
    let mut known = BTreeSet::new();
    for file in generated.iter().chain(&packages) {
        let path = deploy.join(&file.path);
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == file.text,
            "{} is not up to date: run `make generate`",
            path.display()
        );
        assert!(known.insert(path), "{} twice", file.path);
    }
    // Files without a source must be deleted.
    for folder in [manifests::CHART, bundle::FOLDER, fields::FOLDER] {
        for path in below(&deploy.join(folder)) {
            assert!(known.contains(&path), "{} has no source: delete it", path.display());
        }
    }
}

/// Outside of the repository there is nothing to copy.
#[test]
fn a_folder_without_sources_gets_no_chart() {
    assert!(!manifests::has_sources(&root().join("docs")));
}

/// Returns the files below a directory.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

#[test]
fn every_definition_fits_into_the_annotation_of_client_side_apply() {
    for kind in KINDS {
        let json = serde_json::to_string(&(kind.crd)()).expect("JSON");
        assert!(json.len() < 250_000, "{} bytes", json.len());
    }
}

#[test]
fn every_kind_has_what_users_of_kubectl_expect() {
    for kind in KINDS {
        let crd = (kind.crd)();
        let names = &crd.spec.names;
        assert!(names.short_names.as_ref().is_some_and(|n| !n.is_empty()), "{}", names.kind);
        assert_eq!(names.categories.as_deref(), Some(&[CATEGORY.to_owned()][..]), "{}", names.kind);
        for version in &crd.spec.versions {
            let subresources = version.subresources.as_ref().expect("subresources");
            assert!(subresources.status.is_some(), "{}", names.kind);
            let columns = version.additional_printer_columns.as_ref().expect("columns");
            let first = columns.first().map(|column| column.name.as_str());
            assert_eq!(first, Some("Ready"), "{}", names.kind);
            let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
            let schema = schema.expect("schema");
            undescribed(&names.kind, schema, &mut |path| panic!("{path} has no description"));
        }
    }
}

/// Embedded Kubernetes types have their descriptions in Kubernetes.
fn undescribed(path: &str, schema: &JSONSchemaProps, report: &mut dyn FnMut(&str)) {
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        let foreign = path.ends_with(".spec.deployment") || path.contains("conditions");
        let root = path.split('.').count() == 2;
        if !root && property.description.is_none() {
            report(&path);
        }
        if !foreign {
            undescribed(&path, property, report);
        }
    }
}

#[test]
fn no_number_has_a_format_that_kubernetes_does_not_know() {
    for kind in KINDS {
        let json = serde_json::to_string(&(kind.crd)()).expect("JSON");
        assert!(!json.contains("uint"), "{}", (kind.crd)().spec.names.kind);
    }
}
