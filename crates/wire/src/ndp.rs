//! Neighbor discovery (RFC 4861): solicitations and advertisements.

use crate::icmpv6::{self, Repr};
use crate::{Icmpv6, MacAddr, Malformed, build};
use core::net::Ipv6Addr;

/// Option that holds the sender's MAC address.
const SOURCE_MAC: u8 = 1;
/// Option that holds the target's MAC address.
const TARGET_MAC: u8 = 2;

/// Router flag of an advertisement.
pub const ROUTER: u8 = 0x80;
/// Solicited flag of an advertisement.
pub const SOLICITED: u8 = 0x40;
/// Override flag of an advertisement.
pub const OVERRIDE: u8 = 0x20;

/// A neighbor solicitation or advertisement as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbor {
    /// Neighbor solicitation: asks for the MAC address of the target.
    Solicitation {
        /// Target address.
        target: Ipv6Addr,
        /// MAC address of the sender; absent during duplicate address detection.
        source_mac: Option<MacAddr>,
    },
    /// Neighbor advertisement: announces the MAC address of the target.
    Advertisement {
        /// Target address.
        target: Ipv6Addr,
        /// [`ROUTER`], [`SOLICITED`] and [`OVERRIDE`].
        flags: u8,
        /// MAC address of the target; may be absent in an answer to a unicast solicitation.
        target_mac: Option<MacAddr>,
    },
}

impl Neighbor {
    /// The value of a message. That it came with hop limit 255 and a right checksum (RFC 4861 §7.1) is the caller's to
    /// see.
    ///
    /// # Errors
    /// [`Malformed::Kind`] for other messages, and [`Malformed::Short`] or [`Malformed::Range`] for what RFC 4861 §7.1
    /// has dropped: a multicast target, an option of length 0 or longer than the message.
    pub fn parse(message: &icmpv6::Message<'_>) -> Result<Self, Malformed> {
        let repr = Repr::parse(message)?;
        let (target, options) = message.payload().split_first_chunk::<16>().ok_or(Malformed::Short)?;
        let target = Ipv6Addr::from(*target);
        if target.is_multicast() {
            return Err(Malformed::Range);
        }
        match repr {
            Repr::NeighborSolicitation => Ok(Self::Solicitation { target, source_mac: mac(options, SOURCE_MAC)? }),
            Repr::NeighborAdvertisement { flags } => {
                Ok(Self::Advertisement { target, flags, target_mac: mac(options, TARGET_MAC)? })
            }
            _ => Err(Malformed::Kind),
        }
    }

    /// Builds the whole frame with this message, from `src` to `dst`.
    pub fn frame(&self, macs: (MacAddr, MacAddr), src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let (repr, target, option, mac) = match *self {
            Self::Solicitation { target, source_mac } => (Repr::NeighborSolicitation, target, SOURCE_MAC, source_mac),
            Self::Advertisement { target, flags, target_mac } => {
                (Repr::NeighborAdvertisement { flags }, target, TARGET_MAC, target_mac)
            }
        };
        let mut body = target.octets().to_vec();
        if let Some(mac) = mac {
            body.extend([option, 1]);
            body.extend(mac.0);
        }
        build::icmp6(src, dst, repr).payload(&body).ttl(255).src_mac(macs.0).dst_mac(macs.1).to_vec()
    }
}

/// Returns the MAC address in the option of this kind.
fn mac(mut options: &[u8], wanted: u8) -> Result<Option<MacAddr>, Malformed> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        let len = usize::from(units) * 8;
        if len == 0 {
            return Err(Malformed::Range);
        }
        let (option, rest) = options.split_at_checked(len).ok_or(Malformed::Short)?;
        if kind == wanted
            && let [_, _, mac @ ..] = option
            && let Some(mac) = mac.first_chunk::<6>()
        {
            found = found.or(Some(MacAddr(*mac)));
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(Malformed::Short) }
}

/// Returns the solicited-node multicast address of an address (RFC 4291 §2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c))
}

/// Returns the MAC address of an IPv6 multicast address (RFC 2464 §7).
pub fn multicast_mac(address: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = address.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// Returns the link-local address made of a MAC address (RFC 4291 appendix A).
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns true if the message is a neighbor solicitation or advertisement.
pub fn is_neighbor(header: &Icmpv6) -> bool {
    matches!(header.kind(), Icmpv6::NEIGHBOR_SOLICITATION | Icmpv6::NEIGHBOR_ADVERTISEMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ethernet, ipv6};
    use proptest::prelude::*;

    const MACS: (MacAddr, MacAddr) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));

    fn parse(frame: &[u8]) -> Result<Neighbor, Malformed> {
        let frame = ethernet::Frame::new(frame)?;
        let ip = ipv6::Packet::new(frame.payload())?;
        let message = icmpv6::Message::new(ip.payload())?;
        assert!(message.checksum_ok(ip.pseudo()));
        assert_eq!(ip.header().hop_limit(), 255);
        Neighbor::parse(&message)
    }

    proptest! {
        #[test]
        fn round_trip(target: u128, flags in 0..8u8, with: bool, mac: [u8; 6], ask: bool) {
            let target = Ipv6Addr::from(target);
            let mac = with.then_some(MacAddr(mac));
            let neighbor = if ask {
                Neighbor::Solicitation { target, source_mac: mac }
            } else {
                Neighbor::Advertisement { target, flags: flags << 5, target_mac: mac }
            };
            let frame = neighbor.frame(MACS, Ipv6Addr::LOCALHOST, solicited_node(target));
            if target.is_multicast() {
                prop_assert_eq!(parse(&frame), Err(Malformed::Range));
            } else {
                prop_assert_eq!(parse(&frame), Ok(neighbor));
            }
        }

        #[test]
        fn options_of_any_bytes_end(options: Vec<u8>) {
            let _ = mac(&options, SOURCE_MAC);
        }
    }

    #[test]
    fn well_known_addresses() {
        let address: Ipv6Addr = "4037::1:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(address), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_mac(solicited_node(address)).0, [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
        let mac = MacAddr([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(link_local(mac), "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn an_option_without_length_is_refused() {
        assert_eq!(mac(&[1, 0, 0, 0, 0, 0, 0, 0], 1), Err(Malformed::Range));
        assert_eq!(mac(&[1, 2, 0, 0, 0, 0, 0, 0], 1), Err(Malformed::Short));
    }
}
