//! Look-ups of IPv4 addresses.

use super::look_up::load;
use super::words::LpmWord;
use super::{Isa, LINK};

/// # Safety
/// `words` are an IPv4 table, the processor has `isa`, the slices are of one length.
#[inline(always)]
pub(super) unsafe fn look_up<W: LpmWord>(words: &[W], isa: Isa, addresses: &[u32], values: &mut [u32]) {
    // SAFETY: the caller's promises are all that each of them asks for.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::avx512(words, addresses, values),
            _ => scalar(words, addresses, values),
        }
    }
}

/// # Safety
/// `words` are an IPv4 table.
unsafe fn scalar<W: LpmWord>(words: &[W], addresses: &[u32], values: &mut [u32]) {
    // Two passes over a burst: the loads of the first do not wait for each other, and the second has few to do.
    for (addresses, values) in addresses.chunks(32).zip(values.chunks_mut(32)) {
        let mut any = 0;
        for (address, value) in addresses.iter().zip(&mut *values) {
            // SAFETY: 24 bits are within the first level.
            *value = unsafe { load(words, (address >> 8) as usize) };
            any |= *value;
        }
        if any & LINK != 0 {
            for (address, value) in addresses.iter().zip(values) {
                if *value & LINK != 0 {
                    // SAFETY: a link leads to a group, and 8 bits are within it.
                    *value = unsafe { load(words, W::inside(*value, W::space_start(0), usize::from(*address as u8))) };
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::look_up::{any_link, gather};
    use super::LpmWord;
    use core::arch::x86_64::*;

    /// # Safety
    /// `words` are an IPv4 table, the slices are of one length.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<W: LpmWord>(words: &[W], addresses: &[u32], values: &mut [u32]) {
        let (bursts, rest) = addresses.as_chunks::<32>();
        let (burst_values, rest_values) = values.as_chunks_mut::<32>();
        for (addresses, values) in bursts.iter().zip(burst_values) {
            // SAFETY: 32 addresses and 32 values, in two halves; the table is the caller's promise.
            unsafe {
                let low = _mm512_loadu_si512(addresses.as_ptr().cast());
                let high = _mm512_loadu_si512(addresses.as_ptr().add(16).cast());
                let [low, high] = sixteens(words, [low, high], [!0; 2]);
                _mm512_storeu_si512(values.as_mut_ptr().cast(), low);
                _mm512_storeu_si512(values.as_mut_ptr().add(16).cast(), high);
            }
        }
        for (addresses, values) in rest.chunks(16).zip(rest_values.chunks_mut(16)) {
            let lanes = !0 >> (16 - addresses.len());
            // SAFETY: only the lanes that there are addresses for are loaded and stored.
            unsafe {
                let found = sixteens(words, [_mm512_maskz_loadu_epi32(lanes, addresses.as_ptr().cast())], [lanes]);
                _mm512_mask_storeu_epi32(values.as_mut_ptr().cast(), lanes, found[0]);
            }
        }
    }

    /// Returns the values of several times 16 addresses, in the `lanes` that are set.
    ///
    /// # Safety
    /// `words` are an IPv4 table.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn sixteens<W: LpmWord, const N: usize>(
        words: &[W],
        addresses: [__m512i; N],
        lanes: [__mmask16; N],
    ) -> [__m512i; N] {
        let mut found = [_mm512_setzero_si512(); N];
        for i in 0..N {
            // SAFETY: 24 bits are within the first level.
            found[i] = unsafe { gather::first(words, _mm512_srli_epi32::<8>(addresses[i]), lanes[i]) };
        }
        if any_link(&found) {
            for i in 0..N {
                let byte = _mm512_and_si512(addresses[i], _mm512_set1_epi32(255));
                // SAFETY: a link leads to a group, and 8 bits are within it.
                found[i] = unsafe { gather::next(words, 0, byte, found[i]) };
            }
        }
        found
    }
}
