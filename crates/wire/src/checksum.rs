//! The Internet checksum: computed (RFC 1071), over pseudo headers, and updated (RFC 1624).
//!
//! ```
//! use wire::checksum;
//!
//! let mut header = *b"\x45\x00\x00\x14\x00\x00\x40\x00\x40\x11\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02";
//! let sum = checksum::of(&header);
//! header[10..12].copy_from_slice(&sum.to_be_bytes());
//! assert!(checksum::verify(&header));
//!
//! // Rewrite the low half of the destination address and keep the checksum right.
//! header[18..20].copy_from_slice(&[1, 99]);
//! let sum = checksum::update16(sum, 0x0002, 0x0163);
//! header[10..12].copy_from_slice(&sum.to_be_bytes());
//! assert!(checksum::verify(&header));
//! ```

use crate::IpProtocol;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A one's complement sum under way.
///
/// Every piece but the last must have an even number of bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u64);

impl Sum {
    /// Nothing summed yet.
    pub const ZERO: Self = Self(0);

    /// Adds `bytes`; an odd last byte counts as followed by a zero (RFC 1071 §1).
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // Native order throughout: the sum does not depend on it (RFC 1071 §2.B) and `finish` swaps once.
        // Each step adds 32-bit halves to 64 bits, so nothing is lost below 16 GiB.
        let (words, tail) = bytes.as_chunks::<8>();
        let mut sum = self.0;
        for word in words {
            let word = u64::from_ne_bytes(*word);
            sum = sum.wrapping_add((word & 0xffff_ffff) + (word >> 32));
        }
        let (pairs, odd) = tail.as_chunks::<2>();
        for pair in pairs {
            sum = sum.wrapping_add(u16::from_ne_bytes(*pair).into());
        }
        if let [last] = odd {
            sum = sum.wrapping_add(u16::from_ne_bytes([*last, 0]).into());
        }
        Self(sum)
    }

    /// Adds a 16-bit field.
    #[inline(always)]
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        Self(self.0.wrapping_add(value.to_be().into()))
    }

    /// Adds a 32-bit field.
    #[inline(always)]
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        Self(self.0.wrapping_add(value.to_be().into()))
    }

    /// Returns the checksum to store: the complement of the sum.
    #[inline(always)]
    #[must_use]
    pub fn finish(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        !u16::from_be(sum as u16)
    }

    /// Returns the checksum to store in a UDP header, where 0 means "none" and is sent as 0xffff (RFC 768).
    #[inline(always)]
    #[must_use]
    pub fn finish_udp(self) -> u16 {
        nonzero(self.finish())
    }

    /// Returns true if a sum over data that includes its checksum field is right.
    #[inline(always)]
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.finish() == 0
    }
}

/// Maps 0 to 0xffff, its other representation in one's complement, for UDP, where 0 means "no checksum".
#[inline(always)]
fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Returns the checksum of `bytes`, in which the checksum field is zero.
#[inline]
#[must_use]
pub fn of(bytes: &[u8]) -> u16 {
    Sum::ZERO.bytes(bytes).finish()
}

/// Returns true if the checksum contained in `bytes` is correct.
#[inline]
#[must_use]
pub fn verify(bytes: &[u8]) -> bool {
    Sum::ZERO.bytes(bytes).is_valid()
}

/// The pseudo header that TCP, UDP and ICMPv6 sum: addresses and protocol, to which each adds its own length.
#[derive(Clone, Copy, Debug)]
pub struct Pseudo {
    sum: Sum,
    v6: bool,
}

impl Pseudo {
    /// Creates the pseudo header of IPv4 (RFC 9293 §3.1).
    #[inline(always)]
    #[must_use]
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol) -> Self {
        Self { sum: Sum::ZERO.u32(src.to_bits()).u32(dst.to_bits()).u16(protocol.0.into()), v6: false }
    }

    /// Creates the pseudo header of IPv6 (RFC 8200 §8.1).
    ///
    /// `protocol` is the upper one, not an extension header; behind a routing header `dst` is the final destination.
    #[inline(always)]
    #[must_use]
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol) -> Self {
        Self { sum: Sum::ZERO.bytes(&src.octets()).bytes(&dst.octets()).u16(protocol.0.into()), v6: true }
    }

    /// Returns the sum over the whole pseudo header and `upper`, the upper header with its payload.
    #[inline(always)]
    #[must_use]
    pub fn sum(self, upper: &[u8]) -> Sum {
        self.sum.u32(upper.len() as u32).bytes(upper)
    }

    /// Returns true if UDP may omit its checksum: over IPv4 (RFC 768), not over IPv6 (RFC 8200 §8.1).
    #[inline(always)]
    #[must_use]
    pub fn udp_checksum_optional(self) -> bool {
        !self.v6
    }
}

/// The effect of changed fields on a checksum over them (RFC 1624 eq. 3).
///
/// One `Delta` serves all checksums that cover the fields, as when NAT changes an address that both IP and TCP sum.
///
/// The result equals full recomputation unless all summed data has become zero, which no IP or pseudo header can.
#[derive(Clone, Copy, Default, Debug)]
pub struct Delta(u32);

impl Delta {
    /// No change.
    pub const ZERO: Self = Self(0);

    #[inline(always)]
    fn add(self, sum: u32) -> Self {
        // One fold leaves at most 0x1fffe, so that neither this nor the next addition can overflow.
        let sum = self.0 + sum;
        Self((sum & 0xffff) + (sum >> 16))
    }

    /// Adds the change of a 16-bit field from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub fn u16(self, old: u16, new: u16) -> Self {
        self.add(u32::from(!old) + u32::from(new))
    }

    /// Adds the change of a 32-bit field from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub fn u32(self, old: u32, new: u32) -> Self {
        self.add((!old >> 16) + (!old & 0xffff) + (new >> 16) + (new & 0xffff))
    }

    /// Adds the change of an IPv6 address from `old` to `new`, both in network order.
    #[inline(always)]
    #[must_use]
    pub fn octets(self, old: [u8; 16], new: [u8; 16]) -> Self {
        let ((old, _), (new, _)) = (old.as_chunks::<4>(), new.as_chunks::<4>());
        let words = old.iter().zip(new);
        words.fold(self, |delta, (old, new)| delta.u32(u32::from_be_bytes(*old), u32::from_be_bytes(*new)))
    }

    /// Returns the checksum after the change, given the checksum `sum` before it.
    #[inline(always)]
    #[must_use]
    pub fn apply(self, sum: u16) -> u16 {
        let sum = u32::from(!sum) + self.0;
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// As [`apply`](Self::apply) for a UDP checksum: 0 (none) stays 0 and a sum of 0 becomes 0xffff (RFC 768).
    #[inline(always)]
    #[must_use]
    pub fn apply_udp(self, sum: u16) -> u16 {
        if sum == 0 { 0 } else { nonzero(self.apply(sum)) }
    }
}

/// Updates a checksum for one 16-bit field that changes from `old` to `new` (RFC 1624 eq. 3); see [`Delta`].
#[inline(always)]
#[must_use]
pub fn update16(sum: u16, old: u16, new: u16) -> u16 {
    Delta::ZERO.u16(old, new).apply(sum)
}

/// Updates a checksum for one 32-bit field that changes from `old` to `new` (RFC 1624 eq. 3); see [`Delta`].
#[inline(always)]
#[must_use]
pub fn update32(sum: u16, old: u32, new: u32) -> u16 {
    Delta::ZERO.u32(old, new).apply(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ipv4;
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    /// Words on both sides of every carry.
    const EDGES: [u16; 12] = [0, 1, 2, 0x00ff, 0x0100, 0x5555, 0x7fff, 0x8000, 0xaaaa, 0xff00, 0xfffe, 0xffff];

    /// Computes the checksum word by word, as in RFC 1071.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// Returns a word that gives the data `[word, other]` the checksum `sum`, and the checksum, which cannot be 0xffff.
    fn complement(sum: u16, other: u16) -> u16 {
        let word = u32::from(!sum) + u32::from(!other);
        ((word & 0xffff) + (word >> 16)) as u16
    }

    fn recomputed(words: &[u16]) -> u16 {
        words.iter().fold(Sum::ZERO, |sum, word| sum.u16(*word)).finish()
    }

    #[test]
    fn rfc_1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), !0xddf2);
        assert!(verify(&[&bytes[..], &[0x22, 0x0d]].concat()));
    }

    #[test]
    fn rfc_1624_example() {
        // RFC 1624 §4: the incremental equation of RFC 1141 would yield 0xffff here.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn every_checksum_against_edge_words() {
        for sum in 0..=u16::MAX {
            for old in EDGES {
                let other = complement(sum, old);
                let before = recomputed(&[old, other]);
                for new in EDGES.into_iter().chain([sum, !sum, old.wrapping_sub(sum)]) {
                    if [new, other] == [0, 0] || [old, other] == [0, 0] {
                        continue;
                    }
                    assert_eq!(update16(before, old, new), recomputed(&[new, other]), "{before:#x} {old:#x} {new:#x}");
                }
            }
        }
    }

    #[test]
    fn every_checksum_when_the_ttl_falls() {
        for ttl in [1, 2, 64, 128, 255] {
            for id in 0..=u16::MAX {
                let mut header = Ipv4::new_zeroed();
                header.set_header_len(20);
                header.set_ttl(ttl);
                header.set_id(id);
                let full = |header: &Ipv4| slow(zerocopy::IntoBytes::as_bytes(header));
                header.set_checksum(full(&header));
                header.decrement_ttl();
                let incremental = header.checksum();
                header.set_checksum(0);
                assert_eq!(incremental, full(&header), "ttl {ttl} id {id:#x}");
            }
        }
    }

    #[test]
    fn udp_zero() {
        assert_eq!(Sum::ZERO.u16(0xffff).finish(), 0);
        assert_eq!(Sum::ZERO.u16(0xffff).finish_udp(), 0xffff);
        assert_eq!(Delta::ZERO.u16(1, 2).apply_udp(0), 0);
        let before = recomputed(&[0x1234, 0x0001]);
        assert_eq!(Delta::ZERO.u16(0x0001, !0x1234).apply(before), 0);
        assert_eq!(Delta::ZERO.u16(0x0001, !0x1234).apply_udp(before), 0xffff);
        // 0xffff on the wire stands for a sum of 0 and must update as if it were.
        assert_eq!(update16(0xffff, !0x1234, 0x0001), before);
    }

    #[test]
    fn pseudo_headers() {
        let (src, dst) = (Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(10, 0, 0, 255));
        let upper = [7; 9];
        let flat = [&[192, 168, 0, 1, 10, 0, 0, 255, 0, 17, 0, 9][..], &upper].concat();
        assert_eq!(Pseudo::v4(src, dst, IpProtocol::UDP).sum(&upper).finish(), slow(&flat));
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xffff));
        let flat = [&src.octets()[..], &dst.octets(), &[0, 0, 0, 9, 0, 0, 0, 58], &upper].concat();
        assert_eq!(Pseudo::v6(src, dst, IpProtocol::ICMPV6).sum(&upper).finish(), slow(&flat));
    }

    proptest! {
        #[test]
        fn fast_equals_slow(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(of(&bytes), slow(&bytes));
        }

        #[test]
        fn pieces_add_up(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..100) {
            let (head, tail) = bytes.split_at((cut * 2).min(bytes.len() & !1));
            prop_assert_eq!(Sum::ZERO.bytes(head).bytes(tail).finish(), slow(&bytes));
        }

        #[test]
        fn changes_add_up(old: [u8; 16], new: [u8; 16], word: (u32, u32), half: (u16, u16)) {
            let flat = |address: [u8; 16], word: u32, half: u16| {
                [&address[..], &word.to_be_bytes(), &half.to_be_bytes(), &[0, 1]].concat()
            };
            let delta = Delta::ZERO.octets(old, new).u32(word.0, word.1).u16(half.0, half.1);
            let before = slow(&flat(old, word.0, half.0));
            prop_assert_eq!(delta.apply(before), slow(&flat(new, word.1, half.1)));
        }

        #[test]
        fn word_changes(sum_data: [u16; 4], at in 0_usize..3, new: u32) {
            let mut data = sum_data;
            data[3] |= 1;
            let old = u32::from(data[at]) << 16 | u32::from(data[at + 1]);
            let before = recomputed(&data);
            (data[at], data[at + 1]) = ((new >> 16) as u16, new as u16);
            if data != [0; 4] {
                prop_assert_eq!(update32(before, old, new), recomputed(&data));
            }
        }
    }
}
