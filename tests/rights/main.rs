//! Every granted right is used, and every used right is granted: compares the audit logs of the
//! whole suite of passes with the rendered roles.
//!
//! `hack/test` makes the passes (`tests/reconcile`) keep their audit logs in `AUDIT_RECORDS`, and
//! then runs this test. Missing or partial records fail it, because each right needs a request that
//! used it.
mod compare;

use std::{env, fs, path::Path};

use traffic_operator::{
    inspect::doctor::{Right, rights},
    manifests::{Account, NAMESPACE},
};

use compare::{Request, ungranted, unused};

#[test]
#[ignore = "needs the audit logs of the whole of tests/reconcile: run hack/test"]
fn what_is_granted_is_what_the_whole_suite_used() {
    let dir = env::var("AUDIT_RECORDS").expect("AUDIT_RECORDS: the directory of the records");
    let mut problems = Vec::new();
    for account in Account::ALL {
        let requests = read(Path::new(&dir), account);
        let who = account.name();
        assert!(!requests.is_empty(), "{dir}: {who} made no request");
        let rights = rights(account, NAMESPACE);
        let by_hand = if account == Account::Controller { given_by_hand() } else { vec![] };
        let documented = [rights.clone(), by_hand].concat();
        for request in ungranted(&requests, &documented) {
            problems.push(format!("{who} asked for, and no role grants it: {request}"));
        }
        for right in unused(&requests, &rights) {
            let what = format!("{right}: remove it, or test what needs it");
            problems.push(format!("granted to {who}, and used by no test: {what}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The Secrets with etcd's credentials that the tests' `RouteReflectorSets` name. No role of ours
/// covers them: a user allows one by name (docs/reference/routereflectorset.md, "Calico in etcd"),
/// and until then the answer is Forbidden.
fn given_by_hand() -> Vec<Right> {
    let secret = |name: &str| Right {
        verb: "get".into(),
        group: String::new(),
        resource: "secrets".into(),
        subresource: None,
        namespace: Some(NAMESPACE.into()),
        name: Some(name.into()),
    };
    ["calico-etcd-secrets", "calico-etcd", "other"].map(secret).into()
}

/// Reads the operator's own requests under this account from all logs; tests that use its account
/// have another user agent.
fn read(dir: &Path, account: Account) -> Vec<Request> {
    let account = account.user(NAMESPACE);
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
