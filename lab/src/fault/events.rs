//! The events of one watch on their way through the proxy.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use serde_json::Value;
use tokio::sync::mpsc;

use super::rule::GONE;
use super::{Call, EventFault, Shared};

/// One event: its line, and the name of the object that it is about.
struct Event {
    line: Bytes,
    name: String,
}

impl Event {
    fn read(line: Bytes) -> Self {
        let value: Value = serde_json::from_slice(&line).unwrap_or_default();
        let name = value["object"]["metadata"]["name"].as_str().unwrap_or_default();
        Self { name: name.to_owned(), line }
    }
}

/// Cuts a stream of bytes into lines, each with its end.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        self.0.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|&byte| byte == b'\n') {
            let rest = self.0.split_off(end + 1);
            lines.push(Bytes::from(std::mem::replace(&mut self.0, rest)));
        }
        lines
    }

    /// Takes what has no end yet.
    fn rest(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }
}

/// The events that have not been passed on yet.
struct Passage {
    shared: Arc<Shared>,
    call: Call,
    /// Events in their order; the first one may be held back.
    waiting: VecDeque<Event>,
}

impl Passage {
    /// Returns what can be passed on now, and whether the watch ends with it.
    fn pass(&mut self) -> (Vec<Bytes>, bool) {
        let mut out = Vec::new();
        while !self.shared.holds(&self.call) {
            let Some(Event { line, name }) = self.waiting.pop_front() else { break };
            match self.shared.of_event(&self.call, &name) {
                None => out.push(line),
                Some(EventFault::Gone) => {
                    out.push(Bytes::from_static(GONE.as_bytes()));
                    return (out, true);
                }
                Some(EventFault::Garbage) => {
                    out.push(Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":!}\n"));
                    return (out, true);
                }
            }
        }
        (out, false)
    }
}

/// Returns the body of a watch with the faults of its events.
///
/// A watch that ends while events are held back ends without them: its client asks for them again,
/// from the last version that it has seen.
pub(super) fn edited(shared: &Arc<Shared>, call: &Call, body: Body) -> Body {
    let (sender, receiver) = mpsc::channel(16);
    let passage =
        Passage { shared: Arc::clone(shared), call: call.clone(), waiting: VecDeque::new() };
    tokio::spawn(follow(passage, body, sender));
    let chunks = stream::unfold(receiver, |mut receiver| async move {
        let chunk: io::Result<Bytes> = receiver.recv().await?;
        Some((chunk, receiver))
    });
    Body::from_stream(chunks)
}

async fn follow(mut passage: Passage, body: Body, sender: mpsc::Sender<io::Result<Bytes>>) {
    let mut changes = passage.shared.changes();
    let mut data = body.into_data_stream();
    let mut lines = Lines::default();
    let mut ended = false;
    let mut broken = None;
    while !ended {
        tokio::select! {
            // The client has gone.
            () = sender.closed() => return,
            chunk = data.next() => match chunk {
                Some(Ok(chunk)) => {
                    passage.waiting.extend(lines.push(&chunk).into_iter().map(Event::read));
                }
                Some(Err(error)) => {
                    broken = Some(io::Error::other(error));
                    ended = true;
                }
                None => ended = true,
            },
            // The proxy has gone, if it is an error: nothing changes any more.
            changed = changes.changed() => if changed.is_err() { return },
        }
        let (out, last) = passage.pass();
        ended |= last;
        // Half a line comes last, unless it is behind events that never come.
        let whole = !ended || last || !passage.waiting.is_empty();
        let rest = if whole { Bytes::new() } else { lines.rest() };
        let lines = out.into_iter().chain([rest]);
        for line in lines.filter(|line| !line.is_empty()) {
            if sender.send(Ok(line)).await.is_err() {
                return;
            }
        }
    }
    if let Some(error) = broken {
        let _ = sender.send(Err(error)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_bytes_are() {
        let mut lines = Lines::default();
        assert!(lines.push(b"{\"a\":").is_empty());
        assert_eq!(lines.push(b"1}\n{}\n{"), ["{\"a\":1}\n", "{}\n"]);
        assert_eq!(lines.push(b"}\n{"), ["{}\n"]);
        assert_eq!(lines.rest(), "{");
    }
}
