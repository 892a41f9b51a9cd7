//! Captured frames.

use crate::LinkType;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since the Unix epoch, rounded down; the nearest `u64` for times outside 1970–2554; 0 for a simple
    /// packet block of pcapng, which has no time.
    pub timestamp_ns: u64,
    /// Bytes of the frame before it was cut for the capture; never below `frame.len()`, whatever the file says.
    pub original_len: u32,
    /// Link type of the frame.
    pub link_type: LinkType,
    /// Number of the interface in its section of a pcapng file; 0 in classic pcap.
    pub interface: u32,
    /// The captured bytes, at most [`MAX_FRAME`](crate::MAX_FRAME).
    pub frame: &'a [u8],
}

/// A record whose frame is in the window of the input.
pub(crate) struct RecordSpan {
    pub(crate) timestamp_ns: u64,
    pub(crate) original_len: u32,
    pub(crate) link_type: LinkType,
    pub(crate) interface: u32,
    pub(crate) at: usize,
    pub(crate) length: usize,
}
