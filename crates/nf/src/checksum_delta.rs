//! Precomputed change of a checksum.

use wire::checksum::Delta;

/// Change of a checksum by the rewriting of fields that it covers (RFC 1624 §3, eq. 3), in network byte order: applied
/// without swapping bytes, which one's complement sums permit for fields at even offsets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ChecksumDelta(u16);

impl ChecksumDelta {
    /// Returns the change from `old` to `new`, each of an even number of bytes.
    pub(crate) fn new(old: &[u8], new: &[u8]) -> Self {
        let word = |pair: &[u8; 2]| u32::from(u16::from_ne_bytes(*pair));
        let (old, new) = (old.as_chunks().0.iter(), new.as_chunks().0.iter());
        let mut sum = old.map(|pair| !word(pair) & 0xffff).chain(new.map(word)).sum::<u32>();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        ChecksumDelta(sum as u16)
    }

    /// Returns the updated checksum.
    #[inline(always)]
    pub(crate) fn apply(self, sum: [u8; 2]) -> [u8; 2] {
        self.applied(u16::from_ne_bytes(sum)).to_ne_bytes()
    }

    /// Returns the updated UDP checksum: 0 (no checksum) stays 0, and a computed 0 becomes 0xffff (RFC 768).
    #[inline(always)]
    pub(crate) fn apply_udp(self, sum: [u8; 2]) -> [u8; 2] {
        // of whole words: comparisons of arrays are compiled byte by byte
        let old = u16::from_ne_bytes(sum);
        let new = match self.applied(old) {
            0 => 0xffff,
            new => new,
        };
        (if old == 0 { 0 } else { new }).to_ne_bytes()
    }

    #[inline(always)]
    fn applied(self, sum: u16) -> u16 {
        let (sum, carry) = (!sum).overflowing_add(self.0);
        !(sum + u16::from(carry))
    }
}

impl From<Delta> for ChecksumDelta {
    fn from(delta: Delta) -> Self {
        // of the two zeros of one's complement, this is the one that changes nothing
        ChecksumDelta((!delta.apply(0xffff)).to_be())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_delta(old in any::<[u32; 3]>(), new in any::<[u32; 3]>(), sum in any::<u16>()) {
            let delta = old.iter().zip(new).fold(Delta::ZERO, |d, (old, new)| d.u32(*old, new));
            let bytes = |words: [u32; 3]| words.map(u32::to_be_bytes).concat();
            for change in [ChecksumDelta::from(delta), ChecksumDelta::new(&bytes(old), &bytes(new))] {
                // 0 and 0xffff are equal in one's complement
                let same = |a: u16, b: u16| a == b || [a, b].iter().all(|n| [0, 0xffff].contains(n));
                prop_assert!(same(u16::from_be_bytes(change.apply(sum.to_be_bytes())), delta.apply(sum)));
                prop_assert_eq!(u16::from_be_bytes(change.apply_udp(sum.to_be_bytes())) == 0, sum == 0);
            }
        }
    }
}
