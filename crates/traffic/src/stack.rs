//! Header stacks: what frames consist of in front of the payload.
//!
//! | text | headers |
//! |---|---|
//! | `eth/ipv4/udp`, `eth/ipv6/tcp` | Ethernet, IP, transport |
//! | `eth/vlan:7/ipv4/udp` | with an 802.1Q tag of VLAN 7; `vlan` alone is VLAN 100 |
//! | `eth/vlan:7/vlan:8/ipv4/udp` | two tags (QinQ): the outer one with type 0x88a8, as IEEE 802.1ad has it |
//! | `eth/mpls:16/mpls:17/ipv4/udp` | with MPLS labels (RFC 3032), up to 8; `mpls` alone is label 16 |
//! | `eth/pppoe:3/ipv4/udp` | in PPPoE session 3 (RFC 2516); `pppoe` alone is session 1 |
//! | `vxlan:5(eth/ipv4/udp)` | in a VXLAN tunnel (RFC 7348) of network 5 over IPv4; `vxlan` alone is network 1 |
//! | `gtpu:5(ipv4/udp)` | in a GTP-U tunnel (3GPP TS 29.281) with TEID 5; `gtpu` alone is TEID 1 |
//! | `srv6(ipv4/udp)` | in SRv6 (RFC 8986 §5.1) with one segment |
//! | `eth/vlan:7/vxlan:5@2001:db8::1-2001:db8::2(eth/ipv4/udp)` | between these endpoints, with a tag in front |
//! | `srv6@2001:db8::1-2001:db8::2,2001:db8::3(ipv6/tcp)` | from this source over these segments, up to 8, the first one first |
//!
//! ```
//! use traffic::Stack;
//!
//! let stack: Stack = "vxlan:5@192.0.2.7-192.0.2.8(eth/vlan:9/ipv6/tcp)".parse()?;
//! assert_eq!((stack.ipv6, stack.tcp, stack.overhead()), (true, true, 50 + 4));
//! # Ok::<(), traffic::stack::NotStack>(())
//! ```

mod headers;
mod parse;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use wire::EtherType;

pub(crate) use headers::{FIRST_PORT, FlowField};
pub use parse::NotStack;

/// UDP port of VXLAN (RFC 7348 §5).
pub const VXLAN_PORT: u16 = 4789;
/// Bytes of a VXLAN header.
pub const VXLAN_LEN: usize = 8;
/// First byte of a VXLAN header: the flag I (RFC 7348 §5).
pub(crate) const VXLAN_FLAGS: u8 = 0x08;
/// UDP port of GTP-U (3GPP TS 29.281 §4.4.2).
pub const GTPU_PORT: u16 = 2152;
/// Bytes of a GTP-U header without optional fields (3GPP TS 29.281 §5.1).
pub const GTPU_LEN: usize = 8;
/// First byte of such a header: version 1, protocol type GTP.
pub(crate) const GTPU_FLAGS: u8 = 0x30;
/// Bytes of a PPPoE session header with the PPP protocol (RFC 2516 §4 and §6).
pub const PPPOE_LEN: usize = 8;
/// PPP protocol numbers of IPv4 (RFC 1332 §2) and IPv6 (RFC 5072 §3).
pub(crate) const PPP_IPV4: u16 = 0x0021;
pub(crate) const PPP_IPV6: u16 = 0x0057;
/// Highest number of MPLS labels, and of segments.
pub const MAX_LAYERS: usize = 8;

/// VLAN tags, the outer one first. The identifiers have 12 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Tags {
    /// None.
    #[default]
    None,
    /// One of type 0x8100 (802.1Q).
    One(u16),
    /// One of type 0x88a8 (802.1ad), then one of type 0x8100.
    Two(u16, u16),
}

impl Tags {
    fn list(self) -> impl Iterator<Item = (EtherType, u16)> {
        let (outer, inner) = match self {
            Self::None => (None, None),
            Self::One(vid) => (None, Some(vid)),
            Self::Two(outer, inner) => (Some(outer), Some(inner)),
        };
        outer.map(|vid| (EtherType::QINQ, vid)).into_iter().chain(inner.map(|vid| (EtherType::VLAN, vid)))
    }
}

/// Header between Ethernet or its tags and IP.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Shim {
    /// None.
    #[default]
    None,
    /// MPLS labels of 20 bits, the outermost one first; 1 to [`MAX_LAYERS`].
    Mpls(Vec<u32>),
    /// A PPPoE session with this identifier.
    Pppoe(u16),
}

/// Headers of the link layer between the MAC addresses and IP.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Link {
    /// VLAN tags.
    pub tags: Tags,
    /// Header behind them.
    pub shim: Shim,
}

/// Encapsulation of a tunnel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Encapsulation {
    /// Frames in VXLAN.
    Vxlan {
        /// The network, 24 bits.
        vni: u32,
        /// The endpoint that sends.
        src: IpAddr,
        /// The endpoint that receives, of the same IP version.
        dst: IpAddr,
    },
    /// IP packets in GTP-U.
    GtpU {
        /// The tunnel endpoint identifier.
        teid: u32,
        /// The endpoint that sends.
        src: IpAddr,
        /// The endpoint that receives, of the same IP version.
        dst: IpAddr,
    },
    /// IP packets in IPv6 with a segment routing header (RFC 8754 §2), also for one segment.
    Srv6 {
        /// The source node.
        src: Ipv6Addr,
        /// The segments in the order of the path; 1 to [`MAX_LAYERS`].
        segments: Vec<Ipv6Addr>,
    },
}

/// A tunnel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tunnel {
    /// Headers in front of the tunnel's IP header.
    pub link: Link,
    /// Encapsulation.
    pub encapsulation: Encapsulation,
}

/// Headers of frames.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stack {
    /// The tunnel that the frames are in.
    pub tunnel: Option<Tunnel>,
    /// Their headers of the link layer, within a tunnel of frames; empty in a tunnel of packets.
    pub link: Link,
    /// IPv6 and not IPv4.
    pub ipv6: bool,
    /// TCP and not UDP.
    pub tcp: bool,
}

impl Stack {
    /// Returns the same from the other side: the tunnel's endpoints swapped, and segments in the reverse order.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { tunnel: self.tunnel.map(Tunnel::reversed), ..self }
    }
}

impl Tunnel {
    fn reversed(self) -> Self {
        let encapsulation = match self.encapsulation {
            Encapsulation::Vxlan { vni, src, dst } => Encapsulation::Vxlan { vni, src: dst, dst: src },
            Encapsulation::GtpU { teid, src, dst } => Encapsulation::GtpU { teid, src: dst, dst: src },
            Encapsulation::Srv6 { src, segments } => {
                let mut path: Vec<_> = [src].into_iter().chain(segments).rev().collect();
                let src = path.remove(0);
                Encapsulation::Srv6 { src, segments: path }
            }
        };
        Self { encapsulation, ..self }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eth")?;
        self.tags.list().try_for_each(|(_, vid)| write!(f, "/vlan:{vid}"))?;
        match &self.shim {
            Shim::None => Ok(()),
            Shim::Mpls(labels) => labels.iter().try_for_each(|label| write!(f, "/mpls:{label}")),
            Shim::Pppoe(session) => write!(f, "/pppoe:{session}"),
        }
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vxlan { vni, src, dst } => write!(f, "vxlan:{vni}@{src}-{dst}"),
            Self::GtpU { teid, src, dst } => write!(f, "gtpu:{teid}@{src}-{dst}"),
            Self::Srv6 { src, segments } => {
                let segments: Vec<_> = segments.iter().map(Ipv6Addr::to_string).collect();
                write!(f, "srv6@{src}-{}", segments.join(","))
            }
        }
    }
}

impl fmt::Display for Stack {
    /// Returns the text that parses to the same stack.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ip, transport) = (if self.ipv6 { "ipv6" } else { "ipv4" }, if self.tcp { "tcp" } else { "udp" });
        let Some(Tunnel { link, encapsulation }) = &self.tunnel else {
            return write!(f, "{}/{ip}/{transport}", self.link);
        };
        if *link != Link::default() {
            write!(f, "{link}/")?;
        }
        match encapsulation {
            Encapsulation::Vxlan { .. } => write!(f, "{encapsulation}({}/{ip}/{transport})", self.link),
            _ => write!(f, "{encapsulation}({ip}/{transport})"),
        }
    }
}
