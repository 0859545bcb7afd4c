//! The destination of test traffic: a server that discards everything.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};

/// Serves until it is killed.
pub fn run(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    for connection in listener.incoming() {
        let Ok(mut connection) = connection else { continue };
        std::thread::spawn(move || {
            // As much as the kernel hands over at once with a large window.
            let mut buffer = vec![0; 256 * 1024];
            while matches!(connection.read(&mut buffer), Ok(length) if length > 0) {}
        });
    }
    Ok(())
}
