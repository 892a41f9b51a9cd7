//! IPv4 fragmentation (RFC 791 §3.2, RFC 1812 §5.2.6).

use super::headers::ETHERNET_LEN;
use wire::{Ipv4, checksum, ipv4};
use zerocopy::FromBytes;

/// Returns the fragments of an IPv4 frame as frames with packets of at most `mtu` bytes. Returns none if the frame is
/// invalid, or is itself a fragment that ends beyond the largest offset.
pub(super) fn fragments(frame: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    try_fragment(frame, mtu).unwrap_or_default()
}

fn try_fragment(frame: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let ip = ipv4::Packet::new(frame.get(ETHERNET_LEN..)?).ok()?;
    let first_header = ip.header_bytes();
    let later_header = later_header(first_header);
    let (start, more) = (usize::from(ip.header().fragment_offset()), ip.header().more_fragments());
    let mut remaining = ip.payload();
    let mut fragments = vec![];
    while !remaining.is_empty() {
        let header_bytes: &[u8] = if fragments.is_empty() { first_header } else { &later_header };
        let room = mtu.checked_sub(header_bytes.len())?;
        let len = if remaining.len() <= room { remaining.len() } else { room & !7 };
        if len == 0 {
            return None;
        }
        let offset = start + ip.payload().len() - remaining.len();
        let (payload, after) = remaining.split_at(len);
        remaining = after;
        let mut fragment = [&frame[..ETHERNET_LEN], header_bytes, payload].concat();
        let (header, _) = Ipv4::mut_from_prefix(&mut fragment[ETHERNET_LEN..]).ok()?;
        header.set_header_len(header_bytes.len());
        header.set_total_length(u16::try_from(header_bytes.len() + len).ok()?);
        header.set_fragment_offset(u16::try_from(offset).ok()?);
        header.set_more_fragments(more || !remaining.is_empty());
        header.set_checksum(0);
        let sum = checksum::of(&fragment[ETHERNET_LEN..ETHERNET_LEN + header_bytes.len()]);
        fragment[ETHERNET_LEN + 10..ETHERNET_LEN + 12].copy_from_slice(&sum.to_be_bytes());
        fragments.push(fragment);
    }
    Some(fragments)
}

/// Returns the header of later fragments, with the options only whose copied flag is set.
fn later_header(header: &[u8]) -> Vec<u8> {
    let (fixed, mut options) = header.split_at(size_of::<Ipv4>().min(header.len()));
    let mut copied = fixed.to_vec();
    while let [option_type, after @ ..] = options {
        let len = match (option_type, after.first()) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(len)) if *len >= 2 => usize::from(*len),
            _ => break,
        };
        let Some((option, after)) = options.split_at_checked(len) else { break };
        if option_type & 0x80 != 0 {
            copied.extend(option);
        }
        options = after;
    }
    copied.resize(copied.len().next_multiple_of(4), 0);
    copied
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::build;

    proptest! {
        #[test]
        fn fragments_reassemble_to_the_packet(len in 0..4000usize, mtu in 68..2000usize, options in 0..=10usize) {
            // a copied option, and one-byte options in the remaining words
            let mut list = vec![1; 4 * options];
            if options != 0 {
                (list[0], list[1]) = (0x94, 4);
                list[2..4].fill(0);
            }
            let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2)
                .payload(&payload)
                .ip_options(wire::options::OptionBytes::new(&list).unwrap())
                .to_vec();
            let ip = ipv4::Packet::new(&frame[ETHERNET_LEN..]).unwrap();
            let fragments = fragments(&frame, mtu);
            let mut reassembled: Vec<u8> = vec![];
            for (n, fragment) in fragments.iter().enumerate() {
                let p = ipv4::Packet::new(&fragment[ETHERNET_LEN..]).unwrap();
                prop_assert!(p.checksum_ok());
                prop_assert!(p.bytes().len() <= mtu);
                prop_assert_eq!(usize::from(p.header().fragment_offset()), reassembled.len());
                prop_assert_eq!(p.header().more_fragments(), n + 1 < fragments.len());
                prop_assert_eq!(p.header().id(), ip.header().id());
                reassembled.extend(p.payload());
            }
            prop_assert_eq!(reassembled, ip.payload());
        }

        #[test]
        fn headers_of_later_fragments_are_bounded(bytes in prop::collection::vec(any::<u8>(), 20..60)) {
            prop_assert!(later_header(&bytes).len() <= 60);
        }
    }
}
