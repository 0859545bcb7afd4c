//! The watches of the simulated API server: events come late, in order, and some of them twice.
use std::time::Duration;

use axum::body::Bytes;
use futures::{StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

use super::{
    call::{Body, Call},
    dice::Dice,
    faults::Fault,
    world::World,
};

struct Watch {
    world: World,
    call: Call,
    /// The last version that was looked at, and the time of the last delivery.
    version: u64,
    delivered: Duration,
    end: Instant,
    dice: Dice,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Open,
    /// The next line is the last event again.
    Again(String),
    Ended,
}

/// Opens a watch after a version.
pub fn watch(world: World, call: Call, from: u64) -> Response<Body> {
    let seconds = call.parameter("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(290));
    let opened = u64::try_from(world.now().as_millis()).unwrap();
    let dice = Dice::of(&[world.seed(), call.number, opened]);
    let delivered = world.now();
    let watch = Watch { world, call, version: from, delivered, end, dice, state: State::Open };
    let lines = stream::unfold(watch, |mut watch| async move {
        let line = watch.line().await?;
        Some((line.map(|line| Frame::data(Bytes::from(line))), watch))
    });
    Response::new(StreamBody::new(lines.boxed()).boxed_unsync())
}

impl Watch {
    async fn line(&mut self) -> Option<Result<String, BoxError>> {
        match std::mem::replace(&mut self.state, State::Open) {
            State::Ended => return None,
            State::Again(line) => return Some(Ok(line)),
            State::Open => {}
        }
        let mut changes = self.world.changes();
        loop {
            let next = {
                let state = self.world.state();
                let call = &self.call;
                let wanted =
                    |change: &super::store::Change| call.selects(&change.key, &change.object);
                let next = state.store.next(self.version, wanted);
                if next.is_none() {
                    self.version = self.version.max(state.store.version());
                }
                next.map(|c| (c.version, c.at, c.event, state.weakened.shown(&c.key, &c.object)))
            };
            if let Some((version, at, event, object)) = next {
                let lag = Duration::from_millis(self.lag());
                self.delivered = self.delivered.max(at + lag);
                let pause = self.delivered.saturating_sub(self.world.now());
                if tokio::time::timeout_at(self.end, tokio::time::sleep(pause)).await.is_err() {
                    return self.last();
                }
                self.version = version;
                let line = event_line(event, &object);
                return Some(self.faulty(line));
            }
            if tokio::time::timeout_at(self.end, changes.changed()).await.is_err() {
                return self.last();
            }
        }
    }

    /// Draws the milliseconds by which the next event is late.
    fn lag(&mut self) -> u64 {
        let usual = self.dice.between(1, 40);
        let faults = self.world.state().faults(self.world.now());
        let most = faults.iter().filter_map(|fault| match fault {
            Fault::Lags(most) => Some(*most),
            _ => None,
        });
        most.fold(usual, |lag, most| lag + self.dice.below(most))
    }

    fn faulty(&mut self, line: String) -> Result<String, BoxError> {
        let faults = self.world.state().faults(self.world.now());
        for fault in faults {
            match fault {
                Fault::Repeats(percent) if self.dice.percent(percent) => {
                    self.state = State::Again(line.clone());
                }
                Fault::Cuts(percent) if self.dice.percent(percent) => {
                    self.world.state().tally.faults += 1;
                    self.state = State::Ended;
                    return if self.dice.percent(50) { Err(cut()) } else { Ok(gone()) };
                }
                Fault::Away => {
                    self.state = State::Ended;
                    return Err(cut());
                }
                _ => {}
            }
        }
        Ok(line)
    }

    /// Returns the last line of a watch that has lasted long enough: a bookmark.
    fn last(&mut self) -> Option<Result<String, BoxError>> {
        self.state = State::Ended;
        let object = json!({
            "kind": "Bookmark", "apiVersion": "v1",
            "metadata": {"resourceVersion": self.version.to_string()}, "spec": {},
        });
        (self.version > 0).then(|| Ok(event_line("BOOKMARK", &object)))
    }
}

/// The type first, as API servers write it.
fn event_line(event: &str, object: &Value) -> String {
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
}

fn cut() -> BoxError {
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the watch is cut off").into()
}

fn gone() -> String {
    let status: Value = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    event_line("ERROR", &status)
}
