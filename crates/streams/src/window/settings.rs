//! What a window is to be.

use crate::window::memory::BLOCK;
use crate::window::pieces::Piece;
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of a window at most.
const LONGEST: u32 = 1 << 20;
/// Longest timeout, in ms: an hour.
const LATEST: u32 = 3_600_000;
/// Flows at most.
const MOST_FLOWS: u32 = 1 << 28;
/// Packets held at most; and of one direction of a flow, all of which are looked at when one may go.
const MOST_HELD: u32 = 1 << 24;
const MOST_FLOW_HELD: u32 = 4096;
/// Memory of a flow at most: what comes early is moved to make room for what comes earlier.
const MOST_FLOW_MEMORY: u32 = 16 << 20;

/// Settings of [`window`](crate::window()); an NF has them as a field of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Bytes of a full window. The first `size` less `increment` of them have been shown before.
    pub size: u32,
    /// New bytes in each window, at most `size`. 0: as many as have come, when they come; the packet's own bytes then, not
    /// copied, unless they came before their turn.
    pub increment: u32,
    /// Milliseconds for which bytes wait at most, to within a quarter: for a window to be full, or for what comes before
    /// them. Where the receiver is heard and packets are not held, they wait for that until it acknowledges what it has: as
    /// long as it has not got the missing bytes either, they will be sent again.
    pub timeout: u32,
    /// Whose bytes count where two segments have different ones for the same place.
    pub overlap: Overlap,
    /// Whether flows are looked at whose beginning was not seen.
    pub midstream: bool,
    /// Whether checksums are verified, of IPv4 headers and of the transport; packets with a wrong one are not looked at, as
    /// no receiver does. Captures made on the sending host often have none.
    pub checksums: bool,
    /// Whether packets are kept until their bytes have been seen. Otherwise they pass at once.
    pub hold: bool,
    /// With `hold`: whether packets whose bytes cannot be seen in time, or at all, are forwarded or dropped.
    pub fail: Fail,
    /// Packets of one direction of a flow that are kept at most.
    pub flow_held: u32,
    /// Packets of all flows together that are kept at most.
    pub held: u32,
    /// Flows at most, both directions of one counted once, for each IP version. Each takes about 500 bytes besides `memory`.
    pub flows: u32,
    /// Seconds without a packet after which a flow is forgotten.
    pub idle: u32,
    /// The same for a flow of which nothing but a SYN was seen.
    pub half_open: u32,
    /// Bytes of one direction of a flow that are kept at most when they come before their turn. Beyond, the gap before them
    /// is given up.
    pub flow_memory: u32,
    /// Bytes of memory for all flows together: for bytes before their turn, and for windows.
    pub memory: u64,
    /// What happens when `flows` or `memory` are used up.
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

/// Whose bytes count where segments overlap, among those not shown yet. What has been shown stays.
///
/// Hosts differ, and whoever knows how can show one content to them and another to what looks on (Novak and Sturges,
/// *Target-Based TCP Stream Reassembly*, 2007).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// Those that came first.
    First,
    /// Those that came last.
    Last,
    /// As Linux does it: those of the segment that begins first; of two that begin together the longer; of two alike the
    /// earlier. That is what `tcp_data_queue_ofo` of Linux leaves (`net/ipv4/tcp_input.c`: a segment that another one covers
    /// is dropped or replaced; the rest is read in the order in which segments begin), and Suricata's policy `linux`.
    /// Linux may also join two segments, one right behind the other, before it compares; that depends on the driver and is
    /// not modelled.
    #[default]
    Linux,
}

/// What becomes of held packets whose bytes were not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fail {
    /// They are forwarded.
    #[default]
    Open,
    /// They are dropped.
    Closed,
}

/// What happens when there is no room for another flow, or for more bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The stream that has been idle longest gives way: what it has is shown, then its end. A flow gives way to another one
    /// among sixteen.
    #[default]
    Evict,
    /// What is new is not reassembled, and counted.
    Pass,
}

fn wrong(key: &'static str, value: impl core::fmt::Display, problem: &str, remedy: String) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

impl Settings {
    /// Bytes shown before that each window shows again.
    pub(super) fn overlap_len(&self) -> usize {
        self.size.saturating_sub(self.increment) as usize
    }

    /// Pieces that a stream may have: what they and their list take is no more than [`flow_memory`](Self::flow_memory).
    pub(super) fn pieces(&self) -> usize {
        self.flow_memory as usize / (BLOCK + size_of::<Piece>())
    }

    /// Bytes of a window's buffer: 0 where none is needed.
    pub(super) fn window_len(&self) -> usize {
        let size = self.size as usize;
        if self.overlap_len() > 0 { 2 * size } else { size }
    }

    /// Looks for values that make no sense.
    ///
    /// # Errors
    /// The first of them, with its key.
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
