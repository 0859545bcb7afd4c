//! Properties of every answer, from any sender.
use proptest::{collection, option, prelude::*};
use serde_json::{Value, json};

use super::super::*;

const WORKER: &str = "swarm-worker-0";

/// The fields of an answer, with any types.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "(.|\n|\u{1b}){0,6}".prop_map(Value::from),
    ];
    let list = collection::vec(leaf.clone(), 0..3).prop_map(Value::from);
    let key =
        prop::sample::select(&["version", "jobs", "worker", "uid", "nonce", "mac", "future"][..]);
    let object = collection::btree_map(key, prop_oneof![leaf.clone(), list.clone()], 0..6);
    prop_oneof![1 => leaf, 1 => list, 6 => object.prop_map(|all| json!(all))]
}

fn asked() -> (Key, Question) {
    let key = Key::read(&"0123456789abcdef".repeat(4)).unwrap();
    (key, Question { uid: "pod-1".into(), nonce: "7".into() })
}

fn is_legible(error: &str) -> bool {
    !error.trim().is_empty() && !error.contains(char::is_control)
}

proptest! {
    /// An answer that the worker did not sign acknowledges nothing.
    #[test]
    fn no_text_is_an_acknowledgement(bytes: Vec<u8>, json in anything()) {
        let (key, question) = asked();
        for body in [bytes, json.to_string().into_bytes()] {
            let error = read(WORKER, Some((&key, &question)), &body).unwrap_err();
            prop_assert!(is_legible(&error), "{error:?}");
        }
    }

    /// An answer is believed as a whole or not at all.
    #[test]
    fn an_answer_says_what_its_text_says(
        version: i64, jobs in option::of(collection::vec(".{0,9}", 0..4)), named: bool,
        worker in option::of("[a-z]{0,6}"), future in anything(),
    ) {
        let worker = if named { Some(WORKER.to_owned()) } else { worker };
        let body = json!({"version": version, "jobs": jobs, "worker": worker, "future": future});
        let read = read(WORKER, None, body.to_string().as_bytes());
        if worker.is_some_and(|worker| worker != WORKER) {
            prop_assert!(read.unwrap_err().starts_with("the answer is of "));
        } else if jobs.iter().flatten().any(String::is_empty) {
            prop_assert!(read.unwrap_err().ends_with("a stream has no name"));
        } else {
            let version = u64::try_from(version).ok().filter(|version| *version > 0);
            prop_assert_eq!(read, Ok(Answer { version, jobs: Some(jobs.unwrap_or_default()), prepared: None }));
        }
    }

    #[test]
    fn any_json_is_an_answer_or_refused_in_a_line(json in anything()) {
        match read(WORKER, None, json.to_string().as_bytes()) {
            Ok(answer) => {
                prop_assert!(json.is_object(), "{json}");
                let jobs = json["jobs"].as_array().map_or(0, Vec::len);
                prop_assert_eq!(jobs, answer.jobs().len(), "{}", json);
            }
            Err(error) => prop_assert!(is_legible(&error), "{error:?}"),
        }
    }

    /// With any part cut off or another letter in it, a signed answer is none.
    #[test]
    fn a_signed_answer_that_is_edited_is_none(
        jobs in collection::vec("[a-z]{1,4}", 0..4), version in 1..100_u64, more in "[a-z]{1,4}",
        cut: prop::sample::Index,
    ) {
        let (key, question) = asked();
        let said = Statement { question: &question, worker: WORKER, version, jobs: &jobs[..] };
        let mac = said.sign(&key);
        let body = |version: u64, jobs: &[String]| {
            json!({
                "jobs": jobs, "version": version, "worker": WORKER,
                "uid": question.uid, "nonce": question.nonce, "mac": mac,
            })
            .to_string()
        };
        let ask = |body: &[u8]| read(WORKER, Some((&key, &question)), body);
        let whole = body(version, &jobs);
        let expected = Answer { version: Some(version), jobs: Some(jobs.clone()), prepared: None };
        prop_assert_eq!(ask(whole.as_bytes()), Ok(expected));
        prop_assert!(ask(&whole.as_bytes()[..cut.index(whole.len())]).is_err());
        prop_assert!(ask(body(version + 1, &jobs).as_bytes()).is_err());
        let longer: Vec<_> = jobs.iter().cloned().chain([more]).collect();
        prop_assert!(ask(body(version, &longer).as_bytes()).is_err());
        if !jobs.is_empty() {
            prop_assert!(ask(body(version, &jobs[1..]).as_bytes()).is_err());
        }
    }
}
