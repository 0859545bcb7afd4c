//! The body of a watch, which ends when nothing has come for too long, as if the server had ended it.
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::HttpBody;
use tokio::time::{Instant, Sleep, sleep};

type Frame<B> = Result<hyper::body::Frame<<B as HttpBody>::Data>, <B as HttpBody>::Error>;

pub(super) struct UntilSilent<B> {
    body: Pin<Box<B>>,
    silence: Duration,
    ends: Pin<Box<Sleep>>,
}

impl<B> UntilSilent<B> {
    pub(super) fn new(body: B, silence: Duration) -> Self {
        Self { body: Box::pin(body), silence, ends: Box::pin(sleep(silence)) }
    }
}

impl<B: HttpBody> HttpBody for UntilSilent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame<B>>> {
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(cx) {
            let ends = Instant::now() + self.silence;
            self.ends.as_mut().reset(ends);
            return Poll::Ready(frame);
        }
        self.ends.as_mut().poll(cx).map(|()| None)
    }
}
