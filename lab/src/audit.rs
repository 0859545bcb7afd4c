//! The API server's audit log in the form that tests read: one event per request.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use tokio::time::timeout;

use crate::wait::until;

/// The longest time for which the log may be behind: on an idle machine it is milliseconds.
const BEHIND: Duration = Duration::from_mins(1);

/// Time for the answer to a mark: an API server that has just been resumed answers late.
const ANSWER: Duration = Duration::from_secs(5);

/// The audit policy of the API server: every request once it is answered, without bodies.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// One request to the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditEvent {
    /// The time at which the answer was complete (for a watch: at which it was opened), to the
    /// microsecond.
    pub time: Timestamp,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for paths
    /// that are not resources, the HTTP method in lower case.
    pub verb: String,
    /// The user who made the request, as RBAC sees it.
    pub user: String,
    /// The client's user agent.
    pub user_agent: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// `nodes`, `trafficwatches.traffic.example.com`: resource and API group, as RBAC and kubectl
    /// write them; empty for paths that are not resources.
    pub resource: String,
    /// `status`, `scale`, `binding`, …; empty for the object itself.
    pub subresource: String,
    /// The object's name; empty for lists.
    pub name: String,
    /// The HTTP status answered.
    pub code: u16,
    /// The requested path and query.
    pub uri: String,
}

impl AuditEvent {
    /// Reports whether the request changes stored objects. A review (of a token, or of access) is a
    /// create that stores nothing.
    pub fn is_write(&self) -> bool {
        let asks = ["tokenreviews.", "subjectaccessreviews."];
        !asks.iter().any(|review| self.resource.starts_with(review))
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
    }
}

/// Reads all events of an audit log, except for a last line that is still being written. A missing
/// log has no events: the API server creates it with the first request.
pub fn read(path: &Path) -> Result<Vec<AuditEvent>> {
    parse(&text(path)?, Timestamp::MIN)
}

/// Reads the events at or after `time`, as [`read`] does.
pub(crate) fn since(path: &Path, time: Timestamp) -> Result<Vec<AuditEvent>> {
    parse(&text(path)?, time)
}

fn text(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        result => result.with_context(|| format!("reading the audit log {}", path.display())),
    }
}

/// Waits until the log holds every request that was answered before this call: it is a moment
/// behind the answers.
pub(crate) async fn caught_up(client: &Client, log: &Path) -> Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // The version is answered without the store, which may stand still in a test.
    let mark = format!("/version?mark={}-{count}", std::process::id());
    let before = fs::metadata(log).map_or(0, |file| file.len());
    let look = || async {
        let request = http::Request::get(&mark).body(Vec::new()).context("a request")?;
        match timeout(ANSWER, client.request_text(request)).await {
            Ok(Ok(_)) if after(log, before)?.contains(&mark) => Ok(None),
            Ok(Ok(_)) => Ok(Some("an answer that is not in the log".into())),
            Ok(Err(error)) => Ok(Some(error.to_string())),
            Err(_) => Ok(Some("no answer".into())),
        }
    };
    until("the audit log", BEHIND, look).await
}

/// Returns what a log holds after this many bytes.
fn after(log: &Path, bytes: u64) -> Result<String> {
    let what = || format!("reading the audit log {}", log.display());
    let mut file = File::open(log).with_context(what)?;
    file.seek(SeekFrom::Start(bytes)).with_context(what)?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).with_context(what)?;
    Ok(String::from_utf8_lossy(&rest).into_owned())
}

/// Parses the complete lines with an event at or after `time`.
fn parse(text: &str, time: Timestamp) -> Result<Vec<AuditEvent>> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    // As the API server writes times, so that earlier ones are smaller as text: the log of a whole
    // suite takes seconds to parse, and most tests ask for its end.
    let first = time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let mut events = Vec::new();
    for line in complete.lines().filter(|line| stamp(line).is_none_or(|stamp| stamp >= &*first)) {
        let record: Record =
            serde_json::from_str(line).with_context(|| format!("audit log line {line:?}"))?;
        events.extend(record.into_event().filter(|event| event.time >= time));
    }
    Ok(events)
}

/// Returns the time of a line, as it stands there.
fn stamp(line: &str) -> Option<&str> {
    let (_, after) = line.rsplit_once(r#""stageTimestamp":""#)?;
    after.split_once('"').map(|(stamp, _)| stamp)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    stage: String,
    verb: String,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl Record {
    /// A watch is logged when it opens and again when it ends: the opening counts.
    fn into_event(self) -> Option<AuditEvent> {
        let counts = if self.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        if self.stage != counts && self.stage != "Panic" {
            return None;
        }
        let object = self.object_ref;
        let resource = match (object.resource.is_empty(), object.api_group.is_empty()) {
            (false, false) => format!("{}.{}", object.resource, object.api_group),
            _ => object.resource,
        };
        Some(AuditEvent {
            time: self.stage_timestamp,
            verb: self.verb,
            user: self.user.username,
            user_agent: self.user_agent,
            namespace: object.namespace,
            resource,
            subresource: object.subresource,
            name: object.name,
            code: self.response_status.code,
            uri: self.request_uri,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"x","stage":"ResponseComplete","requestURI":"/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/tw/status?fieldManager=x","verb":"patch","user":{"username":"system:serviceaccount:a:b","groups":["system:authenticated"]},"sourceIPs":["127.0.0.1"],"userAgent":"traffic-operator/0.1.0","objectRef":{"resource":"trafficwatches","namespace":"default","name":"tw","apiGroup":"traffic.example.com","apiVersion":"v1alpha1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.500000Z"}"#;

    #[test]
    fn a_write_is_read_with_its_group_and_subresource() {
        let events = parse(&format!("{PATCH}\n"), Timestamp::MIN).unwrap();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert!(event.is_write());
        assert_eq!(event.resource, "trafficwatches.traffic.example.com");
        assert_eq!(
            (event.subresource.as_str(), event.name.as_str(), event.code),
            ("status", "tw", 200)
        );
        assert_eq!(event.user_agent, "traffic-operator/0.1.0");
        assert_eq!(event.time.as_millisecond() % 1000, 500);
    }

    #[test]
    fn a_watch_counts_once_when_it_opens() {
        let line = |stage: &str| {
            format!(
                r#"{{"stage":"{stage}","verb":"watch","requestURI":"/api/v1/nodes?watch=true","user":{{"username":"u"}},"objectRef":{{"resource":"nodes","apiVersion":"v1"}},"responseStatus":{{"code":200}},"stageTimestamp":"2026-01-02T03:04:05.000000Z"}}"#
            )
        };
        let lines = format!("{}\n{}\n", line("ResponseStarted"), line("ResponseComplete"));
        let events = parse(&lines, Timestamp::MIN).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].resource, "nodes");
        assert!(!events[0].is_write());
    }

    #[test]
    fn a_line_still_being_written_is_left_out() {
        let half = &PATCH[..100];
        assert_eq!(parse(&format!("{PATCH}\n{half}"), Timestamp::MIN).unwrap().len(), 1);
        assert_eq!(parse(half, Timestamp::MIN).unwrap().len(), 0);
    }

    #[test]
    fn events_before_a_time_are_left_out_and_one_at_that_time_is_not() {
        let log = format!("{PATCH}\n");
        let count = |time: &str| parse(&log, time.parse().unwrap()).unwrap().len();
        assert_eq!(count("2026-01-02T03:04:05.499999Z"), 1);
        assert_eq!(count("2026-01-02T03:04:05.5Z"), 1);
        assert_eq!(count("2026-01-02T03:04:05.500000001Z"), 0);
        assert_eq!(count("2026-01-02T03:04:06Z"), 0);
    }

    #[test]
    fn a_path_that_looks_like_a_time_is_none() {
        let path = r#"/x?\"stageTimestamp\":\"2027"#;
        let log = format!("{}\n", PATCH.replace("/apis/traffic.example.com", path));
        let time = "2026-06-01T00:00:00Z".parse().unwrap();
        assert_eq!(parse(&log, time).unwrap().len(), 0);
        assert_eq!(parse(&log, Timestamp::MIN).unwrap().len(), 1);
    }
}
