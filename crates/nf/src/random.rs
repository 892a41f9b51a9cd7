//! Pseudorandom numbers.

/// Returns the next number of a sequence whose state is not 0: xorshift64* (Marsaglia 2003, Vigna 2016). The high bits are
/// the best.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
