//! Damaged bytes.

use proptest::prelude::*;
use proptest::sample::Index;

/// Damage to bytes that are read back, such as a saved state: they end early, or bits of one byte differ.
///
/// ```
/// use testkit::Damage;
/// use testkit::proptest::prelude::*;
///
/// proptest!(|(damage in Damage::any())| {
///     let mut bytes = vec![7; 16];
///     let end = damage.apply(&mut bytes);
///     prop_assert_eq!(bytes.len(), end.unwrap_or(16));
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Damage {
    at: Index,
    bits: u8,
    truncates: bool,
}

impl Damage {
    /// Returns the strategy of any damage.
    pub fn any() -> impl Strategy<Value = Damage> {
        (any::<Index>(), any::<u8>(), any::<bool>()).prop_map(|(at, bits, truncates)| Damage { at, bits, truncates })
    }

    /// Damages bytes; returns their number if they end early.
    ///
    /// # Panics
    /// If there are none.
    pub fn apply(&self, bytes: &mut Vec<u8>) -> Option<usize> {
        let at = self.at.index(bytes.len());
        if self.truncates {
            bytes.truncate(at);
            return Some(at);
        }
        bytes[at] ^= self.bits;
        None
    }
}
