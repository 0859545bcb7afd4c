//! The path of a user: a new connection, `GET /ping`, and the time until the headers arrive.
use std::{error::Error as _, io, net::SocketAddr, pin::pin};

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Instant};

use super::{Answer, Unanswered, end_by_reset};
use crate::reason::Reason;

/// Maximum number of bytes of a body that are read before the connection is closed: the agent's
/// body has 5 bytes, and another server must not send its entire front page.
const BODY: usize = 4096;

/// Sends one request on a new connection, which ends by a reset: neither end is asked to close it.
pub(super) async fn get(address: SocketAddr) -> Result<Answer, Unanswered> {
    let started = Instant::now();
    let unanswered = |error: &io::Error| Unanswered::of(error, address);
    let reason = |error: &hyper::Error| reason(error, address);
    let stream = TcpStream::connect(address).await.map_err(|error| unanswered(&error))?;
    // No data follows with which the request could be combined.
    stream.set_nodelay(true).map_err(|error| unanswered(&error))?;
    end_by_reset(&stream, address)?;
    let (mut sender, connection) =
        http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(|e| reason(&e))?;
    // `SocketAddr` writes IPv6 addresses in brackets.
    let request = Request::get("/ping")
        .header(header::HOST, address.to_string())
        .header(header::USER_AGENT, crate::USER_AGENT)
        .body(Empty::new())
        .map_err(|_| Reason::Other)?;
    let exchange = pin!(async {
        let response = sender.send_request(request).await.map_err(|error| reason(&error))?;
        let rtt = started.elapsed();
        let status = response.status();
        drain(response.into_body()).await.map_err(|error| reason(&error))?;
        if status == StatusCode::OK {
            Ok(Answer { rtt, smoothed: None })
        } else {
            Err(Reason::Status.into())
        }
    });
    let mut connection = pin!(connection);
    let mut over = false;
    let mut exchange = exchange;
    loop {
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            // It does the input and output; the exchange receives its errors by itself.
            _ = &mut connection, if !over => over = true,
        }
    }
}

async fn drain(mut body: Incoming) -> Result<(), hyper::Error> {
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > BODY {
            break;
        }
    }
    Ok(())
}

fn reason(error: &hyper::Error, to: SocketAddr) -> Unanswered {
    if let Some(error) = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        return Unanswered::of(error, to);
    }
    // The peer closed the connection in the middle of its answer, or before it.
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return Reason::Reset.into();
    }
    Reason::Other.into()
}
