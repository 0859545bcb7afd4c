//! Objects as kubectl shows them, and waiting for what they say.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use lab::cluster::Cluster;
use lab::workspace;

/// Time between two checks: a kubectl takes a tenth of that.
const PERIOD: Duration = Duration::from_millis(500);

/// Reads objects as JSON.
pub(super) fn get(cluster: &Cluster, arguments: &[&str]) -> Result<Value> {
    let all = [&["get"], arguments, &["-o", "json"]].concat();
    Ok(serde_json::from_str(&cluster.kubectl(&all)?)?)
}

/// Lists objects as JSON, without terminating ones.
pub(super) fn list(cluster: &Cluster, arguments: &[&str]) -> Result<Vec<Value>> {
    let list = get(cluster, arguments)?;
    let items = list["items"].as_array().context("no list")?;
    let alive = items.iter().filter(|item| item["metadata"]["deletionTimestamp"].is_null());
    Ok(alive.cloned().collect())
}

/// Returns a text field, empty without one.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the name of an object.
pub(super) fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

/// Reports whether a condition of an object is True.
pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|found| found["type"] == condition && found["status"] == "True")
}

/// Reads a manifest of the demos.
pub(super) fn manifest(file: &str) -> Result<String> {
    let path = workspace::root().join("e2e/manifests").join(file);
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// Polls until a condition holds and returns what was found.
pub(super) async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let result = look().await;
        if let Ok(Some(found)) = result {
            return Ok(found);
        }
        if Instant::now() > end {
            let why = result.err().map(|error| format!(": {error:#}")).unwrap_or_default();
            bail!("{what}: not within {} s{why}", limit.as_secs());
        }
        tokio::time::sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_is_true_only_if_its_status_is() {
        let with =
            |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_true(&with("True"), "Ready"));
        assert!(!is_true(&with("False"), "Ready") && !is_true(&with("True"), "Converged"));
        assert!(!is_true(&json!({}), "Ready"));
    }

    #[tokio::test]
    async fn the_last_error_is_in_the_message_of_a_wait_that_times_out() {
        let waited: Result<()> =
            until("it", Duration::ZERO, async || Err(anyhow!("the connection was refused"))).await;
        let error = format!("{:#}", waited.unwrap_err());
        assert_eq!(error, "it: not within 0 s: the connection was refused");
    }
}
