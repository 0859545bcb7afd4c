//! Granted is what is used, and used is what is granted: the audit logs of the whole suite of passes,
//! against the rendered roles.
//!
//! `hack/test` has the passes (`tests/reconcile`) keep their audit logs in `AUDIT_RECORDS`, and runs this
//! after them. Missing or partial records fail it, because each right needs a request that used it.
mod compare;

use std::{env, fs, path::Path};

use traffic_operator::{
    inspect::doctor::{Right, rights},
    manifests::{NAME, NAMESPACE},
};

use compare::{Request, ungranted, unused};

#[test]
#[ignore = "needs the audit logs of the whole of tests/reconcile: run hack/test"]
fn what_is_granted_is_what_the_whole_suite_used() {
    let dir = env::var("AUDIT_RECORDS").expect("AUDIT_RECORDS: the directory of the records");
    let requests = read(Path::new(&dir));
    assert!(!requests.is_empty(), "{dir}: the operator asked for nothing");
    let rights = rights(NAMESPACE);
    let documented = [rights.clone(), given_by_hand()].concat();
    let problems: Vec<_> = ungranted(&requests, &documented)
        .into_iter()
        .map(|request| format!("asked for, and granted by no role: {request}"))
        .chain(unused(&requests, &rights).into_iter().map(|right| {
            format!("granted, and used by no test: {right}: remove it, or test what needs it")
        }))
        .collect();
    assert!(problems.is_empty(), "{} requests:\n{}", requests.len(), problems.join("\n"));
}

/// The Secrets with etcd's credentials that the tests' `RouteReflectorSets` name. No role of ours covers them: a user
/// allows one by name (docs/routereflectorset.md, "Calico in etcd"), and until then the answer is Forbidden.
fn given_by_hand() -> Vec<Right> {
    let secret = |name: &str| Right {
        verb: "get".into(),
        group: String::new(),
        resource: "secrets".into(),
        subresource: None,
        namespace: Some(NAMESPACE.into()),
        name: Some(name.into()),
    };
    ["calico-etcd-secrets", "other"].map(secret).into()
}

/// What the operator itself asked, of all logs; tests that act as its account are somebody else.
fn read(dir: &Path) -> Vec<Request> {
    let account = format!("system:serviceaccount:{NAMESPACE}:{NAME}");
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut requests = Vec::new();
    for entry in entries {
        let path = entry.expect("directory entry").path();
        let events = lab::audit_file(&path).expect("audit log");
        let ours = events.into_iter().filter(|event| {
            event.user == account && event.user_agent.starts_with("traffic-operator/")
        });
        requests.extend(ours.map(Request::from));
    }
    requests
}
