//! IPv4 packets that are too long for the next link (RFC 791 §3.2, RFC 1812 §5.2.6).

use super::forward::LINK;
use wire::{Ipv4, checksum, ipv4};
use zerocopy::FromBytes;

/// The frames that an IPv4 frame is cut into so that no packet is longer than `mtu` bytes; none when it cannot be, because
/// it is itself a piece that would end beyond what an offset can say.
pub(super) fn pieces(frame: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    cut(frame, mtu).unwrap_or_default()
}

fn cut(frame: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let ip = ipv4::Packet::new(frame.get(LINK..)?).ok()?;
    let whole = ip.header_bytes();
    let later = copied(whole);
    let (begin, more) = (usize::from(ip.header().fragment_offset()), ip.header().more_fragments());
    let mut rest = ip.payload();
    let mut pieces = vec![];
    while !rest.is_empty() {
        let head: &[u8] = if pieces.is_empty() { whole } else { &later };
        let room = mtu.checked_sub(head.len())?;
        let take = if rest.len() <= room { rest.len() } else { room & !7 };
        if take == 0 {
            return None;
        }
        let offset = begin + ip.payload().len() - rest.len();
        let (now, then) = rest.split_at(take);
        rest = then;
        let mut piece = [&frame[..LINK], head, now].concat();
        let (header, _) = Ipv4::mut_from_prefix(&mut piece[LINK..]).ok()?;
        header.set_header_len(head.len());
        header.set_total_length(u16::try_from(head.len() + take).ok()?);
        header.set_fragment_offset(u16::try_from(offset).ok()?);
        header.set_more_fragments(more || !rest.is_empty());
        header.set_checksum(0);
        let sum = checksum::of(&piece[LINK..LINK + head.len()]);
        piece[LINK + 10..LINK + 12].copy_from_slice(&sum.to_be_bytes());
        pieces.push(piece);
    }
    Some(pieces)
}

/// The header as later fragments have it: with the options only whose copied flag is set.
fn copied(header: &[u8]) -> Vec<u8> {
    let (fixed, mut options) = header.split_at(size_of::<Ipv4>().min(header.len()));
    let mut kept = fixed.to_vec();
    while let [kind, rest @ ..] = options {
        let len = match (kind, rest.first()) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(len)) if *len >= 2 => usize::from(*len),
            _ => break,
        };
        let Some((option, behind)) = options.split_at_checked(len) else { break };
        if kind & 0x80 != 0 {
            kept.extend(option);
        }
        options = behind;
    }
    kept.resize(kept.len().next_multiple_of(4), 0);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::build;

    proptest! {
        #[test]
        fn pieces_put_together_are_the_packet(len in 0..4000usize, mtu in 68..2000usize, options in 0..=10usize) {
            // a copied option of that many words, but for the last byte
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
            let ip = ipv4::Packet::new(&frame[LINK..]).unwrap();
            let pieces = pieces(&frame, mtu);
            let mut whole: Vec<u8> = vec![];
            for (n, piece) in pieces.iter().enumerate() {
                let p = ipv4::Packet::new(&piece[LINK..]).unwrap();
                prop_assert!(p.checksum_ok());
                prop_assert!(p.bytes().len() <= mtu);
                prop_assert_eq!(usize::from(p.header().fragment_offset()), whole.len());
                prop_assert_eq!(p.header().more_fragments(), n + 1 < pieces.len());
                prop_assert_eq!(p.header().id(), ip.header().id());
                whole.extend(p.payload());
            }
            prop_assert_eq!(whole, ip.payload());
        }

        #[test]
        fn any_header_ends(bytes in prop::collection::vec(any::<u8>(), 20..60)) {
            prop_assert!(copied(&bytes).len() <= 60);
        }
    }
}
