//! IPv4-embedded IPv6 addresses (RFC 6052).

use ipnet::Ipv6Net;

/// The well-known prefix (RFC 6052 §2.1).
pub(super) const WELL_KNOWN_PREFIX: &str = "64:ff9b::/96";

/// Bits 64 to 71, which are zero in all such addresses.
const ZERO_OCTET: u128 = 0xff << 56;

/// A prefix of IPv4-embedded addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    bits: u128,
    /// Length in bits: 32, 40, 48, 56, 64 or 96.
    len: u32,
}

impl Prefix {
    /// Returns `None` for a length that RFC 6052 §2.2 does not permit, or if host bits or the zero octet are set.
    pub(super) fn new(net: Ipv6Net) -> Option<Self> {
        let (bits, len) = (net.addr().to_bits(), u32::from(net.prefix_len()));
        let clean = bits & net.hostmask().to_bits() == 0 && bits & ZERO_OCTET == 0;
        (matches!(len, 32 | 40 | 48 | 56 | 64 | 96) && clean).then_some(Prefix { bits, len })
    }

    /// Returns true if an IPv6 address has this prefix.
    #[inline(always)]
    pub(super) fn contains(&self, address: u128) -> bool {
        (address ^ self.bits) >> (128 - self.len) == 0
    }

    pub(super) fn is_well_known(&self) -> bool {
        WELL_KNOWN_PREFIX.parse::<Ipv6Net>().is_ok_and(|net| Prefix::new(net) == Some(*self))
    }

    /// Number of bits of the IPv4 address in front of the zero octet.
    fn bits_before_zero_octet(&self) -> u32 {
        64 - self.len
    }

    /// Returns the IPv6 address that embeds an IPv4 address.
    #[inline(always)]
    pub(super) fn embed(&self, address: u32) -> u128 {
        let v4 = u128::from(address);
        if self.len == 96 {
            return self.bits | v4;
        }
        let behind = 32 - self.bits_before_zero_octet();
        let (bits_before_zero_octet, back) = (v4 >> behind, v4 & ((1 << behind) - 1));
        self.bits | bits_before_zero_octet << 64 | back << (24 + self.bits_before_zero_octet())
    }

    /// Returns the embedded IPv4 address; the suffix is ignored (RFC 6052 §2.2).
    #[inline(always)]
    pub(super) fn extract(&self, address: u128) -> u32 {
        if self.len == 96 {
            return address as u32;
        }
        let behind = 32 - self.bits_before_zero_octet();
        let bits_before_zero_octet = (address >> 64) & ((1 << self.bits_before_zero_octet()) - 1);
        let back = (address >> (24 + self.bits_before_zero_octet())) & ((1 << behind) - 1);
        (bits_before_zero_octet << behind | back) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const EXAMPLES: [(&str, &str); 7] = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ];

    #[test]
    fn embeds_the_examples_of_rfc_6052() {
        let v4 = Ipv4Addr::new(192, 0, 2, 33).to_bits();
        for (prefix, address) in EXAMPLES {
            let prefix = Prefix::new(prefix.parse().unwrap()).unwrap();
            assert_eq!(Ipv6Addr::from_bits(prefix.embed(v4)), address.parse::<Ipv6Addr>().unwrap(), "RFC 6052 §2.4");
            assert_eq!(prefix.extract(prefix.embed(v4)), v4);
        }
    }

    #[test]
    fn rejects_other_prefixes() {
        for text in ["64:ff9b::/95", "64:ff9b::1/96", "2001:db8:0:0:100::/96", "::/0", "2001:db8::/44"] {
            assert_eq!(Prefix::new(text.parse().unwrap()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn extracts_embedded_addresses(v4: u32, noise: u128) {
            for (prefix, _) in EXAMPLES {
                let prefix = Prefix::new(prefix.parse().unwrap()).unwrap();
                let address = prefix.embed(v4);
                prop_assert!(prefix.contains(address) && address & ZERO_OCTET == 0);
                prop_assert_eq!(prefix.extract(address), v4);
                // the suffix is ignored
                let behind = if prefix.len == 96 { 0 } else { noise & ((1 << (24 + prefix.bits_before_zero_octet())) - 1) | noise & ZERO_OCTET };
                prop_assert_eq!(prefix.extract(address | behind), v4);
            }
        }
    }
}
