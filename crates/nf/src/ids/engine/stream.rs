//! Reassembly of one direction of a TCP connection.

use super::candidates::Candidates;
use streams::window::Overlap;

/// Number of bytes after which a chunk is inspected.
pub(super) const CHUNK_LEN: usize = 2560;
/// Number of inspected bytes that are inspected again with those behind them, so that a match may begin in them.
const HISTORY_LEN: usize = CHUNK_LEN;
/// Largest distance of a segment from the next expected byte.
const MAX_AHEAD: u32 = 1 << 20;
/// Largest number of bytes and segments that wait for missing ones; beyond, the gap is skipped.
const MAX_WAITING: usize = 64 * 1024;
const MAX_SEGMENTS: usize = 128;
/// Largest number of rules whose pattern is in the history; beyond, the history is searched again.
const MAX_HITS: usize = 256;

/// Bytes of a stream that are inspected.
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// Number of the first bytes that have been inspected before.
    pub(super) repeated: usize,
    /// Number of bytes of the stream up to the end of the chunk.
    pub(super) end: u64,
}

/// Capacity of a buffer that is kept for later bytes.
const KEPT_CAPACITY: usize = 4 * CHUNK_LEN;

/// Rules whose pattern is in the history.
#[derive(Default)]
pub(super) struct Hits {
    /// Set of rules that was searched for, 0 at first.
    rule_set: u64,
    incomplete: bool,
    /// Each rule with the number of bytes of the stream by which its pattern had been found.
    rules: Vec<(u32, u64)>,
}

impl Hits {
    /// Returns true if the history has been searched for this set of rules.
    pub(super) fn start(&mut self, rule_set: u64) -> bool {
        let known = self.rule_set == rule_set && !self.incomplete;
        if !known {
            self.rules.clear();
            (self.rule_set, self.incomplete) = (rule_set, false);
        }
        known
    }

    /// Adds the candidates that a search of the end of a chunk has found and that stay candidates for later chunks, and adds
    /// those of the history to the candidates.
    pub(super) fn update(&mut self, end: u64, len: usize, candidates: &mut Candidates, stays: impl Fn(u32) -> bool) {
        let start = end.saturating_sub(len as u64);
        self.rules.retain(|(rule, until)| *until > start && !candidates.contains(*rule));
        let known = self.rules.len();
        self.rules.extend(candidates.as_slice().iter().filter(|rule| stays(**rule)).map(|rule| (*rule, end)));
        self.rules.iter().take(known).for_each(|(rule, _)| candidates.insert(*rule));
        if self.rules.len() > MAX_HITS {
            self.rules = vec![];
            self.incomplete = true;
        }
    }
}

/// A segment that waits for missing bytes.
struct Segment {
    seq: u32,
    bytes: Vec<u8>,
}

impl Segment {
    /// Returns the position of the first byte behind the segment, relative to a sequence number that is not behind it.
    fn end(&self, from: u32) -> usize {
        self.seq.wrapping_sub(from) as usize + self.bytes.len()
    }
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
    /// Sequence number of the first byte.
    first: u32,
    /// Size when the stream was given up.
    last_size: u32,
    /// True if the bytes are not reassembled any more.
    given_up: bool,
    /// Bytes in order that have not been inspected.
    pub(super) pending: Vec<u8>,
    /// Number of bytes in front of the pending ones.
    taken: u64,
    /// Identifiers of rules that have matched a packet whose bytes are pending.
    pub(super) matched: Vec<u32>,
    pub(super) hits: Hits,
    /// The last inspected bytes, directly in front of the pending ones.
    history: Vec<u8>,
    /// Bytes in front of a gap that have not been inspected. Every packet inspects them.
    pub(super) before_gap: Option<Chunk>,
    pub(super) tap: Tap,
    /// Segments behind missing bytes, in the order of arrival.
    waiting: Vec<Segment>,
    waiting_len: usize,
    /// Number of segments in succession that were too far ahead.
    far: usize,
}

impl Stream {
    pub(super) fn start(&mut self, next: u32) {
        if self.next.is_none() && !self.given_up {
            (self.next, self.first) = (Some(next), next);
        }
    }

    /// Returns the number of sequence numbers that were reassembled, from that of the SYN on; 0 without a stream.
    pub(super) fn size(&self) -> u32 {
        self.next.map_or(self.last_size, |next| next.wrapping_sub(self.first).wrapping_add(1))
    }

    /// Returns the number of bytes that are kept.
    pub(super) fn len(&self) -> usize {
        let waiting = self.waiting_len + self.waiting.len() * size_of::<Segment>();
        self.pending.len() + self.history.len() + waiting + self.tap.bytes.len()
    }

    /// Frees what waits and what has been inspected, and adds no further segment. Returns true the first time.
    pub(super) fn give_up(&mut self) -> bool {
        if self.given_up {
            return false;
        }
        self.before_gap = self.take();
        self.tap.gap |= self.tap.open;
        self.last_size = self.size();
        (self.next, self.given_up) = (None, true);
        (self.waiting, self.waiting_len, self.history) = (vec![], 0, vec![]);
        true
    }

    /// Sets the sequence number of the first byte to that which the receiver has acknowledged.
    pub(super) fn restart(&mut self, next: u32) {
        if !self.given_up && self.taken == 0 && self.pending.is_empty() {
            (self.next, self.first) = (Some(next), next);
        }
    }

    /// Returns true if the receiver may accept a reset or FIN with this sequence number (RFC 5961 §3.2). Without `strict`,
    /// bytes that were not seen may be missing.
    pub(super) fn accepts_end(&self, seq: u32, strict: bool) -> bool {
        let Some(next) = self.next else { return true };
        let (ahead, behind) = (seq.wrapping_sub(next), next.wrapping_sub(seq));
        if strict { ahead <= 1 || self.is_waiting() } else { ahead.min(behind) <= MAX_AHEAD }
    }

    /// Adds a segment and returns true if it is part of the stream. `overlap` is the choice of bytes where waiting
    /// segments overlap.
    pub(super) fn add(&mut self, seq: u32, bytes: &[u8], overlap: Overlap) -> bool {
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
            self.far = 0;
            self.fill(overlap);
            return true;
        }
        if ahead > MAX_AHEAD {
            // one may be forged; after many, bytes were not seen
            self.far += 1;
            if self.far <= MAX_SEGMENTS {
                return false;
            }
            (self.far, self.before_gap) = (0, self.take());
            (self.waiting, self.waiting_len, self.history) = (vec![], 0, vec![]);
            self.tap.gap = true;
            self.next = Some(seq);
            self.append(bytes);
            return true;
        }
        self.far = 0;
        if !self.waiting.iter().any(|other| other.seq == seq && other.bytes == bytes) {
            self.waiting.push(Segment { seq, bytes: bytes.to_vec() });
            self.waiting_len += bytes.len();
        }
        if self.waiting_len > MAX_WAITING || self.waiting.len() > MAX_SEGMENTS {
            self.skip_gap(overlap);
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
        self.taken += self.pending.len() as u64;
        bytes.append(&mut self.pending);
        if self.pending.capacity() > KEPT_CAPACITY {
            self.pending = vec![];
        }
        Some(Chunk { bytes, repeated, end: self.taken })
    }

    /// Keeps the end of an inspected chunk for the one behind it.
    pub(super) fn keep(&mut self, chunk: Chunk) {
        if self.given_up {
            return;
        }
        let mut bytes = chunk.bytes;
        let from = bytes.len().saturating_sub(HISTORY_LEN);
        self.history = if bytes.capacity() > KEPT_CAPACITY {
            bytes.get(from..).unwrap_or_default().to_vec()
        } else {
            bytes.drain(..from);
            bytes
        };
    }

    fn append(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        if self.tap.open && !self.tap.gap {
            self.tap.bytes.extend_from_slice(bytes);
        }
        self.next = self.next.map(|next| next.wrapping_add(bytes.len() as u32));
    }

    /// Appends waiting segments that are in order now.
    fn fill(&mut self, overlap: Overlap) {
        let Some(next) = self.next.filter(|_| !self.waiting.is_empty()) else { return };
        // all waiting segments begin at most MAX_AHEAD and a segment in front of the next byte
        let base = next.wrapping_sub(2 * MAX_AHEAD);
        let start = (2 * MAX_AHEAD) as usize;
        let at = |segment: &Segment| segment.seq.wrapping_sub(base) as usize;
        let mut end = start;
        while let Some(further) =
            self.waiting.iter().filter(|s| at(s) <= end).map(|s| s.end(base)).max().filter(|further| *further > end)
        {
            end = further;
        }
        let (mut run, waiting): (Vec<Segment>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(|s| at(s) <= end && s.end(base) <= end);
        self.waiting = waiting;
        self.waiting_len = self.waiting.iter().map(|s| s.bytes.len()).sum();
        // those that take precedence are written last
        match overlap {
            Overlap::First => run.reverse(),
            Overlap::Last => {}
            Overlap::Linux => {
                run.reverse();
                run.sort_by_key(|s| (std::cmp::Reverse(at(s)), s.bytes.len()));
            }
        }
        let mut bytes = vec![0; end - start];
        for segment in &run {
            let from = at(segment);
            let known = start.saturating_sub(from);
            let new = segment.bytes.get(known..).unwrap_or_default();
            let to = (from + known).saturating_sub(start);
            if let Some(to) = bytes.get_mut(to..to + new.len()) {
                to.copy_from_slice(new);
            }
        }
        self.append(&bytes);
    }

    /// Continues behind the missing bytes; bytes on both sides are not joined.
    fn skip_gap(&mut self, overlap: Overlap) {
        let next = self.next.unwrap_or(0);
        if let Some(first) = self.waiting.iter().map(|s| s.seq.wrapping_sub(next)).min() {
            self.next = Some(next.wrapping_add(first));
            self.before_gap = self.take();
            self.tap.gap = true;
            self.history.clear();
            self.fill(overlap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_segments_and_skips_known_bytes() {
        let mut stream = Stream::default();
        let add = |stream: &mut Stream, seq, bytes: &[u8]| stream.add(seq, bytes, Overlap::First);
        assert!(!add(&mut stream, 1, b"x"));
        stream.start(u32::MAX);
        for (seq, bytes) in [(3, &b"ef"[..]), (u32::MAX, b"ab"), (0, b"bc"), (1, b"cde")] {
            assert!(add(&mut stream, seq, bytes));
        }
        assert_eq!(stream.pending, b"abcdef");
        let chunk = stream.take().unwrap();
        assert_eq!((&chunk.bytes[..], chunk.repeated), (&b"abcdef"[..], 0));
        stream.keep(chunk);
        assert!(stream.take().is_none());
        assert!(add(&mut stream, 5, b"gh"));
        let chunk = stream.take().unwrap();
        assert_eq!((&chunk.bytes[..], chunk.repeated), (&b"abcdefgh"[..], 6));
        assert!(!add(&mut stream, 1 << 30, b"x"));
        for (seq, bytes) in [(9, &b"k"[..]), (9, b"XlXm"), (7, b"ij")] {
            assert!(add(&mut stream, seq, bytes));
        }
        assert_eq!(stream.pending, b"ijklXm");
        assert_eq!(stream.waiting_len, 0);
    }

    #[test]
    fn chooses_bytes_by_the_policy() {
        let segments = [(12, &b"cc"[..]), (14, b"CC"), (12, b"BBB"), (10, b"ab")];
        for (overlap, expected) in
            [(Overlap::First, b"abccCC"), (Overlap::Last, b"abBBBC"), (Overlap::Linux, b"abBBBC")]
        {
            let mut stream = Stream::default();
            stream.start(10);
            for (seq, bytes) in segments {
                stream.add(seq, bytes, overlap);
            }
            assert_eq!(stream.pending, expected, "{overlap:?}");
        }
    }

    proptest! {
        /// Segments of a text in any order, against the text.
        #[test]
        fn segments_in_any_order_are_the_text(
            start in any::<u32>(),
            cuts in prop::collection::vec((0usize..200, 1usize..40), 0..60),
        ) {
            let text: Vec<u8> = (0..240).map(|n| (n * 7 % 251) as u8).collect();
            let mut stream = Stream::default();
            stream.start(start);
            let mut known = [false; 240];
            for (at, len) in cuts {
                stream.add(start.wrapping_add(at as u32), &text[at..at + len], Overlap::Linux);
                known[at..at + len].fill(true);
                let prefix = known.iter().take_while(|known| **known).count();
                prop_assert_eq!(&stream.pending, &text[..prefix]);
            }
        }
    }
}
