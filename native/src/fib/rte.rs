//! DPDK's hash table.

use crate::inputs::Numbered;
use anyhow::{Context, ensure};
use core::ffi::{c_int, c_void};

unsafe extern "C" {
    fn native_hash_new(entries: u32, key_len: u32) -> *mut c_void;
    fn native_hash_free(hash: *mut c_void);
    fn native_hash_add(hash: *mut c_void, key: *const u8, value: u64) -> c_int;
    fn native_hash_found(hash: *const c_void, keys: *const u8, n: u32, sum: *mut u64) -> u32;
}

/// A read-only `rte_hash`.
pub(crate) struct RteHash(*mut c_void);

// SAFETY: look-ups of a table made without flags only read it, and nothing writes after `new`.
unsafe impl Sync for RteHash {}

impl Drop for RteHash {
    fn drop(&mut self) {
        // SAFETY: created by `native_hash_new` and freed once.
        unsafe { native_hash_free(self.0) }
    }
}

impl RteHash {
    /// Creates a table of entries 0 to `entries`, exclusive.
    ///
    /// # Errors
    /// If DPDK cannot allocate the table, or a key has more than eight bytes.
    pub(crate) fn new<K: Numbered>(entries: u64) -> anyhow::Result<Self> {
        let capacity = u32::try_from(entries).context("rte_hash supports 32-bit numbers of entries")?;
        // SAFETY: no pointers are passed; the EAL is initialised.
        let hash = RteHash(unsafe { native_hash_new(capacity, size_of::<u64>() as u32) });
        ensure!(!hash.0.is_null(), "cannot allocate an rte_hash of {entries} keys in huge pages");
        for n in 0..entries {
            let value: u32 = K::value_of(n).into();
            let key = K::number(n).word().context("keys of eight bytes only")?;
            // SAFETY: a live table and a key of eight bytes.
            let rc = unsafe { native_hash_add(hash.0, key.to_ne_bytes().as_ptr(), value.into()) };
            ensure!(rc == 0, "rte_hash rejects key {n} of {entries}");
        }
        Ok(hash)
    }

    /// Returns the number of keys that are found; `keys` are whole bursts of 32.
    pub(crate) fn look_up(&self, keys: &[u64], sum: &mut u64) -> usize {
        assert!(keys.len().is_multiple_of(32), "whole bursts");
        // SAFETY: a live table that is not modified, and the given number of keys.
        unsafe { native_hash_found(self.0, keys.as_ptr().cast(), keys.len() as u32, sum) as usize }
    }
}
