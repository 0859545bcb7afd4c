//! Free TCP ports on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use anyhow::{Context, Result};

use super::components::Ports;
use crate::wait::lock;
use crate::workspace;

/// Below the kernel's own range for outgoing connections (32768 and up), so that no connection
/// takes the port of a component that is down for a while.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
/// Ports that a process claims at once. Several processes run side by side, and a port without a
/// listener may belong to a component that is about to start.
const BLOCK: u16 = 60;

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

struct Claimed {
    /// A listener at the first port of each block keeps other processes out of it.
    blocks: Vec<TcpListener>,
    /// Those not handed out yet.
    left: Vec<u16>,
}

static CLAIMED: Mutex<Claimed> = Mutex::new(Claimed { blocks: Vec::new(), left: Vec::new() });

impl Claimed {
    /// Claims a block at random: the ports of a process that ended may still have listeners.
    fn claim(&mut self) -> Result<()> {
        let blocks = (RANGE.end - RANGE.start) / BLOCK;
        let start = u16::try_from(workspace::random() % u32::from(blocks))?;
        let mut firsts = (0..blocks).map(|n| RANGE.start + (start + n) % blocks * BLOCK);
        let claim = |first| Some((first, TcpListener::bind((Ipv4Addr::LOCALHOST, first)).ok()?));
        let (first, listener) = firsts
            .find_map(claim)
            .with_context(|| format!("no free ports on 127.0.0.1 in {RANGE:?}"))?;
        self.blocks.push(listener);
        self.left.extend(first + 1..first + BLOCK);
        Ok(())
    }
}

/// Picks a port of loopback that has no listener, that no connection takes, and that neither this
/// process nor another one has handed out.
pub fn free_port() -> Result<u16> {
    let mut claimed = lock(&CLAIMED);
    loop {
        match claimed.left.pop() {
            Some(port) if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() => {
                return Ok(port);
            }
            Some(_) => {}
            None => claimed.claim()?,
        }
    }
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

    #[test]
    fn no_port_is_offered_twice_and_no_block_claimed_twice() {
        let mut claimed = Claimed { blocks: Vec::new(), left: Vec::new() };
        let mut other = Claimed { blocks: Vec::new(), left: Vec::new() };
        for _ in 0..3 {
            claimed.claim().unwrap();
            other.claim().unwrap();
        }
        let given = usize::from(BLOCK) * 2;
        let ports: std::collections::BTreeSet<_> = (0..given)
            .map(|_| free_port().unwrap())
            .chain(claimed.left)
            .chain(other.left)
            .collect();
        assert_eq!(ports.len(), given + 6 * usize::from(BLOCK - 1));
    }
}
