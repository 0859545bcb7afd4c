//! Requests to the simulated API server.
use axum::body::Bytes;
use http::{HeaderMap, Method, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tower::BoxError;

use super::{
    dice::number,
    store::{Edit, Key},
};

pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// One request, read.
#[derive(Clone, Debug)]
pub struct Call {
    pub who: String,
    pub verb: Verb,
    /// The object; without a name for lists, watches and creations.
    pub key: Key,
    /// The part of the object that is written, `status` or nothing.
    pub sub: String,
    pub query: Vec<(String, String)>,
    pub body: Value,
    /// A number that depends on all of it.
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Edit(Edit),
    Delete,
}

impl Call {
    /// Reads a request.
    pub fn of(
        who: &str,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Option<Self> {
        let path: Vec<_> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        // /api/v1/… or /apis/group/version/…
        let mut path = path[if path[0] == "api" { 2 } else { 3 }..].iter().copied();
        let mut plural = path.next()?;
        let mut namespace = "";
        if plural == "namespaces" {
            namespace = path.next()?;
            plural = path.next()?;
        }
        let name = path.next().unwrap_or_default();
        let sub = path.next().unwrap_or_default();
        let query = uri.query().unwrap_or_default().as_bytes();
        let query: Vec<_> = form_urlencoded::parse(query).into_owned().collect();
        let watches = query.iter().any(|(key, value)| key == "watch" && value == "true");
        let content = headers.get(header::CONTENT_TYPE).map(|text| text.to_str().unwrap());
        let verb = match *method {
            Method::GET if watches => Verb::Watch,
            Method::GET if name.is_empty() => Verb::List,
            Method::GET => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Edit(Edit::Replace),
            Method::DELETE => Verb::Delete,
            _ => Verb::Edit(match content? {
                "application/merge-patch+json" => Edit::Merge,
                "application/json-patch+json" => Edit::Json,
                "application/apply-patch+yaml" => Edit::Apply,
                _ => return None,
            }),
        };
        let body: Value = if body.is_empty() { json!(null) } else { read(body)? };
        let mut text = format!("{who} {method} {uri}");
        // Their names hold the real time.
        let is_event = plural == "events";
        if is_event {
            text = format!("{who} event {namespace}");
        } else {
            text.push_str(&body.to_string());
        }
        let key = Key::new(plural, namespace, name);
        let (who, sub, number) = (who.to_owned(), sub.to_owned(), number(text.as_bytes()));
        Some(Self { who, verb, key, sub, query, body, number })
    }

    /// Reports whether it may change something.
    pub fn writes(&self) -> bool {
        matches!(self.verb, Verb::Create | Verb::Edit(_) | Verb::Delete)
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Reports whether an object is in a list or a watch.
    pub fn selects(&self, key: &Key, object: &Value) -> bool {
        let labels = self.parameter("labelSelector").unwrap_or_default();
        let carries = |label: &str| {
            let (key, value) = label.split_once('=').unwrap();
            object["metadata"]["labels"][key] == value
        };
        key.plural == self.key.plural
            && (self.key.namespace.is_empty() || key.namespace == self.key.namespace)
            && labels.split(',').filter(|label| !label.is_empty()).all(carries)
    }

    pub fn line(&self) -> String {
        let Self { verb, key: Key { plural, namespace, name }, sub, .. } = self;
        let body = if plural == "leases" { String::new() } else { self.body.to_string() };
        format!("{verb:?} {plural} {namespace}/{name} {sub} {body}")
    }
}

/// Reads JSON; the client sends an apply as JSON too, which is YAML.
fn read(body: &Bytes) -> Option<Value> {
    serde_json::from_slice(body).ok()
}
