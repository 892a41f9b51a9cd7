//! Common to IPv4 and IPv6: protocol numbers (IANA "Assigned Internet Protocol Numbers").

use core::fmt;

/// The protocol field of IPv4, the next header field of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4
    pub const ICMPV4: Self = Self(1);
    /// IPv4 inside IP
    pub const IPV4: Self = Self(4);
    /// TCP
    pub const TCP: Self = Self(6);
    /// UDP
    pub const UDP: Self = Self(17);
    /// IPv6 inside IP
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header
    pub const FRAGMENT: Self = Self(44);
    /// GRE
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload
    pub const ESP: Self = Self(50);
    /// Authentication header
    pub const AH: Self = Self(51);
    /// ICMP for IPv6
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows
    pub const NO_NEXT: Self = Self(59);
    /// IPv6 destination options
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// SCTP
    pub const SCTP: Self = Self(132);
    /// IPv6 mobility header
    pub const MOBILITY: Self = Self(135);

    /// Returns true if this is one of the IPv6 extension headers that [`Ipv6`](crate::Ipv6) counts as part of the header:
    /// hop-by-hop, routing, fragment, authentication, destination options and mobility.
    #[inline(always)]
    pub const fn is_extension(self) -> bool {
        matches!(
            self,
            Self::HOP_BY_HOP | Self::ROUTING | Self::FRAGMENT | Self::AH | Self::DESTINATION_OPTIONS | Self::MOBILITY
        )
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
