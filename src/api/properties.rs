//! Our own status as it is read back: whatever another writer has made of it.
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{KINDS, NetworkProberStatus, RouteReflectorSetStatus, SwarmStatus, TrafficWatchStatus};
use crate::any_json;

fn fields(schema: &Value, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        found.push(name.clone());
        fields(field, found);
        fields(&field["items"], found);
        fields(&field["additionalProperties"], found);
    }
}

/// Any JSON of the fields that a status of one of our kinds has, as deep as one.
fn anything() -> impl Strategy<Value = Value> {
    let mut words = vec!["x".to_owned()];
    for kind in KINDS {
        let crd = serde_json::to_value((kind.crd)()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        fields(&schema["properties"]["status"], &mut words);
    }
    let texts = ["True", "Fit", "Unfit", "2026-01-02T03:04:05Z", "10", "1.5", "Off"];
    any_json::of(&words.join(" "), &texts)
}

/// Reads a status, and asserts that what was understood of it survives being written.
fn survives<S: Serialize + DeserializeOwned>(status: &Value) -> Result<(), TestCaseError> {
    match S::deserialize(status) {
        Ok(read) => {
            let written = serde_json::to_value(&read).unwrap();
            let again = S::deserialize(&written).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(serde_json::to_value(&again).unwrap(), written);
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_status_of_any_content_is_read_and_written_the_same_or_refused(status in anything()) {
        survives::<TrafficWatchStatus>(&status)?;
        survives::<NetworkProberStatus>(&status)?;
        survives::<SwarmStatus>(&status)?;
        survives::<RouteReflectorSetStatus>(&status)?;
    }
}
