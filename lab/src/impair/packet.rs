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

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame around a segment, from 10.78.1.2 to 10.78.2.3.
    fn frame(protocol: u8, segment: &[u8]) -> Vec<u8> {
        let total = u16::try_from(SHORTEST + segment.len()).unwrap().to_be_bytes();
        let mut frame = vec![0; LINK];
        frame.extend([0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([10, 78, 1, 2, 10, 78, 2, 3]);
        frame.extend(segment);
        frame
    }

    /// Computes the checksum as a receiver does: all ones if it is right.
    fn verified(frame: &[u8]) -> u16 {
        let packet = &frame[LINK..];
        let length = u32::try_from(packet.len() - SHORTEST).unwrap();
        fold(u32::from(packet[9]) + length + add(&packet[12..]))
    }

    #[test]
    fn a_known_datagram_gets_its_checksum() {
        // Ports 1 and 2, length 9, one byte 0xff; summed by hand.
        let mut got = frame(17, &[0, 1, 0, 2, 0, 9, 0xaa, 0xaa, 0xff]);
        complete(&mut got);
        let words = 0x0a4e + 0x0102 + 0x0a4e + 0x0203 + 17 + 9 + 1 + 2 + 9 + 0xff00_u32;
        let expected = !fold(words);
        assert_eq!(got[LINK + SHORTEST + 6..][..2], expected.to_be_bytes());
        assert_eq!(verified(&got), 0xffff);
    }

    #[test]
    fn segments_of_every_length_verify() {
        for length in 20..200_u8 {
            let segment: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let mut got = frame(6, &segment);
            complete(&mut got);
            assert_eq!(verified(&got), 0xffff, "{length}");
            let again = got.clone();
            complete(&mut got);
            assert_eq!(got, again, "{length}");
        }
    }

    #[test]
    fn whatever_is_no_whole_segment_is_left_alone() {
        let mut fragment = frame(6, &[1; 40]);
        fragment[LINK + 6] = 0x20;
        let mut claims_more = frame(6, &[1; 40]);
        claims_more[LINK + 3] = 200;
        let mut short_header = frame(6, &[1; 40]);
        short_header[LINK] = 0x41;
        let mut none = frame(17, &[1; 16]);
        none[LINK + SHORTEST + 6..][..2].fill(0);
        for mut left in
            [fragment, claims_more, short_header, none, frame(1, &[1; 40]), frame(6, &[1; 10])]
        {
            let before = left.clone();
            complete(&mut left);
            assert_eq!(left, before);
        }
        let whole = frame(6, &[1; 40]);
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            complete(&mut cut);
            assert_eq!(cut, whole[..length]);
        }
    }
}
