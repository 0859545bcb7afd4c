//! A node's kernel table, as the kernel reports it: every change at once, and the whole table to
//! compare.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

use crate::bgp::family::Family;
use crate::bgp::network::inside;

/// `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_ROUTE`: subscribes to all routes that come and go.
fn routes(family: Family) -> u32 {
    family.pick(0x40, 0x400)
}

fn number_of(family: Family) -> u8 {
    family.pick(2, 10)
}

/// Room for some thousand changes while nobody reads.
const BUFFER: usize = 1 << 20;
/// The most that the kernel tells at once.
const MESSAGE: usize = 1 << 15;
const MAIN_TABLE: u8 = 254;

/// A route: the number of the node whose pods it leads to, and its metric, which the kernel tells
/// routes to one network apart by.
type Route = (u8, u32);

/// The routes to pods in one node's main table of a family.
pub(super) struct Table {
    family: Family,
    socket: OwnedFd,
    routes: BTreeSet<Route>,
    /// The routes that the current dump has listed so far, with the changes since.
    dump: Option<BTreeSet<Route>>,
}

impl Table {
    /// Opens it, and asks for all that is in it.
    pub fn open(namespace: &str, family: Family) -> Result<Self> {
        let socket = inside(namespace, || -> Result<OwnedFd> {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let socket =
                socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
            setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
            bind(socket.as_raw_fd(), &NetlinkAddr::new(0, routes(family)))?;
            Ok(socket)
        });
        let socket = socket?.context("opening a netlink socket")?;
        let mut table = Self { family, socket, routes: BTreeSet::new(), dump: None };
        table.ask()?;
        Ok(table)
    }

    /// Asks for the whole table, unless an answer is on its way.
    pub fn ask(&mut self) -> Result<()> {
        if self.dump.is_none() {
            send(self.socket.as_raw_fd(), &question(self.family), MsgFlags::empty())
                .context("asking for a table")?;
            self.dump = Some(BTreeSet::new());
        }
        Ok(())
    }

    /// Takes in what the kernel has told; after each change `changed` is called.
    pub fn read(&mut self, mut changed: impl FnMut(&Self)) -> Result<()> {
        let mut buffer = vec![0; MESSAGE];
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => {
                    for message in messages(&buffer[..length]) {
                        if self.take(&message) {
                            changed(self);
                        }
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => {
                    // A message was lost: only a new dump is reliable.
                    self.dump = None;
                    self.ask()?;
                }
                Err(error) => return Err(error).context("reading from the kernel"),
            }
        }
    }

    /// The numbers of the nodes that there are routes to.
    pub fn networks(&self) -> BTreeSet<u8> {
        self.routes.iter().map(|(network, _)| *network).collect()
    }

    /// Returns whether a route came or went.
    fn take(&mut self, message: &Message<'_>) -> bool {
        match message.kind {
            Kind::New => {
                let Some(route) = route(self.family, message.body) else { return false };
                if let Some(dump) = &mut self.dump {
                    dump.insert(route);
                }
                // What is listed was there when it was listed.
                self.routes.insert(route)
            }
            Kind::Gone => {
                let Some(route) = route(self.family, message.body) else { return false };
                if let Some(dump) = &mut self.dump {
                    dump.remove(&route);
                }
                self.routes.remove(&route)
            }
            Kind::Done => {
                let Some(dump) = self.dump.take() else { return false };
                // One during which the table changed under the kernel's own hands may lack
                // something.
                let differs = !message.interrupted && dump != self.routes;
                if differs {
                    self.routes = dump;
                }
                differs
            }
            Kind::Other => false,
        }
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    New,
    Gone,
    Done,
    Other,
}

struct Message<'a> {
    kind: Kind,
    interrupted: bool,
    body: &'a [u8],
}

/// `RTM_GETROUTE`, with the flags of a dump.
fn question(family: Family) -> Vec<u8> {
    const HEADER: u32 = 16;
    const BODY: u32 = 12;
    let mut bytes = Vec::new();
    bytes.extend((HEADER + BODY).to_ne_bytes());
    bytes.extend(26_u16.to_ne_bytes());
    bytes.extend(0x301_u16.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.push(number_of(family));
    bytes.resize((HEADER + BODY) as usize, 0);
    bytes
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Cuts what was received into messages.
fn messages(mut bytes: &[u8]) -> Vec<Message<'_>> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind), Some(flags)) =
        (number(bytes, 0), number(bytes, 4), number(bytes, 6))
    {
        let length = u32::from_ne_bytes(length) as usize;
        let Some(body) = bytes.get(16..length) else { break };
        let kind = match u16::from_ne_bytes(kind) {
            24 => Kind::New,
            25 => Kind::Gone,
            3 => Kind::Done,
            _ => Kind::Other,
        };
        // NLM_F_DUMP_INTR.
        let interrupted = u16::from_ne_bytes(flags) & 0x10 != 0;
        found.push(Message { kind, interrupted, body });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Reads a route; ignores those that do not lead to pods, and a node's own block, which is a black
/// hole.
fn route(family: Family, body: &[u8]) -> Option<Route> {
    const UNICAST: u8 = 1;
    let (length, table, kind) = (*body.get(1)?, *body.get(4)?, *body.get(7)?);
    let wanted = family.pick(24, 64);
    if (*body.first()?, length, table, kind) != (number_of(family), wanted, MAIN_TABLE, UNICAST) {
        return None;
    }
    let (mut network, mut metric) = (None, 0);
    let mut attributes = body.get(12..)?;
    while let (Some(length), Some(kind)) = (number(attributes, 0), number(attributes, 2)) {
        let length = usize::from(u16::from_ne_bytes(length));
        match u16::from_ne_bytes(kind) {
            1 => network = attributes.get(4..length),
            6 => metric = u32::from_ne_bytes(number(attributes, 4)?),
            _ => {}
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    match network? {
        [10, 91, number, 0] | [0xfd, 0x91, 0, 0, 0, 0, 0, number, ..] => Some((*number, metric)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        bytes
    }

    fn body(kind: u8, network: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![2, 24, 0, 0, MAIN_TABLE, 12, 0, kind, 0, 0, 0, 0];
        for (attribute, value) in [(1_u16, network), (6, 1024_u32.to_ne_bytes())] {
            bytes.extend(8_u16.to_ne_bytes());
            bytes.extend(attribute.to_ne_bytes());
            bytes.extend(value);
        }
        bytes
    }

    fn table() -> Table {
        let (socket, _) = nix::unistd::pipe().unwrap();
        Table { family: Family::V4, socket, routes: BTreeSet::new(), dump: Some(BTreeSet::new()) }
    }

    fn take(table: &mut Table, bytes: &[u8]) -> bool {
        messages(bytes).iter().map(|message| table.take(message)).fold(false, |a, b| a | b)
    }

    #[test]
    fn changes_count_at_once_and_a_dump_corrects() {
        let mut table = table();
        let new = |third| message(24, 2, &body(1, [10, 91, third, 0]));
        assert!(take(&mut table, &[new(1), new(2)].concat()));
        assert!(!take(&mut table, &new(2)));
        assert!(!take(&mut table, &message(3, 2, &[0; 4])), "the dump says the same");
        assert_eq!(table.networks(), BTreeSet::from([1, 2]));
        assert!(take(&mut table, &message(25, 0, &body(1, [10, 91, 1, 0]))));
        assert_eq!(table.networks(), BTreeSet::from([2]));

        // The cable was pulled: the kernel sends nothing, and the next dump is empty.
        table.dump = Some(BTreeSet::new());
        assert!(!take(&mut table, &message(3, 0x12, &[0; 4])), "an interrupted one says nothing");
        table.dump = Some(BTreeSet::new());
        assert!(take(&mut table, &message(3, 2, &[0; 4])));
        assert_eq!(table.networks(), BTreeSet::new());
    }
}
