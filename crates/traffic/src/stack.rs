//! Header stacks: what frames consist of in front of the payload.
//!
//! | text | headers |
//! |---|---|
//! | `eth/ipv4/udp`, `eth/ipv6/tcp` | Ethernet, IP, transport |
//! | `eth/vlan:7/ipv4/udp` | with an 802.1Q tag of VLAN 7; `vlan` alone is VLAN 100 |
//! | `eth/vlan:7/vlan:8/ipv4/udp` | two tags (QinQ): the outer one with type 0x88a8, as IEEE 802.1ad has it |
//! | `vxlan:5(eth/ipv4/udp)` | in a VXLAN tunnel (RFC 7348) of network 5 over IPv4; `vxlan` alone is network 1 |
//! | `eth/vlan:7/vxlan:5@2001:db8::1-2001:db8::2(eth/ipv4/udp)` | between these endpoints, with a tag in front |
//!
//! ```
//! use traffic::Stack;
//!
//! let stack: Stack = "vxlan:5@192.0.2.7-192.0.2.8(eth/vlan:9/ipv6/tcp)".parse()?;
//! assert_eq!((stack.ipv6, stack.tcp, stack.overhead()), (true, true, 50 + 4));
//! # Ok::<(), traffic::stack::NotStack>(())
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use wire::{EtherType, MacAddr, build};

/// UDP port of VXLAN (RFC 7348 §5).
pub const VXLAN_PORT: u16 = 4789;
/// Bytes of a VXLAN header.
pub const VXLAN_LEN: usize = 8;
/// VLAN of a tag that names none.
const VLAN: u16 = 100;
/// Network of a tunnel that names none.
const VNI: u32 = 1;

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

    /// Returns the bytes that they add to a frame.
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 4,
            Self::Two(..) => 8,
        }
    }

    /// Returns true if it is empty.
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None)
    }
}

/// A VXLAN tunnel around whole frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tunnel {
    /// Tags in front of the tunnel's IP header.
    pub tags: Tags,
    /// The network, 24 bits.
    pub vni: u32,
    /// The endpoint that sends.
    pub src: IpAddr,
    /// The endpoint that receives, of the same IP version.
    pub dst: IpAddr,
}

impl Tunnel {
    /// Returns the bytes in front of the frame within.
    pub const fn len(&self) -> usize {
        14 + self.tags.len() + if self.src.is_ipv4() { 20 } else { 40 } + 8 + VXLAN_LEN
    }

    /// Never: a tunnel has headers.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// Headers of frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stack {
    /// The tunnel that the frames are in.
    pub tunnel: Option<Tunnel>,
    /// Their tags, within the tunnel.
    pub tags: Tags,
    /// IPv6 and not IPv4.
    pub ipv6: bool,
    /// TCP and not UDP.
    pub tcp: bool,
}

/// The text is no stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no header stack; give `eth/ipv4/udp` with ipv6 or tcp instead, `/vlan:7` once or twice behind eth, or all of it \
     in `vxlan:5(...)` or `vxlan:5@192.0.2.1-192.0.2.2(...)`; VLANs are 0 to 4094, networks below 16777216"
)]
pub struct NotStack(String);

impl Stack {
    /// Returns the same from the other side: the tunnel's endpoints swapped.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { tunnel: self.tunnel.map(|tunnel| Tunnel { src: tunnel.dst, dst: tunnel.src, ..tunnel }), ..self }
    }

    /// Returns the bytes that tags and tunnel add to a frame.
    pub const fn overhead(&self) -> usize {
        let tunnel = match &self.tunnel {
            Some(tunnel) => tunnel.len(),
            None => 0,
        };
        tunnel + self.tags.len()
    }

    /// Returns true if it is no more than Ethernet, IP and transport.
    pub const fn is_plain(&self) -> bool {
        self.overhead() == 0
    }

    /// Writes the headers in front of a frame of `len` bytes at [`overhead`](Self::overhead): tunnel and tags, with
    /// the MAC addresses that then stand before these.
    pub(crate) fn front(&self, src: MacAddr, dst: MacAddr, len: usize) -> Vec<u8> {
        let mut tagged = Vec::new();
        if !self.tags.is_empty() {
            tagged.extend(dst.0.into_iter().chain(src.0));
            for (kind, vid) in self.tags.list() {
                tagged.extend(kind.0.to_be_bytes());
                tagged.extend(vid.to_be_bytes());
            }
        }
        let Some(tunnel) = &self.tunnel else { return tagged };
        // The I flag, and the network in bytes 4 to 6 (RFC 7348 §5).
        let mut payload = vec![0x08, 0, 0, 0];
        payload.extend((tunnel.vni << 8).to_be_bytes());
        payload.resize(VXLAN_LEN + self.tags.len() + len, 0);
        macro_rules! outer {
            ($frame:expr) => {{
                let frame = $frame.src_mac(src).dst_mac(dst);
                tunnel
                    .tags
                    .list()
                    .fold(frame, |frame, (kind, vid)| frame.tag(kind, 0, false, vid))
                    .payload(&payload)
                    .to_vec()
            }};
        }
        let mut front = match (tunnel.src, tunnel.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => outer!(build::udp4(src, dst, FIRST_PORT, VXLAN_PORT).dont_fragment()),
            (src, dst) => outer!(build::udp6(v6(src), v6(dst), FIRST_PORT, VXLAN_PORT)),
        };
        front.truncate(tunnel.len());
        // Without a checksum (RFC 7348 §5; RFC 6935 over IPv6).
        let udp = tunnel.len() - VXLAN_LEN - 8;
        front[udp + 6..udp + 8].fill(0);
        front.extend(tagged);
        front
    }
}

/// First of the source ports of a tunnel, of which each flow has one (RFC 7348 §5: 49152 to 65535).
pub(crate) const FIRST_PORT: u16 = 49_152;

fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list().try_for_each(|(_, vid)| write!(f, "/vlan:{vid}"))
    }
}

impl fmt::Display for Stack {
    /// Returns the text that parses to the same stack.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Tunnel { tags, vni, src, dst }) = self.tunnel {
            if !tags.is_empty() {
                write!(f, "eth{tags}/")?;
            }
            write!(f, "vxlan:{vni}@{src}-{dst}(")?;
        }
        let (ip, transport) = (if self.ipv6 { "ipv6" } else { "ipv4" }, if self.tcp { "tcp" } else { "udp" });
        write!(f, "eth{}/{ip}/{transport}{}", self.tags, if self.tunnel.is_some() { ")" } else { "" })
    }
}

impl FromStr for Stack {
    type Err = NotStack;

    fn from_str(text: &str) -> Result<Self, NotStack> {
        parse(text.trim()).ok_or_else(|| NotStack(text.chars().take(120).collect()))
    }
}

fn parse(text: &str) -> Option<Stack> {
    let Some((front, inner)) = text.split_once('(') else { return plain(text) };
    let inner = plain(inner.trim().strip_suffix(')')?.trim())?;
    let (tags, last) = layers(front.trim());
    let rest = last.strip_prefix("vxlan")?;
    let (vni, ends) = rest.split_once('@').map_or((rest, None), |(vni, ends)| (vni, Some(ends)));
    let vni = if vni.is_empty() { VNI } else { vni.strip_prefix(':')?.parse().ok()? };
    let (src, dst) = match ends {
        None => (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into()),
        Some(ends) => {
            let (src, dst) = ends.split_once('-')?;
            (src.trim().parse::<IpAddr>().ok()?, dst.trim().parse::<IpAddr>().ok()?)
        }
    };
    let tunnel = Tunnel { tags: tags?, vni, src, dst };
    (vni < 1 << 24 && src.is_ipv4() == dst.is_ipv4()).then_some(Stack { tunnel: Some(tunnel), ..inner })
}

/// `eth/vlan/ipv4/udp` and the like.
fn plain(text: &str) -> Option<Stack> {
    let (front, transport) = text.rsplit_once('/')?;
    let (tags, ip) = layers(front);
    let ipv6 = match ip {
        "ipv4" => false,
        "ipv6" => true,
        _ => return None,
    };
    let tcp = match transport {
        "udp" => false,
        "tcp" => true,
        _ => return None,
    };
    front.starts_with("eth").then_some(Stack { tunnel: None, tags: tags?, ipv6, tcp })
}

/// Returns the tags of `eth/vlan/X`, if they are some, and `X`; `X` may stand alone.
fn layers(text: &str) -> (Option<Tags>, &str) {
    let (front, last) = text.rsplit_once('/').map_or(("eth", text), |(front, last)| (front, last));
    (tags(front), last)
}

fn tags(text: &str) -> Option<Tags> {
    let mut words = text.split('/');
    if words.next() != Some("eth") {
        return None;
    }
    let mut vids = Vec::new();
    for word in words.take(3) {
        let vid = word.strip_prefix("vlan")?;
        let vid = if vid.is_empty() { VLAN } else { vid.strip_prefix(':')?.parse().ok().filter(|vid| *vid < 4095)? };
        vids.push(vid);
    }
    match vids[..] {
        [] => Some(Tags::None),
        [vid] => Some(Tags::One(vid)),
        [outer, inner] => Some(Tags::Two(outer, inner)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        for text in [
            "eth/ipv4/udp",
            "eth/vlan:0/ipv6/tcp",
            "eth/vlan:4094/vlan:7/ipv4/tcp",
            "vxlan:5@192.0.2.1-192.0.2.2(eth/ipv4/udp)",
            "eth/vlan:1/vlan:2/vxlan:16777215@2001:db8::1-2001:db8::2(eth/vlan:3/vlan:4/ipv6/udp)",
        ] {
            assert_eq!(text.parse::<Stack>().unwrap().to_string(), text);
        }
        let same = |a: &str, b: &str| assert_eq!(a.parse::<Stack>(), b.parse::<Stack>(), "{a}");
        same("eth/vlan/vlan:2/ipv4/udp", "eth/vlan:100/vlan:2/ipv4/udp");
        same(" vxlan(eth/ipv4/udp) ", "eth/vxlan:1@192.0.2.1-192.0.2.2(eth/ipv4/udp)");
        assert_eq!(Stack::default().to_string(), "eth/ipv4/udp");
    }

    #[test]
    fn refusals() {
        for text in [
            "",
            "eth",
            "ipv4/udp",
            "eth/ipv4",
            "eth/udp",
            "eth/ipv4/sctp",
            "eth/ipv5/udp",
            "eth/vlan:4095/ipv4/udp",
            "eth/vlan:/ipv4/udp",
            "eth/vlan/vlan/vlan/ipv4/udp",
            "eth/qinq/ipv4/udp",
            "vxlan:16777216(eth/ipv4/udp)",
            "vxlan(vxlan(eth/ipv4/udp))",
            "vxlan(eth/ipv4/udp",
            "vxlan@192.0.2.1(eth/ipv4/udp)",
            "vxlan@192.0.2.1-::1(eth/ipv4/udp)",
            "gre(eth/ipv4/udp)",
        ] {
            let why = text.parse::<Stack>().unwrap_err();
            assert!(why.to_string().starts_with(&format!("`{text}` is no header stack")), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(eth|vlan|vxlan|ipv[46]|udp|tcp|[0-9:.@(/)-]){0,14}") {
            if let Ok(stack) = text.parse::<Stack>() {
                prop_assert_eq!(stack.to_string().parse(), Ok(stack));
            }
        }
    }
}
