//! Saved tables. All numbers have their least byte first:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `bondexct` |
//! | 4 | version of the format: 1 |
//! | 4 | bits of a key: 48, 64 or 144 |
//! | 8 | number of entries |
//! | 8, 12 or 22 for each entry, in no order | key, value (2 bytes with keys of 48 bits, otherwise 4) |
//! | 8 | FNV-1a, 64 bits, of all bytes before it |
//!
//! Neither seed nor places are in it: who loads a table hashes anew.

use super::{CuckooTable, Key, LoadError, Settings};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

const MAGIC: [u8; 8] = *b"bondexct";
const VERSION: u32 = 1;
const HEADER: usize = 24;
/// Bytes of the longest entry.
const ENTRY: usize = 22;
const BUFFER: usize = 1 << 18;

/// FNV-1a.
#[derive(Clone, Copy)]
struct Checksum(u64);

impl Checksum {
    const NEW: Self = Self(0xcbf2_9ce4_8422_2325);

    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    }
}

/// Returns the bytes of an entry.
fn entry_bytes<K: Key>() -> usize {
    K::BYTES + size_of::<K::Value>()
}

/// Fills a buffer; an early end is damage.
fn exactly(from: &mut impl Read, bytes: &mut [u8]) -> Result<(), LoadError> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => LoadError::Damaged { what: "it ends early" },
        _ => LoadError::Read(error),
    })
}

impl<K: Key> CuckooTable<K> {
    /// Writes all entries in the format of which the table is in `exact/file.rs`: 32 bytes, and 8 for each entry with a key
    /// of 48 bits, 12 with 64, 22 with 144.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn save(&self, to: impl Write) -> io::Result<()> {
        let mut to = BufWriter::with_capacity(BUFFER, to);
        let mut sum = Checksum::NEW;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&K::BITS.to_le_bytes());
        header[16..].copy_from_slice(&self.len().to_le_bytes());
        sum.add(&header);
        to.write_all(&header)?;
        let mut bytes = [0; ENTRY];
        let bytes = &mut bytes[..entry_bytes::<K>()];
        for (key, value) in self.iter() {
            let (key_bytes, value_bytes) = bytes.split_at_mut(K::BYTES);
            key.save(key_bytes);
            let value: u32 = value.into();
            value_bytes.copy_from_slice(&value.to_le_bytes()[..value_bytes.len()]);
            sum.add(bytes);
            to.write_all(bytes)?;
        }
        to.write_all(&sum.0.to_le_bytes())?;
        to.flush()
    }

    /// A new table with the entries of a saved one, made for `settings.entries` or for as many as were saved if that is
    /// more; `progress` is told how many are done each 1,048,576 and at the end. Whatever the bytes are, it takes no more
    /// memory than the settings allow.
    ///
    /// # Errors
    /// Corruption of the file, [`LoadError::Entries`] above `settings.most`, or an entry that found no room.
    pub fn load(settings: &Settings, from: impl Read, mut progress: impl FnMut(u64)) -> Result<Self, LoadError> {
        let mut from = BufReader::with_capacity(BUFFER, from);
        let mut header = [0; HEADER];
        exactly(&mut from, &mut header)?;
        let mut sum = Checksum::NEW;
        sum.add(&header);
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..8] != MAGIC {
            return Err(LoadError::Format { what: "it begins otherwise" });
        }
        if word(8) != VERSION {
            return Err(LoadError::Format { what: "its version is not 1" });
        }
        if word(12) != K::BITS {
            return Err(LoadError::Keys { found: word(12), wanted: K::BITS });
        }
        let count = u64::from(word(16)) | u64::from(word(20)) << 32;
        let most = settings.most.max(settings.entries);
        if count > most {
            return Err(LoadError::Entries { found: count, most });
        }
        let mut table = Self::new(&Settings { entries: settings.entries.max(count), ..settings.clone() })?;
        let mut error = None;
        let mut bytes = [0; ENTRY];
        let bytes = &mut bytes[..entry_bytes::<K>()];
        let entries = core::iter::from_fn(|| {
            if let Err(why) = exactly(&mut from, bytes) {
                error = Some(why);
                return None;
            }
            sum.add(bytes);
            let (key, value) = bytes.split_at(K::BYTES);
            let value = value.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
            Some((K::load(key), K::value(value)))
        });
        table.extend(entries.take(count as usize), &mut progress)?;
        if let Some(error) = error {
            return Err(error);
        }
        if table.len() != count {
            return Err(LoadError::Damaged { what: "a key comes twice" });
        }
        let mut saved = [0; 8];
        exactly(&mut from, &mut saved)?;
        if u64::from_le_bytes(saved) != sum.0 {
            return Err(LoadError::Damaged { what: "its checksum is wrong" });
        }
        if !from.fill_buf()?.is_empty() {
            return Err(LoadError::Damaged { what: "something follows its end" });
        }
        Ok(table)
    }
}
