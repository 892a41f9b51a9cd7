//! What carries streams.

use super::Lost;
use super::datagram::Datagrams;
use super::memory::Memory;
use super::stream::{Desk, Fed, Out, Renewal, Segment, Stream};
use wire::checksum::Pseudo;
use wire::{Follows, Header, IpProtocol, Ipv4, Ipv6, Tcp, Udp};

/// A transport whose flows can be looked at by [`window`](crate::window()), named by its header: [`Tcp`] or [`Udp`].
#[allow(private_bounds, reason = "nobody else implements it")]
pub trait Transport: Header + Follows<Ipv4> + Follows<Ipv6> + Carries {}

impl Transport for Tcp {}
impl Transport for Udp {}

/// How a transport's packets are read, and what is kept of each direction of a flow.
pub(super) trait Carries {
    const PROTOCOL: IpProtocol;
    /// Whether packets say where a flow begins.
    const HAS_BEGINNING: bool;
    type Half: Half;

    /// Ports, and what streams look at. `header` is the checked header with its options.
    fn read(&self, header: &[u8]) -> ([u16; 2], Segment);

    /// Whether the checksum of a packet is right, header and payload.
    fn sum_is_right(packet: &[u8], pseudo: Pseudo) -> bool;
}

/// One direction of a flow. What is not said otherwise is as for datagrams, which are given as they come.
pub(super) trait Half: Default + Send + 'static {
    /// Takes a packet, and gives what can be given.
    fn feed(&mut self, segment: &Segment, payload: &[u8], desk: &mut Desk<'_>, out: &mut impl Out) -> Fed;

    /// Whether something has come.
    fn is_open(&self) -> bool;

    /// Position of what comes next; wraps.
    fn next(&self) -> u32;

    /// Position behind the last byte that was given.
    #[inline(always)]
    fn given(&self) -> u32 {
        self.next()
    }

    /// Whether its end was reached, or it was reset.
    #[inline(always)]
    fn is_ended(&self) -> bool {
        false
    }

    /// Whether a reset was believed.
    #[inline(always)]
    fn is_reset(&self) -> bool {
        false
    }

    /// Whether its beginning was not seen.
    fn is_midstream(&self) -> bool {
        false
    }

    /// Whether bytes wait for others before them.
    #[inline(always)]
    fn waits(&self) -> bool {
        false
    }

    /// Whether it holds memory.
    #[inline(always)]
    fn holds(&self) -> bool {
        false
    }

    /// Whether a packet begins beyond the next byte.
    #[inline(always)]
    fn is_ahead(&self, _: &Segment) -> bool {
        false
    }

    /// Bytes of memory that a packet may take.
    #[inline(always)]
    fn needs(&self, _: &Segment, _: usize, _: &Memory) -> usize {
        0
    }

    /// Which directions of a flow a packet of this one begins anew.
    fn renews(&self, _: &Segment, _: &Self) -> Renewal {
        Renewal::None
    }

    /// The beginning that was asked for, and has to be answered.
    fn asked(&self) -> u32 {
        0
    }

    /// Begins with what was asked for.
    fn take_up(&mut self, _: u32) {}

    /// Takes note of what a packet of the other direction says of this one. `scale` is how that side's windows are shifted.
    #[inline(always)]
    fn hear(&mut self, _: &Segment, _scale: u8) {}

    /// How this side's windows are shifted.
    #[inline(always)]
    fn announced_scale(&self) -> u8 {
        0
    }

    /// Whether the receiver has what is missing here.
    #[inline(always)]
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether bytes have waited for `ms` in vain.
    fn is_overdue(&self, _now: u32, _ms: u32) -> bool {
        false
    }

    /// Gives up the first gap. False when no more is wanted.
    fn give_up(&mut self, _: Lost, _: &mut Desk<'_>, _: &mut impl Out) -> bool {
        true
    }

    /// Ends it by a reset of the other direction.
    fn close(&mut self, _: &mut Desk<'_>, _: &mut impl Out) {}

    /// Forgets bytes that wait for others.
    fn forget_ahead(&mut self, _: &mut Memory) {}
}

impl Carries for Tcp {
    const PROTOCOL: IpProtocol = IpProtocol::TCP;
    const HAS_BEGINNING: bool = true;
    type Half = Stream;

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

/// The window scale option (RFC 7323 §2.2), 0 without one.
#[cold]
fn scale(header: &[u8]) -> u8 {
    let Ok(view) = wire::tcp::Segment::new(header) else { return 0 };
    let scale = |option| match option {
        Ok(wire::tcp::TcpOption::WindowScale(bits)) => Some(bits),
        _ => None,
    };
    view.options().find_map(scale).unwrap_or(0)
}

impl Carries for Udp {
    const PROTOCOL: IpProtocol = IpProtocol::UDP;
    const HAS_BEGINNING: bool = false;
    type Half = Datagrams;

    #[inline(always)]
    fn read(&self, _: &[u8]) -> ([u16; 2], Segment) {
        ([self.src_port(), self.dst_port()], Segment::default())
    }

    fn sum_is_right(packet: &[u8], pseudo: Pseudo) -> bool {
        wire::udp::Datagram::new(packet).is_ok_and(|datagram| datagram.checksum_ok(pseudo))
    }
}
