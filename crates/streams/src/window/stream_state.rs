//! Interface of reassembled streams: segments in, chunks out.

use super::memory::Memory;
use super::overlap::Overlap;
use super::{End, Lost};
use wire::TcpFlags;

/// Limits of all streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) overlap: Overlap,
    /// Largest number of pieces of a stream.
    pub(super) pieces: usize,
    /// True if a segment that is not inspected completely is dropped: then no part of it is stored, and no gap is given
    /// up for room.
    pub(super) strict: bool,
}

/// Counts of all streams.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct StreamCounts {
    pub(super) out_of_order: u64,
    pub(super) retransmitted: u64,
    pub(super) overlapping: u64,
    pub(super) conflicting: u64,
    pub(super) keep_alives: u64,
    pub(super) gaps: u64,
    pub(super) gap_bytes: u64,
    pub(super) out_of_window: u64,
    pub(super) after_end: u64,
    pub(super) over_budget: u64,
    pub(super) resets: u64,
}

/// State that streams share while one of them is processed.
pub(super) struct Shared<'a> {
    pub(super) rules: &'a Limits,
    pub(super) memory: &'a mut Memory,
    pub(super) tally: &'a mut StreamCounts,
    /// Time in ms; wraps.
    pub(super) now: u32,
}

/// Output of a stream.
#[derive(Debug)]
pub(super) enum Chunk<'a> {
    /// The next bytes.
    Bytes(&'a [u8]),
    /// A gap of this many bytes.
    Gap(u32, Lost),
    /// The end.
    End(End),
}

/// A segment without its addresses.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) flags: TcpFlags,
    /// Window scale of a SYN in bits; 0 without the option.
    pub(crate) scale: u8,
}

/// Result of feeding a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fed {
    /// Sequence number behind its last byte.
    pub(super) end: u32,
    /// Some of its bytes were not delivered and never will be.
    pub(super) unseen: bool,
}

/// Effect of a SYN on a known connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Restart {
    /// None.
    None,
    /// Its direction restarts.
    Own,
    /// Both directions restart.
    Both,
    /// Both directions restart, the opposite one with the SYN that this one answers.
    Answered,
    /// The opposite direction restarts: this answers another SYN than the last one.
    Other,
}

/// Consumer of chunks; returns false to stop this stream.
pub(super) trait ChunkSink: FnMut(&mut Memory, Chunk<'_>) -> bool {}
impl<F: FnMut(&mut Memory, Chunk<'_>) -> bool> ChunkSink for F {}

/// One direction of a flow. Defaults are those of datagrams, which are delivered as they arrive.
pub(super) trait StreamState: Default + Send + 'static {
    /// Processes a packet and delivers bytes.
    fn feed(&mut self, segment: &Segment, payload: &[u8], desk: &mut Shared<'_>, out: &mut impl ChunkSink) -> Fed;

    /// Returns true after the first packet.
    fn is_open(&self) -> bool;

    /// Returns the position of the next byte; wraps.
    fn next(&self) -> u32;

    /// Returns the position behind the last delivered byte.
    #[inline(always)]
    fn given(&self) -> u32 {
        self.next()
    }

    /// Returns true if its end was reached or it was reset.
    #[inline(always)]
    fn is_ended(&self) -> bool {
        false
    }

    /// Returns true if a reset was accepted.
    #[inline(always)]
    fn is_reset(&self) -> bool {
        false
    }

    /// Returns true if its start was not seen.
    fn is_midstream(&self) -> bool {
        false
    }

    /// Returns true if bytes wait for missing ones.
    #[inline(always)]
    fn waits(&self) -> bool {
        false
    }

    /// Returns true if it holds memory.
    #[inline(always)]
    fn holds(&self) -> bool {
        false
    }

    /// Returns true if a packet starts beyond the next byte.
    #[inline(always)]
    fn is_ahead(&self, _: &Segment) -> bool {
        false
    }

    /// Returns the bytes of memory that a packet may need.
    #[inline(always)]
    fn needs(&self, _: &Segment, _: usize, _: &Memory) -> usize {
        0
    }

    /// Returns the directions of a flow that a packet restarts.
    fn restarts(&self, _: &Segment, _: &Self) -> Restart {
        Restart::None
    }

    /// Returns the first sequence number of the connection that a new SYN asked for.
    fn asked(&self) -> u32 {
        0
    }

    /// Restarts with the connection that was asked for.
    fn restart(&mut self, _: u32) {}

    /// Processes the acknowledgment of a packet of the opposite direction. `scale` is that side's window scale.
    #[inline(always)]
    fn process_ack(&mut self, _: &Segment, _scale: u8) {}

    /// Returns the window scale that this side announced.
    #[inline(always)]
    fn announced_scale(&self) -> u8 {
        0
    }

    /// Returns true if the receiver has acknowledged the missing bytes.
    #[inline(always)]
    fn is_lost(&self) -> bool {
        false
    }

    /// Returns true if bytes have waited for `ms` in vain.
    fn is_overdue(&self, _now: u32, _ms: u32) -> bool {
        false
    }

    /// Gives up the first gap. Returns false to stop the stream.
    fn give_up(&mut self, _: Lost, _: &mut Shared<'_>, _: &mut impl ChunkSink) -> bool {
        true
    }

    /// Ends it by a reset of the opposite direction.
    fn close(&mut self, _: &mut Shared<'_>, _: &mut impl ChunkSink) {}

    /// Discards bytes that wait for missing ones.
    fn forget_ahead(&mut self, _: &mut Memory) {}
}
