//! Reassembly of one direction of a TCP connection.

use std::collections::BTreeMap;

/// Number of bytes after which a chunk is inspected.
pub(super) const CHUNK_LEN: usize = 2560;
/// Number of inspected bytes that are inspected again with those behind them, so that a match may begin in them.
const HISTORY_LEN: usize = CHUNK_LEN;
/// Largest distance of a segment from the next expected byte.
const MAX_AHEAD: u32 = 1 << 20;
/// Largest number of bytes and segments that wait for missing ones; beyond, the gap is skipped.
const MAX_WAITING: usize = 64 * 1024;
const MAX_SEGMENTS: usize = 128;

/// Bytes of a stream that are inspected.
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// Number of the first bytes that have been inspected before.
    pub(super) repeated: usize,
}

/// Copy of the bytes in order for the parser of the application protocol.
#[derive(Default)]
pub(super) struct Tap {
    /// True while bytes are copied.
    pub(super) open: bool,
    pub(super) bytes: Vec<u8>,
    /// True if bytes behind the copied ones are missing.
    pub(super) gap: bool,
}

/// One direction of a TCP connection.
#[derive(Default)]
pub(super) struct Stream {
    /// Sequence number of the next byte, once known.
    next: Option<u32>,
    /// Bytes in order that have not been inspected.
    pub(super) pending: Vec<u8>,
    /// Rules that have matched a packet whose bytes are pending.
    pub(super) matched: Vec<u32>,
    /// The last inspected bytes, directly in front of the pending ones.
    history: Vec<u8>,
    /// Bytes in front of a gap that have not been inspected. Every packet inspects them.
    pub(super) before_gap: Option<Chunk>,
    pub(super) tap: Tap,
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
        // bytes that arrived first stay, also if a longer segment follows
        let waiting = self.waiting.entry(key).or_default();
        if let Some(new) = bytes.get(waiting.len()..) {
            waiting.extend_from_slice(new);
            self.waiting_len += new.len();
        }
        if self.waiting_len > MAX_WAITING || self.waiting.len() > MAX_SEGMENTS {
            self.skip_gap();
        }
        true
    }

    /// Removes and returns the copied bytes up to a sequence number; all of them without one.
    pub(super) fn take_tapped(&mut self, up_to: Option<u32>) -> Vec<u8> {
        let bytes = &mut self.tap.bytes;
        let unacknowledged = match (up_to, self.next) {
            // a number far ahead, or one without a stream, acknowledges all
            (Some(up_to), Some(next)) => match next.wrapping_sub(up_to) {
                behind if behind <= u32::MAX / 2 => (behind as usize).min(bytes.len()),
                _ => 0,
            },
            _ => 0,
        };
        let rest = bytes.split_off(bytes.len() - unacknowledged);
        std::mem::replace(bytes, rest)
    }

    /// Returns true if segments wait for missing bytes.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Removes and returns the bytes that have not been inspected, if there are any.
    pub(super) fn take(&mut self) -> Option<Chunk> {
        if self.pending.is_empty() {
            return None;
        }
        let repeated = self.history.len();
        let mut bytes = std::mem::take(&mut self.history);
        bytes.append(&mut self.pending);
        Some(Chunk { bytes, repeated })
    }

    /// Keeps the end of an inspected chunk for the one behind it.
    pub(super) fn keep(&mut self, chunk: Chunk) {
        self.history = chunk.bytes;
        self.history.drain(..self.history.len().saturating_sub(HISTORY_LEN));
    }

    fn append(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        if self.tap.open && !self.tap.gap {
            self.tap.bytes.extend_from_slice(bytes);
        }
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
            self.before_gap = self.take();
            self.tap.gap = true;
            self.history.clear();
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
        let chunk = stream.take().unwrap();
        assert_eq!((&chunk.bytes[..], chunk.repeated), (&b"abcdef"[..], 0));
        stream.keep(chunk);
        assert!(stream.take().is_none());
        assert!(stream.add(5, b"gh"));
        let chunk = stream.take().unwrap();
        assert_eq!((&chunk.bytes[..], chunk.repeated), (&b"abcdefgh"[..], 6));
        assert!(!stream.add(1 << 30, b"x"));
        for (seq, bytes) in [(9, &b"k"[..]), (9, b"XlXm"), (7, b"ij")] {
            assert!(stream.add(seq, bytes));
        }
        assert_eq!(stream.pending, b"ijklXm");
    }
}
