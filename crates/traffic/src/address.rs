//! Ranges of addresses that flows take theirs from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Error of an address range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Not an address, prefix or range.
    #[error("`{0}` is no address range; give `198.18.0.1`, `198.18.0.0/16` or `198.18.0.1-198.18.0.200`")]
    Text(String),
    /// A prefix longer than an address.
    #[error("prefix length {len} of {address} is above {most}")]
    Length {
        /// The address before the slash.
        address: IpAddr,
        /// The length behind it.
        len: u8,
        /// Bits of such an address.
        most: u8,
    },
    /// The end lies before the start, or is of the other version.
    #[error("{last} does not follow {first}; a range goes from a lower to a higher address of the same version")]
    Order {
        /// First address.
        first: IpAddr,
        /// Last address.
        last: IpAddr,
    },
}

/// Addresses from a first to a last one, of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    /// Creates the range from `first` to `last`, both included.
    ///
    /// # Errors
    /// [`AddressError::Order`] unless both are of one version and in order.
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, AddressError> {
        if first.is_ipv4() != last.is_ipv4() || first > last {
            return Err(AddressError::Order { first, last });
        }
        Ok(Self { first, last })
    }

    /// Returns all addresses of a prefix; bits behind `len` in `address` do not matter.
    ///
    /// # Errors
    /// [`AddressError::Length`] if `len` is above 32 or 128.
    pub fn prefix(address: IpAddr, len: u8) -> Result<Self, AddressError> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        if len > most {
            return Err(AddressError::Length { address, len, most });
        }
        let hosts = host_mask(most - len);
        let first = bits(address) & !hosts;
        Ok(Self { first: from_bits(address.is_ipv4(), first), last: from_bits(address.is_ipv4(), first | hosts) })
    }

    /// Returns the first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns the last address.
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// Returns true if the addresses are IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// Returns the number of addresses; 2¹²⁸−1 for all of IPv6.
    #[expect(clippy::len_without_is_empty, reason = "a range has at least one address")]
    pub fn len(&self) -> u128 {
        (bits(self.last) - bits(self.first)).saturating_add(1)
    }

    /// Returns the number of an address in the range.
    pub fn position(&self, address: IpAddr) -> Option<u128> {
        let is_within = address.is_ipv4() == self.is_ipv4() && (self.first..=self.last).contains(&address);
        is_within.then(|| bits(address) - bits(self.first))
    }

    /// Address number `index`, starting over behind the last one.
    pub fn nth(&self, index: u128) -> IpAddr {
        from_bits(self.is_ipv4(), bits(self.first) + index % self.len())
    }
}

impl From<IpAddr> for AddressRange {
    fn from(address: IpAddr) -> Self {
        Self { first: address, last: address }
    }
}

fn host_mask(bits: u8) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn from_bits(v4: bool, bits: u128) -> IpAddr {
    if v4 { Ipv4Addr::from_bits(bits as u32).into() } else { Ipv6Addr::from_bits(bits).into() }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl FromStr for AddressRange {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let unknown = || AddressError::Text(text.chars().take(120).collect());
        let address = |part: &str| part.trim().parse::<IpAddr>().map_err(|_| unknown());
        if let Some((first, len)) = text.split_once('/') {
            return Self::prefix(address(first)?, len.trim().parse().map_err(|_| unknown())?);
        }
        match text.split_once('-') {
            Some((first, last)) => Self::new(address(first)?, address(last)?),
            None => address(text).map(Self::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    #[test]
    fn three_ways_to_write_one() {
        assert_eq!(range("198.18.3.7/15"), range("198.18.0.0-198.19.255.255"));
        assert_eq!(range("198.18.0.0/15").len(), 1 << 17);
        assert_eq!(range("10.0.0.1"), range("10.0.0.1/32"));
        assert_eq!(range("2001:2::/48").last(), "2001:2:0:ffff:ffff:ffff:ffff:ffff".parse::<IpAddr>().unwrap());
        assert_eq!(range("10.0.0.5-10.0.0.6").nth(3), IpAddr::from([10, 0, 0, 6]));
        assert_eq!(range("::/0").nth(5), IpAddr::V6(Ipv6Addr::from_bits(5)));
        assert_eq!(range("0.0.0.0/0").len(), 1 << 32);
    }

    #[test]
    fn refusals() {
        for text in ["", "x", "10.0.0.1/", "10.0.0.1-", "10.0.0", "10.0.0.1/-1", "10.0.0.1/300"] {
            assert!(matches!(text.parse::<AddressRange>(), Err(AddressError::Text(_))), "{text}");
        }
        assert!(matches!("10.0.0.1/33".parse::<AddressRange>(), Err(AddressError::Length { most: 32, .. })));
        assert!(matches!("10.0.0.2-10.0.0.1".parse::<AddressRange>(), Err(AddressError::Order { .. })));
        assert!(matches!("10.0.0.2-::1".parse::<AddressRange>(), Err(AddressError::Order { .. })));
    }

    proptest! {
        #[test]
        fn text_round_trip(a: u128, b: u128, v4: bool, index: u128) {
            let (a, b) = (from_bits(v4, a), from_bits(v4, b));
            let range = AddressRange::new(a.min(b), a.max(b)).unwrap();
            prop_assert_eq!(range.to_string().parse(), Ok(range));
            prop_assert!((range.first()..=range.last()).contains(&range.nth(index)));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[0-9a-f.:/-]{0,30}") {
            let _ = text.parse::<AddressRange>();
        }
    }
}
