//! Keys, by their bits.

use super::keys::{Key48, Key64, Key144};
use super::layout::Layout;
use core::fmt::Debug;
use core::hash::Hash;

/// Key of an entry: 48, 64 or 144 bits. Every value is valid, zero too. Sealed.
pub trait Key: Layout + Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// Value of an entry: `u16` with keys of 48 bits, otherwise `u32`.
    type Value: Copy + Eq + Debug + Send + Sync + Into<u32> + 'static;
    /// Bits of a key.
    const BITS: u32;
    /// The greatest value: one less than the type's own, which stands for a free slot.
    const MAX_VALUE: u32;

    /// Returns a value of at most [`MAX_VALUE`](Self::MAX_VALUE).
    #[doc(hidden)]
    fn value(value: u32) -> Self::Value;
}

impl Key for Key48 {
    type Value = u16;
    const BITS: u32 = 48;
    const MAX_VALUE: u32 = u16::MAX as u32 - 1;

    #[inline(always)]
    fn value(value: u32) -> u16 {
        value as u16
    }
}

impl Key for Key64 {
    type Value = u32;
    const BITS: u32 = 64;
    const MAX_VALUE: u32 = u32::MAX - 1;

    #[inline(always)]
    fn value(value: u32) -> u32 {
        value
    }
}

impl Key for Key144 {
    type Value = u32;
    const BITS: u32 = 144;
    const MAX_VALUE: u32 = u32::MAX - 1;

    #[inline(always)]
    fn value(value: u32) -> u32 {
        value
    }
}
