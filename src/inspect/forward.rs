//! Reads from the loopback of a pod, by a port-forward through the API server.
use std::time::Duration;

use futures::FutureExt;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use crate::infra::Api;

/// The deadline, including the port-forward: the pod answers from memory.
const DEADLINE: Duration = Duration::from_secs(10);

/// The time to wait for the reason after the connection has ended: both arrive the same way.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The largest answer: about one node that a thousand objects judge, ten times over.
const LARGEST: usize = 32 << 20;

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
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

/// Gets a path from a port of a pod.
///
/// # Errors
/// The reason why there is no answer.
pub async fn get(
    client: &Client,
    (namespace, pod, port): (&str, &str, u16),
    path: &str,
) -> Result<String, ForwardError> {
    let asked = ask(client, (namespace, pod, port), path);
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or(Err(ForwardError::Deadline))
}

async fn ask(
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
