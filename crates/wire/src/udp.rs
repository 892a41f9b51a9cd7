//! UDP (RFC 768).

use crate::checksum::Pseudo;
use crate::{Follows, Header, IpProtocol, Ipv4, Ipv6, Malformed, View, fixed, fixed_mut, ipv4, ipv6};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// The 8-byte UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Udp {
    src_port: U16,
    dst_port: U16,
    length: U16,
    checksum: U16,
}

impl Udp {
    /// Returns the source port.
    #[inline(always)]
    pub fn src_port(&self) -> u16 {
        self.src_port.get()
    }

    /// Returns the destination port.
    #[inline(always)]
    pub fn dst_port(&self) -> u16 {
        self.dst_port.get()
    }

    /// Returns the length of header and payload in bytes.
    #[inline(always)]
    pub fn length(&self) -> u16 {
        self.length.get()
    }

    /// Returns the checksum as stored; 0 means that the sender computed none, which only IPv4 allows.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Sets the source port; the checksum is the caller's.
    #[inline(always)]
    pub fn set_src_port(&mut self, port: u16) {
        self.src_port = U16::new(port);
    }

    /// Sets the destination port; the checksum is the caller's.
    #[inline(always)]
    pub fn set_dst_port(&mut self, port: u16) {
        self.dst_port = U16::new(port);
    }

    /// Sets the length of header and payload in bytes.
    #[inline(always)]
    pub fn set_length(&mut self, bytes: u16) {
        self.length = U16::new(bytes);
    }

    /// Sets the checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = U16::new(checksum);
    }

    /// Exchanges the ports; the checksum stays right.
    #[inline(always)]
    pub fn swap_ports(&mut self) {
        core::mem::swap(&mut self.src_port, &mut self.dst_port);
    }
}

impl Header for Udp {
    const NAME: &'static str = "udp";
    const NOT: &'static str = "not_udp";
    const MALFORMED: &'static str = "malformed_udp";

    /// The first fragment of a datagram is refused: its length exceeds the bytes. So is the length 0 of a jumbogram
    /// (RFC 2675 §4).
    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        let length = usize::from(fixed::<Self>(bytes)?.length());
        if length < size_of::<Self>() {
            return Err(Malformed::TotalLength);
        }
        if length > bytes.len() {
            return Err(Malformed::Short);
        }
        Ok(size_of::<Self>())
    }

    #[inline(always)]
    fn extent(bytes: &[u8]) -> usize {
        fixed::<Self>(bytes).map_or(bytes.len(), |header| bytes.len().min(header.length().into()))
    }
}

impl Follows<Ipv4> for Udp {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv4::announces(below, IpProtocol::UDP)
    }
}

impl Follows<Ipv6> for Udp {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv6::announces(below, IpProtocol::UDP)
    }
}

/// A checked UDP datagram.
pub type Datagram<'a> = View<'a, Udp>;

impl View<'_, Udp> {
    /// Returns true if the checksum is right, or absent where that is allowed.
    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        match self.header().checksum() {
            0 => pseudo.udp_checksum_optional(),
            _ => pseudo.sum(self.bytes()).is_valid(),
        }
    }
}

/// A UDP header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Length of the payload in bytes.
    pub payload_len: u16,
}

impl Repr {
    /// Parses a checked header; the checksum is checked by [`View::checksum_ok`].
    ///
    /// # Errors
    /// None: every checked header has a value.
    pub fn parse(datagram: &Datagram<'_>) -> Result<Self, Malformed> {
        let header = datagram.header();
        let payload_len = datagram.payload().len() as u16;
        Ok(Self { src_port: header.src_port(), dst_port: header.dst_port(), payload_len })
    }

    /// Returns the length of the header in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Udp>()
    }

    /// Writes the header without a checksum to the start of `out`; the payload stays.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room, [`Malformed::Range`] if header and payload exceed 65535 bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        let length = self.payload_len.checked_add(size_of::<Udp>() as u16).ok_or(Malformed::Range)?;
        let header = fixed_mut::<Udp>(out)?;
        header.set_src_port(self.src_port);
        header.set_dst_port(self.dst_port);
        header.set_length(length);
        header.set_checksum(0);
        Ok(())
    }

    /// Writes the header to the start of `out`, where the payload already stands behind it, with a checksum over both.
    ///
    /// # Errors
    /// As [`emit`](Self::emit); also [`Malformed::Short`] if the payload is not there.
    pub fn emit_with(&self, pseudo: Pseudo, out: &mut [u8]) -> Result<(), Malformed> {
        let out = out.get_mut(..self.len() + usize::from(self.payload_len)).ok_or(Malformed::Short)?;
        self.emit(out)?;
        let sum = pseudo.sum(out).finish_udp();
        fixed_mut::<Udp>(out)?.set_checksum(sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    const DATAGRAM: [u8; 12] = [0x04, 0xd2, 0, 53, 0, 11, 0, 0, b'a', b'b', b'c', 0xee];

    #[test]
    fn fields() {
        let datagram = Datagram::new(&DATAGRAM).unwrap();
        assert_eq!(datagram.payload(), b"abc");
        assert_eq!(Repr::parse(&datagram), Ok(Repr { src_port: 1234, dst_port: 53, payload_len: 3 }));
    }

    #[test]
    fn lengths() {
        let with_length = |length: u16| {
            let mut bytes = DATAGRAM;
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            Udp::check(&bytes)
        };
        for length in [0, 7] {
            assert_eq!(with_length(length), Err(Malformed::TotalLength));
        }
        assert_eq!((with_length(8), with_length(12)), (Ok(8), Ok(8)));
        assert_eq!(with_length(13), Err(Malformed::Short));
        assert_eq!(Udp::check(&DATAGRAM[..7]), Err(Malformed::Short));
    }

    #[test]
    fn checksums() {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let v4 = Pseudo::v4(src, dst, IpProtocol::UDP);
        let v6 = Pseudo::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol::UDP);
        let repr = Repr { src_port: 1234, dst_port: 53, payload_len: 3 };
        let mut bytes = DATAGRAM;
        assert!(Datagram::new(&bytes).unwrap().checksum_ok(v4));
        assert!(!Datagram::new(&bytes).unwrap().checksum_ok(v6));
        for pseudo in [v4, v6] {
            repr.emit_with(pseudo, &mut bytes).unwrap();
            assert_eq!(bytes[8..], DATAGRAM[8..]);
            assert_eq!(Repr::parse(&Datagram::new(&bytes).unwrap()), Ok(repr));
            assert!(Datagram::new(&bytes).unwrap().checksum_ok(pseudo));
            bytes[11] ^= 1;
            assert!(Datagram::new(&bytes).unwrap().checksum_ok(pseudo));
            bytes[10] ^= 1;
            assert!(!Datagram::new(&bytes).unwrap().checksum_ok(pseudo));
            bytes = DATAGRAM;
        }
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_ones() {
        let pseudo = Pseudo::v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, IpProtocol(0));
        let repr = Repr { src_port: 0xffff - 16, dst_port: 0, payload_len: 0 };
        let mut bytes = [0; 8];
        repr.emit_with(pseudo, &mut bytes).unwrap();
        assert_eq!(bytes[6..], [0xff, 0xff]);
        assert!(Datagram::new(&bytes).unwrap().checksum_ok(pseudo));
    }

    #[test]
    fn room() {
        let repr = Repr { src_port: 1, dst_port: 2, payload_len: 3 };
        let pseudo = Pseudo::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, IpProtocol::UDP);
        assert_eq!(repr.emit(&mut [0; 7]), Err(Malformed::Short));
        assert_eq!(repr.emit_with(pseudo, &mut [0; 10]), Err(Malformed::Short));
        assert_eq!(Repr { payload_len: 0xfff8, ..repr }.emit(&mut [0; 8]), Err(Malformed::Range));
    }
}
