//! Header checks of plain packets: untagged, valid, without options, not expiring.

use wire::{EtherType, Ethernet, Ipv4, Ipv6, MacAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_LEN: usize = size_of::<Ethernet>();

/// Headers of a plain IPv4 packet.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Plain4 {
    ethernet: Ethernet,
    pub(super) ip: Ipv4,
}

/// Headers of a plain IPv6 packet.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Plain6 {
    ethernet: Ethernet,
    pub(super) ip: Ipv6,
}

/// Returns the destination of a plain IPv4 packet to `mac`, or `None` if the packet needs the slow path (RFC 1812
/// §5.2.2, §5.3.7).
#[inline(always)]
pub(super) fn plain4(frame: &[u8], mac: MacAddr) -> Option<u32> {
    plain4_if(frame, |dst| dst == mac)
}

/// As [`plain4`], to MAC addresses for which `is_own` returns true.
#[inline(always)]
pub(super) fn plain4_if(frame: &[u8], is_own: impl FnOnce(MacAddr) -> bool) -> Option<u32> {
    let (h, _) = Plain4::ref_from_prefix(frame).ok()?;
    // five loads suffice for all checks: single fields would be loaded again for the checksum
    let words = words(&h.ip);
    let [version, _, total @ ..] = words[0].to_le_bytes();
    let [ttl, ..] = words[2].to_le_bytes();
    let [first, ..] = words[3].to_le_bytes();
    let total = usize::from(u16::from_be_bytes(total));
    let plain = h.ethernet.ether_type() == EtherType::IPV4
        && is_own(h.ethernet.dst())
        && version == 0x45
        // a length below that of the header wraps around and is too long
        && total.wrapping_sub(size_of::<Ipv4>()) <= frame.len() - size_of::<Plain4>()
        && ttl > 1
        && first.wrapping_sub(1) < 0xdf
        && first != 127
        && checksum_ok(words);
    plain.then(|| u32::from_be(words[4].to_le()))
}

/// Returns a header without options as little-endian words.
#[inline(always)]
fn words(ip: &Ipv4) -> [u32; 5] {
    let (words, _) = ip.as_bytes().as_chunks();
    core::array::from_fn(|n| u32::from_le_bytes(words[n]))
}

/// Returns true if the checksum of a header without options is correct (RFC 1071).
#[inline(always)]
fn checksum_ok(words: [u32; 5]) -> bool {
    let sum = words.into_iter().map(u64::from).sum::<u64>();
    // such a sum folds to 0xffff, as 1 << 16 is 1 modulo 0xffff; it is not 0, as it contains the version
    sum.is_multiple_of(0xffff)
}

/// Returns the destination of a plain IPv6 packet to `mac`, or `None` if the packet needs the slow path (RFC 8200 §3,
/// RFC 4291 §2.5).
#[inline(always)]
pub(super) fn plain6(frame: &[u8], mac: MacAddr) -> Option<u128> {
    let (h, _) = Plain6::ref_from_prefix(frame).ok()?;
    let ip = &h.ip;
    let src = u128::from_be_bytes(ip.src_octets());
    let plain = h.ethernet.ether_type() == EtherType::IPV6
        && h.ethernet.dst() == mac
        && ip.version() == 6
        && usize::from(ip.payload_length()) <= frame.len() - ETHERNET_LEN - size_of::<Ipv6>()
        && ip.hop_limit() > 1
        // the first byte of most sources is neither 00 nor fe nor ff
        && (ip.src_octets()[0].wrapping_sub(1) < 0xfd || is_global_unicast(src));
    plain.then(|| u128::from_be_bytes(ip.dst_octets()))
}

/// Returns true if the address is neither multicast nor link-local nor unspecified nor loopback.
#[cold]
fn is_global_unicast(src: u128) -> bool {
    src >> 120 != 0xff && src >> 118 != 0xfe80 >> 6 && src > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::checksum;

    #[test]
    fn verifies_header_checksums() {
        let mut state = 88_172_645_463_325_252u64;
        for n in 0..100_000u32 {
            let mut bytes = [0; 20];
            for word in bytes.chunks_exact_mut(4) {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                // includes words of zeros and ones
                let random = [(state >> 32) as u32, 0, u32::MAX, (state >> 60) as u32][state as usize >> 20 & 3];
                word.copy_from_slice(&random.to_be_bytes());
            }
            bytes[0] = 0x45;
            if n % 4 != 0 {
                bytes[10..12].fill(0);
                let sum = checksum::of(&bytes);
                bytes[10..12].copy_from_slice(&sum.wrapping_add((n % 4 == 1).into()).to_be_bytes());
            }
            let header = Ipv4::ref_from_bytes(&bytes).unwrap();
            assert_eq!(checksum_ok(words(header)), checksum::of(&bytes) == 0, "{bytes:02x?}");
        }
    }
}
