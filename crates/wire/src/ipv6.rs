//! IPv6 and its extension headers (RFC 8200).

use crate::checksum::Pseudo;
use crate::{EtherType, Ethernet, Follows, Header, IpProtocol, Malformed, View, Vlan};
use crate::{ethernet, fixed, fixed_mut, vlan};
use core::net::Ipv6Addr;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

/// Length of the header before extension headers, in bytes.
const FIXED: usize = size_of::<Ipv6>();
/// More extension headers than this in one packet are refused, so that no packet costs much to check.
pub const MAX_EXTENSIONS: usize = 16;

const FLOW_LABEL: u32 = 0x000f_ffff;

/// The 40 bytes that every IPv6 header starts with (RFC 8200 §3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv6 {
    version_class_flow: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

impl Ipv6 {
    /// Version; 6 once checked.
    #[inline(always)]
    pub fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// Returns the traffic class: six bits of DSCP, two of ECN.
    #[inline(always)]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Returns the differentiated services code point, 0 to 63 (RFC 2474).
    #[inline(always)]
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Returns the explicit congestion notification, 0 to 3 (RFC 3168).
    #[inline(always)]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Returns the flow label, 20 bits (RFC 6437).
    #[inline(always)]
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & FLOW_LABEL
    }

    /// Returns the length of extension headers and payload in bytes.
    #[inline(always)]
    pub fn payload_length(&self) -> u16 {
        self.payload_length.get()
    }

    /// Returns the protocol behind these 40 bytes: the payload or an extension header. See [`Ipv6::upper`].
    #[inline(always)]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.next_header)
    }

    /// Returns the hop limit.
    #[inline(always)]
    pub fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// Returns the source address.
    #[inline(always)]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.src)
    }

    /// Returns the destination address.
    #[inline(always)]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.dst)
    }

    /// Returns the source address in network order.
    #[inline(always)]
    pub fn src_octets(&self) -> [u8; 16] {
        self.src
    }

    /// Returns the destination address in network order.
    #[inline(always)]
    pub fn dst_octets(&self) -> [u8; 16] {
        self.dst
    }

    /// Sets version 6 and leaves the rest.
    #[inline(always)]
    pub fn set_version(&mut self) {
        self.version_class_flow = U32::new(self.version_class_flow.get() & 0x0fff_ffff | 6 << 28);
    }

    /// Sets the traffic class.
    #[inline(always)]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.version_class_flow = U32::new(self.version_class_flow.get() & !(0xff << 20) | u32::from(class) << 20);
    }

    /// Sets the flow label to the low 20 bits of `label`.
    #[inline(always)]
    pub fn set_flow_label(&mut self, label: u32) {
        self.version_class_flow = U32::new(self.version_class_flow.get() & !FLOW_LABEL | label & FLOW_LABEL);
    }

    /// Sets the length of extension headers and payload in bytes.
    #[inline(always)]
    pub fn set_payload_length(&mut self, bytes: u16) {
        self.payload_length = U16::new(bytes);
    }

    /// Sets what follows.
    #[inline(always)]
    pub fn set_next_header(&mut self, next: IpProtocol) {
        self.next_header = next.0;
    }

    /// Sets the hop limit.
    #[inline(always)]
    pub fn set_hop_limit(&mut self, hops: u8) {
        self.hop_limit = hops;
    }

    /// Takes one from the hop limit; the caller makes sure that it is not 0.
    #[inline(always)]
    pub fn decrement_hop_limit(&mut self) {
        self.hop_limit = self.hop_limit.wrapping_sub(1);
    }

    /// Sets the source address; checksums above are the caller's.
    #[inline(always)]
    pub fn set_src(&mut self, src: Ipv6Addr) {
        self.src = src.octets();
    }

    /// Sets the destination address; checksums above are the caller's.
    #[inline(always)]
    pub fn set_dst(&mut self, dst: Ipv6Addr) {
        self.dst = dst.octets();
    }

    /// Sets the source address from network order.
    #[inline(always)]
    pub fn set_src_octets(&mut self, src: [u8; 16]) {
        self.src = src;
    }

    /// Sets the destination address from network order.
    #[inline(always)]
    pub fn set_dst_octets(&mut self, dst: [u8; 16]) {
        self.dst = dst;
    }

    /// Exchanges source and destination; checksums above stay right.
    #[inline(always)]
    pub fn swap_addrs(&mut self) {
        core::mem::swap(&mut self.src, &mut self.dst);
    }

    /// Returns the protocol of the payload behind the extension headers, and true if this is a fragment other than the
    /// first, whose payload does not start with the header of that protocol.
    ///
    /// `whole` is a checked header with its extension headers; what follows them does not matter. Bytes that
    /// [`Header::check`] refuses announce [`IpProtocol::NO_NEXT`].
    #[inline(always)]
    pub fn upper(whole: &[u8]) -> (IpProtocol, bool) {
        match fixed::<Self>(whole) {
            Ok(header) if !header.next_header().is_extension() => (header.next_header(), false),
            Ok(header) => {
                walk(header.next_header(), whole).map_or((IpProtocol::NO_NEXT, false), |w| (w.upper, w.later))
            }
            Err(_) => (IpProtocol::NO_NEXT, false),
        }
    }
}

/// End of the extension headers.
struct Walk {
    len: usize,
    upper: IpProtocol,
    /// True if there was a fragment header with an offset.
    later: bool,
    /// Next header of the fragment header of a real fragment, the first included.
    fragment: Option<IpProtocol>,
}

/// Length in bytes of the extension header `kind` at the start of `bytes`; `None` if the bytes end before, or for an
/// authentication header without its 12 fixed bytes (RFC 4302 §2).
#[inline(always)]
fn extension_len(kind: IpProtocol, bytes: &[u8]) -> Option<usize> {
    let units = usize::from(*bytes.get(1)?);
    let len = match kind {
        IpProtocol::FRAGMENT => 8,
        IpProtocol::AH if units == 0 => return None,
        IpProtocol::AH => (units + 2) * 4,
        _ => (units + 1) * 8,
    };
    (len <= bytes.len()).then_some(len)
}

/// Offset and more-fragments flag of a fragment header; both zero in an "atomic" fragment, which is whole (RFC 6946).
#[inline(always)]
fn fragment_field(header: &[u8]) -> u16 {
    match header {
        [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]) & 0xfff9,
        _ => 0,
    }
}

/// Walks the extension headers in `bytes`, a packet that ends where its payload ends.
#[cold]
#[inline(never)]
fn walk(first: IpProtocol, bytes: &[u8]) -> Result<Walk, Malformed> {
    let mut at = Walk { len: FIXED, upper: first, later: false, fragment: None };
    for _ in 0..MAX_EXTENSIONS {
        let rest = bytes.get(at.len..).unwrap_or_default();
        let len = extension_len(at.upper, rest).ok_or(Malformed::Option)?;
        let next = IpProtocol(rest.first().copied().unwrap_or(IpProtocol::NO_NEXT.0));
        if at.upper == IpProtocol::FRAGMENT && fragment_field(rest) != 0 {
            at.later = fragment_field(rest) > 1;
            at.fragment = at.fragment.or(Some(next));
        }
        at.len += len;
        at.upper = next;
        // Behind a later fragment's header stands the middle of something.
        if at.later || !at.upper.is_extension() {
            return Ok(at);
        }
    }
    Err(Malformed::Option)
}

/// Returns the protocol that identifies the flow of a checked header, the same for all fragments of a datagram, and true
/// for a fragment.
#[inline(always)]
pub(crate) fn flow_protocol(whole: &[u8]) -> (IpProtocol, bool) {
    match fixed::<Ipv6>(whole) {
        Ok(header) if !header.next_header().is_extension() => (header.next_header(), false),
        Ok(header) => walk(header.next_header(), whole).map_or((IpProtocol::NO_NEXT, false), |walk| {
            walk.fragment.map_or((walk.upper, false), |protocol| (protocol, true))
        }),
        Err(_) => (IpProtocol::NO_NEXT, false),
    }
}

impl Header for Ipv6 {
    const NAME: &'static str = "ipv6";
    const NOT: &'static str = "not_ipv6";
    const MALFORMED: &'static str = "malformed_ipv6";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        let header = fixed::<Self>(bytes)?;
        if header.version() != 6 {
            return Err(Malformed::Version);
        }
        let end = FIXED + usize::from(header.payload_length());
        let Some(packet) = bytes.get(..end) else {
            return Err(Malformed::Short);
        };
        if header.next_header().is_extension() {
            return walk(header.next_header(), packet).map(|w| w.len);
        }
        Ok(FIXED)
    }

    #[inline(always)]
    fn extent(bytes: &[u8]) -> usize {
        fixed::<Self>(bytes).map_or(bytes.len(), |header| bytes.len().min(FIXED + usize::from(header.payload_length())))
    }
}

impl Follows<Ethernet> for Ipv6 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ethernet::announces(below, EtherType::IPV6)
    }
}

impl Follows<Vlan> for Ipv6 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        vlan::announces(below, EtherType::IPV6)
    }
}

impl Follows<Ipv6> for Ipv6 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        announces(below, IpProtocol::IPV6)
    }
}

/// Returns true if a header of `wanted` follows a checked IPv6 header; false in later fragments.
#[inline(always)]
pub(crate) fn announces(below: &[u8], wanted: IpProtocol) -> bool {
    Ipv6::upper(below) == (wanted, false)
}

/// A checked IPv6 packet; its header includes the extension headers.
pub type Packet<'a> = View<'a, Ipv6>;

impl<'a> View<'a, Ipv6> {
    /// Returns the extension headers.
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions { kind: self.header().next_header(), rest: self.variable_part() }
    }

    /// Returns the upper protocol; see [`Ipv6::upper`].
    #[inline]
    pub fn upper(&self) -> (IpProtocol, bool) {
        Ipv6::upper(self.header_bytes())
    }

    /// Returns the pseudo header for the transport checksum of this packet, at its final destination.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::v6(self.header().src(), self.header().dst(), self.upper().0)
    }
}

/// One extension header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension<'a> {
    /// Which one.
    pub kind: IpProtocol,
    /// All of it, starting with its next header field.
    pub bytes: &'a [u8],
}

impl Extension<'_> {
    /// Returns the protocol that follows this extension header.
    pub fn next_header(&self) -> IpProtocol {
        self.bytes.first().map_or(IpProtocol::NO_NEXT, |next| IpProtocol(*next))
    }

    /// Returns the fields of a fragment header; `None` if this is another extension header.
    pub fn fragment(&self) -> Option<Fragment> {
        match *self.bytes {
            [_, _, high, low, a, b, c, d] if self.kind == IpProtocol::FRAGMENT => Some(Fragment {
                offset: u16::from_be_bytes([high, low & 0xf8]),
                more: low & 1 != 0,
                id: u32::from_be_bytes([a, b, c, d]),
            }),
            _ => None,
        }
    }
}

/// The extension headers of a checked IPv6 packet.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    kind: IpProtocol,
    rest: &'a [u8],
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        if !self.kind.is_extension() {
            return None;
        }
        let (bytes, rest) = self.rest.split_at_checked(extension_len(self.kind, self.rest)?)?;
        let extension = Extension { kind: self.kind, bytes };
        (self.kind, self.rest) = (extension.next_header(), rest);
        Some(extension)
    }
}

/// The fragment header (RFC 8200 §4.5) as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Fragment offset in bytes, a multiple of 8.
    pub offset: u16,
    /// More-fragments flag.
    pub more: bool,
    /// Identification of the datagram.
    pub id: u32,
}

impl Fragment {
    /// Returns the bytes of a fragment header behind its next-header field; the offset is rounded down to a multiple of 8.
    pub fn body(&self) -> [u8; 7] {
        let [high, low] = (self.offset & !7 | u16::from(self.more)).to_be_bytes();
        let [a, b, c, d] = self.id.to_be_bytes();
        [0, high, low, a, b, c, d]
    }
}

/// An IPv6 header without extension headers as a value; for its length fields those are payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, below 2²⁰.
    pub flow_label: u32,
    /// Protocol that follows: the payload or an extension header.
    pub next_header: IpProtocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Length of extension headers and payload in bytes.
    pub payload_len: u16,
}

impl Repr {
    /// Returns a header with hop limit 64.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol, payload_len: u16) -> Self {
        Self { traffic_class: 0, flow_label: 0, next_header, hop_limit: 64, src, dst, payload_len }
    }

    /// Parses a checked header.
    ///
    /// # Errors
    /// None: every checked header has a value.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Malformed> {
        let header = packet.header();
        Ok(Self {
            traffic_class: header.traffic_class(),
            flow_label: header.flow_label(),
            next_header: header.next_header(),
            hop_limit: header.hop_limit(),
            src: header.src(),
            dst: header.dst(),
            payload_len: header.payload_length(),
        })
    }

    /// Returns the length of the header in bytes, without extension headers.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        FIXED
    }

    /// Returns the pseudo header for the transport checksum of a packet without extension headers.
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::v6(self.src, self.dst, self.next_header)
    }

    /// Writes the header to the start of `out`; the payload stays.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room, [`Malformed::Range`] if the flow label is too large.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        if self.flow_label > FLOW_LABEL {
            return Err(Malformed::Range);
        }
        let header = fixed_mut::<Ipv6>(out)?;
        header.set_version();
        header.set_traffic_class(self.traffic_class);
        header.set_flow_label(self.flow_label);
        header.set_payload_length(self.payload_len);
        header.set_next_header(self.next_header);
        header.set_hop_limit(self.hop_limit);
        header.set_src(self.src);
        header.set_dst(self.dst);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
