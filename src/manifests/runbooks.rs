//! The patch of `deploy/components/runbooks`: the page of each alert. kustomize cannot make it from
//! the name of the alert, as the chart and the mixin do.
use std::{fs, path::Path};

use anyhow::Context;
use serde_json::{Value, json};

use super::{File, yaml};

/// The patch, below `deploy/`.
const PATH: &str = "components/runbooks/pages.yaml";

/// The alerts, relative to `deploy/`.
const ALERTS: &str = "../monitoring/prometheusrule.yaml";

/// Returns the patch that adds the name of its page to each alert of the `PrometheusRule`.
///
/// # Errors
/// When the alerts cannot be read.
pub fn patch(deploy: &Path) -> anyhow::Result<File> {
    let path = deploy.join(ALERTS);
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let rule: Value = serde_yaml::from_str(&text).with_context(|| format!("{}", path.display()))?;
    let mut operations = Vec::new();
    for (i, group) in list(&rule["spec"]["groups"]).iter().enumerate() {
        for (j, alert) in list(&group["rules"]).iter().enumerate() {
            // A recording rule has no page.
            let Some(name) = alert["alert"].as_str() else { continue };
            operations.push(json!({
                "op": "add",
                "path": format!("/spec/groups/{i}/rules/{j}/annotations/runbook_url"),
                "value": format!("{name}.md"),
            }));
        }
    }
    Ok(File { path: PATH.into(), text: yaml(&[operations])? })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
