//! Instruction sets of a lookup, and code shared by both families.

#[cfg(target_arch = "x86_64")]
use super::LINK;
use super::words::LpmWord;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m512i, _mm512_or_si512, _mm512_set1_epi32, _mm512_test_epi32_mask};
use std::sync::atomic::Ordering;

/// The instructions that a reader uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// One address at a time; loads of a burst overlap as far as the processor looks ahead.
    Scalar,
    /// Sixteen addresses at a time, by gathers of AVX-512. Where the kernel says `Mitigation: Microcode` in
    /// `/sys/devices/system/cpu/vulnerabilities/gather_data_sampling`, gathers are slow: measure [`Scalar`](Isa::Scalar) too.
    Avx512,
}

impl Isa {
    /// All, narrowest first.
    pub const ALL: [Isa; 2] = [Isa::Scalar, Isa::Avx512];

    /// Returns true if the processor supports it.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512 => false,
        }
    }

    /// Returns the fastest one, as measured, of those that the processor supports. Gathers of AVX2 were measured too and left out: on a processor
    /// with AVX-512 they are between the two, and those without it gather slowly.
    #[must_use]
    pub fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.is_here()).unwrap_or(Isa::Scalar)
    }
}

/// Loads one word.
///
/// # Safety
/// `index` is within `words`.
#[inline(always)]
pub(super) unsafe fn load<W: LpmWord>(words: &[W], index: usize) -> u32 {
    debug_assert!(index < words.len());
    // SAFETY: the caller's promise. Acquire: the group that a link leads to is seen filled; a plain load on x86.
    unsafe { words.get_unchecked(index) }.load(Ordering::Acquire)
}

/// Returns true if a link is among `found`.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn any_link<const N: usize>(found: &[__m512i; N]) -> bool {
    let mut any = found[0];
    for more in &found[1..] {
        any = _mm512_or_si512(any, *more);
    }
    _mm512_test_epi32_mask(any, _mm512_set1_epi32(LINK as i32)) != 0
}

/// Gathers of words.
///
/// They are assembly because they race with the writer's stores by design: the compiler takes each for
/// atomic loads of an unknown function, whereas the intrinsics are ordinary loads, which must not race. The processor loads
/// an aligned word whole, and later loads that depend on it later. Of narrow words an aligned pair is loaded, and the one
/// that is not wanted is shifted out.
#[cfg(target_arch = "x86_64")]
pub(super) mod gather {
    use super::super::LINK;
    use super::super::words::LpmWord;
    use core::arch::asm;
    use core::arch::x86_64::*;

    /// Returns the true if a gather of 32 bits reads two words.
    const fn paired<W: LpmWord>() -> bool {
        W::BITS < 16
    }

    /// For words of a pair: by how much to shift the pair left, so that the one at `index` is its upper half.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn shift(index: __m512i) -> __m512i {
        _mm512_andnot_si512(_mm512_slli_epi32::<4>(index), _mm512_set1_epi32(16))
    }

    /// Gathers the words at `index` in those of 16 `lanes` that are set; 0 in the others.
    ///
    /// # Safety
    /// `index` is within `words` in each of those lanes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in super::super) unsafe fn first<W: LpmWord>(words: &[W], index: __m512i, lanes: __mmask16) -> __m512i {
        let mut found = _mm512_set1_epi32(0);
        // SAFETY: only words of the table are loaded, by the caller's promise; the table's length is even.
        unsafe {
            asm!(
                "vpgatherdd ({base},{index},4), {found}{{{lanes}}}",
                found = inout(zmm_reg) found,
                lanes = inout(kreg) lanes => _,
                base = in(reg) words.as_ptr(),
                index = in(zmm_reg) if paired::<W>() { _mm512_srli_epi32::<1>(index) } else { index },
                options(att_syntax, readonly, nostack, preserves_flags),
            );
        }
        if paired::<W>() { _mm512_srai_epi32::<16>(_mm512_sllv_epi32(found, shift(index))) } else { found }
    }

    /// Follows links in 16 lanes to groups of a space: returns the word of the linked group that `byte` selects; `found`
    /// in the other lanes.
    ///
    /// # Safety
    /// A link leads to a group of `words`, and `byte` is below 256.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in super::super) unsafe fn next<W: LpmWord>(
        words: &[W],
        space: usize,
        byte: __m512i,
        mut found: __m512i,
    ) -> __m512i {
        let group = _mm512_and_si512(found, _mm512_set1_epi32(W::MAX as i32));
        let byte = _mm512_add_epi32(byte, _mm512_set1_epi32(W::space_start(space) as i32));
        let link = _mm512_set1_epi32(LINK as i32);
        // The mask is made here because the compiler would take it through a general register.
        if paired::<W>() {
            // SAFETY: only words of the table are loaded, by the caller's promise; the table's length is even.
            unsafe {
                asm!(
                    "vptestmd {link}, {found}, {lanes}",
                    "kmovw {lanes}, {which}",
                    "vpgatherdd ({base},{index},4), {pair}{{{lanes}}}",
                    "vpsllvd {shift}, {pair}, {pair}",
                    "vpsrad $16, {pair}, {found}{{{which}}}",
                    found = inout(zmm_reg) found,
                    lanes = out(kreg) _,
                    which = out(kreg) _,
                    link = in(zmm_reg) link,
                    base = in(reg) words.as_ptr(),
                    index = in(zmm_reg) _mm512_add_epi32(_mm512_slli_epi32::<7>(group), _mm512_srli_epi32::<1>(byte)),
                    shift = in(zmm_reg) shift(byte),
                    pair = inout(zmm_reg) _mm512_setzero_si512() => _,
                    options(att_syntax, readonly, nostack, preserves_flags),
                );
            }
        } else {
            // SAFETY: only words of the table are loaded, by the caller's promise.
            unsafe {
                asm!(
                    "vptestmd {link}, {found}, {lanes}",
                    "vpgatherdd ({base},{index},4), {found}{{{lanes}}}",
                    found = inout(zmm_reg) found,
                    lanes = out(kreg) _,
                    link = in(zmm_reg) link,
                    base = in(reg) words.as_ptr(),
                    index = in(zmm_reg) _mm512_add_epi32(_mm512_slli_epi32::<8>(group), byte),
                    options(att_syntax, readonly, nostack, preserves_flags),
                );
            }
        }
        found
    }
}
