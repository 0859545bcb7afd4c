//! Resolves names as the programs in the pod do: by its `/etc/hosts` and `/etc/resolv.conf`, with its search domains.
//!
//! libc's resolver would hold one of the agent's two threads for files for as long as a server is silent, and does not
//! tell a missing name from a server that failed.
use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    probe::{Unanswered, udp},
    reason::Reason,
};

/// The port of DNS servers.
pub(crate) const PORT: u16 = 53;

/// The limits of libc: servers that are asked, and labels of the search list.
const SERVERS: usize = 3;
const SEARCH: usize = 32;

/// Maximum number of addresses of a name.
const ADDRESSES: usize = 16;

/// The longest answer that is read: over UDP without EDNS, servers send no more than 512 bytes.
const LONGEST: usize = 4096;

/// Length of the header of a packet.
const HEADER: usize = 12;

/// Types of records.
const A: u16 = 1;
const AAAA: u16 = 28;

/// The families of addresses that a pod can reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Families {
    pub v4: bool,
    pub v6: bool,
}

/// What `/etc/resolv.conf` says.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    servers: Vec<IpAddr>,
    search: Vec<String>,
    ndots: usize,
    wait: Duration,
    attempts: u32,
}

impl Settings {
    /// Reads the file as libc does: unknown words are ignored, the last search list counts, and numbers have libc's
    /// defaults and limits.
    fn read(text: &str) -> Self {
        let mut settings = Self {
            servers: vec![],
            search: vec![],
            ndots: 1,
            wait: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => settings.servers.extend(words.next().and_then(address)),
                Some("search" | "domain") => {
                    settings.search = words.take(SEARCH).map(str::to_owned).collect();
                }
                Some("options") => {
                    for (name, value) in words.filter_map(|word| word.split_once(':')) {
                        let Ok(value) = value.parse::<u32>() else { continue };
                        match name {
                            "ndots" => settings.ndots = value.min(15) as usize,
                            "timeout" => {
                                settings.wait = Duration::from_secs(value.clamp(1, 30).into());
                            }
                            "attempts" => settings.attempts = value.clamp(1, 5),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        settings.servers.truncate(SERVERS);
        if settings.servers.is_empty() {
            settings.servers.push(Ipv4Addr::LOCALHOST.into());
        }
        settings
    }

    /// The names to ask for, in this order.
    fn candidates(&self, host: &str) -> Vec<String> {
        let whole = host.trim_end_matches('.').to_owned();
        if host.ends_with('.') {
            return vec![whole];
        }
        let searched =
            self.search.iter().map(|domain| format!("{host}.{}", domain.trim_matches('.')));
        let mut names: Vec<_> = searched.collect();
        let first = host.matches('.').count() >= self.ndots;
        names.insert(if first { 0 } else { names.len() }, whole);
        names
    }
}

/// An address, without the zone that an IPv6 one may have.
fn address(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

/// Returns the addresses of a name that this pod can reach, by the contents of the two files; never none.
pub(crate) async fn resolve(
    host: &str,
    (hosts, settings): (&str, &str),
    families: Families,
    port: u16,
) -> Result<Vec<IpAddr>, Unanswered> {
    let listed = in_hosts(hosts, host, families);
    if !listed.is_empty() {
        return Ok(listed);
    }
    let settings = Settings::read(settings);
    for name in settings.candidates(host) {
        let found = lookup(&settings, &name, families, port).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(Reason::NotFound.into())
}

fn in_hosts(hosts: &str, host: &str, families: Families) -> Vec<IpAddr> {
    let lines = hosts.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = address(words.next()?)?;
        let reached = if address.is_ipv4() { families.v4 } else { families.v6 };
        (reached && words.any(|name| name.eq_ignore_ascii_case(host))).then_some(address)
    });
    lines.take(ADDRESSES).collect()
}

/// Asks one server after the other, as often as the file says; none if the name does not exist, or has no address.
async fn lookup(
    settings: &Settings,
    name: &str,
    families: Families,
    port: u16,
) -> Result<Vec<IpAddr>, Unanswered> {
    let mut last = Unanswered::from(Reason::Timeout);
    for _ in 0..settings.attempts {
        for server in &settings.servers {
            let asked = ask(SocketAddr::new(*server, port), name, families);
            match timeout(settings.wait, asked).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(Unanswered::Local)) => return Err(Unanswered::Local),
                Ok(Err(why)) => last = why,
                Err(_) => last = Reason::Timeout.into(),
            }
        }
    }
    Err(last)
}

/// Asks one server for all addresses.
async fn ask(
    server: SocketAddr,
    name: &str,
    families: Families,
) -> Result<Vec<IpAddr>, Unanswered> {
    let unanswered = |error: &std::io::Error| Unanswered::of(error, server);
    let random = RandomState::new().hash_one(name).to_be_bytes();
    let kinds =
        [(families.v4, A, [random[0], random[1]]), (families.v6, AAAA, [random[2], random[3]])];
    let wanted = kinds.into_iter().filter(|(wanted, ..)| *wanted);
    let mut open: Vec<_> = wanted.filter_map(|(_, kind, id)| Query::new(id, name, kind)).collect();
    // A new socket has a new port, which an answer must match.
    let socket = udp::connect(server).await.map_err(|error| unanswered(&error))?;
    for query in &open {
        socket.send(&query.bytes).await.map_err(|error| unanswered(&error))?;
    }
    let (mut found, mut failed) = (Vec::new(), false);
    let mut buffer = [0; LONGEST];
    while !open.is_empty() {
        let length = socket.recv(&mut buffer).await.map_err(|error| unanswered(&error))?;
        let read = |query: &Query| query.reply(&buffer[..length]);
        let Some((place, reply)) =
            open.iter().enumerate().find_map(|(place, query)| Some((place, read(query)?)))
        else {
            continue;
        };
        let query = open.swap_remove(place);
        let reply = match reply {
            Reply::Truncated => query.over_tcp(server).await.map_err(|error| unanswered(&error))?,
            reply => reply,
        };
        match reply {
            Reply::Addresses(addresses) => found.extend(addresses),
            Reply::Failed | Reply::Truncated => failed = true,
        }
    }
    // Some servers know no AAAA: the address of the other family is enough for programs too.
    if found.is_empty() && failed { Err(Reason::ServerFailure.into()) } else { Ok(found) }
}

/// A question about one name and type.
#[derive(Debug)]
struct Query {
    kind: u16,
    bytes: Vec<u8>,
}

/// An answer to it.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    /// None if the name does not exist, or has none.
    Addresses(Vec<IpAddr>),
    /// The server could not answer, or refused to.
    Failed,
    /// The answer did not fit into a packet.
    Truncated,
}

impl Query {
    /// `None` for a name that DNS cannot have.
    fn new(id: [u8; 2], name: &str, kind: u16) -> Option<Self> {
        // One question, and the server shall ask others.
        let mut bytes = vec![id[0], id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            let length =
                u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
            bytes.push(length);
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.extend_from_slice(&[0, 0, u8::try_from(kind).ok()?, 0, 1]);
        // 255 bytes of name, type and class.
        (bytes.len() <= HEADER + 255 + 4).then_some(Self { kind, bytes })
    }

    /// Reads a packet; `None` if it does not answer this question.
    fn reply(&self, packet: &[u8]) -> Option<Reply> {
        let header = packet.get(..HEADER)?;
        if header[..2] != self.bytes[..2] || header[2] & 0x80 == 0 {
            return None;
        }
        let code = header[3] & 0x0f;
        let question = &self.bytes[HEADER..];
        let same = packet
            .get(HEADER..self.bytes.len())
            .is_some_and(|asked| asked.eq_ignore_ascii_case(question));
        if !same {
            // A server that could not read the question does not repeat it.
            return (code != 0 && header[4..6] == [0, 0]).then_some(Reply::Failed);
        }
        match code {
            0 => {}
            // There is no such name.
            3 => return Some(Reply::Addresses(vec![])),
            _ => return Some(Reply::Failed),
        }
        let count = u16::from_be_bytes([header[6], header[7]]);
        let addresses = self.addresses(packet, count);
        let truncated = header[2] & 0x02 != 0;
        Some(if addresses.is_empty() && truncated {
            Reply::Truncated
        } else {
            Reply::Addresses(addresses)
        })
    }

    /// The addresses of an answer, behind whatever aliases: up to where it can be read.
    fn addresses(&self, packet: &[u8], count: u16) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        let mut rest = &packet[self.bytes.len()..];
        for _ in 0..count {
            let Some((kind, data, after)) = record(rest) else { break };
            rest = after;
            let address: Option<IpAddr> = match kind {
                A => <[u8; 4]>::try_from(data).ok().map(|bytes| Ipv4Addr::from(bytes).into()),
                AAAA => <[u8; 16]>::try_from(data).ok().map(|bytes| Ipv6Addr::from(bytes).into()),
                _ => None,
            };
            addresses.extend(address.filter(|_| kind == self.kind && addresses.len() < ADDRESSES));
        }
        addresses
    }

    async fn over_tcp(&self, server: SocketAddr) -> std::io::Result<Reply> {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(self.bytes.len()).unwrap_or_default().to_be_bytes();
        stream.write_all(&[&length, &self.bytes[..]].concat()).await?;
        let length = usize::from(stream.read_u16().await?).min(LONGEST);
        let mut packet = vec![0; length];
        stream.read_exact(&mut packet).await?;
        Ok(self.reply(&packet).unwrap_or(Reply::Failed))
    }
}

/// Splits one record off: its type, its data, and what follows.
fn record(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (fixed, rest) = behind_name(bytes)?.split_at_checked(10)?;
    let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    let (data, rest) = rest.split_at_checked(length)?;
    Some((u16::from_be_bytes([fixed[0], fixed[1]]), data, rest))
}

fn behind_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        match *bytes.first()? {
            0 => return bytes.get(1..),
            // A pointer to an earlier name ends this one.
            0xc0.. => return bytes.get(2..),
            length => bytes = bytes.get(usize::from(length) + 1..)?,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
