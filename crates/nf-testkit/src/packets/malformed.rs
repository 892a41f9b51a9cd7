//! Malformed packets.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A change that may make a frame malformed.
#[derive(Clone, Debug)]
enum Mutation {
    /// Truncates the frame.
    Truncate(Index),
    /// Changes some bytes, mostly of headers: position, true for a header byte, XOR mask.
    ChangeBytes(Vec<(Index, bool, u8)>),
    /// Changes a length field by an amount.
    ChangeLength(Index, u16),
    /// Replaces all bytes with random ones.
    Randomise(u64),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        3 => any::<Index>().prop_map(Mutation::Truncate),
        3 => vec((any::<Index>(), prop::bool::weighted(0.8), 1..=255u8), 1..8).prop_map(Mutation::ChangeBytes),
        4 => (any::<Index>(), prop_oneof![1..16u16, 1..=65535u16])
            .prop_map(|(field, by)| Mutation::ChangeLength(field, by)),
        1 => any::<u64>().prop_map(Mutation::Randomise),
    ]
}

/// Frames of `frames` that are truncated, have changed bytes or wrong length fields, or consist of random bytes.
///
/// Some of them are still valid, for instance if only the payload has changed and there is no checksum.
pub fn malformed(frames: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (frames, mutation()).prop_map(|(mut frame, mutation)| {
        match mutation {
            Mutation::Truncate(at) => frame.truncate(at.index(frame.len().max(1))),
            Mutation::ChangeBytes(list) => {
                for (at, header, xor) in list {
                    let within = if header { frame.len().min(74) } else { frame.len() };
                    if within != 0 {
                        frame[at.index(within)] ^= xor;
                    }
                }
            }
            Mutation::ChangeLength(field, by) => {
                let lengths = length_fields(&frame);
                if !lengths.is_empty() {
                    lengths[field.index(lengths.len())].change(&mut frame, by);
                }
            }
            Mutation::Randomise(mut state) => frame.iter_mut().for_each(|byte| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }),
        }
        frame
    })
}

/// A length field in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LengthField {
    at: usize,
    width: Width,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// The low 4 bits of a byte.
    LowNibble,
    /// The high 4 bits of a byte.
    HighNibble,
    Byte,
    /// 16 bits in network byte order.
    Word,
}

impl LengthField {
    /// Adds `by`, which is not 0, modulo the width.
    fn change(self, frame: &mut [u8], by: u16) {
        let nibble = 1 + (by % 15) as u8;
        let byte = frame[self.at];
        match self.width {
            Width::LowNibble => frame[self.at] = byte & 0xf0 | byte.wrapping_add(nibble) & 0x0f,
            Width::HighNibble => frame[self.at] = byte & 0x0f | byte.wrapping_add(nibble << 4) & 0xf0,
            Width::Byte => frame[self.at] = byte.wrapping_add(1 + (by % 255) as u8),
            Width::Word => {
                let word = u16::from_be_bytes([byte, frame[self.at + 1]]).wrapping_add(by);
                frame[self.at..self.at + 2].copy_from_slice(&word.to_be_bytes());
            }
        }
    }
}

/// Returns the length fields of a valid frame: of headers, packets, options and addresses.
fn length_fields(frame: &[u8]) -> Vec<LengthField> {
    let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let mut fields = vec![];
    let mut at = 12;
    while matches!(word(at), 0x8100 | 0x88a8) {
        at += 4;
    }
    let start = at + 2;
    let mut add = |at: usize, width| fields.push(LengthField { at, width });
    let (protocol, mut at) = match word(at) {
        0x0806 => {
            add(start + 4, Width::Byte);
            add(start + 5, Width::Byte);
            (None, start)
        }
        0x0800 => {
            add(start, Width::LowNibble);
            add(start + 2, Width::Word);
            let end = start + usize::from(byte(start) & 15) * 4;
            if end > start + 20 && byte(start + 20) > 1 {
                add(start + 21, Width::Byte);
            }
            let is_later_fragment = word(start + 6) & 0x1fff != 0;
            ((!is_later_fragment).then(|| byte(start + 9)), end)
        }
        0x86dd => {
            add(start + 4, Width::Word);
            (Some(byte(start + 6)), start + 40)
        }
        _ => (None, start),
    };
    // extension headers of IPv6
    let mut next = protocol;
    while let Some(extension @ (0 | 43 | 44 | 51 | 60)) = next {
        if extension == 44 && word(at + 2) & 0xfff8 != 0 {
            next = None;
            break;
        }
        next = Some(byte(at));
        at += match extension {
            44 => 8,
            51 => {
                add(at + 1, Width::Byte);
                (usize::from(byte(at + 1)) + 2) * 4
            }
            _ => {
                add(at + 1, Width::Byte);
                (usize::from(byte(at + 1)) + 1) * 8
            }
        };
    }
    match next {
        Some(17) => add(at + 4, Width::Word),
        Some(6) => {
            add(at + 12, Width::HighNibble);
            if byte(at + 12) >> 4 > 5 && byte(at + 20) > 1 {
                add(at + 21, Width::Byte);
            }
        }
        _ => {}
    }
    // a malformed frame may end before
    fields.retain(|length| length.at + 1 < frame.len());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{IpProtocol, build};

    #[test]
    fn finds_length_fields() {
        let at = |frame: Vec<u8>| length_fields(&frame).into_iter().map(|l| (l.at, l.width)).collect::<Vec<_>>();
        let udp = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
        assert_eq!(at(udp.to_vec()), [(14, Width::LowNibble), (16, Width::Word), (38, Width::Word)]);
        assert_eq!(at(udp.vlan(5).to_vec()), [(18, Width::LowNibble), (20, Width::Word), (42, Width::Word)]);
        assert_eq!(
            at(build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec()),
            [(18, Width::Byte), (19, Width::Byte)]
        );
        let tcp = build::tcp6([1; 16], [2; 16], 1, 2).extension(IpProtocol::DESTINATION_OPTIONS, &[]);
        assert_eq!(at(tcp.to_vec()), [(18, Width::Word), (55, Width::Byte), (74, Width::HighNibble)]);
        let later = build::ipv6([1; 16], [2; 16], IpProtocol::UDP).fragment(64, false, 1).payload(&[0; 16]);
        assert_eq!(at(later.to_vec()), [(18, Width::Word)]);
        assert_eq!(at(vec![0; 12]), []);
        assert_eq!(at(vec![]), []);
    }

    #[test]
    fn change_always_changes_the_field() {
        for width in [Width::LowNibble, Width::HighNibble, Width::Byte, Width::Word] {
            for by in 1..=u16::MAX {
                let mut frame = [0x45, 0xff];
                LengthField { at: 0, width }.change(&mut frame, by);
                assert_ne!(frame, [0x45, 0xff], "{width:?} {by}");
            }
        }
    }
}
