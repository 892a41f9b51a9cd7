//! Datagrams of one direction of a flow, delivered whole and in order of arrival.

use super::stream_state::{Chunk, ChunkSink, Fed, Segment, Shared, StreamState};

/// One direction of a UDP flow.
#[derive(Default)]
pub(super) struct Datagrams {
    /// Bytes so far; wraps.
    next: u32,
    open: bool,
}

impl StreamState for Datagrams {
    #[inline(always)]
    fn feed(&mut self, _: &Segment, payload: &[u8], desk: &mut Shared<'_>, out: &mut impl ChunkSink) -> Fed {
        self.open = true;
        self.next = self.next.wrapping_add(payload.len() as u32);
        // an empty datagram is a message too
        out(desk.memory, Chunk::Bytes(payload));
        Fed { end: self.next, unseen: false }
    }

    #[inline(always)]
    fn is_open(&self) -> bool {
        self.open
    }

    #[inline(always)]
    fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::memory::Memory;
    use crate::window::overlap::Overlap;
    use crate::window::stream_state::{Limits, StreamCounts};

    #[test]
    fn each_is_given_whole_empty_ones_too() {
        let (mut memory, mut tally) = (Memory::new(0, 0, 0), StreamCounts::default());
        let rules = Limits { overlap: Overlap::First, pieces: 0, strict: false };
        let mut half = Datagrams::default();
        let mut got: Vec<Vec<u8>> = vec![];
        for payload in [&b"one"[..], b"", b"three"] {
            let mut desk = Shared { rules: &rules, memory: &mut memory, tally: &mut tally, now: 0 };
            let fed = half.feed(&Segment::default(), payload, &mut desk, &mut |_: &mut Memory, chunk: Chunk<'_>| {
                let Chunk::Bytes(bytes) = chunk else { panic!("{chunk:?}") };
                got.push(bytes.to_vec());
                true
            });
            assert!(!fed.unseen);
            assert_eq!(fed.end, half.next());
        }
        assert_eq!(got, [&b"one"[..], b"", b"three"]);
        assert!(half.is_open() && !half.waits() && !half.is_ended());
    }
}
