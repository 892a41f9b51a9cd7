//! Packets of which nothing but the addresses and ports is to be read.

use tables::flow::Tuple4;
use wire::{EtherType, Ethernet, IpProtocol, Ipv4};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First headers of a TCP or UDP packet over IPv4.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain4 {
    ethernet: Ethernet,
    /// First bytes of the IPv4 header.
    ip: [u8; 12],
    /// Addresses and ports.
    tuple: [u8; 12],
}

/// Returns the key of an untagged, unfragmented TCP or UDP packet over IPv4 without options.
#[inline(always)]
pub(super) fn plain4(frame: &[u8]) -> Option<Tuple4> {
    let (h, _) = Plain4::ref_from_prefix(frame).ok()?;
    let [version, _, total_high, total_low, _, _, flags, offset, _, protocol, _, _] = h.ip;
    let total = usize::from(u16::from_be_bytes([total_high, total_low]));
    let plain = h.ethernet.ether_type() == EtherType::IPV4
        && version == 0x45
        && total >= size_of::<Ipv4>() + 4
        && total <= frame.len() - size_of::<Ethernet>()
        // "don't fragment" is the only flag that may be set
        && u16::from_le_bytes([flags, offset]) & 0xff3f == 0
        && matches!(IpProtocol(protocol), IpProtocol::TCP | IpProtocol::UDP);
    plain.then(|| Tuple4::of_wire(&h.tuple, protocol))
}
