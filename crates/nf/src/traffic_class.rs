//! Traffic class of IP headers: DSCP and ECN field (RFC 2474, RFC 3168).

use wire::{EtherType, checksum};

/// Replaces the bits `mask` of the traffic class in an IP header with those of `value`, and updates the checksum of IPv4
/// (RFC 1624). Returns false if it is no whole IP header.
pub(crate) fn set(kind: EtherType, header: &mut [u8], mask: u8, value: u8) -> bool {
    match kind {
        EtherType::IPV4 => {
            let Some([first, class, _, _, _, _, _, _, _, _, high, low, ..]) = header.first_chunk_mut::<20>() else {
                return false;
            };
            let new = *class & !mask | value & mask;
            let old = u16::from_be_bytes([*first, *class]);
            let sum = checksum::update16(u16::from_be_bytes([*high, *low]), old, u16::from_be_bytes([*first, new]));
            *class = new;
            [*high, *low] = sum.to_be_bytes();
        }
        EtherType::IPV6 => {
            let Some([first, second, ..]) = header.first_chunk_mut::<40>() else { return false };
            let new = (*first << 4 | *second >> 4) & !mask | value & mask;
            *first = *first & 0xf0 | new >> 4;
            *second = *second & 0x0f | new << 4;
        }
        _ => return false,
    }
    true
}
