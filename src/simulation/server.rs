//! The simulated API server: carries out requests in an order that depends on the seed alone.
use std::{convert::identity, io, time::Duration};

use axum::body::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::{BoxError, Service};

use super::{
    call::{Body, Call, Verb},
    dice::Dice,
    faults::{self, End},
    store::{Key, Refusal},
    watching,
    world::World,
    write::Write,
};
use crate::clock;

/// The time after which the client gives up a connection on which nothing arrives.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

type Answer = Result<Response<Body>, BoxError>;

impl World {
    pub fn connect(
        &self,
        who: &str,
    ) -> impl Service<
        Request<kube::client::Body>,
        Response = Response<Body>,
        Error = BoxError,
        Future: Send + 'static,
    > + Send
    + 'static {
        let (world, who) = (self.clone(), who.to_owned());
        tower::service_fn(move |request| {
            // A task of its own: a request that has left goes on without its sender.
            let trip = tokio::spawn(world.clone().trip(who.clone(), request));
            async move { trip.await.map_err(BoxError::from).and_then(identity) }
        })
    }

    async fn trip(self, who: String, request: Request<kube::client::Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let Some(call) = Call::of(&who, &parts.method, &parts.uri, &parts.headers, &body) else {
            panic!("a request that the simulation does not know: {} {}", parts.method, parts.uri)
        };
        let way = {
            let mut state = self.state();
            state.tally.requests += 1;
            let count = state.requests.entry(call.number).or_default();
            *count += 1;
            let mut dice = Dice::of(&[self.seed(), call.number, *count]);
            let faults = state.faults(self.now());
            let way = faults::way(&call, &faults, &mut dice);
            if way.end != End::Answered {
                state.tally.faults += 1;
                if call.writes() && call.key.plural != "leases" {
                    let line = format!("  {who} {:?}: {}", way.end, call.line());
                    state.log.push((self.now(), line));
                }
            }
            way
        };
        tokio::time::sleep(Duration::from_millis(way.there)).await;
        match way.end {
            End::Unreachable => return Err(lost()),
            End::Refused(code) => return Ok(refusal(&injected(code))),
            End::Answered | End::Lost | End::Hanging => {}
        }
        let answer = self.in_turn(call).await;
        tokio::time::sleep(Duration::from_millis(way.back)).await;
        match way.end {
            End::Lost => Err(lost()),
            End::Hanging => {
                tokio::time::sleep(READ_TIMEOUT).await;
                Err(lost())
            }
            _ => answer,
        }
    }

    /// Carries out the requests of one moment in the order of their numbers.
    async fn in_turn(&self, call: Call) -> Answer {
        let (sender, mut receiver) = tokio::sync::oneshot::channel();
        let number = call.number;
        self.state().pending.push((number, call, sender));
        // All others of this moment are there after it.
        tokio::task::yield_now().await;
        let mut pending = std::mem::take(&mut self.state().pending);
        pending.sort_by_key(|(number, ..)| *number);
        for (_, call, sender) in pending {
            let _ = sender.send(Ok(self.carry_out(call)));
        }
        receiver.try_recv()?
    }

    fn carry_out(&self, call: Call) -> Response<Body> {
        if call.verb == Verb::Watch {
            let from = call.parameter("resourceVersion").and_then(|from| from.parse().ok());
            let from: u64 = from.unwrap_or_default();
            let compacted = self.state().store.compacted();
            if from < compacted {
                return refusal(&(410, "Expired", "too old resource version".into()));
            }
            return watching::watch(self.clone(), call, from);
        }
        match self.execute(&call) {
            Ok(object) => respond(200, &object),
            Err(refused) => refusal(&refused),
        }
    }

    fn execute(&self, call: &Call) -> Result<Value, Refusal> {
        let (at, now) = (self.now(), clock::timestamp());
        let mut state = self.state();
        if call.key.plural == "events" {
            state.note_event(at, &call.body);
            return Ok(call.body.clone());
        }
        let mut key = call.key.clone();
        if call.verb == Verb::Create {
            key.name = call.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
        let before = state.store.get(&key).cloned();
        let status = call.sub == "status";
        let version = state.store.version();
        let result = match call.verb {
            Verb::Get => before.clone().ok_or((404, "NotFound", "there is none".into())),
            Verb::List => return Ok(list(call, &state.shown(call))),
            Verb::Create => state.store.create(&key, call.body.clone(), at, now),
            Verb::Edit(super::store::Edit::Apply) if before.is_none() && !status => {
                state.store.create(&key, call.body.clone(), at, now)
            }
            Verb::Edit(edit) => {
                let body = state.weakened.tampered(&key, &call.body);
                state.store.edit(&key, status, edit, &body, at)
            }
            Verb::Delete => state.store.delete(&key, at, now),
            Verb::Watch => unreachable!("is answered elsewhere"),
        };
        if call.writes() {
            let after = state.store.get(&key).cloned();
            let outcome = result.as_ref().map_or_else(|refused| refused.0, |_| 200);
            let changed = state.store.version() != version;
            state.wrote(&Write { at, call: call.clone(), key, outcome, changed, before, after });
            drop(state);
            self.changed();
        }
        result
    }
}

fn list(call: &Call, (version, objects): &(u64, Vec<(Key, Value)>)) -> Value {
    let items: Vec<_> = objects.iter().filter(|(key, object)| call.selects(key, object)).collect();
    let items: Vec<_> = items.into_iter().map(|(_, object)| object.clone()).collect();
    json!({
        "kind": "List", "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string()}, "items": items,
    })
}

fn injected(code: u16) -> Refusal {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    (code, reason, "injected".into())
}

fn lost() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection is lost").into()
}

fn refusal((code, reason, message): &Refusal) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    respond(*code, &status)
}

fn respond(code: u16, object: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(object.to_string()));
    let body = body.map_err(|never| -> BoxError { match never {} }).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
