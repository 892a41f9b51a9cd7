//! Counts, times and properties of a flow that is exported.

/// Properties of a packet that its flow keeps.
#[derive(Clone, Copy, Default)]
pub(super) struct PacketInfo {
    /// Length of the frame in bytes.
    pub(super) bytes: u32,
    /// TCP flags; 0 for other protocols.
    pub(super) tcp_flags: u8,
    /// Number of the application protocol, 0 if it is not known.
    pub(super) application: u16,
    /// True if the key of the flow is that of the other direction.
    pub(super) is_reversed: bool,
}

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DirectionCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// All TCP flags of its packets.
    pub(super) tcp_flags: u8,
}

const FIN: u8 = 0x01;
const RST: u8 = 0x04;
/// Bit of `closed` after a reset.
const RESET: u8 = 0x80;

/// A flow, both directions of a biflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowRecord {
    packets: [u64; 2],
    bytes: [u64; 2],
    /// Times of the first and last packet, in milliseconds of the node's clock, modulo 2³².
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) application: u16,
    tcp_flags: [u8; 2],
    /// Directions that have had a FIN, and [`RESET`]; exports do not change it.
    closed: u8,
    /// True if the first packet had the opposite direction of the key.
    pub(super) is_reversed: bool,
}

impl FlowRecord {
    /// Adds the first packet.
    #[inline(always)]
    pub(super) fn begin(&mut self, packet: PacketInfo, now: u32) {
        self.is_reversed = packet.is_reversed;
        self.add(packet, now);
    }

    /// Adds a packet.
    #[inline(always)]
    pub(super) fn add(&mut self, packet: PacketInfo, now: u32) {
        let direction = usize::from(packet.is_reversed != self.is_reversed);
        if self.packets == [0; 2] {
            self.first = now;
        }
        self.packets[direction] += 1;
        self.bytes[direction] += u64::from(packet.bytes);
        self.tcp_flags[direction] |= packet.tcp_flags;
        let reset = if packet.tcp_flags & RST != 0 { RESET } else { 0 };
        self.closed |= (packet.tcp_flags & FIN) << direction | reset;
        self.last = now;
        if packet.application != 0 {
            self.application = packet.application;
        }
    }

    /// Returns the counts of the direction of the first packet, then of the other one.
    pub(super) fn directions(&self) -> [DirectionCounts; 2] {
        [0, 1].map(|n| DirectionCounts { packets: self.packets[n], bytes: self.bytes[n], tcp_flags: self.tcp_flags[n] })
    }

    /// Returns packets and bytes of both directions.
    pub(super) fn total(&self) -> (u64, u64) {
        (self.packets.iter().sum(), self.bytes.iter().sum())
    }

    /// Returns true if a TCP connection was closed: by a reset, or in both directions of a biflow. Of a flow, only one
    /// direction is known.
    pub(super) fn is_closed(&self, is_biflow: bool) -> bool {
        self.closed & RESET != 0 || self.closed & 3 == if is_biflow { 3 } else { 1 }
    }

    /// Sets all counts to 0 after an export.
    pub(super) fn reset(&mut self) {
        (self.packets, self.bytes, self.tcp_flags) = ([0; 2], [0; 2], [0; 2]);
    }
}
