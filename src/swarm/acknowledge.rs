//! Asks workers which version of the file they run.
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use tokio::sync::Semaphore;

use super::limits;
use crate::acknowledgement::{self, Grant, Key, Question, Statement};

/// The time that a worker in the same cluster may take; a slower one is queried again.
const DEADLINE: Duration = Duration::from_secs(1);

/// The same for the word on a grant: the file follows.
const GRANTING: Duration = Duration::from_millis(250);

/// The largest accepted answer: as many streams as a `ConfigMap` can hold.
const MAX_BODY: usize = 1 << 20;

/// Size of an answer in bytes above which it is large: more than a thousand streams of usual names.
const LARGE: usize = 64 << 10;

/// Number of large answers that are read at a time, over all `Swarm`s: a list of short names takes
/// ten times the memory of its text.
const LARGE_AT_ONCE: u32 = 2;

/// Maximum length of a foreign name in an error: that of the name of a pod.
const LONGEST_NAME: usize = 253;

/// The answer of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The version of the file it runs; `None` before it runs any.
    pub version: Option<u64>,
    /// The streams it runs; `None` if it does not say.
    pub jobs: Option<Vec<String>>,
    /// The coming streams that it is ready to start at once; `None` if it does not prepare them. Not
    /// signed: it only decides when streams move.
    pub prepared: Option<Vec<String>>,
}

impl Answer {
    /// Returns the streams that it says it runs.
    #[must_use]
    pub fn jobs(&self) -> &[String] {
        self.jobs.as_deref().unwrap_or_default()
    }

    /// Returns the size of its streams in bytes, as they are kept.
    #[must_use]
    pub fn size(&self) -> usize {
        self.jobs().iter().chain(self.prepared.iter().flatten()).map(|id| limits::kept(id)).sum()
    }
}

/// The recipient of a request.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The name of the worker.
    pub worker: &'a str,
    /// The UID of its pod.
    pub uid: &'a str,
    /// The key with which its answer must be signed; `None` if it does not sign.
    pub key: Option<&'a Key>,
}

/// The original's answer, the name of the worker, and its signature.
#[derive(Deserialize)]
struct Wire {
    version: i64,
    #[serde(default, deserialize_with = "said")]
    jobs: Option<Vec<String>>,
    #[serde(default)]
    prepared: Option<Vec<String>>,
    #[serde(default)]
    worker: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default)]
    mac: Option<String>,
}

/// Go writes an empty list as null.
fn said<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Vec<String>>, D::Error> {
    Option::<Vec<String>>::deserialize(value).map(|jobs| Some(jobs.unwrap_or_default()))
}

/// The client for all workers; clones share it.
#[derive(Clone)]
pub struct WorkerClient {
    http: reqwest::Client,
    large: Arc<Semaphore>,
}

impl WorkerClient {
    /// A client that connects only to the given address.
    ///
    /// # Errors
    /// When the client cannot be built.
    pub fn new() -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .user_agent(crate::USER_AGENT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(DEADLINE)
            // No certificates: workers are queried by plain HTTP, and the image has no
            // certificates.
            .tls_certs_only([])
            // A connection to each worker would stay open without use while nothing moves.
            .pool_idle_timeout(Duration::from_secs(5))
            .build()?;
        Ok(Self { http: client, large: Arc::new(Semaphore::new(LARGE_AT_ONCE as usize)) })
    }

    /// Tells a worker which streams the published file gives to it.
    pub async fn grant(&self, grant: &Grant, key: &Key, ip: IpAddr, port: u16, path: &str) {
        let Some((nonce, granted)) = acknowledgement::nonce().zip(grant.query(key)) else { return };
        let question = Question { uid: grant.uid.clone(), nonce }.query();
        let with = if path.contains('?') { '&' } else { '?' };
        let at = SocketAddr::new(ip, port);
        let url = format!("http://{at}{path}{with}{question}&{granted}");
        if let Err(error) = self.http.get(&url).timeout(GRANTING).send().await {
            let worker = &grant.worker;
            tracing::debug!(worker, error = cause(&error), "the worker reads the file instead");
        }
    }

    /// Asks one worker for its report.
    ///
    /// # Errors
    /// The reason why it is unknown what the worker runs, in one line that changes only with the
    /// reason.
    pub async fn ask(
        &self,
        asked: Asked<'_>,
        ip: IpAddr,
        port: u16,
        path: &str,
    ) -> Result<Answer, String> {
        let at = SocketAddr::new(ip, port);
        let url = format!("http://{at}{path}");
        let proof = match asked.key {
            None => None,
            Some(key) => {
                let nonce = acknowledgement::nonce();
                let nonce = nonce.ok_or_else(|| "this system has no random numbers".to_owned())?;
                Some((key, Question { uid: asked.uid.to_owned(), nonce }))
            }
        };
        // Requests to other workers use the path unchanged.
        let question = proof.as_ref().map_or_else(String::new, |(_, question)| {
            let with = if path.contains('?') { '&' } else { '?' };
            format!("{with}{}", question.query())
        });
        let request = self.http.get(format!("{url}{question}")).send();
        let mut response = request.await.map_err(|error| format!("{url}: {}", cause(&error)))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("{url}: HTTP status {}", status.as_u16()));
        }
        let mut body = Vec::new();
        let mut place = None;
        while let Some(chunk) =
            response.chunk().await.map_err(|error| format!("{url}: {}", cause(&error)))?
        {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(format!("{url}: the answer is larger than 1 MiB"));
            }
            if body.len() + chunk.len() > LARGE && place.is_none() {
                let wait = tokio::time::timeout(DEADLINE, self.large.acquire()).await;
                let late = |_| format!("{url}: large answers of other workers took its time");
                place = wait.map_err(late)?.ok();
            }
            body.extend_from_slice(&chunk);
        }
        let proof = proof.as_ref().map(|(key, question)| (*key, question));
        read(asked.worker, proof, &body).map_err(|text| format!("{url}: {text}"))
    }
}

/// Reads an answer, which must be signed if there is a key.
fn read(worker: &str, proof: Option<(&Key, &Question)>, body: &[u8]) -> Result<Answer, String> {
    let unreadable =
        |why: String| format!("the answer is not {{\"jobs\": […], \"version\": N}}: {why}");
    // A list of the fields in their order would be taken for the object.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(unreadable("it is no object".into()));
    }
    let wire: Wire = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
    // An address may have been given to another pod in the meantime.
    if let Some(name) = wire.worker.as_ref().filter(|name| *name != worker) {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let short: String = name.chars().take(LONGEST_NAME).map(plain).collect();
        return Err(format!("the answer is of {short}"));
    }
    // The original's workers begin with 0, before any file.
    let version = u64::try_from(wire.version).ok().filter(|version| *version > 0);
    for id in wire.jobs.iter().chain(&wire.prepared).flatten() {
        if id.is_empty() {
            return Err(unreadable("a stream has no name".into()));
        }
        limits::name("a stream", id).map_err(unreadable)?;
    }
    if let Some((key, question)) = proof {
        if wire.uid.as_ref().is_some_and(|uid| *uid != question.uid) {
            return Err("the answer is of another pod of that name".into());
        }
        let Some(mac) = wire.mac else {
            return Err(
                "the answer is not signed: by a worker without POD_UID or acknowledge.key, or by another sender"
                    .into(),
            );
        };
        if wire.nonce.as_deref() != Some(&question.nonce) {
            return Err("the answer is to another question".into());
        }
        let jobs = wire.jobs.as_deref().unwrap_or_default();
        let said = Statement { question, worker, version: version.unwrap_or(0), jobs };
        if !said.is_signed(key, &mac) {
            return Err(
                "the answer is signed with another key than acknowledge.key of the ConfigMap"
                    .into(),
            );
        }
    }
    Ok(Answer { version, jobs: wire.jobs, prepared: wire.prepared })
}

/// The innermost reason: the library's own text repeats the URL.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", DEADLINE.as_secs());
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    mod properties;

    fn of(body: &str) -> Result<Answer, String> {
        read("swarm-worker-0", None, body.as_bytes())
    }

    fn key() -> Key {
        Key::read(&acknowledgement::new_key().unwrap()).unwrap()
    }

    fn question(uid: &str, nonce: &str) -> Question {
        Question { uid: uid.into(), nonce: nonce.into() }
    }

    /// Returns the answer of a worker with this key to a request.
    fn signed(key: &Key, question: &Question) -> serde_json::Value {
        let (worker, jobs) = ("swarm-worker-0", ["a"]);
        let mac = Statement { question, worker, version: 7, jobs: &jobs }.sign(key);
        serde_json::json!({
            "jobs": jobs, "version": 7, "worker": worker,
            "uid": question.uid, "nonce": question.nonce, "mac": mac,
        })
    }

    #[test]
    fn only_the_pod_that_is_asked_can_answer_and_only_this_question() {
        let (key, asked) = (key(), question("pod-2", "n-2"));
        let read = |answer: &serde_json::Value| {
            read("swarm-worker-0", Some((&key, &asked)), answer.to_string().as_bytes())
        };
        let right = signed(&key, &asked);
        let wanted = Answer { version: Some(7), jobs: Some(vec!["a".into()]), prepared: None };
        assert_eq!(read(&right), Ok(wanted));
        let with = |field: &str, value: serde_json::Value| {
            let mut answer = right.clone();
            answer[field] = value;
            answer
        };
        for (answer, words) in [
            // A neighbor without the key; a worker of others, or one from before there were
            // signatures.
            (serde_json::json!({"jobs": [], "version": 9}), "is not signed"),
            (with("mac", serde_json::Value::Null), "is not signed"),
            (with("mac", "00".into()), "another key"),
            (signed(&self::key(), &asked), "another key"),
            // An earlier answer, sent again.
            (signed(&key, &question("pod-2", "n-1")), "to another question"),
            (with("nonce", "n-1".into()), "to another question"),
            // The previous pod of that name, which still answers somewhere.
            (signed(&key, &question("pod-1", "n-2")), "another pod of that name"),
            (signed(&key, &question("pod-1", "n-1")), "another pod of that name"),
            // A right one with something else in it.
            (with("version", 8.into()), "another key"),
            (with("jobs", serde_json::json!([])), "another key"),
            (with("jobs", serde_json::json!(["a", "b"])), "another key"),
            (with("worker", "swarm-worker-1".into()), "is of swarm-worker-1"),
        ] {
            let error = read(&answer).unwrap_err();
            assert!(error.contains(words), "{answer}: {error}");
            assert!(!error.contains('\n') && error.len() < 200, "{error}");
        }
        // Without the name, the signature does not cover it.
        let unnamed = with("worker", serde_json::Value::Null);
        assert!(read(&unnamed).is_ok(), "the signature still names the worker");
    }

    #[test]
    fn workers_of_others_are_believed_as_they_are() {
        let answer = signed(&key(), &question("pod-1", "n"));
        assert_eq!(of(&answer.to_string()).unwrap().version, Some(7));
        assert_eq!(of(r#"{"jobs":[],"version":7}"#).unwrap().version, Some(7));
        let long = format!(r#"{{"jobs":[],"version":7,"worker":"{}"}}"#, "x".repeat(1 << 19));
        assert!(of(&long).unwrap_err().len() < 300);
    }

    /// One server that answers any request, and records it.
    async fn served(body: String) -> (u16, tokio::task::JoinHandle<String>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            let text = String::from_utf8(request).unwrap();
            text.lines().next().unwrap().to_owned()
        });
        (port, asked)
    }

    #[tokio::test]
    async fn each_question_has_a_number_of_its_own_and_no_error_tells_it() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (client, key) = (WorkerClient::new().unwrap(), key());
        let local = IpAddr::from([127, 0, 0, 1]);
        let mut seen = std::collections::BTreeSet::new();
        let mut errors = std::collections::BTreeSet::new();
        for path in ["/v", "/v", "/v?x=1"] {
            let (port, asked) = served(r#"{"version":7}"#.into()).await;
            let who = Asked { worker: "w-0", uid: "pod-1", key: Some(&key) };
            let error = client.ask(who, local, port, path).await.unwrap_err();
            errors.insert(error.replace(&port.to_string(), "PORT").replace("?x=1", ""));
            let line = asked.await.unwrap();
            let (_, query) = line.trim_end_matches(" HTTP/1.1").split_once('?').unwrap();
            let question = Question::read(query).unwrap();
            assert_eq!(question.uid, "pod-1");
            assert!(seen.insert(question.nonce), "{line}");
        }
        assert_eq!(errors.len(), 1, "{errors:?}");
        // A worker that does not sign gets the same request as before.
        let (port, asked) = served(r#"{"version":7}"#.into()).await;
        let who = Asked { worker: "w-0", uid: "pod-1", key: None };
        assert_eq!(client.ask(who, local, port, "/v").await.unwrap().version, Some(7));
        assert_eq!(asked.await.unwrap(), "GET /v HTTP/1.1");
    }

    #[test]
    fn the_originals_answer_and_ours_are_read() {
        let jobs = || vec!["a".to_owned(), "b".to_owned()];
        let wanted = Answer { version: Some(7), jobs: Some(jobs()), prepared: None };
        assert_eq!(of(r#"{"jobs":["a","b"],"version":7}"#).unwrap(), wanted);
        let ours = of(r#"{"jobs":["a","b"],"version":7,"worker":"swarm-worker-0","x":1}"#);
        assert_eq!(ours.unwrap(), wanted);
        let none = Answer { version: None, jobs: Some(vec![]), prepared: None };
        assert_eq!(of(r#"{"jobs":null,"version":0}"#).unwrap(), none);
        assert_eq!(of(r#"{"version":-3}"#).unwrap(), Answer::default());
        assert_eq!(of(r#"{"version":3}"#).unwrap().version, Some(3));
    }

    #[test]
    fn what_cannot_be_read_is_no_acknowledgement() {
        assert!(of("<html>").unwrap_err().contains("not {"));
        assert!(of(r#"{"jobs":[]}"#).unwrap_err().contains("version"));
        let other = of(r#"{"jobs":[],"version":7,"worker":"swarm-worker-1"}"#);
        assert_eq!(other.unwrap_err(), "the answer is of swarm-worker-1");
        assert!(of(r#"{"jobs":["a",""],"version":7}"#).unwrap_err().ends_with("has no name"));
        let long = format!(r#"{{"jobs":["{}"],"version":7}}"#, "x".repeat(254));
        assert!(of(&long).unwrap_err().contains("has 254 characters"));
    }

    /// A list of short names takes ten times the memory of its text, and 64 workers are asked at a
    /// time.
    #[tokio::test]
    async fn few_large_answers_are_read_at_a_time_and_small_ones_do_not_wait() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = WorkerClient::new().unwrap();
        let local = IpAddr::from([127, 0, 0, 1]);
        let asked = Asked { worker: "w-0", uid: "pod-1", key: None };
        let body = |ids: usize| serde_json::json!({"jobs": vec!["a"; ids], "version": 7});
        let others = client.large.acquire_many(LARGE_AT_ONCE).await.unwrap();
        let (port, _) = served(body(10).to_string()).await;
        assert_eq!(client.ask(asked, local, port, "/v").await.unwrap().jobs().len(), 10);
        let (port, _) = served(body(LARGE).to_string()).await;
        let error = client.ask(asked, local, port, "/v").await.unwrap_err();
        assert!(error.contains("took its time"), "{error}");
        drop(others);
        let (port, _) = served(body(LARGE).to_string()).await;
        assert_eq!(client.ask(asked, local, port, "/v").await.unwrap().jobs().len(), LARGE);
    }

    #[tokio::test]
    async fn a_worker_that_is_not_there_is_reported_with_its_address() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = WorkerClient::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let local = IpAddr::from([127, 0, 0, 1]);
        let error = client
            .ask(Asked { worker: "w-0", uid: "u", key: None }, local, port, "/v")
            .await
            .unwrap_err();
        assert!(error.starts_with(&format!("http://127.0.0.1:{port}/v: ")), "{error}");
        assert!(error.contains("refused"), "{error}");
    }
}
