//! Well-formed packets, spoilt.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// What is done to a frame.
#[derive(Clone, Debug)]
enum Spoil {
    /// Its end is cut off.
    Cut(Index),
    /// Some bytes, mostly of headers, become others.
    Bytes(Vec<(Index, bool, u8)>),
    /// A length in it says something else.
    Lie(Index, u16),
    /// Nothing is left of it but its length.
    Noise(u64),
}

fn spoil() -> impl Strategy<Value = Spoil> {
    prop_oneof![
        3 => any::<Index>().prop_map(Spoil::Cut),
        3 => vec((any::<Index>(), prop::bool::weighted(0.8), 1..=255u8), 1..8).prop_map(Spoil::Bytes),
        4 => (any::<Index>(), prop_oneof![1..16u16, 1..=65535u16]).prop_map(|(field, by)| Spoil::Lie(field, by)),
        1 => any::<u64>().prop_map(Spoil::Noise),
    ]
}

/// Frames of `frames` with their end cut off, with bytes changed, with lengths that lie, or made of noise.
///
/// A property that holds of any bytes must hold of them. Some are well formed all the same: a changed payload is still
/// a payload, where no checksum is asked.
pub fn malformed(frames: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (frames, spoil()).prop_map(|(mut frame, spoil)| {
        match spoil {
            Spoil::Cut(at) => frame.truncate(at.index(frame.len().max(1))),
            Spoil::Bytes(list) => {
                for (at, header, xor) in list {
                    let within = if header { frame.len().min(74) } else { frame.len() };
                    if within != 0 {
                        frame[at.index(within)] ^= xor;
                    }
                }
            }
            Spoil::Lie(field, by) => {
                let lengths = lengths(&frame);
                if !lengths.is_empty() {
                    lengths[field.index(lengths.len())].lie(&mut frame, by);
                }
            }
            Spoil::Noise(mut state) => frame.iter_mut().for_each(|byte| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }),
        }
        frame
    })
}

/// A length in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Length {
    at: usize,
    field: Field,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// The lower half of a byte.
    Low,
    /// The upper half of a byte.
    High,
    Byte,
    /// Two bytes in network order.
    Word,
}

impl Length {
    /// Makes it say something else: `by`, which is not 0, more.
    fn lie(self, frame: &mut [u8], by: u16) {
        let half = 1 + (by % 15) as u8;
        let byte = frame[self.at];
        match self.field {
            Field::Low => frame[self.at] = byte & 0xf0 | byte.wrapping_add(half) & 0x0f,
            Field::High => frame[self.at] = byte & 0x0f | byte.wrapping_add(half << 4) & 0xf0,
            Field::Byte => frame[self.at] = byte.wrapping_add(1 + (by % 255) as u8),
            Field::Word => {
                let word = u16::from_be_bytes([byte, frame[self.at + 1]]).wrapping_add(by);
                frame[self.at..self.at + 2].copy_from_slice(&word.to_be_bytes());
            }
        }
    }
}

/// Where a well-formed frame states lengths: of headers, packets, options, addresses.
fn lengths(frame: &[u8]) -> Vec<Length> {
    let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let mut found = vec![];
    let mut at = 12;
    while matches!(word(at), 0x8100 | 0x88a8) {
        at += 4;
    }
    let start = at + 2;
    let mut add = |at: usize, field| found.push(Length { at, field });
    let (upper, mut at) = match word(at) {
        0x0806 => {
            add(start + 4, Field::Byte);
            add(start + 5, Field::Byte);
            (None, start)
        }
        0x0800 => {
            add(start, Field::Low);
            add(start + 2, Field::Word);
            let end = start + usize::from(byte(start) & 15) * 4;
            if end > start + 20 && byte(start + 20) > 1 {
                add(start + 21, Field::Byte);
            }
            let later = word(start + 6) & 0x1fff != 0;
            ((!later).then(|| byte(start + 9)), end)
        }
        0x86dd => {
            add(start + 4, Field::Word);
            (Some(byte(start + 6)), start + 40)
        }
        _ => (None, start),
    };
    // extension headers of IPv6
    let mut next = upper;
    while let Some(kind @ (0 | 43 | 44 | 51 | 60)) = next {
        if kind == 44 && word(at + 2) & 0xfff8 != 0 {
            next = None;
            break;
        }
        next = Some(byte(at));
        at += match kind {
            44 => 8,
            51 => {
                add(at + 1, Field::Byte);
                (usize::from(byte(at + 1)) + 2) * 4
            }
            _ => {
                add(at + 1, Field::Byte);
                (usize::from(byte(at + 1)) + 1) * 8
            }
        };
    }
    match next {
        Some(17) => add(at + 4, Field::Word),
        Some(6) => {
            add(at + 12, Field::High);
            if byte(at + 12) >> 4 > 5 && byte(at + 20) > 1 {
                add(at + 21, Field::Byte);
            }
        }
        _ => {}
    }
    // a frame that was not well formed may end before
    found.retain(|length| length.at + 1 < frame.len());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{IpProtocol, build};

    #[test]
    fn lengths_are_where_they_stand() {
        let at = |frame: Vec<u8>| lengths(&frame).into_iter().map(|l| (l.at, l.field)).collect::<Vec<_>>();
        let udp = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
        assert_eq!(at(udp.to_vec()), [(14, Field::Low), (16, Field::Word), (38, Field::Word)]);
        assert_eq!(at(udp.vlan(5).to_vec()), [(18, Field::Low), (20, Field::Word), (42, Field::Word)]);
        assert_eq!(
            at(build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec()),
            [(18, Field::Byte), (19, Field::Byte)]
        );
        let tcp = build::tcp6([1; 16], [2; 16], 1, 2).extension(IpProtocol::DESTINATION_OPTIONS, &[]);
        assert_eq!(at(tcp.to_vec()), [(18, Field::Word), (55, Field::Byte), (74, Field::High)]);
        let later = build::ipv6([1; 16], [2; 16], IpProtocol::UDP).fragment(64, false, 1).payload(&[0; 16]);
        assert_eq!(at(later.to_vec()), [(18, Field::Word)]);
        assert_eq!(at(vec![0; 12]), []);
        assert_eq!(at(vec![]), []);
    }

    #[test]
    fn a_lie_says_something_else() {
        for field in [Field::Low, Field::High, Field::Byte, Field::Word] {
            for by in 1..=u16::MAX {
                let mut frame = [0x45, 0xff];
                Length { at: 0, field }.lie(&mut frame, by);
                assert_ne!(frame, [0x45, 0xff], "{field:?} {by}");
            }
        }
    }
}
