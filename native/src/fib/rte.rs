//! DPDK's hash table with the same entries.

use crate::inputs::Numbered;
use anyhow::{Context, ensure};
use core::ffi::{c_int, c_void};

unsafe extern "C" {
    fn native_hash_new(entries: u32, key_len: u32) -> *mut c_void;
    fn native_hash_free(hash: *mut c_void);
    fn native_hash_add(hash: *mut c_void, key: *const u8, value: u64) -> c_int;
    fn native_hash_found(hash: *const c_void, keys: *const u8, n: u32, sum: *mut u64) -> u32;
}

/// An `rte_hash` that nobody changes any more.
pub(crate) struct RteHash(*mut c_void);

// SAFETY: look-ups of a table made without flags only read it, and nothing writes after `new`.
unsafe impl Sync for RteHash {}

impl Drop for RteHash {
    fn drop(&mut self) {
        // SAFETY: made by `native_hash_new`, and nobody has it any more.
        unsafe { native_hash_free(self.0) }
    }
}

impl RteHash {
    /// The entries of numbers 0 to `entries`.
    ///
    /// # Errors
    /// When DPDK has no memory for it, or a key has more than eight bytes.
    pub(crate) fn new<K: Numbered>(entries: u64) -> anyhow::Result<Self> {
        let capacity = u32::try_from(entries).context("rte_hash counts its entries in 32 bits")?;
        // SAFETY: plain numbers; the EAL runs.
        let hash = RteHash(unsafe { native_hash_new(capacity, size_of::<u64>() as u32) });
        ensure!(!hash.0.is_null(), "no memory in huge pages for an rte_hash of {entries} keys");
        for n in 0..entries {
            let value: u32 = K::value_of(n).into();
            let key = K::number(n).word().context("keys of eight bytes only")?;
            // SAFETY: the table of above, and eight bytes.
            let rc = unsafe { native_hash_add(hash.0, key.to_ne_bytes().as_ptr(), value.into()) };
            ensure!(rc == 0, "rte_hash takes {n} of {entries} keys");
        }
        Ok(hash)
    }

    /// How many of so many keys it has: a multiple of 32.
    pub(crate) fn look_up(&self, keys: &[u64], sum: &mut u64) -> usize {
        assert!(keys.len().is_multiple_of(32), "whole bursts");
        // SAFETY: the table of above, which nobody changes; as many keys as it is told.
        unsafe { native_hash_found(self.0, keys.as_ptr().cast(), keys.len() as u32, sum) as usize }
    }
}
