//! Transports that carry streams.

use super::datagram::Datagrams;
use super::stream::Stream;
use super::stream_state::{Segment, StreamState};
use wire::checksum::Pseudo;
use wire::{Follows, Header, IpProtocol, Ipv4, Ipv6, Tcp, Udp};

/// A transport whose flows [`window`](crate::window()) can inspect, named by its header: [`Tcp`] or [`Udp`].
#[allow(private_bounds, reason = "sealed")]
pub trait Transport: Header + Follows<Ipv4> + Follows<Ipv6> + Parse {}

impl Transport for Tcp {}
impl Transport for Udp {}

/// Parsing of a transport's packets.
pub(super) trait Parse {
    const PROTOCOL: IpProtocol;
    /// True if packets mark the start of a flow.
    const HAS_BEGINNING: bool;
    type StreamState: StreamState;

    /// Returns the ports and the fields for streams. `header` is the checked header with its options.
    fn read(&self, header: &[u8]) -> ([u16; 2], Segment);

    /// Returns true if the checksum over header and payload is correct.
    fn sum_is_right(packet: &[u8], pseudo: Pseudo) -> bool;
}

impl Parse for Tcp {
    const PROTOCOL: IpProtocol = IpProtocol::TCP;
    const HAS_BEGINNING: bool = true;
    type StreamState = Stream;

    #[inline(always)]
    fn read(&self, header: &[u8]) -> ([u16; 2], Segment) {
        let flags = self.flags();
        let scale = if flags.contains(wire::TcpFlags::SYN) { scale(header) } else { 0 };
        let segment = Segment { seq: self.seq(), ack: self.ack(), window: self.window(), flags, scale };
        ([self.src_port(), self.dst_port()], segment)
    }

    fn sum_is_right(packet: &[u8], pseudo: Pseudo) -> bool {
        wire::tcp::Segment::new(packet).is_ok_and(|segment| segment.checksum_ok(pseudo))
    }
}

/// Returns the window scale option (RFC 7323 §2.2), 0 without one.
#[cold]
fn scale(header: &[u8]) -> u8 {
    let Ok(view) = wire::tcp::Segment::new(header) else { return 0 };
    let scale = |option| match option {
        Ok(wire::tcp::TcpOption::WindowScale(bits)) => Some(bits),
        _ => None,
    };
    view.options().find_map(scale).unwrap_or(0)
}

impl Parse for Udp {
    const PROTOCOL: IpProtocol = IpProtocol::UDP;
    const HAS_BEGINNING: bool = false;
    type StreamState = Datagrams;

    #[inline(always)]
    fn read(&self, _: &[u8]) -> ([u16; 2], Segment) {
        ([self.src_port(), self.dst_port()], Segment::default())
    }

    fn sum_is_right(packet: &[u8], pseudo: Pseudo) -> bool {
        wire::udp::Datagram::new(packet).is_ok_and(|datagram| datagram.checksum_ok(pseudo))
    }
}
