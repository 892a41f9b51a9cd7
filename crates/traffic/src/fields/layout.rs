//! Headers of a frame, and the places of their fields.

use wire::{EtherType, IpProtocol};

use crate::stack::{GTPU_LEN, GTPU_PORT, PPP_IPV4, PPPOE_LEN, VXLAN_LEN, VXLAN_PORT};

/// A kind of header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Eth,
    Vlan,
    Mpls,
    Pppoe,
    Ipv4,
    Ipv6,
    Udp,
    Tcp,
    Vxlan,
    Gtpu,
}

/// A field of a header.
pub(super) struct Layout {
    pub(super) name: &'static str,
    kind: Kind,
    /// Offset in the header of the bytes that contain it; even, as checksums sum words of 16 bits.
    offset: usize,
    /// Number of these bytes: 2, 4, 8 or 16.
    window: usize,
    /// Bits of them behind the field.
    shift: u32,
    bits: u32,
}

const fn field(name: &'static str, kind: Kind, offset: usize, window: usize, shift: u32, bits: u32) -> Layout {
    Layout { name, kind, offset, window, shift, bits }
}

/// All fields.
pub(super) const FIELDS: [Layout; 31] = [
    field("eth.dst", Kind::Eth, 0, 8, 16, 48),
    field("eth.src", Kind::Eth, 4, 8, 0, 48),
    field("vlan.pcp", Kind::Vlan, 0, 2, 13, 3),
    field("vlan.dei", Kind::Vlan, 0, 2, 12, 1),
    field("vlan.id", Kind::Vlan, 0, 2, 0, 12),
    field("mpls.label", Kind::Mpls, 0, 4, 12, 20),
    field("mpls.tc", Kind::Mpls, 0, 4, 9, 3),
    field("mpls.ttl", Kind::Mpls, 0, 4, 0, 8),
    field("pppoe.session", Kind::Pppoe, 2, 2, 0, 16),
    field("ipv4.dscp", Kind::Ipv4, 0, 2, 2, 6),
    field("ipv4.ecn", Kind::Ipv4, 0, 2, 0, 2),
    field("ipv4.id", Kind::Ipv4, 4, 2, 0, 16),
    field("ipv4.ttl", Kind::Ipv4, 8, 2, 8, 8),
    field("ipv4.src", Kind::Ipv4, 12, 4, 0, 32),
    field("ipv4.dst", Kind::Ipv4, 16, 4, 0, 32),
    field("ipv6.dscp", Kind::Ipv6, 0, 2, 6, 6),
    field("ipv6.ecn", Kind::Ipv6, 0, 2, 4, 2),
    field("ipv6.label", Kind::Ipv6, 0, 4, 0, 20),
    field("ipv6.hops", Kind::Ipv6, 6, 2, 0, 8),
    field("ipv6.src", Kind::Ipv6, 8, 16, 0, 128),
    field("ipv6.dst", Kind::Ipv6, 24, 16, 0, 128),
    field("udp.src", Kind::Udp, 0, 2, 0, 16),
    field("udp.dst", Kind::Udp, 2, 2, 0, 16),
    field("tcp.src", Kind::Tcp, 0, 2, 0, 16),
    field("tcp.dst", Kind::Tcp, 2, 2, 0, 16),
    field("tcp.seq", Kind::Tcp, 4, 4, 0, 32),
    field("tcp.ack", Kind::Tcp, 8, 4, 0, 32),
    field("tcp.flags", Kind::Tcp, 12, 2, 0, 8),
    field("tcp.window", Kind::Tcp, 14, 2, 0, 16),
    field("vxlan.vni", Kind::Vxlan, 4, 4, 8, 24),
    field("gtpu.teid", Kind::Gtpu, 4, 4, 0, 32),
];

/// Headers of a frame, or of a packet in a tunnel, with their offsets.
#[derive(Clone, Debug, Default)]
pub(super) struct Section(Vec<(Kind, usize)>);

/// Place of a field in a frame.
pub(super) struct Place {
    pub(super) at: usize,
    /// Bytes from `at`: 2, 4, 8 or 16.
    pub(super) window: usize,
    pub(super) shift: u32,
    pub(super) bits: u32,
    /// True if it is in an IPv4 header.
    pub(super) is_ip: bool,
    /// True if the checksum of UDP or TCP covers it.
    pub(super) is_summed: bool,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Eth => "eth",
            Self::Vlan => "vlan",
            Self::Mpls => "mpls",
            Self::Pppoe => "pppoe",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Vxlan => "vxlan",
            Self::Gtpu => "gtpu",
        }
    }
}

impl Section {
    fn at(&self, kind: Kind) -> Option<usize> {
        self.0.iter().find(|(known, _)| *known == kind).map(|(_, at)| *at)
    }

    /// Returns the offset of the IP header.
    #[cfg(test)]
    pub(super) fn ip_offset(&self) -> usize {
        self.at(Kind::Ipv4).or(self.at(Kind::Ipv6)).unwrap()
    }

    /// Returns the offset of the checksum of the IPv4 header.
    pub(super) fn ip_checksum(&self) -> Option<usize> {
        Some(self.at(Kind::Ipv4)? + 10)
    }

    /// Returns the offset of the transport checksum, and true for UDP; none if there is no checksum.
    pub(super) fn transport_checksum(&self, frame: &[u8]) -> Option<(usize, bool)> {
        let udp = self.at(Kind::Udp).map(|at| (at + 6, true));
        let found = udp.or(self.at(Kind::Tcp).map(|at| (at + 16, false)));
        found.filter(|(at, udp)| !udp || u16_at(frame, *at) != Some(0))
    }
}

fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// Returns the headers of a frame that a template has made, in front of and within tunnels.
pub(super) fn sections(frame: &[u8]) -> Vec<Section> {
    let mut all = vec![];
    // the packet that a tunnel contains has no Ethernet header
    let mut next = Some((0, None));
    while let Some((at, ip)) = next {
        let mut section = Section::default();
        next = walk(frame, at, ip, &mut section);
        all.push(section);
    }
    all
}

/// Adds the headers from `at` to a section; `ip` is the IP header there, if it is not a frame. Returns where a tunnel
/// begins.
fn walk(frame: &[u8], at: usize, ip: Option<Kind>, section: &mut Section) -> Option<(usize, Option<Kind>)> {
    let (ip, mut at) = match ip {
        Some(kind) => (kind, at),
        None => link(frame, at, section)?,
    };
    section.0.push((ip, at));
    let mut protocol = match ip {
        Kind::Ipv4 => IpProtocol(*frame.get(at + 9)?),
        _ => IpProtocol(*frame.get(at + 6)?),
    };
    at += if ip == Kind::Ipv4 { 20 } else { 40 };
    if protocol == IpProtocol::ROUTING {
        protocol = IpProtocol(*frame.get(at)?);
        at += 8 + 8 * usize::from(*frame.get(at + 1)?);
    }
    match protocol {
        IpProtocol::IPV4 => Some((at, Some(Kind::Ipv4))),
        IpProtocol::IPV6 => Some((at, Some(Kind::Ipv6))),
        IpProtocol::TCP => {
            section.0.push((Kind::Tcp, at));
            None
        }
        _ => {
            section.0.push((Kind::Udp, at));
            let payload = at + 8;
            // the flows of a template may have these ports too, without a tunnel
            match u16_at(frame, at + 2)? {
                VXLAN_PORT if frame.get(payload) == Some(&crate::stack::VXLAN_FLAGS) => {
                    section.0.push((Kind::Vxlan, payload));
                    Some((payload + VXLAN_LEN, None))
                }
                GTPU_PORT if frame.get(payload..payload + 2) == Some(&[crate::stack::GTPU_FLAGS, 255]) => {
                    section.0.push((Kind::Gtpu, payload));
                    let inner = payload + GTPU_LEN;
                    let version = frame.get(inner)? >> 4;
                    Some((inner, Some(if version == 4 { Kind::Ipv4 } else { Kind::Ipv6 })))
                }
                _ => None,
            }
        }
    }
}

/// Adds the headers in front of IP to a section; returns the IP header and its offset.
fn link(frame: &[u8], at: usize, section: &mut Section) -> Option<(Kind, usize)> {
    section.0.push((Kind::Eth, at));
    let mut at = at + 12;
    loop {
        let kind = EtherType(u16_at(frame, at)?);
        at += 2;
        match kind {
            EtherType::VLAN | EtherType::QINQ => {
                section.0.push((Kind::Vlan, at));
                at += 2;
            }
            EtherType::MPLS => {
                loop {
                    section.0.push((Kind::Mpls, at));
                    let is_bottom = frame.get(at + 2)? & 1 == 1;
                    at += 4;
                    if is_bottom {
                        break;
                    }
                }
                return Some((if frame.get(at)? >> 4 == 4 { Kind::Ipv4 } else { Kind::Ipv6 }, at));
            }
            EtherType::PPPOE => {
                section.0.push((Kind::Pppoe, at));
                at += PPPOE_LEN;
                return Some((if u16_at(frame, at - 2)? == PPP_IPV4 { Kind::Ipv4 } else { Kind::Ipv6 }, at));
            }
            EtherType::IPV4 => return Some((Kind::Ipv4, at)),
            _ => return Some((Kind::Ipv6, at)),
        }
    }
}

/// Returns the name of a field without the number of its header and without `outer.`.
pub(super) fn base(name: &str) -> String {
    let name = name.strip_prefix("outer.").unwrap_or(name);
    match name.split_once('.') {
        Some((header @ ("vlan2" | "mpls2" | "mpls3" | "mpls4" | "mpls5" | "mpls6" | "mpls7" | "mpls8"), field)) => {
            format!("{}.{field}", &header[..4])
        }
        _ => name.to_owned(),
    }
}

/// Returns true for the name of a field.
pub(super) fn is_name(name: &str) -> bool {
    FIELDS.iter().any(|layout| layout.name == base(name))
}

/// Returns the place of a field, and the section it is in.
pub(super) fn find<'s>(sections: &'s [Section], name: &str) -> Option<(&'s Section, Place)> {
    let base = base(name);
    let layout = FIELDS.iter().find(|layout| layout.name == base)?;
    let (outer, plain) = name.strip_prefix("outer.").map_or((false, name), |plain| (true, plain));
    let nth = plain.split('.').next()?.strip_prefix(layout.kind.name())?.parse().map_or(0, |n: usize| n - 1);
    let place = |section: &'s Section| {
        let (kind, at) = *section.0.iter().filter(|(kind, _)| *kind == layout.kind).nth(nth)?;
        let is_address = matches!(base.as_str(), "ipv4.src" | "ipv4.dst" | "ipv6.src" | "ipv6.dst");
        let place = Place {
            at: at + layout.offset,
            window: layout.window,
            shift: layout.shift,
            bits: layout.bits,
            is_ip: kind == Kind::Ipv4,
            is_summed: is_address || matches!(kind, Kind::Udp | Kind::Tcp),
        };
        Some((section, place))
    };
    match outer {
        true if sections.len() < 2 => None,
        true => sections[..sections.len() - 1].iter().find_map(place),
        false => sections.iter().rev().find_map(place),
    }
}

/// Returns the names of all fields of the headers.
pub(super) fn names(sections: &[Section]) -> String {
    let has = |kind: Kind| sections.iter().any(|section| section.at(kind).is_some());
    let names = FIELDS.iter().filter(|layout| has(layout.kind)).map(|layout| layout.name);
    names.collect::<Vec<_>>().join(", ")
}
