//! Connections that take a place, and last no longer than they may.
use std::{
    future::{Ready, ready},
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum_server::accept::Accept;
use prometheus_client::metrics::counter::Counter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::places::{Place, Places};

/// Accepts connections while there are places, and closes the others at once: those that are there go
/// on, and a client that is refused comes again.
#[derive(Clone, Debug)]
pub struct Limited {
    places: Places,
    lifetime: Option<Duration>,
    refused: Counter,
}

impl Limited {
    /// As many connections as there are places.
    #[must_use]
    pub fn new(places: Places) -> Self {
        Self { places, lifetime: None, refused: Counter::default() }
    }

    /// Ends each connection after this time, whatever it does.
    #[must_use]
    pub fn within(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }

    /// Counts the connections that are refused, or lose their place.
    #[must_use]
    pub fn counting(self, refused: Counter) -> Self {
        Self { refused, ..self }
    }

    fn counted(&self, stream: TcpStream) -> io::Result<Counted> {
        // Who is gone already has no address any more.
        let source: IpAddr = stream.peer_addr()?.ip();
        let Some(place) = self.places.take(source) else {
            self.refused.inc();
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        // Answers are small and awaited: nothing is gained by collecting them.
        stream.set_nodelay(true)?;
        let end = self.lifetime.map(|lifetime| Box::pin(sleep(lifetime)));
        if place.replaced {
            self.refused.inc();
        }
        Ok(Counted { stream, end, place })
    }
}

impl<S> Accept<TcpStream, S> for Limited {
    type Stream = Counted;
    type Service = S;
    type Future = Ready<io::Result<(Counted, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(self.counted(stream).map(|counted| (counted, service)))
    }
}

/// A connection that gives its place back when it ends.
pub struct Counted {
    stream: TcpStream,
    end: Option<Pin<Box<Sleep>>>,
    place: Place,
}

impl Counted {
    /// Fails once its time is over, or its place somebody else's.
    fn in_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.place.is_over(cx) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match self.end.as_mut().map(|end| end.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Err(io::ErrorKind::TimedOut.into()),
            Some(Poll::Pending) | None => Ok(()),
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
