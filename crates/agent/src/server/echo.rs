//! The UDP echo. A host may have several addresses: the reply is sent from the one that received
//! the request, otherwise the prober does not recognize it as a reply.
use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::AsRawFd,
    time::Instant,
};

use nix::{
    errno::Errno,
    libc::{in_pktinfo, in6_pktinfo},
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage,
        recvmsg, sendmsg, setsockopt, sockopt,
    },
};
use tokio::{io::Interest, net::UdpSocket, time::sleep};

use super::Rates;
use crate::{
    echo::{LENGTH, Packet, Padded},
    metrics::Metrics,
};

/// The local address that received a request, in the form that a reply needs.
#[derive(Clone, Copy, Debug)]
enum Asked {
    V4(in_pktinfo),
    V6(in6_pktinfo),
}

/// A received packet.
struct Received {
    from: SockaddrStorage,
    asked: Option<Asked>,
    answer: Option<[u8; LENGTH]>,
}

/// Binds every address of a port.
///
/// # Errors
/// When the port is taken, or the kernel does not report the destination address of a packet.
pub async fn listen(port: u16) -> io::Result<UdpSocket> {
    let [v6, v4] = super::wildcards(port);
    match UdpSocket::bind(v6).await {
        Ok(socket) => {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            Ok(socket)
        }
        Err(error) if super::no_ipv6(&error) => {
            let socket = UdpSocket::bind(v4).await?;
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
            Ok(socket)
        }
        Err(error) => Err(error),
    }
}

/// Answers until it is dropped.
///
/// # Errors
/// When the socket is broken.
pub async fn serve(socket: UdpSocket, metrics: Metrics) -> anyhow::Result<()> {
    let mut rates = Rates::new(Instant::now());
    loop {
        let received = match socket.async_io(Interest::READABLE, || receive(&socket)).await {
            Ok(received) => received,
            // An earlier reply could not be delivered.
            Err(error) if is_about_a_packet(&error) => continue,
            // The node has no memory at the moment.
            Err(error) if is_about_memory(&error) => {
                sleep(super::FULL).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(reply) = received.answer else { continue };
        if let Some(from) = address(&received.from) {
            if !rates.admit(from.ip(), Instant::now()) {
                continue;
            }
            metrics.heard(from.ip());
        }
        // A reply that cannot be sent now is lost, as in the network: it does not wait for a full
        // queue.
        let sent = socket.try_io(Interest::WRITABLE, || send(&socket, &received, &reply));
        if let Err(error) = sent {
            tracing::debug!(%error, "echo");
        }
    }
}

fn is_about_a_packet(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::Interrupted
    )
}

fn is_about_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::ENOBUFS | nix::libc::ENOMEM))
}

fn receive(socket: &UdpSocket) -> io::Result<Received> {
    // One more byte than a packet has: a longer packet is not from a prober, and is not answered.
    let mut buffer = [0; LENGTH + 1];
    let mut control = nix::cmsg_space!(in6_pktinfo);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let (from, asked, length) = {
        let message = recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            // The whole length is reported of a packet that is longer than the buffer.
            MsgFlags::MSG_TRUNC,
        )?;
        let asked = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(Asked::V4(info)),
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(Asked::V6(info)),
            _ => None,
        });
        (message.address.ok_or(Errno::EDESTADDRREQ)?, asked, message.bytes)
    };
    Ok(Received { from, asked, answer: answer(&buffer[..length.min(buffer.len())], length) })
}

/// Returns the reply to a packet that begins like this.
fn answer(head: &[u8], length: usize) -> Option<[u8; LENGTH]> {
    let packet = Packet::decode(head).and_then(|packet| packet.answer());
    let padded = || Padded::answer(head.get(..LENGTH)?, length);
    packet.map(|packet| packet.encode()).or_else(padded)
}

fn send(socket: &UdpSocket, to: &Received, bytes: &[u8]) -> io::Result<()> {
    let parts = [IoSlice::new(bytes)];
    let control = match &to.asked {
        Some(Asked::V4(info)) => Some(ControlMessage::Ipv4PacketInfo(info)),
        Some(Asked::V6(info)) => Some(ControlMessage::Ipv6PacketInfo(info)),
        None => None,
    };
    let flags = MsgFlags::MSG_DONTWAIT;
    sendmsg(socket.as_raw_fd(), &parts, control.as_slice(), flags, Some(&to.from))?;
    Ok(())
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|v4: &SockaddrIn| SocketAddrV4::from(*v4).into());
    v4.or_else(|| from.as_sockaddr_in6().map(|v6: &SockaddrIn6| SocketAddrV6::from(*v6).into()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Longer than any step of the tests takes.
    const DEADLINE: Duration = Duration::from_secs(10);

    async fn server() -> (u16, tokio::task::JoinHandle<anyhow::Result<()>>) {
        let socket = listen(0).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        (port, tokio::spawn(serve(socket, Metrics::new())))
    }

    #[tokio::test]
    async fn a_reply_comes_from_the_address_that_was_asked() {
        let (port, task) = server().await;
        for ip in ["127.0.0.1", "127.0.0.77", "[::1]"] {
            let any = if ip.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let client = UdpSocket::bind(any).await.unwrap();
            client.connect(format!("{ip}:{port}")).await.unwrap();
            let request = Packet { reply: false, nonce: 1, sequence: 2 };
            client.send(&request.encode()).await.unwrap();
            let mut buffer = [0; 100];
            let length = timeout(DEADLINE, client.recv(&mut buffer)).await.expect(ip).unwrap();
            assert_eq!(Packet::decode(&buffer[..length]), request.answer(), "{ip}");
        }
        task.abort();
    }

    #[tokio::test]
    async fn only_requests_are_answered() {
        let (port, task) = server().await;
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(("127.0.0.1", port)).await.unwrap();
        let good = Packet { reply: false, nonce: 1, sequence: 9 }.encode();
        let reply = Packet { reply: true, nonce: 1, sequence: 1 }.encode();
        let long = [good.as_slice(), &[0]].concat();
        for bad in [&[][..], b"x", &good[..63], &long, &reply, &[0xff; 64], &[0; 1400]] {
            client.send(bad).await.unwrap();
        }
        // Packets of one socket stay in order on loopback: this is the first one to be answered.
        client.send(&good).await.unwrap();
        let mut buffer = [0; 2000];
        let length = timeout(DEADLINE, client.recv(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(Packet::decode(&buffer[..length]).unwrap().sequence, 9);
        // Of a padded one the reply is short, and has its length.
        for padded in [LENGTH, LENGTH + 1, 1400, 9000] {
            client.send(&Padded::request(1, 10).encode(padded)).await.unwrap();
            let length = timeout(DEADLINE, client.recv(&mut buffer)).await.unwrap().unwrap();
            let reply = Padded::decode_reply(&buffer[..length]).unwrap();
            assert_eq!((length, usize::try_from(reply.length)), (LENGTH, Ok(padded)));
        }
        task.abort();
    }
}
