//! Eight rules side by side, compared with a packet at once.

use super::region::{Region, meta};

/// No rule.
pub(super) const NONE: u32 = u32::MAX;
/// Rules in a block.
pub(super) const LANES: usize = 8;

/// Eight rules whose addresses have `A` words, best rank first: four cache lines for IPv4, eight for IPv6.
///
/// A packet matches a lane if nothing is left of: each address word against the value, shifted right by what is free;
/// each port less the first one, less the span, saturating; the last word against the value, under the mask.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Block<const A: usize> {
    pub(super) src: [[u32; LANES]; A],
    pub(super) dst: [[u32; LANES]; A],
    /// First source port in the upper half, first destination port in the lower.
    pub(super) first: [u32; LANES],
    /// Last less first port.
    pub(super) span: [u32; LANES],
    pub(super) meta: [u32; LANES],
    pub(super) meta_mask: [u32; LANES],
    pub(super) src_free: [[u8; LANES]; A],
    pub(super) dst_free: [[u8; LANES]; A],
    /// The rules' indices, and [`NONE`] for no match.
    pub(super) rule: [u32; LANES + 1],
}

impl<const A: usize> Block<A> {
    /// Matches nothing.
    pub(super) const EMPTY: Self = Self {
        src: [[0; LANES]; A],
        dst: [[0; LANES]; A],
        first: [0; LANES],
        span: [0; LANES],
        meta: [meta::NEVER; LANES],
        meta_mask: [meta::NEVER; LANES],
        src_free: [[0; LANES]; A],
        dst_free: [[0; LANES]; A],
        rule: [NONE; LANES + 1],
    };

    /// Builds a block of at most [`LANES`] regions, given by rank.
    pub(super) fn of<'a>(regions: impl Iterator<Item = &'a Region>) -> Self {
        let mut block = Self::EMPTY;
        for (lane, region) in regions.enumerate() {
            // spans of address words are prefixes: what differs between their ends is free
            let free = |lo: u32, hi: u32| (32 - (lo ^ hi).leading_zeros()) as u8;
            for word in 0..A {
                let (src, dst) = (region.spans[word], region.spans[A + word]);
                block.src[word][lane] = src.lo;
                block.dst[word][lane] = dst.lo;
                block.src_free[word][lane] = free(src.lo, src.hi);
                block.dst_free[word][lane] = free(dst.lo, dst.hi);
            }
            let (src, dst) = (region.spans[2 * A], region.spans[2 * A + 1]);
            block.first[lane] = src.lo << 16 | dst.lo;
            block.span[lane] = (src.hi - src.lo) << 16 | (dst.hi - dst.lo);
            block.meta[lane] = region.meta_value;
            block.meta_mask[lane] = region.meta_mask;
            block.rule[lane] = region.rank;
        }
        block
    }

    /// Returns the index of the first rule that matches, or [`NONE`].
    #[inline(always)]
    pub(super) fn first_match(&self, key: &[u32]) -> u32 {
        let mut hits = 1 << LANES;
        for lane in 0..LANES {
            let mut rest = 0;
            for word in 0..A {
                rest |= (key[word] ^ self.src[word][lane]).checked_shr(self.src_free[word][lane].into()).unwrap_or(0);
                rest |=
                    (key[A + word] ^ self.dst[word][lane]).checked_shr(self.dst_free[word][lane].into()).unwrap_or(0);
            }
            for half in [0, 16] {
                let [port, first, span] = [key[2 * A], self.first[lane], self.span[lane]].map(|x| (x >> half) as u16);
                rest |= u32::from(port.wrapping_sub(first).saturating_sub(span));
            }
            rest |= (key[2 * A + 1] ^ self.meta[lane]) & self.meta_mask[lane];
            hits |= u32::from(rest == 0) << lane;
        }
        self.rule[hits.trailing_zeros() as usize]
    }
}
