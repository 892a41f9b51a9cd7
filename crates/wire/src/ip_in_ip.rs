//! IPv4 inside IPv6 (RFC 2473) and IPv6 inside IPv4 (RFC 4213).

use crate::{Follows, IpProtocol, Ipv4, Ipv6, ipv4, ipv6};

impl Follows<Ipv6> for Ipv4 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv6::announces(below, IpProtocol::IPV4)
    }
}

impl Follows<Ipv4> for Ipv6 {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv4::announces(below, IpProtocol::IPV6)
    }
}
