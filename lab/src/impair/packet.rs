//! Checksums of packets that were caught before a device would have computed them.

/// The Ethernet header.
pub(super) const LINK: usize = 14;
/// The shortest IPv4 header.
const SHORTEST: usize = 20;

/// Writes the TCP or UDP checksum into an IPv4 packet behind its Ethernet header.
///
/// Pods leave that to the device they send through (checksum offload), and a device in user space
/// does not do it. Other packets stay as they are, and so do fragments: the kernel completes
/// packets before it fragments them.
pub(super) fn complete(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(LINK..) else { return };
    if packet.len() < SHORTEST || packet[0] >> 4 != 4 {
        return;
    }
    let header = usize::from(packet[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    // More fragments (one bit), or the offset of this one (13 bits).
    let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    let protocol = packet[9];
    let field = match protocol {
        6 => 16,
        17 => 6,
        _ => return,
    };
    if fragment || header < SHORTEST || total > packet.len() || total < header + field + 2 {
        return;
    }
    let segment = header..total;
    if protocol == 17 && packet[header + field..header + field + 2] == [0, 0] {
        // A UDP packet may have none.
        return;
    }
    packet[header + field..header + field + 2].fill(0);
    // The pseudo header: both addresses, the protocol and the length.
    let length = u32::try_from(segment.len()).unwrap_or(u32::MAX);
    let sum = u32::from(protocol) + length + add(&packet[12..20]) + add(&packet[segment]);
    let sum = match !fold(sum) {
        // In UDP, zero would mean that there is no checksum.
        0 if protocol == 17 => 0xffff,
        sum => sum,
    };
    packet[header + field..header + field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Adds up 16-bit words; an odd byte at the end is the upper half of a word. 64 kB of them fit into
/// 32 bits.
fn add(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while let carry @ 1.. = sum >> 16 {
        sum = (sum & 0xffff) + carry;
    }
    // Nothing is left above.
    u16::try_from(sum).unwrap_or(u16::MAX)
}
