//! Settings of a window node.

use super::block::BLOCK;
use super::overlap::Overlap;
use super::piece::Piece;
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest window in bytes.
const LONGEST: u32 = 1 << 20;
/// Longest timeout in ms: one hour.
const LATEST: u32 = 3_600_000;
/// Largest number of flows.
const MOST_FLOWS: u32 = 1 << 28;
/// Largest number of held packets in total; and per direction, whose packets are all processed when one may leave.
const MOST_HELD: u32 = 1 << 24;
const MOST_FLOW_HELD: u32 = 4096;
/// Largest memory per direction: storing an earlier byte moves later ones.
const MOST_FLOW_MEMORY: u32 = 16 << 20;

/// Settings of [`window`](crate::window()); an NF embeds them as a field of its own settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Bytes of a full window. The first `size` less `increment` of them were in the previous window.
    pub size: u32,
    /// New bytes per window, at most `size`. 0: the bytes of each packet as they arrive, in place, without a copy
    /// unless they were out of order.
    pub increment: u32,
    /// Milliseconds that bytes wait at most, to within a quarter: for a full window, or for missing bytes before them.
    /// If the receiver is seen and packets are not held, they wait for its acknowledgment instead: while it lacks the
    /// missing bytes too, the sender retransmits them.
    pub timeout: u32,
    /// Choice of bytes where two segments overlap with different bytes.
    pub overlap: Overlap,
    /// Inspect flows whose start was not seen.
    pub midstream: bool,
    /// Verify checksums of IPv4 headers and of the transport; packets with a wrong one are not inspected, as a receiver
    /// would ignore them. Captures made on the sending host often lack checksums.
    pub checksums: bool,
    /// Hold packets until their bytes have been inspected. Otherwise they are forwarded at once.
    pub hold: bool,
    /// With `hold`: forward or drop packets whose bytes cannot be inspected in time or at all.
    pub fail: Fail,
    /// Largest number of held packets of one direction of a flow.
    pub flow_held: u32,
    /// Largest number of held packets of all flows together.
    pub held: u32,
    /// Largest number of flows (both directions count once) for each IP version. Each takes about 500 bytes besides
    /// `memory`.
    pub flows: u32,
    /// Seconds without a packet after which a flow is removed.
    pub idle: u32,
    /// The same for a flow of which only a SYN was seen.
    pub half_open: u32,
    /// Largest number of out-of-order bytes kept for one direction of a flow. Beyond it, the gap before them is given
    /// up.
    pub flow_memory: u32,
    /// Bytes of memory for all flows together: for out-of-order bytes and for windows.
    pub memory: u64,
    /// Treatment when `flows` or `memory` is used up.
    pub full: WhenFull,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            size: 0,
            increment: 0,
            timeout: 2000,
            overlap: Overlap::Linux,
            midstream: true,
            checksums: false,
            hold: false,
            fail: Fail::Open,
            flow_held: 64,
            held: 1024,
            flows: 65_536,
            idle: 120,
            half_open: 10,
            flow_memory: 256 << 10,
            memory: 64 << 20,
            full: WhenFull::Evict,
        }
    }
}

/// Treatment of held packets whose bytes were not inspected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fail {
    /// They are forwarded.
    #[default]
    Open,
    /// They are dropped.
    Closed,
}

/// Treatment when there is no room for another flow, or for more bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The stream idle longest is evicted: its bytes are delivered, then its end. A flow is evicted among sixteen
    /// candidates.
    #[default]
    Evict,
    /// New flows or bytes are not reassembled, and counted.
    Pass,
}

fn wrong(key: &'static str, value: impl core::fmt::Display, problem: &str, remedy: String) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

impl Settings {
    /// Returns the number of bytes that each window repeats.
    pub(super) fn overlap_len(&self) -> usize {
        self.size.saturating_sub(self.increment) as usize
    }

    /// Returns the largest number of pieces of a stream: with their list they take at most
    /// [`flow_memory`](Self::flow_memory).
    pub(super) fn pieces(&self) -> usize {
        self.flow_memory as usize / (BLOCK + size_of::<Piece>())
    }

    /// Returns the size of a window's buffer in bytes; 0 if none is needed.
    pub(super) fn window_len(&self) -> usize {
        let size = self.size as usize;
        if self.overlap_len() > 0 { 2 * size } else { size }
    }

    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// The first setting that is out of range, with its key.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let Settings { size, increment, timeout, idle, half_open, flows, flow_memory, memory, .. } = *self;
        let bounded = |key, value, least: u32, most: u32, problem| {
            let remedy = || format!("write {least} to {most}");
            if (least..=most).contains(&value) { Ok(()) } else { Err(wrong(key, value, problem, remedy())) }
        };
        bounded("size", size, 0, LONGEST, "is too long a window")?;
        if increment > size {
            let remedy = format!("write {size} or less, or a greater size");
            return Err(wrong("increment", increment, "leaves out bytes between windows", remedy));
        }
        bounded("timeout", timeout, 1, LATEST, "is no time to wait, in ms")?;
        bounded("idle", idle, 1, 1_000_000, "is no time after which to forget a flow, in seconds")?;
        bounded("half_open", half_open, 1, 1_000_000, "is no time after which to forget a SYN, in seconds")?;
        bounded("flows", flows, 1, MOST_FLOWS, "is no number of flows")?;
        bounded("flow_memory", flow_memory, 2048, MOST_FLOW_MEMORY, "is no memory for a flow, in bytes")?;
        if self.hold {
            bounded("flow_held", self.flow_held, 1, MOST_FLOW_HELD, "is no number of packets to hold")?;
            bounded("held", self.held, 1, MOST_HELD, "is no number of packets to hold")?;
        }
        let least = u64::from(flow_memory) + self.window_len() as u64;
        if memory < least || memory > 1 << 40 {
            let problem = "is not as much as one flow may take, or more than there can be";
            return Err(wrong("memory", memory, problem, format!("write {least} to {} bytes", 1u64 << 40)));
        }
        Ok(())
    }
}
