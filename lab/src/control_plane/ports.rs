//! Free TCP ports on loopback.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, bail};

use super::components::Ports;
use crate::workspace;

/// Below the kernel's own range for outgoing connections (32768 and up), so that no connection
/// takes the port of a component that is down for a while.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Picks five ports without a listener.
pub(super) fn free() -> Result<Ports> {
    Ok(Ports {
        api: free_port()?,
        etcd: free_port()?,
        etcd_peer: free_port()?,
        controller_manager: free_port()?,
        scheduler: free_port()?,
    })
}

/// Ports that this process has handed out: they may not have a listener yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Picks a port of loopback that has no listener, that no connection takes, and that this process
/// has not handed out.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
    // At random, so that processes that start at the same time hardly ever pick the same.
    for _ in 0..100 {
        let random = u32::from_str_radix(&workspace::unique(), 16)?;
        let port = RANGE.start + u16::try_from(random % u32::from(RANGE.end - RANGE.start))?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if free && GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 in {RANGE:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_not_offered() {
        let port = free_port().unwrap();
        assert!(RANGE.contains(&port));
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
