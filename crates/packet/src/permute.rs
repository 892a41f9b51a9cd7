//! Byte permutation.

/// Moves byte `order[i]` (0 to 15) to position `i`, for all 16 bytes: one instruction on targets with SSSE3.
///
/// ```
/// let mut bytes = *b"0123456789abcdef";
/// packet::permute16(&mut bytes, &[15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
/// assert_eq!(&bytes, b"fedcba9876543210");
/// ```
#[inline(always)]
pub fn permute16(bytes: &mut [u8; 16], order: &[u8; 16]) {
    #[cfg(target_feature = "ssse3")]
    {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128};
        // SAFETY: the target has the instruction; both arrays have 16 bytes, and the access may be unaligned.
        unsafe {
            let at: *mut __m128i = bytes.as_mut_ptr().cast();
            _mm_storeu_si128(at, _mm_shuffle_epi8(_mm_loadu_si128(at), _mm_loadu_si128(order.as_ptr().cast())));
        }
    }
    #[cfg(not(target_feature = "ssse3"))]
    {
        let from = *bytes;
        for (to, &index) in bytes.iter_mut().zip(order) {
            *to = from[usize::from(index & 15)];
        }
    }
}
