//! The connections in front of a proxy: TCP faults, which know nothing of requests.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The state of all connections to a proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wire {
    /// Bytes pass.
    #[default]
    Open,
    /// Nobody listens: open connections end, new ones are refused.
    Refused,
    /// Open connections are reset, and new ones as soon as they are accepted.
    Reset,
    /// This many bytes per second pass in each direction of each connection.
    Slow(usize),
}

/// Bytes that are passed on at once.
const CHUNK: usize = 16 << 10;

/// Relays connections from `listener` to `inner`, until it is dropped.
pub(super) async fn relay(
    listener: TcpListener,
    inner: SocketAddr,
    mut state: watch::Receiver<Wire>,
) -> Result<()> {
    let address = listener.local_addr()?;
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let now = *state.borrow_and_update();
        if now == Wire::Refused {
            listener = None;
            connections.abort_all();
            state.changed().await?;
            continue;
        }
        let open = match listener.take() {
            Some(open) => open,
            None => TcpListener::bind(address).await?,
        };
        tokio::select! {
            accepted = open.accept() => {
                if let Ok((near, _)) = accepted {
                    connections.spawn(connect(near, inner, state.clone()));
                }
            }
            changed = state.changed() => changed?,
            // Forgets connections that have ended.
            Some(_) = connections.join_next() => {}
        }
        listener = Some(open);
    }
}

/// Relays one connection until either side ends it, or it is reset.
async fn connect(mut near: TcpStream, inner: SocketAddr, mut state: watch::Receiver<Wire>) {
    let now = *state.borrow();
    let reset = if now == Wire::Reset {
        true
    } else {
        let Ok(mut far) = TcpStream::connect(inner).await else { return };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let (near_read, near_write) = near.split();
        let (far_read, far_write) = far.split();
        let (up, down) = (state.clone(), state.clone());
        tokio::select! {
            // A connection is over when one direction is: HTTP has no half-closed ones.
            () = pump(near_read, far_write, up) => false,
            () = pump(far_read, near_write, down) => false,
            found = state.wait_for(|wire| *wire == Wire::Reset) => found.is_ok(),
        }
    };
    if reset {
        // Without a linger time the kernel sends a reset instead of an orderly end.
        let _ = near.set_zero_linger();
    }
}

/// Passes on what `from` reads, as the state allows.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<Wire>,
) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let now = *state.borrow();
        let most = match now {
            Wire::Slow(rate) => (rate / 10).clamp(1, CHUNK),
            _ => CHUNK,
        };
        let Ok(length @ 1..) = from.read(&mut buffer[..most]).await else { return };
        // A statement of its own: what it returns must not outlive it.
        let passes = |wire: &Wire| matches!(wire, Wire::Open | Wire::Slow(_));
        let open = state.wait_for(passes).await.is_ok();
        if !open || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        if let Wire::Slow(rate) = now {
            let micros = u64::try_from(length * 1_000_000 / rate.max(1)).unwrap_or(0);
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }
}
