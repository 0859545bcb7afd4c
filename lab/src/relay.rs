//! A way into a cluster from outside: listens on loopback here, connects in the cluster's network
//! namespace.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::cluster::network;

/// Relays connections until it is killed.
///
/// Must be called before the process has a second thread: only the calling thread changes its
/// network namespace.
pub fn run(listen: SocketAddr, namespace: &str, target: &str) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    listener.set_nonblocking(true)?;
    // The listener stays in the namespace in which it was made; connections from now on are made in
    // the other one.
    network::enter(namespace)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (mut near, _) = listener.accept().await?;
            let target = target.to_owned();
            tokio::spawn(async move {
                // A failure on either side ends this connection, and both ends see it closed.
                if let Ok(mut far) = TcpStream::connect(&target).await {
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
    })
}
