//! Requests in the terms of Kubernetes.
use http::Method;

/// A request in the terms of Kubernetes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) verb: &'static str,
    /// Resource with sub-resource, e.g. `trafficwatches/status`; never an object's name.
    pub(super) resource: String,
    pub(super) writes: bool,
    pub(super) is_lease: bool,
}

impl Call {
    pub(super) fn of(method: &Method, uri: &http::Uri) -> Self {
        let mut path = uri.path().split('/').filter(|part| !part.is_empty());
        // /api/v1/… or /apis/group/version/…
        let skip = if path.next() == Some("api") { 1 } else { 2 };
        let mut parts: Vec<_> = path.skip(skip).collect();
        // A namespace contains the object, unless it is the object.
        if parts.len() > 2 && parts[0] == "namespaces" {
            parts.drain(..2);
        }
        let resource = parts.first().copied().unwrap_or("version");
        let named = parts.len() > 1;
        let resource = match parts.get(2) {
            Some(sub) => format!("{resource}/{sub}"),
            None => resource.into(),
        };
        let watches = uri.query().is_some_and(|q| q.split('&').any(|p| p == "watch=true"));
        let (verb, writes) = match *method {
            Method::GET if watches => ("watch", false),
            Method::GET if named => ("get", false),
            Method::GET => ("list", false),
            // A review of an account or its rights, by a POST: nothing is stored, and every replica
            // may make one.
            Method::POST if resource == "tokenreviews" || resource == "subjectaccessreviews" => {
                ("create", false)
            }
            Method::POST => ("create", true),
            Method::PUT => ("update", true),
            Method::PATCH => ("patch", true),
            Method::DELETE => ("delete", true),
            _ => ("other", true),
        };
        Self { verb, is_lease: resource == "leases", resource, writes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_without_its_object() {
        for (method, path, verb, resource, writes) in [
            (Method::GET, "/api/v1/nodes?watch=true&timeoutSeconds=20", "watch", "nodes", false),
            (Method::GET, "/api/v1/nodes?limit=100", "list", "nodes", false),
            (Method::PATCH, "/api/v1/nodes/node-1?fieldManager=x", "patch", "nodes", true),
            (
                Method::PATCH,
                "/apis/traffic.example.com/v1alpha1/namespaces/ns/trafficwatches/a/status",
                "patch",
                "trafficwatches/status",
                true,
            ),
            (Method::GET, "/apis/apps/v1/namespaces/ns/deployments/a", "get", "deployments", false),
            (Method::GET, "/api/v1/namespaces/default", "get", "namespaces", false),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                "update",
                "leases",
                true,
            ),
            (Method::GET, "/version", "list", "version", false),
            (
                Method::POST,
                "/apis/authentication.k8s.io/v1/tokenreviews",
                "create",
                "tokenreviews",
                false,
            ),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                "create",
                "subjectaccessreviews",
                false,
            ),
        ] {
            let call = Call::of(&method, &path.parse().unwrap());
            assert_eq!(
                (call.verb, call.resource.as_str(), call.writes),
                (verb, resource, writes),
                "{path}"
            );
        }
    }
}
