//! Compares requests with rights, as RBAC does. Pure.
use std::{collections::BTreeSet, fmt};

use lab::AuditEvent;
use traffic_operator::inspect::doctor::Right;

/// Paths that every account may read: Kubernetes' role `system:discovery`.
const DISCOVERY: [&str; 4] = ["/api", "/apis", "/version", "/openapi"];

/// Status codes of a refused request.
const REFUSED: [u16; 2] = [401, 403];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    /// The path of a request that does not concern a resource.
    path: Option<String>,
    code: u16,
}

impl From<AuditEvent> for Request {
    fn from(event: AuditEvent) -> Self {
        let (resource, group) = match event.resource.split_once('.') {
            Some((resource, group)) => (resource.to_owned(), group.to_owned()),
            None => (event.resource, String::new()),
        };
        let path = resource.is_empty().then_some(event.uri);
        Self {
            verb: event.verb,
            group,
            resource,
            subresource: event.subresource,
            namespace: event.namespace,
            name: event.name,
            path,
            code: event.code,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, subresource, namespace, name, path, code } = self;
        match path {
            Some(path) => write!(f, "{verb} {path} ({code})"),
            None => write!(
                f,
                "{verb} {resource}/{subresource}.{group} {name:?} in {namespace:?} ({code})"
            ),
        }
    }
}

/// Reports whether a rule allows this verb on the request's resource.
fn covers(right: &Right, request: &Request, verb: &str) -> bool {
    right.verb == verb
        && right.group == request.group
        && right.resource == request.resource
        && right.subresource.as_deref().unwrap_or_default() == request.subresource
        && right.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
        && right.name.as_ref().is_none_or(|name| *name == request.name)
}

/// Returns the verbs that the API server checks for a request: applying an absent object needs
/// create too.
fn verbs(request: &Request) -> Vec<&str> {
    let creates = request.code == 201 && matches!(request.verb.as_str(), "patch" | "update");
    let mut verbs = vec![request.verb.as_str()];
    verbs.extend(creates.then_some("create"));
    verbs
}

/// Returns the requests that no right covers, each sort of request once.
pub fn ungranted<'r>(requests: &'r [Request], rights: &[Right]) -> Vec<&'r Request> {
    let granted = |request: &Request| match &request.path {
        Some(path) => {
            let path = path.split('?').next().unwrap_or_default();
            let below = |root: &&str| {
                path.strip_prefix(*root)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            request.verb == "get" && DISCOVERY.iter().any(below)
        }
        None => verbs(request)
            .iter()
            .all(|verb| rights.iter().any(|right| covers(right, request, verb))),
    };
    let mut seen = BTreeSet::new();
    let mut refused: Vec<_> = requests.iter().filter(|request| !granted(request)).collect();
    refused.retain(|&request| {
        seen.insert((&request.verb, &request.group, &request.resource, &request.subresource))
    });
    refused
}

/// Returns the rights that no request needed.
pub fn unused<'r>(requests: &[Request], rights: &'r [Right]) -> Vec<&'r Right> {
    let let_in: Vec<_> =
        requests.iter().filter(|request| !REFUSED.contains(&request.code)).collect();
    let used = |right: &&Right| {
        let_in.iter().any(|request| verbs(request).iter().any(|verb| covers(right, request, verb)))
    };
    rights.iter().filter(|right| !used(right)).collect()
}

mod tests {
    use super::*;

    fn right(verb: &str, resource: &str, group: &str) -> Right {
        Right {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: None,
            namespace: None,
            name: None,
        }
    }

    fn request(verb: &str, resource: &str, group: &str, code: u16) -> Request {
        Request {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: String::new(),
            namespace: "ns".into(),
            name: "n".into(),
            path: None,
            code,
        }
    }

    #[test]
    fn a_request_without_a_right_is_found_even_if_it_was_refused() {
        let rights = [right("get", "pods", "")];
        for code in [200, 403] {
            let requests = [request("list", "pods", "", code), request("get", "pods", "", 200)];
            assert_eq!(ungranted(&requests, &rights), [&requests[0]]);
        }
        // Group, subresource, namespace and name count.
        let mut other = request("get", "pods", "metrics.k8s.io", 200);
        assert_eq!(ungranted(std::slice::from_ref(&other), &rights).len(), 1);
        other = Request { subresource: "log".into(), ..request("get", "pods", "", 200) };
        assert_eq!(ungranted(std::slice::from_ref(&other), &rights).len(), 1);
        let named = Right { name: Some("x".into()), ..right("get", "pods", "") };
        let placed = Right { namespace: Some("x".into()), ..right("get", "pods", "") };
        for right in [named, placed] {
            let requests = [request("get", "pods", "", 200)];
            assert_eq!(ungranted(&requests, &[right]).len(), 1);
        }
    }

    #[test]
    fn a_right_without_a_request_is_found_and_a_refused_request_uses_none() {
        let rights = [right("get", "pods", ""), right("list", "pods", "")];
        let requests = [request("get", "pods", "", 404), request("list", "pods", "", 403)];
        assert_eq!(unused(&requests, &rights), [&rights[1]]);
        // Without any record every right is unused, so the test does not pass for lack of records.
        assert_eq!(unused(&[], &rights).len(), 2);
    }

    #[test]
    fn what_is_applied_and_was_not_there_is_created() {
        let rights = [right("patch", "pods", ""), right("create", "pods", "")];
        let applied = [request("patch", "pods", "", 201)];
        assert!(unused(&applied, &rights).is_empty());
        assert_eq!(ungranted(&applied, &rights[..1]).len(), 1);
        let patched = [request("patch", "pods", "", 200)];
        assert_eq!(unused(&patched, &rights), [&rights[1]]);
        assert!(ungranted(&patched, &rights[..1]).is_empty());
    }

    #[test]
    fn discovery_is_for_everybody_and_other_paths_are_not() {
        for (path, expected) in
            [("/apis/traffic.example.com/v1alpha1", 0), ("/version?timeout=1s", 0), ("/metrics", 1)]
        {
            let request = Request { path: Some(path.into()), ..request("get", "", "", 200) };
            assert_eq!(ungranted(&[request], &[]).len(), expected, "{path}");
        }
    }
}
