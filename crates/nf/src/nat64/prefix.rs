//! IPv4 addresses inside IPv6 addresses (RFC 6052).

use ipnet::Ipv6Net;

/// The prefix that everybody knows (RFC 6052 §2.1).
pub(super) const WELL_KNOWN: &str = "64:ff9b::/96";

/// Bits 64 to 71, which are 0 in all such addresses.
const U: u128 = 0xff << 56;

/// A prefix behind which all IPv4 addresses stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    bits: u128,
    /// 32, 40, 48, 56, 64 or 96.
    len: u32,
}

impl Prefix {
    /// `None` if it has another length than RFC 6052 §2.2 allows, bits set behind its end or in the octet that is 0.
    pub(super) fn new(net: Ipv6Net) -> Option<Self> {
        let (bits, len) = (net.addr().to_bits(), u32::from(net.prefix_len()));
        let clean = bits & net.hostmask().to_bits() == 0 && bits & U == 0;
        (matches!(len, 32 | 40 | 48 | 56 | 64 | 96) && clean).then_some(Prefix { bits, len })
    }

    /// Whether an IPv6 address begins with it.
    #[inline(always)]
    pub(super) fn has(&self, address: u128) -> bool {
        (address ^ self.bits) >> (128 - self.len) == 0
    }

    pub(super) fn is_well_known(&self) -> bool {
        WELL_KNOWN.parse::<Ipv6Net>().is_ok_and(|net| Prefix::new(net) == Some(*self))
    }

    /// Bits of the IPv4 address in front of the octet that is 0.
    fn front(&self) -> u32 {
        64 - self.len
    }

    /// The IPv6 address of an IPv4 address.
    #[inline(always)]
    pub(super) fn embed(&self, address: u32) -> u128 {
        let v4 = u128::from(address);
        if self.len == 96 {
            return self.bits | v4;
        }
        let behind = 32 - self.front();
        let (front, back) = (v4 >> behind, v4 & ((1 << behind) - 1));
        self.bits | front << 64 | back << (24 + self.front())
    }

    /// The IPv4 address in an IPv6 address; what is behind it does not count (RFC 6052 §2.2).
    #[inline(always)]
    pub(super) fn extract(&self, address: u128) -> u32 {
        if self.len == 96 {
            return address as u32;
        }
        let behind = 32 - self.front();
        let front = (address >> 64) & ((1 << self.front()) - 1);
        let back = (address >> (24 + self.front())) & ((1 << behind) - 1);
        (front << behind | back) as u32
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
    fn the_examples_of_the_rfc() {
        let v4 = Ipv4Addr::new(192, 0, 2, 33).to_bits();
        for (prefix, address) in EXAMPLES {
            let prefix = Prefix::new(prefix.parse().unwrap()).unwrap();
            assert_eq!(Ipv6Addr::from_bits(prefix.embed(v4)), address.parse::<Ipv6Addr>().unwrap(), "RFC 6052 §2.4");
            assert_eq!(prefix.extract(prefix.embed(v4)), v4);
        }
    }

    #[test]
    fn other_prefixes_are_none() {
        for text in ["64:ff9b::/95", "64:ff9b::1/96", "2001:db8:0:0:100::/96", "::/0", "2001:db8::/44"] {
            assert_eq!(Prefix::new(text.parse().unwrap()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn addresses_come_out_as_they_went_in(v4: u32, noise: u128) {
            for (prefix, _) in EXAMPLES {
                let prefix = Prefix::new(prefix.parse().unwrap()).unwrap();
                let address = prefix.embed(v4);
                prop_assert!(prefix.has(address) && address & U == 0);
                prop_assert_eq!(prefix.extract(address), v4);
                // what stands behind the address is not part of it
                let behind = if prefix.len == 96 { 0 } else { noise & ((1 << (24 + prefix.front())) - 1) | noise & U };
                prop_assert_eq!(prefix.extract(address | behind), v4);
            }
        }
    }
}
