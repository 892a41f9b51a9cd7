//! A run of out-of-order bytes.

use super::block::Block;
use super::overlap::Overlap;

/// Returns true if sequence number `a` is greater than `b` (RFC 9293 §3.4: numbers wrap).
#[inline(always)]
pub(crate) fn behind(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// A run of bytes in one block.
pub(crate) struct Piece {
    /// Sequence number of the first byte.
    pub(crate) seq: u32,
    /// Segment that the bytes came from: overlap policies compare its ends.
    pub(super) origin: Origin,
    /// Time of arrival in ms; wraps.
    pub(crate) since: u32,
    pub(super) from: u16,
    pub(super) len: u16,
    pub(super) block: Block,
}

/// First and last-but-one sequence number of a whole segment.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) seq: u32,
    pub(crate) end: u32,
}

impl Piece {
    pub(crate) fn end(&self) -> u32 {
        self.seq.wrapping_add(u32::from(self.len))
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let from = usize::from(self.from);
        self.block.get(from..from + self.len()).unwrap_or_default()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let from = usize::from(self.from);
        let to = from + self.len();
        self.block.get_mut(from..to).unwrap_or_default()
    }

    /// Removes the first `n` bytes.
    pub(crate) fn trim(&mut self, n: usize) {
        let n = n as u16;
        (self.seq, self.from, self.len) = (self.seq.wrapping_add(n.into()), self.from + n, self.len - n);
    }

    pub(crate) fn into_block(self) -> Block {
        self.block
    }

    /// Returns true if the bytes of a newer segment replace these where both overlap.
    #[inline]
    pub(crate) fn is_replaced_by(&self, newer: Origin, policy: Overlap) -> bool {
        match policy {
            Overlap::First => false,
            Overlap::Last => true,
            Overlap::Linux => {
                let (old, new) = (self.origin, newer);
                behind(old.seq, new.seq) || (old.seq == new.seq && behind(new.end, old.end))
            }
        }
    }
}
