//! A request in the terms of Kubernetes.

use http::{Method, Uri};

/// One request. A request to Prometheus has the same form: its resource is `query`, `query_range`,
/// `series` and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`; for other methods, the method
    /// in lower case.
    pub verb: String,
    /// The API group; empty for the core group, and for paths that are not resources.
    pub group: String,
    /// The plural name of the resource; empty for paths that are not resources.
    pub resource: String,
    /// `status`, `eviction`, …; empty for the object itself.
    pub subresource: String,
    /// The object's namespace; empty for cluster-scoped objects, and lists across namespaces.
    pub namespace: String,
    /// The object's name; empty for lists and creations.
    pub name: String,
    /// The requested path and query.
    pub target: String,
}

impl Call {
    /// Reads a request's method and address.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let target = uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match parts.next() {
            Some("api") => "",
            Some("apis") => parts.next().unwrap_or_default(),
            _ => return Self { verb: lower(method), target, ..Self::default() },
        };
        let mut parts: Vec<_> = parts.skip(1).collect();
        let mut namespace = "";
        // A namespace is where the object is, unless it is the object.
        let of_itself = matches!(parts[..], [_, _, "status" | "finalize"]);
        if parts.len() > 2 && parts[0] == "namespaces" && !of_itself {
            namespace = parts[1];
            parts.drain(..2);
        }
        let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
        let named = parts.len() > 1;
        let watches = uri
            .query()
            .is_some_and(|query| query.split('&').any(|p| matches!(p, "watch=true" | "watch=1")));
        let verb = match *method {
            Method::GET if watches => "watch".to_owned(),
            Method::GET if named => "get".to_owned(),
            Method::GET => "list".to_owned(),
            Method::POST => "create".to_owned(),
            Method::PUT => "update".to_owned(),
            _ => lower(method),
        };
        Self {
            verb,
            group: group.to_owned(),
            resource: part(0),
            subresource: part(2),
            namespace: namespace.to_owned(),
            name: part(1),
            target,
        }
    }

    /// Reports whether the request changes something. Reviews, and queries by POST, do not.
    pub fn is_write(&self) -> bool {
        let asks = ["tokenreviews", "subjectaccessreviews", "query", "query_range"];
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete")
            && !asks.contains(&self.resource.as_str())
    }
}

fn lower(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &Method, target: &str) -> Call {
        Call::of(method, &target.parse().unwrap())
    }

    /// Verb, group, resource, subresource, namespace and name.
    fn words(call: &Call) -> [&str; 6] {
        let Call { verb, group, resource, subresource, namespace, name, .. } = call;
        [verb, group, resource, subresource, namespace, name]
    }

    #[test]
    fn a_request_is_read_in_the_terms_of_kubernetes() {
        for (method, target, expected) in [
            (Method::GET, "/api/v1/nodes?limit=100", ["list", "", "nodes", "", "", ""]),
            (Method::GET, "/api/v1/nodes?watch=true", ["watch", "", "nodes", "", "", ""]),
            (Method::PATCH, "/api/v1/nodes/a?x=y", ["patch", "", "nodes", "", "", "a"]),
            (Method::GET, "/api/v1/namespaces/ns", ["get", "", "namespaces", "", "", "ns"]),
            (
                Method::PUT,
                "/api/v1/namespaces/ns/finalize",
                ["update", "", "namespaces", "finalize", "", "ns"],
            ),
            (
                Method::PATCH,
                "/apis/traffic.example.com/v1alpha1/namespaces/ns/trafficwatches/a/status",
                ["patch", "traffic.example.com", "trafficwatches", "status", "ns", "a"],
            ),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                ["update", "coordination.k8s.io", "leases", "", "a", "b"],
            ),
            (Method::GET, "/readyz", ["get", "", "", "", "", ""]),
            (Method::POST, "/api/v1/query", ["create", "", "query", "", "", ""]),
        ] {
            assert_eq!(words(&of(&method, target)), expected, "{target}");
        }
    }

    #[test]
    fn reviews_and_queries_are_no_writes() {
        let review = of(&Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews");
        assert!(!review.is_write());
        assert!(!of(&Method::POST, "/api/v1/query").is_write());
        assert!(of(&Method::POST, "/api/v1/namespaces/ns/pods/p/eviction").is_write());
    }
}
