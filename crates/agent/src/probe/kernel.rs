//! The kernel's own measurement of a connection, independent of the scheduling of this process.
use std::time::Duration;

// The macros call each other, and libc, by their plain names.
use nix::{getsockopt_impl, libc, sockopt_impl, sys::socket::getsockopt};
use tokio::net::TcpStream;

/// The beginning of the kernel's `struct tcp_info`, in words: two of eight single bytes, then
/// `u32`s. Every kernel has this part, and therefore fills all of it.
type Head = [u32; 18];

/// Offset of `tcpi_rtt`, after 8 bytes and 15 words of four (`include/uapi/linux/tcp.h`).
const RTT: usize = 17;

sockopt_impl!(
    /// `getsockopt(TCP_INFO)`, as much of it as [`Head`] holds.
    TcpInfo, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, Head
);

/// Returns the smoothed round-trip time; `None` if the kernel has none.
pub(super) fn smoothed_rtt(stream: &TcpStream) -> Option<Duration> {
    let info = getsockopt(stream, TcpInfo).ok()?;
    let micros = u64::from(info[RTT]);
    (micros > 0).then(|| Duration::from_micros(micros))
}
