//! Reassembly of one direction of a TCP connection.

use std::collections::BTreeMap;

/// Number of bytes after which a chunk is inspected.
pub(super) const CHUNK_LEN: usize = 2560;
/// Largest distance of a segment from the next expected byte.
const MAX_AHEAD: u32 = 1 << 20;
/// Largest number of bytes and segments that wait for missing ones; beyond, the gap is skipped.
const MAX_WAITING: usize = 64 * 1024;
const MAX_SEGMENTS: usize = 128;

/// One direction of a TCP connection.
#[derive(Default)]
pub(super) struct Stream {
    /// Sequence number of the next byte, once known.
    next: Option<u32>,
    /// Bytes in order that have not been inspected.
    pub(super) pending: Vec<u8>,
    /// Rules that have matched a packet whose bytes are pending.
    pub(super) matched: Vec<u32>,
    /// Bytes in front of a gap that have not been inspected.
    pub(super) before_gap: Vec<u8>,
    /// Segments by distance from the sequence number at which the gap began.
    waiting: BTreeMap<u32, Vec<u8>>,
    waiting_base: u32,
    waiting_len: usize,
}

impl Stream {
    pub(super) fn start(&mut self, next: u32) {
        if self.next.is_none() {
            self.next = Some(next);
        }
    }

    /// Adds a segment and returns true if it is part of the stream.
    pub(super) fn add(&mut self, seq: u32, bytes: &[u8]) -> bool {
        let Some(next) = self.next else { return false };
        let ahead = seq.wrapping_sub(next);
        if ahead == 0 || ahead > u32::MAX / 2 {
            let known = next.wrapping_sub(seq);
            if known > MAX_AHEAD {
                return false;
            }
            if let Some(new) = bytes.get(known as usize..) {
                self.append(new);
            }
            self.fill();
            return true;
        }
        if ahead > MAX_AHEAD {
            return false;
        }
        if self.waiting.is_empty() {
            self.waiting_base = next;
        }
        let key = seq.wrapping_sub(self.waiting_base);
        if let std::collections::btree_map::Entry::Vacant(entry) = self.waiting.entry(key) {
            entry.insert(bytes.to_vec());
            self.waiting_len += bytes.len();
        }
        if self.waiting_len > MAX_WAITING || self.waiting.len() > MAX_SEGMENTS {
            self.skip_gap();
        }
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        self.next = self.next.map(|next| next.wrapping_add(bytes.len() as u32));
    }

    /// Appends waiting segments that are in order now.
    fn fill(&mut self) {
        while let Some((key, _)) = self.waiting.first_key_value() {
            let seq = self.waiting_base.wrapping_add(*key);
            let known = self.next.unwrap_or(0).wrapping_sub(seq);
            if known > u32::MAX / 2 {
                break;
            }
            let Some((_, bytes)) = self.waiting.pop_first() else { break };
            self.waiting_len -= bytes.len();
            if let Some(new) = bytes.get(known as usize..) {
                self.append(new);
            }
        }
    }

    /// Continues behind the missing bytes; bytes on both sides are not joined.
    fn skip_gap(&mut self) {
        if let Some((key, _)) = self.waiting.first_key_value() {
            self.next = Some(self.waiting_base.wrapping_add(*key));
            self.before_gap.append(&mut self.pending);
            self.before_gap.truncate(MAX_WAITING);
            self.fill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_segments_and_skips_known_bytes() {
        let mut stream = Stream::default();
        assert!(!stream.add(1, b"x"));
        stream.start(u32::MAX);
        for (seq, bytes) in [(3, &b"ef"[..]), (u32::MAX, b"ab"), (0, b"bc"), (1, b"cde")] {
            assert!(stream.add(seq, bytes));
        }
        assert_eq!(stream.pending, b"abcdef");
        assert!(!stream.add(1 << 30, b"x"));
    }
}
