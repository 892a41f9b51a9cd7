//! IPv4 (RFC 791).

use crate::checksum::{self, Pseudo};
use crate::options::{self, OptionBytes, Tlvs};
use crate::{EtherType, Ethernet, Follows, Header, IpProtocol, Malformed, View, Vlan};
use crate::{ethernet, fixed, fixed_mut, vlan};
use core::net::Ipv4Addr;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// The 20 bytes that every IPv4 header starts with (RFC 791 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv4 {
    version_ihl: u8,
    dscp_ecn: u8,
    total_length: U16,
    id: U16,
    flags_offset: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    src: U32,
    dst: U32,
}

impl Ipv4 {
    /// Version; 4 once checked.
    #[inline(always)]
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Returns the header length in bytes, options included: 20 to 60 once checked.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0x0f) * 4
    }

    /// Returns the differentiated services code point, 0 to 63 (RFC 2474).
    #[inline(always)]
    pub fn dscp(&self) -> u8 {
        self.dscp_ecn >> 2
    }

    /// Returns the explicit congestion notification, 0 to 3 (RFC 3168).
    #[inline(always)]
    pub fn ecn(&self) -> u8 {
        self.dscp_ecn & 3
    }

    /// Returns the length of header and payload in bytes.
    #[inline(always)]
    pub fn total_length(&self) -> u16 {
        self.total_length.get()
    }

    /// Returns the identification of the datagram a fragment belongs to.
    #[inline(always)]
    pub fn id(&self) -> u16 {
        self.id.get()
    }

    /// Don't-fragment flag.
    #[inline(always)]
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset.get() & DONT_FRAGMENT != 0
    }

    /// More-fragments flag.
    #[inline(always)]
    pub fn more_fragments(&self) -> bool {
        self.flags_offset.get() & MORE_FRAGMENTS != 0
    }

    /// Returns the fragment offset in bytes (a multiple of 8).
    #[inline(always)]
    pub fn fragment_offset(&self) -> u16 {
        (self.flags_offset.get() & OFFSET) << 3
    }

    /// Returns true if this is a fragment, the first included.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.flags_offset.get() & (OFFSET | MORE_FRAGMENTS) != 0
    }

    /// Returns true if this is a fragment other than the first, which has no transport header.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        self.flags_offset.get() & OFFSET != 0
    }

    /// Returns the time to live in hops.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Returns the protocol of the payload.
    #[inline(always)]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.protocol)
    }

    /// Returns the header checksum as stored.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Returns the source address.
    #[inline(always)]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.src.get())
    }

    /// Returns the destination address.
    #[inline(always)]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.dst.get())
    }

    /// Returns the source address as [`Ipv4Addr::to_bits`] has it: `10.0.0.1` is `0x0a00_0001`.
    #[inline(always)]
    pub fn src_bits(&self) -> u32 {
        self.src.get()
    }

    /// Returns the destination address as [`Ipv4Addr::to_bits`] has it.
    #[inline(always)]
    pub fn dst_bits(&self) -> u32 {
        self.dst.get()
    }

    /// Sets version 4 and the header length to `bytes`, of which only multiples of 4 below 64 can be expressed.
    #[inline(always)]
    pub fn set_header_len(&mut self, bytes: usize) {
        self.version_ihl = 0x40 | (bytes >> 2) as u8 & 0x0f;
    }

    /// Sets the code point to the low six bits of `dscp`.
    #[inline(always)]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.dscp_ecn = dscp << 2 | self.dscp_ecn & 3;
    }

    /// Sets congestion notification to the low two bits of `ecn`.
    #[inline(always)]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.dscp_ecn = self.dscp_ecn & !3 | ecn & 3;
    }

    /// Sets the length of header and payload in bytes.
    #[inline(always)]
    pub fn set_total_length(&mut self, bytes: u16) {
        self.total_length = U16::new(bytes);
    }

    /// Sets the identification.
    #[inline(always)]
    pub fn set_id(&mut self, id: u16) {
        self.id = U16::new(id);
    }

    /// Sets the don't-fragment flag.
    #[inline(always)]
    pub fn set_dont_fragment(&mut self, on: bool) {
        self.flags_offset = U16::new(self.flags_offset.get() & !DONT_FRAGMENT | u16::from(on) << 14);
    }

    /// Sets the more-fragments flag.
    #[inline(always)]
    pub fn set_more_fragments(&mut self, on: bool) {
        self.flags_offset = U16::new(self.flags_offset.get() & !MORE_FRAGMENTS | u16::from(on) << 13);
    }

    /// Sets the fragment offset in bytes, rounded down to a multiple of 8.
    #[inline(always)]
    pub fn set_fragment_offset(&mut self, bytes: u16) {
        self.flags_offset = U16::new(self.flags_offset.get() & !OFFSET | bytes >> 3);
    }

    /// Sets the time to live; the checksum is the caller's.
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.ttl = ttl;
    }

    /// Sets what the payload is.
    #[inline(always)]
    pub fn set_protocol(&mut self, protocol: IpProtocol) {
        self.protocol = protocol.0;
    }

    /// Sets the header checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = U16::new(checksum);
    }

    /// Sets the source address; the checksum is the caller's.
    #[inline(always)]
    pub fn set_src(&mut self, src: Ipv4Addr) {
        self.src = U32::new(src.to_bits());
    }

    /// Sets the destination address; the checksum is the caller's.
    #[inline(always)]
    pub fn set_dst(&mut self, dst: Ipv4Addr) {
        self.dst = U32::new(dst.to_bits());
    }

    /// Sets the source address from [`Ipv4Addr::to_bits`].
    #[inline(always)]
    pub fn set_src_bits(&mut self, src: u32) {
        self.src = U32::new(src);
    }

    /// Sets the destination address from [`Ipv4Addr::to_bits`].
    #[inline(always)]
    pub fn set_dst_bits(&mut self, dst: u32) {
        self.dst = U32::new(dst);
    }

    /// Exchanges source and destination; the checksum stays right.
    #[inline(always)]
    pub fn swap_addrs(&mut self) {
        core::mem::swap(&mut self.src, &mut self.dst);
    }

    /// Takes one from the TTL and keeps the checksum right without reading the rest of the header.
    ///
    /// The caller makes sure that the TTL is not 0: it would wrap to 255 and the checksum would be wrong.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        self.ttl = self.ttl.wrapping_sub(1);
        // One's complement sums do not care about byte order (RFC 1071 §2.B), so this adds without swapping. A header
        // is never all zeros, so a full sum never comes out as 0xffff: `>=` turns that -0 into 0 (RFC 1624 §3).
        let sum = u32::from(u16::from_ne_bytes(self.checksum.to_bytes())) + u32::from(0x0100_u16.to_be());
        let sum = sum + u32::from(sum >= 0xffff);
        self.checksum = U16::from_bytes((sum as u16).to_ne_bytes());
    }
}

impl Header for Ipv4 {
    const NAME: &'static str = "ipv4";
    const NOT: &'static str = "not_ipv4";
    const MALFORMED: &'static str = "malformed_ipv4";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        let header = fixed::<Self>(bytes)?;
        // One comparison for version 4 and a header length of at least five words.
        if header.version_ihl.wrapping_sub(0x45) > 0x0a {
            return Err(if header.version() == 4 { Malformed::HeaderLength } else { Malformed::Version });
        }
        let (len, total) = (header.header_len(), usize::from(header.total_length()));
        if total < len {
            return Err(Malformed::TotalLength);
        }
        if total > bytes.len() {
            return Err(Malformed::Short);
        }
        Ok(len)
    }

    #[inline(always)]
    fn extent(bytes: &[u8]) -> usize {
        fixed::<Self>(bytes).map_or(bytes.len(), |header| bytes.len().min(header.total_length().into()))
    }
}

impl Follows<Ethernet> for Ipv4 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ethernet::announces(below, EtherType::IPV4)
    }
}

impl Follows<Vlan> for Ipv4 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        vlan::announces(below, EtherType::IPV4)
    }
}

impl Follows<Ipv4> for Ipv4 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        announces(below, IpProtocol::IPV4)
    }
}

/// Returns true if a header of `wanted` follows a checked IPv4 header; false in later fragments.
#[inline(always)]
pub(crate) fn announces(below: &[u8], wanted: IpProtocol) -> bool {
    fixed::<Ipv4>(below).is_ok_and(|header| header.protocol() == wanted && !header.is_later_fragment())
}

/// A checked IPv4 packet.
pub type Packet<'a> = View<'a, Ipv4>;

impl<'a> View<'a, Ipv4> {
    /// Returns the options, without "no operation", up to "end of list"; the first malformed one is the last item.
    pub fn options(&self) -> Options<'a> {
        Options(Tlvs { rest: self.variable_part() })
    }

    /// Returns true if the header checksum is right.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        checksum::verify(self.header_bytes())
    }

    /// Returns the pseudo header for the transport checksum of this packet.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        let header = self.header();
        Pseudo::v4(header.src(), header.dst(), header.protocol())
    }
}

/// An option of an IPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ipv4Option<'a> {
    /// Record route (RFC 791 §3.1): where the next address goes, counted from 1 at the option's first byte; addresses.
    RecordRoute {
        /// Pointer as stored.
        pointer: u8,
        /// Room for addresses, four bytes each.
        route: &'a [u8],
    },
    /// Loose source route (RFC 791 §3.1).
    LooseSourceRoute {
        /// Pointer as stored.
        pointer: u8,
        /// Addresses, four bytes each.
        route: &'a [u8],
    },
    /// Strict source route (RFC 791 §3.1).
    StrictSourceRoute {
        /// Pointer as stored.
        pointer: u8,
        /// Addresses, four bytes each.
        route: &'a [u8],
    },
    /// Router alert (RFC 2113).
    RouterAlert(u16),
    /// Any other.
    Unknown {
        /// Copied flag, class and number.
        kind: u8,
        /// Bytes behind kind and length.
        data: &'a [u8],
    },
}

impl<'a> Ipv4Option<'a> {
    fn parse(kind: u8, data: &'a [u8]) -> Result<Self, Malformed> {
        Ok(match (kind, data) {
            (7, &[pointer, ref route @ ..]) => Self::RecordRoute { pointer, route },
            (131, &[pointer, ref route @ ..]) => Self::LooseSourceRoute { pointer, route },
            (137, &[pointer, ref route @ ..]) => Self::StrictSourceRoute { pointer, route },
            (148, &[high, low]) => Self::RouterAlert(u16::from_be_bytes([high, low])),
            (7 | 131 | 137 | 148, _) => return Err(Malformed::Option),
            _ => Self::Unknown { kind, data },
        })
    }

    fn emit(&self, out: &mut [u8]) -> Result<usize, Malformed> {
        let mut body = [0; options::MAX];
        let (kind, pointer, route) = match *self {
            Self::RecordRoute { pointer, route } => (7, pointer, route),
            Self::LooseSourceRoute { pointer, route } => (131, pointer, route),
            Self::StrictSourceRoute { pointer, route } => (137, pointer, route),
            Self::RouterAlert(value) => return options::emit(148, &value.to_be_bytes(), out),
            Self::Unknown { kind, data } => return options::emit(kind, data, out),
        };
        let len = 1 + route.len();
        body[0] = pointer;
        body.get_mut(1..len).ok_or(Malformed::Range)?.copy_from_slice(route);
        options::emit(kind, body.get(..len).ok_or(Malformed::Range)?, out)
    }
}

/// The options of an IPv4 header.
#[derive(Clone, Debug)]
pub struct Options<'a>(Tlvs<'a>);

impl<'a> Iterator for Options<'a> {
    type Item = Result<Ipv4Option<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, data) = match self.0.next()? {
            Ok(option) => option,
            Err(why) => return Some(Err(why)),
        };
        let option = Ipv4Option::parse(kind, data);
        if option.is_err() {
            self.0.rest = &[];
        }
        Some(option)
    }
}

/// Returns the options for [`Repr::options`].
///
/// # Errors
/// [`Malformed::Range`] if they take more than 40 bytes.
pub fn options(list: &[Ipv4Option<'_>]) -> Result<OptionBytes, Malformed> {
    OptionBytes::join(list, Ipv4Option::emit)
}

/// An IPv4 header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification, 0 to 3.
    pub ecn: u8,
    /// Identification.
    pub id: u16,
    /// Don't-fragment flag.
    pub dont_fragment: bool,
    /// More-fragments flag.
    pub more_fragments: bool,
    /// Fragment offset in bytes, a multiple of 8.
    pub fragment_offset: u16,
    /// Time to live in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Options as they stand in the header.
    pub options: OptionBytes,
    /// Length of the payload in bytes.
    pub payload_len: u16,
}

impl Repr {
    /// Returns a header without options for a whole datagram, with TTL 64.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, payload_len: u16) -> Self {
        Self {
            dscp: 0,
            ecn: 0,
            id: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            src,
            dst,
            options: OptionBytes::EMPTY,
            payload_len,
        }
    }

    /// Parses a checked header; the checksum is checked by [`View::checksum_ok`].
    ///
    /// # Errors
    /// [`Malformed::Option`] if an option is.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Malformed> {
        packet.options().try_for_each(|option| option.map(drop))?;
        let header = packet.header();
        Ok(Self {
            dscp: header.dscp(),
            ecn: header.ecn(),
            id: header.id(),
            dont_fragment: header.dont_fragment(),
            more_fragments: header.more_fragments(),
            fragment_offset: header.fragment_offset(),
            ttl: header.ttl(),
            protocol: header.protocol(),
            src: header.src(),
            dst: header.dst(),
            options: OptionBytes::new(packet.variable_part())?,
            payload_len: packet.payload().len() as u16,
        })
    }

    /// Returns the length of the header in bytes, options included.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Ipv4>() + self.options.len()
    }

    /// Returns the pseudo header for the transport checksum.
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::v4(self.src, self.dst, self.protocol)
    }

    /// Writes the header with its length fields and checksum to the start of `out`; the payload stays.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room; [`Malformed::Range`] if header and payload exceed 65535 bytes, the
    /// fragment offset is not a multiple of 8, or DSCP or ECN is too large.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        let len = self.len();
        let total = u16::try_from(len + usize::from(self.payload_len)).map_err(|_| Malformed::Range)?;
        if self.dscp > 63 || self.ecn > 3 || !self.fragment_offset.is_multiple_of(8) {
            return Err(Malformed::Range);
        }
        let out = out.get_mut(..len).ok_or(Malformed::Short)?;
        out.fill(0);
        out.get_mut(size_of::<Ipv4>()..).ok_or(Malformed::Short)?.copy_from_slice(&self.options);
        let header = fixed_mut::<Ipv4>(out)?;
        header.set_header_len(len);
        header.set_dscp(self.dscp);
        header.set_ecn(self.ecn);
        header.set_total_length(total);
        header.set_id(self.id);
        header.set_dont_fragment(self.dont_fragment);
        header.set_more_fragments(self.more_fragments);
        header.set_fragment_offset(self.fragment_offset);
        header.set_ttl(self.ttl);
        header.set_protocol(self.protocol);
        header.set_src(self.src);
        header.set_dst(self.dst);
        let sum = checksum::of(out);
        fixed_mut::<Ipv4>(out)?.set_checksum(sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
