//! Iteration over bit masks of a batch.

use packet::BURST;

/// Calls `f` with the position of each set bit, lowest first.
#[inline(always)]
pub(crate) fn for_each_bit(mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize & (BURST - 1));
        bits &= bits - 1;
    }
}
