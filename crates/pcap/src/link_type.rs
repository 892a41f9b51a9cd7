//! Link types.

use std::fmt;

/// Link type of a frame: a number of the registry kept at <https://www.tcpdump.org/linktypes.html>.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: a 4-byte protocol family in the byte order of the machine that captured.
    pub const NULL: Self = Self(0);
    /// Ethernet, without preamble; usually without FCS.
    pub const ETHERNET: Self = Self(1);
    /// PPP, with or without HDLC framing.
    pub const PPP: Self = Self(9);
    /// An IPv4 or IPv6 packet; its first four bits say which.
    pub const RAW: Self = Self(101);
    /// Cisco HDLC.
    pub const C_HDLC: Self = Self(104);
    /// IEEE 802.11.
    pub const IEEE802_11: Self = Self(105);
    /// OpenBSD loopback: a 4-byte protocol family in network byte order.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture, as on the device `any`.
    pub const LINUX_SLL: Self = Self(113);
    /// Radiotap header, then IEEE 802.11.
    pub const IEEE802_11_RADIOTAP: Self = Self(127);
    /// An IPv4 packet.
    pub const IPV4: Self = Self(228);
    /// An IPv6 packet.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// Returns the registry's name, where this crate knows it.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NULL => "NULL",
            Self::ETHERNET => "ETHERNET",
            Self::PPP => "PPP",
            Self::RAW => "RAW",
            Self::C_HDLC => "C_HDLC",
            Self::IEEE802_11 => "IEEE802_11",
            Self::LOOP => "LOOP",
            Self::LINUX_SLL => "LINUX_SLL",
            Self::IEEE802_11_RADIOTAP => "IEEE802_11_RADIOTAP",
            Self::IPV4 => "IPV4",
            Self::IPV6 => "IPV6",
            Self::LINUX_SLL2 => "LINUX_SLL2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    /// `ETHERNET (1)`, or `link type 147` for a number without a name here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "link type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_types_have_names_and_unknown_ones_their_number() {
        assert_eq!(LinkType::LINUX_SLL2.to_string(), "LINUX_SLL2 (276)");
        assert_eq!(LinkType(147).to_string(), "link type 147");
    }
}
