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
    /// Time in microseconds, modulo 2³², of a TCP packet whose flow has a round-trip time.
    pub(super) at_us: Option<u32>,
}

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DirectionCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Times between packets of a TCP handshake, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundTripTime {
    /// From here to the client and back: between SYN/ACK and ACK.
    pub(super) client: Option<u32>,
    /// From here to the server and back: between SYN and SYN/ACK.
    pub(super) server: Option<u32>,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Bit of `closed` after a reset.
const RESET: u8 = 0x80;

/// The state of a TCP handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handshake {
    /// Not seen from its first packet on, or packets were repeated, so that it is not known which one was answered
    /// (Karn's algorithm, RFC 6298 §3).
    #[default]
    Unknown,
    /// SYN seen.
    Syn,
    /// SYN/ACK seen.
    SynAck,
    /// SYN/ACK was repeated.
    ServerOnly,
    /// All three packets seen.
    Complete,
}

/// A flow, both directions of a biflow. With a key of IPv4, all that a packet changes is in one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct FlowRecord {
    /// Bytes and packets since `earlier` was updated.
    bytes: [u64; 2],
    packets: [u32; 2],
    /// Times of the first and last packet, in milliseconds of the node's clock, modulo 2³².
    pub(super) first: u32,
    pub(super) last: u32,
    /// Round-trip times to the server and to the client. During the handshake, those of the last packet.
    rtt_us: [u32; 2],
    pub(super) application: u16,
    tcp_flags: [u8; 2],
    /// Directions that have had a FIN, and [`RESET`]; exports do not change it.
    closed: u8,
    handshake: Handshake,
    /// True if the first packet had the opposite direction of the key.
    pub(super) is_reversed: bool,
    /// True if the next packet is the first since the last export.
    is_exported: bool,
    /// Counts since the last export, less those of `bytes` and `packets`.
    earlier: [DirectionCounts; 2],
}

impl FlowRecord {
    /// Adds the first packet.
    #[inline(always)]
    pub(super) fn begin(&mut self, packet: PacketInfo, now: u32) {
        self.is_reversed = packet.is_reversed;
        self.is_exported = true;
        if let Some(at) = packet.at_us
            && packet.tcp_flags & (SYN | ACK | RST) == SYN
        {
            (self.handshake, self.rtt_us[0]) = (Handshake::Syn, at);
            self.count(packet, 0, now);
        } else {
            self.add(packet, now);
        }
    }

    /// Adds a packet.
    #[inline(always)]
    pub(super) fn add(&mut self, packet: PacketInfo, now: u32) {
        let direction = usize::from(packet.is_reversed != self.is_reversed);
        if let Some(at) = packet.at_us
            && matches!(self.handshake, Handshake::Syn | Handshake::SynAck)
        {
            self.follow_handshake(packet.tcp_flags, direction, at);
        }
        self.count(packet, direction, now);
    }

    #[inline(always)]
    fn count(&mut self, packet: PacketInfo, direction: usize, now: u32) {
        if self.is_exported {
            (self.first, self.is_exported) = (now, false);
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

    #[cold]
    fn follow_handshake(&mut self, tcp_flags: u8, direction: usize, at: u32) {
        let since = |earlier: u32| at.wrapping_sub(earlier);
        // times of captures may go back
        let is_later = |earlier: u32| since(earlier) <= i32::MAX as u32;
        let [server, client] = &mut self.rtt_us;
        self.handshake = match (self.handshake, direction, tcp_flags & (SYN | ACK)) {
            (Handshake::Syn, 1, flags) if flags == SYN | ACK && is_later(*server) => {
                (*server, *client) = (since(*server), at);
                Handshake::SynAck
            }
            (Handshake::SynAck, 0, ACK) if is_later(*client) => {
                *client = since(*client);
                Handshake::Complete
            }
            (Handshake::SynAck, 1, flags) if flags & SYN == 0 => Handshake::SynAck,
            (Handshake::SynAck, ..) => Handshake::ServerOnly,
            _ => Handshake::Unknown,
        };
    }

    /// Returns the counts since the last call, of the direction of the first packet, then of the other one; `None` if
    /// there were no packets.
    pub(super) fn take_recent(&mut self) -> Option<[DirectionCounts; 2]> {
        if self.packets == [0; 2] {
            return None;
        }
        let recent = self.recent();
        for (earlier, recent) in self.earlier.iter_mut().zip(recent) {
            *earlier = sum(*earlier, recent);
        }
        (self.packets, self.bytes) = ([0; 2], [0; 2]);
        Some(recent)
    }

    fn recent(&self) -> [DirectionCounts; 2] {
        [0, 1].map(|n| DirectionCounts { packets: self.packets[n].into(), bytes: self.bytes[n] })
    }

    /// Returns the counts since the last export, of the direction of the first packet, then of the other one.
    pub(super) fn directions(&self) -> [DirectionCounts; 2] {
        let recent = self.recent();
        [0, 1].map(|n| sum(self.earlier[n], recent[n]))
    }

    /// Returns the TCP flags since the last export, by direction as [`directions`](Self::directions).
    pub(super) fn tcp_flags(&self) -> [u8; 2] {
        self.tcp_flags
    }

    /// Returns the round-trip times of the handshake.
    pub(super) fn rtt(&self) -> RoundTripTime {
        let [server, client] = self.rtt_us.map(Some);
        match self.handshake {
            Handshake::Unknown | Handshake::Syn => RoundTripTime::default(),
            Handshake::SynAck | Handshake::ServerOnly => RoundTripTime { client: None, server },
            Handshake::Complete => RoundTripTime { client, server },
        }
    }

    /// Returns true if there were packets since the last export.
    pub(super) fn has_packets(&self) -> bool {
        !self.is_exported
    }

    /// Returns true if a TCP connection was closed: by a reset, or in both directions of a biflow. Of a flow, only one
    /// direction is known.
    pub(super) fn is_closed(&self, is_biflow: bool) -> bool {
        self.closed & RESET != 0 || self.closed & 3 == if is_biflow { 3 } else { 1 }
    }

    /// Sets all counts to 0 after an export.
    pub(super) fn reset(&mut self) {
        let FlowRecord { first, last, rtt_us, application, closed, handshake, is_reversed, .. } = *self;
        let kept = FlowRecord { first, last, rtt_us, application, closed, handshake, is_reversed, ..Self::default() };
        *self = FlowRecord { is_exported: true, ..kept };
    }
}

fn sum(a: DirectionCounts, b: DirectionCounts) -> DirectionCounts {
    DirectionCounts { packets: a.packets + b.packets, bytes: a.bytes + b.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of a handshake: direction, flags, time in microseconds.
    type Step = (bool, u8, u32);

    fn rtt(steps: &[Step]) -> (Option<u32>, Option<u32>) {
        let mut flow = FlowRecord::default();
        for (n, &(is_reversed, tcp_flags, at)) in steps.iter().enumerate() {
            let packet = PacketInfo { is_reversed, tcp_flags, at_us: Some(at), ..PacketInfo::default() };
            if n == 0 { flow.begin(packet, 0) } else { flow.add(packet, 0) }
        }
        let RoundTripTime { client, server } = flow.rtt();
        (client, server)
    }

    #[test]
    fn a_handshake_has_both_round_trip_times() {
        const SYN_ACK: u8 = SYN | ACK;
        let start = u32::MAX - 100;
        let after = |us: u32| start.wrapping_add(us);
        let (syn, syn_ack, ack) = ((false, SYN, start), (true, SYN_ACK, after(7000)), (false, ACK, after(7300)));
        assert_eq!(rtt(&[syn, syn_ack, ack]), (Some(300), Some(7000)));
        assert_eq!(
            rtt(&[syn, syn_ack, (true, ACK, after(7100)), ack, (true, SYN_ACK, after(9000))]),
            (Some(300), Some(7000))
        );
        assert_eq!(rtt(&[(true, SYN, 5), (false, SYN_ACK, 15), (true, ACK, 18)]), (Some(3), Some(10)));
        assert_eq!(rtt(&[syn, syn_ack]), (None, Some(7000)));
        // which of two is answered is not known
        assert_eq!(rtt(&[syn, (false, SYN, after(1000)), syn_ack, ack]), (None, None));
        assert_eq!(rtt(&[syn, syn_ack, syn_ack, ack]), (None, Some(7000)));
        // from the middle of a connection, and times that go back
        assert_eq!(rtt(&[syn_ack, ack]), (None, None));
        assert_eq!(rtt(&[syn, (true, SYN_ACK, start.wrapping_sub(1)), ack]), (None, None));
    }

    #[test]
    fn the_hot_part_of_a_flow_is_one_cache_line() {
        // with a key of IPv4 and the time, 16 bytes
        assert_eq!(16 + std::mem::offset_of!(FlowRecord, earlier), 64);
    }
}
