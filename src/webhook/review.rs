//! `AdmissionReview` in, `AdmissionReview` out. The answer is always "allowed": measuring the
//! network must never prevent the creation of a pod.
use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::injection::{self, Recipe, SkipReason};
use crate::pods::PodObject;

/// The decision: the operator's knowledge of its `NetworkProber` objects. It is called inside a
/// request that delays the creation of a pod, so it only reads memory.
pub trait Injector: Send + Sync + 'static {
    /// Decides whether this prober (`(namespace, name)`) wants its agent in a pod that is about to
    /// be created. The pod may have no name; after a dry run it is not created.
    ///
    /// The pod's own fields ([`injection::skip_reason`]) are checked afterwards.
    fn decide(&self, prober: (&str, &str), pod: &PodObject, dry_run: bool) -> Decision;

    /// Resolves when the known facts have changed since this call, so that the decision may differ.
    fn changed(&self) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}

/// The answer of an [`Injector`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The pod gets this agent, unless its own fields prevent it.
    Inject(Box<Recipe>),
    /// The pod gets none.
    Skip(SkipReason),
    /// The pod gets none but a mark, because it would be refused with this agent.
    Mark(Box<Recipe>),
    /// The pod gets none, because of an error.
    Unknown(&'static str),
    /// The operator has not received the prober or the namespace yet, which may be as new as the
    /// pod.
    NotYet(&'static str),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pod gets the agent.
    Injected,
    /// The pod gets none.
    Skipped(SkipReason),
    /// This was not the creation of a Pod.
    NotAPod,
    /// The pod gets none because of an error.
    Failed(String),
}

impl Outcome {
    /// The label `result`.
    #[must_use]
    pub fn result(&self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Skipped(_) | Self::NotAPod => "skipped",
            Self::Failed(_) => "error",
        }
    }

    /// The label `skip_reason`; empty when there is none.
    #[must_use]
    pub fn skip_reason(&self) -> &'static str {
        match self {
            Self::Skipped(reason) => reason.as_str(),
            Self::NotAPod => "NotAPod",
            Self::Injected | Self::Failed(_) => "",
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The review, JSON.
    pub body: Vec<u8>,
    /// The result.
    pub outcome: Outcome,
    /// True if the answer may change in a moment: see [`Decision::NotYet`].
    pub not_yet: bool,
}

/// The error of a request without a uid, which cannot be answered because the API server compares
/// it.
#[derive(Debug, thiserror::Error)]
#[error("this is no AdmissionReview of admission.k8s.io/v1: {0}")]
pub struct Unreadable(String);

#[derive(Deserialize)]
struct ReviewIn<'a> {
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    kind: Option<GroupVersionKind>,
    sub_resource: Option<String>,
    operation: Option<String>,
    namespace: Option<String>,
    dry_run: Option<bool>,
    /// Kept as text, because only the used fields are read, once.
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct GroupVersionKind {
    group: Option<String>,
    version: Option<String>,
    #[serde(rename = "kind")]
    name: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewOut {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
}

/// Answers one request for one prober (`(namespace, name)`).
///
/// # Errors
/// When the request is invalid: it has no uid that could be answered.
pub fn answer(
    body: &[u8],
    prober: (&str, &str),
    injector: &dyn Injector,
) -> Result<Answer, Unreadable> {
    let review: ReviewIn = serde_json::from_slice(body).map_err(|e| Unreadable(e.to_string()))?;
    let request = review.request.ok_or_else(|| Unreadable("it has no request".into()))?;
    let mut not_yet = false;
    let (patch, outcome) = match consider(&request, prober, injector, &mut not_yet) {
        Ok((patch, outcome)) => (Some(patch), outcome),
        Err(outcome) => (None, outcome),
    };
    let response = Response {
        uid: request.uid,
        allowed: true,
        patch_type: patch.as_ref().map(|_| "JSONPatch"),
        patch: patch.map(ByteString),
    };
    let review =
        ReviewOut { api_version: "admission.k8s.io/v1", kind: "AdmissionReview", response };
    let body = serde_json::to_vec(&review).map_err(|e| Unreadable(e.to_string()))?;
    Ok(Answer { body, outcome, not_yet })
}

/// Returns the patch and the result, or the result without one.
fn consider(
    request: &Request<'_>,
    prober: (&str, &str),
    injector: &dyn Injector,
    not_yet: &mut bool,
) -> Result<(Vec<u8>, Outcome), Outcome> {
    if !request.is_creation_of_a_pod() {
        return Err(Outcome::NotAPod);
    }
    let failed = |what: &str| Outcome::Failed(what.to_owned());
    let object = request.object.ok_or_else(|| failed("the request has no object"))?;
    let mut pod: PodObject =
        serde_json::from_str(object.get()).map_err(|e| Outcome::Failed(format!("pod: {e}")))?;
    // A new object may have its namespace only in the request.
    if request.namespace.is_some() {
        pod.metadata.namespace.clone_from(&request.namespace);
    }
    let patch = |ops: &[injection::Op]| {
        serde_json::to_vec(ops).map_err(|e| Outcome::Failed(format!("patch: {e}")))
    };
    let recipe = match injector.decide(prober, &pod, request.dry_run.unwrap_or(false)) {
        Decision::Inject(recipe) => recipe,
        Decision::Mark(recipe) => {
            let skipped = Outcome::Skipped(SkipReason::AgentRefused);
            return Ok((patch(&injection::mark(&pod, &recipe))?, skipped));
        }
        Decision::Skip(reason) => return Err(Outcome::Skipped(reason)),
        Decision::Unknown(why) => return Err(failed(why)),
        Decision::NotYet(why) => {
            *not_yet = true;
            return Err(failed(why));
        }
    };
    if let Some(reason) = injection::skip_reason(&pod, &recipe) {
        return Err(Outcome::Skipped(reason));
    }
    let ops = injection::patch(&pod, &recipe);
    if ops.is_empty() {
        return Err(failed("the pod has no containers"));
    }
    Ok((patch(&ops)?, Outcome::Injected))
}

impl Request<'_> {
    fn is_creation_of_a_pod(&self) -> bool {
        let of =
            |text: &Option<String>, expected: &str| text.as_deref().unwrap_or_default() == expected;
        let pod = self.kind.as_ref().is_some_and(|kind| {
            of(&kind.group, "") && of(&kind.version, "v1") && of(&kind.name, "Pod")
        });
        pod && of(&self.sub_resource, "") && of(&self.operation, "CREATE")
    }
}

#[cfg(test)]
mod tests {
    mod properties;

    use serde_json::{Value, json};

    use super::*;
    use crate::webhook::injection::{Delivery, Resources};

    struct Says(Decision);

    impl Injector for Says {
        fn decide(&self, prober: (&str, &str), pod: &PodObject, _: bool) -> Decision {
            assert_eq!((prober, pod.namespace()), (("ns", "mesh"), "apps"));
            self.0.clone()
        }
    }

    /// Decides the same for every namespace.
    struct Any(Decision);

    impl Injector for Any {
        fn decide(&self, _: (&str, &str), _: &PodObject, _: bool) -> Decision {
            self.0.clone()
        }
    }

    fn recipe() -> Decision {
        Decision::Inject(Box::new(Recipe {
            prober: "ns/mesh".into(),
            image: "i".into(),
            own_image: true,
            http_port: 8080,
            prometheus_port: 2112,
            delivery: Delivery::ConfigMap,
            config_map: "mesh".into(),
            resources: Resources::default(),
            pull_policy: "IfNotPresent",
            run_as_user: None,
            native_sidecar: true,
        }))
    }

    fn pod() -> Value {
        // No name and no namespace: a ReplicaSet's pod as it arrives.
        json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "app"}]}})
    }

    fn request(change: impl Fn(&mut Value)) -> Value {
        let mut request = json!({
            "uid": "the-uid", "operation": "CREATE", "namespace": "apps",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": pod(), "oldObject": null, "dryRun": false, "userInfo": {"username": "u"}
        });
        change(&mut request);
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    }

    fn ask(request: &Value, verdict: Decision) -> (Value, Outcome) {
        let answer =
            answer(request.to_string().as_bytes(), ("ns", "mesh"), &Says(verdict)).unwrap();
        let review: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(review["kind"], "AdmissionReview");
        let response = &review["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("the-uid"), &json!(true)));
        (response.clone(), answer.outcome)
    }

    #[test]
    fn a_pod_gets_its_patch() {
        let (response, outcome) = ask(&request(|_| {}), recipe());
        assert_eq!((outcome.result(), outcome.skip_reason()), ("injected", ""));
        assert_eq!(response["patchType"], "JSONPatch");
        let ByteString(patch) = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut pod = pod();
        json_patch::patch(&mut pod, &patch).unwrap();
        assert_eq!(pod["spec"]["initContainers"][0]["name"], "net-prober");
    }

    #[test]
    fn a_pod_that_would_be_refused_with_an_agent_gets_a_mark() {
        let Decision::Inject(recipe) = recipe() else { unreachable!() };
        let mark = recipe.mark();
        let (response, outcome) = ask(&request(|_| {}), Decision::Mark(recipe));
        assert_eq!((outcome.result(), outcome.skip_reason()), ("skipped", "AgentRefused"));
        let ByteString(patch) = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut changed = pod();
        json_patch::patch(&mut changed, &patch).unwrap();
        let mut expected = pod();
        expected["metadata"]["annotations"] = json!({"probes.bigmikes.io/refused-with": mark});
        assert_eq!(changed, expected);
    }

    #[test]
    fn everything_else_is_allowed_without_a_patch() {
        let skip = |reason| (Decision::Skip(reason), "skipped", reason.as_str());
        let plain = request(|_| {});
        let sub = request(|r| r["subResource"] = json!("ephemeralcontainers"));
        let update = request(|r| r["operation"] = json!("UPDATE"));
        let other = request(|r| r["kind"]["kind"] = json!("Deployment"));
        let group = request(|r| r["kind"]["group"] = json!("example.com"));
        let host = request(|r| r["object"]["spec"]["hostNetwork"] = json!(true));
        let broken = request(|r| r["object"]["spec"] = json!("not an object"));
        let empty = request(|r| r["object"] = json!({}));
        let null = request(|r| r["object"] = json!(null));
        for (request, (verdict, result, reason)) in [
            (&plain, skip(SkipReason::OtherProber)),
            (&plain, skip(SkipReason::NamespaceNotConsenting)),
            (&plain, (Decision::Unknown("not synced"), "error", "")),
            (&plain, (Decision::NotYet("not synced"), "error", "")),
            (&sub, (recipe(), "skipped", "NotAPod")),
            (&update, (recipe(), "skipped", "NotAPod")),
            (&other, (recipe(), "skipped", "NotAPod")),
            (&group, (recipe(), "skipped", "NotAPod")),
            (&host, (recipe(), "skipped", "HostNetwork")),
            (&broken, (recipe(), "error", "")),
            (&empty, (recipe(), "error", "")),
            (&null, (recipe(), "error", "")),
        ] {
            let (response, outcome) = ask(request, verdict);
            assert_eq!((outcome.result(), outcome.skip_reason()), (result, reason), "{request}");
            assert_eq!((response.get("patch"), response.get("patchType")), (None, None));
        }
    }

    /// The namespace is in the request; the pod need not repeat it.
    #[test]
    fn the_namespace_of_the_request_decides_whose_pod_it_is() {
        let shared = |namespace: &'static str| {
            let pod =
                json!({"spec": {"shareProcessNamespace": true, "containers": [{"name": "app"}]}});
            let request = request(|r| {
                r["object"] = pod.clone();
                r["namespace"] = json!(namespace);
            });
            let body = request.to_string();
            answer(body.as_bytes(), ("ns", "mesh"), &Any(recipe())).unwrap().outcome
        };
        assert_eq!(shared("ns"), Outcome::Injected);
        assert_eq!(shared("apps"), Outcome::Skipped(SkipReason::SharedProcesses));
    }

    #[test]
    fn what_cannot_be_answered_is_said_to_be_so() {
        for body in ["", "{", "[]", "{}", r#"{"request": null}"#, r#"{"request": {}}"#] {
            let error = answer(body.as_bytes(), ("ns", "mesh"), &Says(recipe())).unwrap_err();
            assert!(error.to_string().contains("AdmissionReview"), "{body}");
        }
    }
}
