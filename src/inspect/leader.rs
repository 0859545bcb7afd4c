//! The leading replica: its identity and its answers.
use std::time::Duration;

use futures::FutureExt;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Pod},
    jiff::Timestamp,
};
use kube::Client;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};

use super::cluster::describe;
use crate::{
    infra::Api,
    runtime::status_page::STATE_PATH,
    text::figures::ago,
    traffic_watch::overview::{Filter, Overview},
};

/// The deadline for the leader, which answers from memory, including a port-forward to it.
const DEADLINE: Duration = Duration::from_secs(10);

/// The time to wait for the reason after the connection has ended: both arrive the same way.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The largest answer: about one node that a thousand objects judge, ten times over.
const LARGEST: usize = 32 << 20;

/// The location of the operator's Lease and pods.
#[derive(Clone, Debug)]
pub struct Place {
    /// The namespace of both.
    pub namespace: String,
    /// The Lease's name.
    pub lease: String,
    /// The port of the status page, on the loopback of its pod.
    pub port: u16,
    /// The status page's address, for direct requests.
    pub url: Option<String>,
    /// The operator's pod that runs this command; none outside the operator's namespace.
    pub pod: Option<String>,
}

/// The content of the Lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leadership {
    /// The pod that leads.
    pub holder: String,
    /// The time since which it leads.
    pub since: Option<Timestamp>,
    /// The time of its last renewal.
    pub renewed: Option<Timestamp>,
    /// The time for which a renewal is valid.
    pub seconds: Option<i32>,
}

impl Leadership {
    /// Reports whether the Lease has expired: no replica decides.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> bool {
        let Some(renewed) = self.renewed else { return true };
        // The clocks of this machine and the leader's may differ, so twice the duration is allowed.
        let allowed = i64::from(self.seconds.unwrap_or_default()) * 2;
        now.as_second().saturating_sub(renewed.as_second()) > allowed
    }
}

/// Reads the Lease; `None` if no replica ever led, or the leader released it.
///
/// # Errors
/// The error of the API server.
pub async fn leadership(client: &Client, place: &Place) -> Result<Option<Leadership>, String> {
    let key = (place.namespace.as_str(), place.lease.as_str());
    lease(client, key).await.map_err(|error| describe("get Lease", error))
}

/// Reads the Lease like [`leadership`], for callers that distinguish errors.
///
/// # Errors
/// The error of the API server.
pub async fn lease(
    client: &Client,
    (namespace, name): (&str, &str),
) -> kube::Result<Option<Leadership>> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(name).await?;
    let Some(spec) = lease.and_then(|lease| lease.spec) else { return Ok(None) };
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return Ok(None);
    };
    Ok(Some(Leadership {
        holder,
        since: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        seconds: spec.lease_duration_seconds,
    }))
}

/// Returns the leader's view of one node.
///
/// # Errors
/// The reason why it is unavailable, with a remedy.
pub async fn view(client: &Client, place: &Place, node: &str) -> Result<Overview, String> {
    selected(client, place, &format!("node={node}")).await
}

/// Returns the leader's view of one `TrafficWatch`, with as many nodes as it lists.
///
/// # Errors
/// The reason why it is unavailable, with a remedy.
pub async fn watch(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
) -> Result<Overview, String> {
    let limit = Filter::MAX_LIMIT;
    selected(client, place, &format!("namespace={namespace}&name={name}&limit={limit}")).await
}

async fn selected(client: &Client, place: &Place, query: &str) -> Result<Overview, String> {
    let path = format!("{STATE_PATH}?{query}");
    let (view, whom) = ask::<Overview>(client, place, &path).await?;
    if view.leader {
        Ok(view)
    } else {
        Err(format!("{whom} does not lead: only the leader knows; ask that one"))
    }
}

/// Requests a path of the leader's status page, and returns the answer with the leader's name.
///
/// # Errors
/// The reason why it is unavailable, with a remedy.
pub async fn ask<T: DeserializeOwned>(
    client: &Client,
    place: &Place,
    path: &str,
) -> Result<(T, String), String> {
    let (text, whom) = match &place.url {
        Some(url) => {
            let answer = direct(url, path).await;
            (answer.map_err(|why| format!("--operator-url {url}: {why}"))?, url.clone())
        }
        None => from_the_holder(client, place, path).await?,
    };
    let answer = serde_json::from_str(&text)
        .map_err(|error| format!("{whom} answers what this version cannot read: {error}"))?;
    Ok((answer, whom))
}

async fn direct(url: &str, query: &str) -> Result<String, String> {
    let failed = |error: reqwest::Error| last_cause(&error);
    let http = reqwest::Client::builder()
        .user_agent(crate::USER_AGENT)
        .timeout(DEADLINE)
        // As for Prometheus: this process has no CA certificates to look for.
        .tls_certs_only([])
        .no_proxy()
        .build()
        .map_err(failed)?;
    let request = http.get(format!("{}{query}", url.trim_end_matches('/')));
    let answer = request.send().await.map_err(failed)?;
    let status = answer.status();
    if !status.is_success() {
        return Err(format!("HTTP status {}", status.as_u16()));
    }
    answer.text().await.map_err(failed)
}

/// Asks the holder of the Lease: on the loopback if this command runs in its pod, whose account may
/// not forward ports; otherwise through the API server.
async fn from_the_holder(
    client: &Client,
    place: &Place,
    query: &str,
) -> Result<(String, String), String> {
    let Place { namespace, port, pod, .. } = place;
    let leader = led(client, place).await?;
    let holder = leader.holder.clone();
    let mut why_not_here = String::new();
    if pod.as_ref() == Some(&holder) {
        let url = format!("http://127.0.0.1:{port}");
        match direct(&url, query).await {
            Ok(answer) => return Ok((answer, format!("pod {holder}"))),
            Err(why) => why_not_here = format!("{url}: {why}; "),
        }
    }
    let answer = forwarded(client, (namespace, &holder, *port), query).await;
    let answer = answer.map_err(|error| why_not_here + &unreachable(place, &leader, error))?;
    Ok((answer, format!("pod {holder}")))
}

/// Reads who leads.
///
/// # Errors
/// When nobody does, or the error of the API server.
pub async fn led(client: &Client, place: &Place) -> Result<Leadership, String> {
    let Place { namespace, lease, .. } = place;
    leadership(client, place).await?.ok_or_else(|| {
        format!(
            "no pod leads: the Lease {namespace}/{lease} has no holder; is the operator running?"
        )
    })
}

/// Carries a connection to the leader's status page until either end closes it.
///
/// # Errors
/// The reason why the leader does not take it, with a remedy.
pub async fn carry(
    client: &Client,
    place: &Place,
    mut local: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), String> {
    let leader = led(client, place).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), &place.namespace);
    let carried = async {
        let mut forward = pods.portforward(&leader.holder, &[place.port]).await?;
        let nothing = || ForwardError::Pod(format!("port {} is not forwarded", place.port));
        let mut stream = forward.take_stream(place.port).ok_or_else(nothing)?;
        let refused = forward.take_error(place.port).ok_or_else(nothing)?;
        let mut refused = std::pin::pin!(refused.fuse());
        let result = tokio::select! {
            biased;
            Some(why) = &mut refused => Err(ForwardError::Pod(why.trim().to_owned())),
            // A browser that closes its end is no failure.
            _ = tokio::io::copy_bidirectional(&mut local, &mut stream) => Ok(()),
        };
        forward.abort();
        result
    };
    carried.await.map_err(|error| unreachable(place, &leader, error))
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    /// The API server refused the port-forward.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The port-forward works, but the pod does not answer.
    #[error("{0}")]
    Pod(String),
    /// No answer arrived in time.
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Deadline,
}

/// Gets a path from the loopback of a pod, by a port-forward through the API server.
async fn forwarded(
    client: &Client,
    (namespace, pod, port): (&str, &str, u16),
    path: &str,
) -> Result<String, ForwardError> {
    let asked = forward(client, (namespace, pod, port), path);
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or(Err(ForwardError::Deadline))
}

async fn forward(
    client: &Client,
    (namespace, pod, port): (&str, &str, u16),
    path: &str,
) -> Result<String, ForwardError> {
    let failed = |error: &dyn std::fmt::Display| ForwardError::Pod(error.to_string());
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let mut forward = pods.portforward(pod, &[port]).await?;
    let nothing = || ForwardError::Pod(format!("port {port} is not forwarded"));
    let stream = forward.take_stream(port).ok_or_else(nothing)?;
    let refused = forward.take_error(port).ok_or_else(nothing)?;
    let exchange = async {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(path).header(header::HOST, format!("127.0.0.1:{port}"));
        let request = request.body(Empty::<Bytes>::new());
        // The connection ends when its last sender is dropped.
        let answer = async move {
            let request = request.map_err(|error| failed(&error))?;
            let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), LARGEST).collect().await;
            let body = body.map_err(|error| failed(&error))?.to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            match status {
                StatusCode::OK => Ok(text),
                status => Err(ForwardError::Pod(format!("HTTP status {status}: {}", text.trim()))),
            }
        };
        let (answer, _) = tokio::join!(answer, connection);
        Ok::<_, hyper::Error>(answer)
    };
    let mut exchange = std::pin::pin!(exchange);
    let mut refused = std::pin::pin!(refused.fuse());
    let why = |why: String| Err(ForwardError::Pod(why.trim().to_owned()));
    let result = tokio::select! {
        answer = &mut exchange => match answer.map_err(|error| failed(&error)).flatten() {
            // The connection may end before the reason arrives on a separate channel.
            Err(error) => match tokio::time::timeout(LAST_WORD, refused).await {
                Ok(Some(text)) => why(text),
                _ => Err(error),
            },
            answer => answer,
        },
        Some(text) = &mut refused => why(text),
        else => exchange.await.map_err(|error| failed(&error)).flatten(),
    };
    forward.abort();
    result
}

/// Returns the error for a port-forward without an answer, with a workaround.
fn unreachable(place: &Place, leader: &Leadership, error: ForwardError) -> String {
    let Place { namespace, port, .. } = place;
    let holder = &leader.holder;
    let exec = format!("kubectl -n {namespace} exec {holder} -- /traffic-operator explain …");
    let inside = format!("{exec} --operator-url http://127.0.0.1:{port}");
    let other = place.pod.as_deref().filter(|pod| pod != holder);
    match (error, other) {
        // The operator's account has no right to forward ports, and needs none.
        (ForwardError::Api(kube::Error::Api(s)), Some(pod)) if s.is_forbidden() => {
            format!("this pod, {pod}, does not lead; run the command in the leader: {exec}")
        }
        (error, _) => refusal(place, leader, &inside, error),
    }
}

fn refusal(
    Place { namespace, port, .. }: &Place,
    Leadership { holder, renewed, .. }: &Leadership,
    inside: &str,
    error: ForwardError,
) -> String {
    let renewed = renewed.map(|at| ago(at, Timestamp::now())).unwrap_or_default();
    match error {
        ForwardError::Api(kube::Error::Api(s)) if s.is_forbidden() => format!(
            "you may not forward ports of pods in namespace {namespace} (get and create \
             pods/portforward); ask for that, or {inside}"
        ),
        ForwardError::Api(kube::Error::Api(s)) if s.is_not_found() => format!(
            "there is no pod {holder} in namespace {namespace} (it renewed the Lease {renewed} ago); if \
             the operator runs elsewhere: --operator-url"
        ),
        ForwardError::Api(error) => format!("{}; try: {inside}", describe("forward", error)),
        error => format!(
            "pod {holder} does not answer on its own port {port}: {error}; if it serves the status page \
             elsewhere (--page-address): --operator-port; if not to itself: --operator-url"
        ),
    }
}

/// Returns the last cause, which describes the failure ("connection refused"); the ones above it
/// repeat the URL.
fn last_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(kube::core::Status::failure("no", reason).with_code(code).boxed())
    }

    fn leader() -> Leadership {
        Leadership { holder: "p".into(), ..Leadership::default() }
    }

    fn place(pod: Option<&str>) -> Place {
        Place {
            namespace: "ns".into(),
            lease: "l".into(),
            port: 8082,
            url: None,
            pod: pod.map(str::to_owned),
        }
    }

    #[test]
    fn a_leader_that_cannot_be_asked_leaves_a_way() {
        let api = |code, reason| ForwardError::Api(refused(code, reason));
        for (error, expected) in [
            (api(403, "Forbidden"), "may not forward ports of pods in namespace ns"),
            (api(404, "NotFound"), "no pod p in namespace ns"),
            (api(503, "ServiceUnavailable"), "exec p --"),
            (ForwardError::Pod("connection refused".into()), "own port 8082: connection refused"),
            (ForwardError::Deadline, "no answer within 10 s"),
        ] {
            let text = unreachable(&place(None), &leader(), error);
            assert!(text.contains(expected) && text.contains("--operator-url"), "{text}");
        }
    }

    #[test]
    fn another_replica_names_the_pod_that_knows() {
        let forbidden = || ForwardError::Api(refused(403, "Forbidden"));
        assert_eq!(
            unreachable(&place(Some("q")), &leader(), forbidden()),
            "this pod, q, does not lead; run the command in the leader: kubectl -n ns exec p -- \
             /traffic-operator explain …"
        );
        let text = unreachable(&place(Some("p")), &leader(), forbidden());
        assert!(text.contains("may not forward ports"), "{text}");
    }

    #[test]
    fn a_lease_without_renewal_runs_out() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let lease = Leadership {
            holder: "p".into(),
            renewed: Some(at(100)),
            seconds: Some(15),
            ..Leadership::default()
        };
        assert!(!lease.expired(at(130)));
        assert!(lease.expired(at(131)));
        assert!(Leadership { renewed: None, ..lease }.expired(at(100)));
    }
}
