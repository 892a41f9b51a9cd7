//! ICMP for IPv6 (RFC 4443).

use crate::checksum::Pseudo;
use crate::{Follows, Header, IpProtocol, Ipv6, Malformed, View, fixed, fixed_mut, ipv6};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// The 8 bytes that every ICMPv6 message used here starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Icmpv6 {
    kind: u8,
    code: u8,
    checksum: U16,
    rest: [u8; 4],
}

impl Icmpv6 {
    /// [`kind`](Self::kind) of destination unreachable.
    pub const DEST_UNREACHABLE: u8 = 1;
    /// [`kind`](Self::kind) of packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// [`kind`](Self::kind) of time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// [`kind`](Self::kind) of a parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// [`kind`](Self::kind) of an echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// [`kind`](Self::kind) of an echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Neighbor solicitation (RFC 4861 §4.3).
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// Neighbor advertisement (RFC 4861 §4.4).
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;

    /// Returns the message type.
    #[inline(always)]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Returns the code within the type.
    #[inline(always)]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Returns the checksum as stored.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Returns the bytes 4 to 7, whose meaning depends on the type.
    #[inline(always)]
    pub fn rest(&self) -> [u8; 4] {
        self.rest
    }

    /// Returns true for an echo request or reply, which have an [`id`](Self::id) and a [`seq`](Self::seq).
    #[inline(always)]
    pub fn is_echo(&self) -> bool {
        matches!(self.kind, Self::ECHO_REQUEST | Self::ECHO_REPLY)
    }

    /// Returns true if the message reports an error: types below 128 (RFC 4443 §2.1).
    #[inline(always)]
    pub fn is_error(&self) -> bool {
        self.kind < 128
    }

    /// Returns the identifier of an echo.
    #[inline(always)]
    pub fn id(&self) -> u16 {
        u16::from_be_bytes([self.rest[0], self.rest[1]])
    }

    /// Returns the sequence number of an echo.
    #[inline(always)]
    pub fn seq(&self) -> u16 {
        u16::from_be_bytes([self.rest[2], self.rest[3]])
    }

    /// Next-hop MTU in bytes of "packet too big" (RFC 4443 §3.2).
    #[inline(always)]
    pub fn mtu(&self) -> u32 {
        u32::from_be_bytes(self.rest)
    }

    /// Sets the message type; the checksum is the caller's, here and in all setters.
    #[inline(always)]
    pub fn set_kind(&mut self, kind: u8) {
        self.kind = kind;
    }

    /// Sets the code.
    #[inline(always)]
    pub fn set_code(&mut self, code: u8) {
        self.code = code;
    }

    /// Sets the checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = U16::new(checksum);
    }

    /// Sets bytes 4 to 7.
    #[inline(always)]
    pub fn set_rest(&mut self, rest: [u8; 4]) {
        self.rest = rest;
    }

    /// Sets the identifier of an echo.
    #[inline(always)]
    pub fn set_id(&mut self, id: u16) {
        [self.rest[0], self.rest[1]] = id.to_be_bytes();
    }

    /// Sets the sequence number of an echo.
    #[inline(always)]
    pub fn set_seq(&mut self, seq: u16) {
        [self.rest[2], self.rest[3]] = seq.to_be_bytes();
    }

    /// Sets the next-hop MTU in bytes of "packet too big".
    #[inline(always)]
    pub fn set_mtu(&mut self, mtu: u32) {
        self.rest = mtu.to_be_bytes();
    }
}

impl Header for Icmpv6 {
    const NAME: &'static str = "icmpv6";
    const NOT: &'static str = "not_icmpv6";
    const MALFORMED: &'static str = "malformed_icmpv6";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        fixed::<Self>(bytes)?;
        Ok(size_of::<Self>())
    }
}

impl Follows<Ipv6> for Icmpv6 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv6::announces(below, IpProtocol::ICMPV6)
    }
}

/// A checked ICMPv6 message; what follows the first 8 bytes is its payload.
pub type Message<'a> = View<'a, Icmpv6>;

impl View<'_, Icmpv6> {
    /// Returns true if the checksum over pseudo header and message is right.
    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        pseudo.sum(self.bytes()).is_valid()
    }
}

/// The first 8 bytes of an ICMPv6 message as a value; data or the offending packet follow as payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repr {
    /// Echo request.
    EchoRequest {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// Echo reply.
    EchoReply {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// Destination unreachable.
    DestUnreachable {
        /// Why (RFC 4443 §3.1).
        code: u8,
    },
    /// The packet is too big for a link.
    PacketTooBig {
        /// MTU of that link in bytes.
        mtu: u32,
    },
    /// Time exceeded.
    TimeExceeded {
        /// 0: in transit; 1: in reassembly.
        code: u8,
    },
    /// A field of the packet makes no sense, or is not known.
    ParameterProblem {
        /// Why (RFC 4443 §3.4).
        code: u8,
        /// Which byte of the packet.
        pointer: u32,
    },
    /// Neighbor solicitation; target and options follow ([`crate::ndp`]).
    NeighborSolicitation,
    /// Neighbor advertisement; target and options follow ([`crate::ndp`]).
    NeighborAdvertisement {
        /// Router, solicited and override, in the three highest bits (RFC 4861 §4.4).
        flags: u8,
    },
}

impl Repr {
    /// Parses a message; the checksum is checked by [`View::checksum_ok`].
    ///
    /// # Errors
    /// [`Malformed::Kind`] if there is no value for its type, or for an echo with a code.
    pub fn parse(message: &Message<'_>) -> Result<Self, Malformed> {
        let header = message.header();
        Ok(match (header.kind(), header.code()) {
            (Icmpv6::ECHO_REQUEST, 0) => Self::EchoRequest { id: header.id(), seq: header.seq() },
            (Icmpv6::ECHO_REPLY, 0) => Self::EchoReply { id: header.id(), seq: header.seq() },
            (Icmpv6::DEST_UNREACHABLE, code) => Self::DestUnreachable { code },
            (Icmpv6::PACKET_TOO_BIG, _) => Self::PacketTooBig { mtu: header.mtu() },
            (Icmpv6::TIME_EXCEEDED, code) => Self::TimeExceeded { code },
            (Icmpv6::PARAMETER_PROBLEM, code) => Self::ParameterProblem { code, pointer: header.mtu() },
            (Icmpv6::NEIGHBOR_SOLICITATION, 0) => Self::NeighborSolicitation,
            (Icmpv6::NEIGHBOR_ADVERTISEMENT, 0) => Self::NeighborAdvertisement { flags: header.rest()[0] & 0xe0 },
            _ => return Err(Malformed::Kind),
        })
    }

    /// Returns the length in bytes, without the payload.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Icmpv6>()
    }

    /// Writes the first 8 bytes of a message with checksum 0.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        let halves = |high: u16, low: u16| (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
        let (kind, code, rest) = match *self {
            Self::EchoRequest { id, seq } => (Icmpv6::ECHO_REQUEST, 0, halves(id, seq)),
            Self::EchoReply { id, seq } => (Icmpv6::ECHO_REPLY, 0, halves(id, seq)),
            Self::DestUnreachable { code } => (Icmpv6::DEST_UNREACHABLE, code, [0; 4]),
            Self::PacketTooBig { mtu } => (Icmpv6::PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Self::TimeExceeded { code } => (Icmpv6::TIME_EXCEEDED, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => (Icmpv6::PARAMETER_PROBLEM, code, pointer.to_be_bytes()),
            Self::NeighborSolicitation => (Icmpv6::NEIGHBOR_SOLICITATION, 0, [0; 4]),
            Self::NeighborAdvertisement { flags } => (Icmpv6::NEIGHBOR_ADVERTISEMENT, 0, [flags, 0, 0, 0]),
        };
        let header = fixed_mut::<Icmpv6>(out)?;
        header.set_kind(kind);
        header.set_code(code);
        header.set_checksum(0);
        header.set_rest(rest);
        Ok(())
    }

    /// Writes the first 8 bytes of `message`, where the payload already stands behind them and ends it, with a checksum
    /// over both.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn emit_with(&self, pseudo: Pseudo, message: &mut [u8]) -> Result<(), Malformed> {
        self.emit(message)?;
        let sum = pseudo.sum(message).finish();
        fixed_mut::<Icmpv6>(message)?.set_checksum(sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    #[test]
    fn value_round_trip() {
        let pseudo = Pseudo::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, IpProtocol::ICMPV6);
        let values = [
            Repr::EchoRequest { id: 1, seq: 0xffff },
            Repr::EchoReply { id: 0xffff, seq: 1 },
            Repr::DestUnreachable { code: 4 },
            Repr::PacketTooBig { mtu: 0x10000 },
            Repr::TimeExceeded { code: 1 },
            Repr::NeighborSolicitation,
            Repr::NeighborAdvertisement { flags: 0xa0 },
        ];
        for repr in values {
            let mut bytes = [0xee; 35];
            repr.emit_with(pseudo, &mut bytes).unwrap();
            let message = Message::new(&bytes).unwrap();
            assert_eq!(Repr::parse(&message), Ok(repr));
            assert!(message.checksum_ok(pseudo));
            let tells = matches!(repr, Repr::NeighborSolicitation | Repr::NeighborAdvertisement { .. });
            assert_eq!(message.header().is_error(), !message.header().is_echo() && !tells);
            bytes[34] ^= 1;
            assert!(!Message::new(&bytes).unwrap().checksum_ok(pseudo));
            assert_eq!(repr.emit(&mut bytes[..7]), Err(Malformed::Short));
        }
    }

    #[test]
    fn no_value() {
        for (kind, code) in [(128, 1), (129, 1), (133, 0), (135, 1), (136, 1), (0, 0)] {
            let bytes = [kind, code, 0, 0, 0, 0, 0, 0];
            assert_eq!(Repr::parse(&Message::new(&bytes).unwrap()), Err(Malformed::Kind));
        }
    }
}
