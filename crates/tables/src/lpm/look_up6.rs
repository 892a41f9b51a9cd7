//! Look-ups of IPv6 addresses: a burst goes down the levels in step, and ends when its last address has its answer.

use super::address::Family;
use super::look_up::load;
use super::words::LpmWord;
use super::{Isa, LINK};

/// # Safety
/// `words` are an IPv6 table, the processor has `isa`, the slices are of one length.
#[inline(always)]
pub(super) unsafe fn look_up<W: LpmWord>(words: &[W], isa: Isa, addresses: &[u128], values: &mut [u32]) {
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
/// `words` are an IPv6 table.
unsafe fn scalar<W: LpmWord>(words: &[W], addresses: &[u128], values: &mut [u32]) {
    for (addresses, values) in addresses.chunks(32).zip(values.chunks_mut(32)) {
        for (address, value) in addresses.iter().zip(&mut *values) {
            // SAFETY: 24 bits are within the first level.
            *value = unsafe { load(words, address.top()) };
        }
        // SAFETY: these are words of the first level.
        unsafe { go_on(words, addresses, values, 1) };
    }
}

/// Returns the space of the groups of a level, from 1.
#[inline(always)]
const fn space(level: usize) -> usize {
    (level - 1) % <u128 as Family>::SPACES
}

/// Follows the links in `values` from `level` down.
///
/// # Safety
/// `values` are what was found above `level` of an IPv6 table.
#[inline(never)]
unsafe fn go_on<W: LpmWord>(words: &[W], addresses: &[u128], values: &mut [u32], level: usize) {
    for level in level.. {
        let mut any = 0;
        let start = W::space_start(space(level));
        for (address, value) in addresses.iter().zip(&mut *values) {
            if *value & LINK != 0 {
                // SAFETY: a link leads to a group, and 8 bits are within it; it is of this level, and the last has none.
                *value = unsafe { load(words, W::inside(*value, start, address.byte(level))) };
                any |= *value;
            }
        }
        if any & LINK == 0 {
            break;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::look_up::{any_link, gather};
    use super::{LpmWord, go_on, scalar, space};
    use core::arch::x86_64::*;

    /// Below so many addresses, one at a time is faster.
    const FEW: usize = 6;

    /// # Safety
    /// `words` are an IPv6 table, the slices are of one length.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<W: LpmWord>(words: &[W], addresses: &[u128], values: &mut [u32]) {
        let (bursts, rest) = addresses.as_chunks::<32>();
        let (burst_values, rest_values) = values.as_chunks_mut::<32>();
        for (addresses, values) in bursts.iter().zip(burst_values) {
            // SAFETY: the caller's promise.
            unsafe { sixteens(words, [&addresses[..16], &addresses[16..]], values) };
        }
        for (addresses, values) in rest.chunks(16).zip(rest_values.chunks_mut(16)) {
            // SAFETY: the caller's promise.
            unsafe {
                if addresses.len() < FEW {
                    scalar(words, addresses, values);
                } else {
                    sixteens(words, [addresses], values);
                }
            }
        }
    }

    /// Returns the four addresses from the `from`th on, as far as they are there, and zeros.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn four(addresses: &[u128], from: usize) -> __m512i {
        let there = addresses.len().saturating_sub(from).min(4);
        let halves = ((1u32 << (2 * there)) - 1) as __mmask8;
        // SAFETY: only the halves of addresses that are there are loaded.
        unsafe { _mm512_maskz_loadu_epi64(halves, addresses.as_ptr().wrapping_add(from).cast()) }
    }

    /// Returns the two upper words of up to 16 addresses: the top one, and the one below it.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn upper(addresses: &[u128]) -> [__m512i; 2] {
        let halves = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let a = _mm512_permutex2var_epi64(four(addresses, 0), halves, four(addresses, 4));
        let b = _mm512_permutex2var_epi64(four(addresses, 8), halves, four(addresses, 12));
        let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        [_mm512_permutex2var_epi32(a, odd, b), _mm512_permutex2var_epi32(a, even, b)]
    }

    /// Splits into groups of 16 addresses; the last may be shorter.
    ///
    /// # Safety
    /// `words` are an IPv6 table, there are as many values as addresses.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn sixteens<W: LpmWord, const N: usize>(words: &[W], addresses: [&[u128]; N], values: &mut [u32]) {
        let mut bits = [[_mm512_setzero_si512(); 2]; N];
        let mut lanes: [__mmask16; N] = [!0; N];
        let mut found = [_mm512_setzero_si512(); N];
        // Loops over indices, no closures: those would be functions of their own, without the instructions.
        for i in 0..N {
            bits[i] = upper(addresses[i]);
            lanes[i] >>= 16 - addresses[i].len();
            // SAFETY: 24 bits are within the first level.
            found[i] = unsafe { gather::first(words, _mm512_srli_epi32::<8>(bits[i][0]), lanes[i]) };
        }
        macro_rules! level {
            ($level:literal, $word:literal, $shift:literal) => {
                if any_link(&found) {
                    for i in 0..N {
                        let shifted = _mm512_srli_epi32::<$shift>(bits[i][$word]);
                        let byte = _mm512_and_si512(shifted, _mm512_set1_epi32(255));
                        // SAFETY: a link leads to a group, and 8 bits are within it.
                        found[i] = unsafe { gather::next(words, space($level), byte, found[i]) };
                    }
                }
            };
        }
        level!(1, 0, 0);
        level!(2, 1, 24);
        level!(3, 1, 16);
        level!(4, 1, 8);
        level!(5, 1, 0);
        for i in 0..N {
            // SAFETY: as many values as addresses, in sixteens.
            unsafe { _mm512_mask_storeu_epi32(values.as_mut_ptr().add(16 * i).cast(), lanes[i], found[i]) };
        }
        if any_link(&found) {
            // Behind 64 bits: few routes are so long.
            for (addresses, values) in addresses.into_iter().zip(values.chunks_mut(16)) {
                // SAFETY: five levels were passed.
                unsafe { go_on(words, addresses, values, 6) };
            }
        }
    }
}
