//! ICMP for IPv4 (RFC 792).

use crate::{Follows, Header, IpProtocol, Ipv4, Malformed, View, checksum, fixed, fixed_mut, ipv4};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// The 8 bytes that every ICMP message used here starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Icmpv4 {
    kind: u8,
    code: u8,
    checksum: U16,
    rest: [u8; 4],
}

impl Icmpv4 {
    /// [`kind`](Self::kind) of an echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// [`kind`](Self::kind) of destination unreachable; code 4 is "fragmentation needed".
    pub const DEST_UNREACHABLE: u8 = 3;
    /// [`kind`](Self::kind) of an echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// [`kind`](Self::kind) of time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Code "fragmentation needed and don't-fragment set" of destination unreachable.
    pub const FRAGMENTATION_NEEDED: u8 = 4;

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

    /// Returns true if the message reports an error and carries the offending packet (RFC 1122 §3.2.2).
    #[inline(always)]
    pub fn is_error(&self) -> bool {
        matches!(self.kind, 3 | 4 | 5 | 11 | 12)
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

    /// Next-hop MTU in bytes of "fragmentation needed" (RFC 1191 §4).
    #[inline(always)]
    pub fn mtu(&self) -> u16 {
        u16::from_be_bytes([self.rest[2], self.rest[3]])
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

    /// Sets the next-hop MTU in bytes of "fragmentation needed".
    #[inline(always)]
    pub fn set_mtu(&mut self, mtu: u16) {
        [self.rest[2], self.rest[3]] = mtu.to_be_bytes();
    }
}

impl Header for Icmpv4 {
    const NAME: &'static str = "icmpv4";
    const NOT: &'static str = "not_icmpv4";
    const MALFORMED: &'static str = "malformed_icmpv4";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        fixed::<Self>(bytes)?;
        Ok(size_of::<Self>())
    }
}

impl Follows<Ipv4> for Icmpv4 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv4::announces(below, IpProtocol::ICMPV4)
    }
}

/// A checked ICMP message; what follows the first 8 bytes is its payload.
pub type Message<'a> = View<'a, Icmpv4>;

impl View<'_, Icmpv4> {
    /// Returns true if the checksum over the whole message is right.
    pub fn checksum_ok(&self) -> bool {
        checksum::verify(self.bytes())
    }
}

/// The first 8 bytes of an ICMP message as a value; data or the offending packet follow as payload.
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
        /// Why, any but 4, which is [`FragmentationNeeded`](Self::FragmentationNeeded).
        code: u8,
    },
    /// The packet is too big for a link and must not be fragmented.
    FragmentationNeeded {
        /// MTU of that link in bytes; 0 from routers that do not say (RFC 1191 §4).
        mtu: u16,
    },
    /// Time exceeded.
    TimeExceeded {
        /// 0: in transit; 1: in reassembly.
        code: u8,
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
            (Icmpv4::ECHO_REQUEST, 0) => Self::EchoRequest { id: header.id(), seq: header.seq() },
            (Icmpv4::ECHO_REPLY, 0) => Self::EchoReply { id: header.id(), seq: header.seq() },
            (Icmpv4::DEST_UNREACHABLE, Icmpv4::FRAGMENTATION_NEEDED) => Self::FragmentationNeeded { mtu: header.mtu() },
            (Icmpv4::DEST_UNREACHABLE, code) => Self::DestUnreachable { code },
            (Icmpv4::TIME_EXCEEDED, code) => Self::TimeExceeded { code },
            _ => return Err(Malformed::Kind),
        })
    }

    /// Returns the length in bytes, without the payload.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Icmpv4>()
    }

    /// Writes the first 8 bytes of `message`, where the payload already stands behind them and ends it, with a checksum
    /// over both.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room, [`Malformed::Range`] for `DestUnreachable` with code 4.
    pub fn emit(&self, message: &mut [u8]) -> Result<(), Malformed> {
        let halves = |high: u16, low: u16| (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
        let (kind, code, rest) = match *self {
            Self::EchoRequest { id, seq } => (Icmpv4::ECHO_REQUEST, 0, halves(id, seq)),
            Self::EchoReply { id, seq } => (Icmpv4::ECHO_REPLY, 0, halves(id, seq)),
            Self::DestUnreachable { code: Icmpv4::FRAGMENTATION_NEEDED } => return Err(Malformed::Range),
            Self::DestUnreachable { code } => (Icmpv4::DEST_UNREACHABLE, code, [0; 4]),
            Self::FragmentationNeeded { mtu } => {
                (Icmpv4::DEST_UNREACHABLE, Icmpv4::FRAGMENTATION_NEEDED, halves(0, mtu))
            }
            Self::TimeExceeded { code } => (Icmpv4::TIME_EXCEEDED, code, [0; 4]),
        };
        let header = fixed_mut::<Icmpv4>(message)?;
        header.set_kind(kind);
        header.set_code(code);
        header.set_rest(rest);
        header.set_checksum(0);
        let sum = checksum::of(message);
        fixed_mut::<Icmpv4>(message)?.set_checksum(sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo() {
        let mut bytes = *b"\x08\x00\x00\x00\x12\x34\x00\x02abcd";
        let repr = Repr::parse(&Message::new(&bytes).unwrap()).unwrap();
        assert_eq!(repr, Repr::EchoRequest { id: 0x1234, seq: 2 });
        assert!(!Message::new(&bytes).unwrap().checksum_ok());
        repr.emit(&mut bytes).unwrap();
        let message = Message::new(&bytes).unwrap();
        assert!(message.checksum_ok() && message.header().is_echo() && !message.header().is_error());
        assert_eq!(message.payload(), b"abcd");
    }

    #[test]
    fn value_round_trip() {
        let values = [
            Repr::EchoRequest { id: 1, seq: 0xffff },
            Repr::EchoReply { id: 0xffff, seq: 1 },
            Repr::DestUnreachable { code: 3 },
            Repr::FragmentationNeeded { mtu: 1400 },
            Repr::TimeExceeded { code: 0 },
        ];
        for repr in values {
            let mut bytes = [0xee; 36];
            repr.emit(&mut bytes).unwrap();
            let message = Message::new(&bytes).unwrap();
            assert_eq!(Repr::parse(&message), Ok(repr));
            assert!(message.checksum_ok());
            assert_eq!(message.header().is_error(), !message.header().is_echo());
            assert_eq!(repr.emit(&mut bytes[..7]), Err(Malformed::Short));
        }
        assert_eq!(Repr::DestUnreachable { code: 4 }.emit(&mut [0; 8]), Err(Malformed::Range));
    }

    #[test]
    fn no_value() {
        for (kind, code) in [(8, 1), (13, 0), (255, 0)] {
            let bytes = [kind, code, 0, 0, 0, 0, 0, 0];
            assert_eq!(Repr::parse(&Message::new(&bytes).unwrap()), Err(Malformed::Kind));
        }
    }
}
