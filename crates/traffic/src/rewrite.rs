//! Changes to the frames of a capture before they are sent: IP addresses by prefix, VLAN tags.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use wire::checksum::Delta;
use wire::{EtherType, Header, IpProtocol, Ipv6, ipv6};

use crate::address::AddressRange;

/// Most prefixes that are mapped.
pub const MAX_MAPS: usize = 256;
/// The highest VLAN.
const MAX_VID: u16 = 4094;

/// Changes to make.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// Of each source and destination address of IP the first that holds it counts; checksums of IPv4, UDP, TCP and
    /// ICMPv6 follow, and stay wrong where they were wrong. Of more than [`MAX_MAPS`] the first do. Addresses in ARP, ICMP errors,
    /// tunnels and behind an IPv6 routing header stay.
    pub prefixes: Vec<PrefixMap>,
    /// VLAN tags.
    pub tagging: Tagging,
}

/// Treatment of VLAN tags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Tagging {
    /// They stay.
    #[default]
    Keep,
    /// They go, up to four of them.
    Strip,
    /// One of type 0x8100 with this VLAN takes the place of those there are, or is added.
    One(u16),
}

/// Addresses of one prefix become those of another, the bits behind it staying: `10.0.0.0/8=198.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrefixMap {
    from: IpAddr,
    to: IpAddr,
    len: u8,
}

/// The text is no map of prefixes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` maps no prefix to another; give `10.0.0.0/8=198.0.0.0/8`, both of one IP version and length")]
pub struct NotMap(String);

impl fmt::Display for PrefixMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}={}/{}", self.from, self.len, self.to, self.len)
    }
}

impl FromStr for PrefixMap {
    type Err = NotMap;

    fn from_str(text: &str) -> Result<Self, NotMap> {
        let wrong = || NotMap(text.chars().take(120).collect());
        let prefix = |text: &str| {
            let (address, len) = text.trim().split_once('/')?;
            let len = len.parse().ok()?;
            Some((AddressRange::prefix(address.parse().ok()?, len).ok()?.first(), len))
        };
        let (from, to) = text.split_once('=').ok_or_else(wrong)?;
        let ((from, len), (to, other)) = (prefix(from).ok_or_else(wrong)?, prefix(to).ok_or_else(wrong)?);
        if len != other || from.is_ipv4() != to.is_ipv4() {
            return Err(wrong());
        }
        Ok(Self { from, to, len })
    }
}

/// The text says nothing of VLAN tags.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` says nothing of VLAN tags; give keep, strip, or the VLAN that all frames get, 0 to 4094")]
pub struct NotTagging(String);

impl fmt::Display for Tagging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tagging::Keep => f.write_str("keep"),
            Tagging::Strip => f.write_str("strip"),
            Tagging::One(vid) => vid.fmt(f),
        }
    }
}

impl FromStr for Tagging {
    type Err = NotTagging;

    /// `keep`, `strip`, or a VLAN, 0 to 4094 (IEEE 802.1Q: 4095 is reserved).
    fn from_str(text: &str) -> Result<Self, NotTagging> {
        let wrong = || NotTagging(text.chars().take(120).collect());
        match text.trim() {
            "keep" => Ok(Tagging::Keep),
            "strip" => Ok(Tagging::Strip),
            vid => vid.parse().ok().filter(|vid| *vid <= MAX_VID).map(Tagging::One).ok_or_else(wrong),
        }
    }
}

impl fmt::Display for Rewrite {
    /// Returns its maps, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, map) in self.prefixes.iter().enumerate() {
            write!(f, "{}{map}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl PrefixMap {
    fn v4(&self, address: u32) -> Option<u32> {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (self.from, self.to) else { return None };
        let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
        (address & mask == from.to_bits()).then_some(to.to_bits() | address & !mask)
    }

    fn v6(&self, address: u128) -> Option<u128> {
        let (IpAddr::V6(from), IpAddr::V6(to)) = (self.from, self.to) else { return None };
        let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
        (address & mask == from.to_bits()).then_some(to.to_bits() | address & !mask)
    }
}

impl Rewrite {
    /// Returns true if frames stay as they are.
    pub fn is_nothing(&self) -> bool {
        self.prefixes.is_empty() && self.tagging == Tagging::Keep
    }

    /// Changes a frame.
    pub fn apply(&self, frame: &mut Vec<u8>) {
        if let Some(at) = network(frame) {
            let maps = &self.prefixes[..self.prefixes.len().min(MAX_MAPS)];
            match frame.get(at - 2..at) {
                Some([0x08, 0x00]) if !maps.is_empty() => drop(v4(&mut frame[at..], maps)),
                Some([0x86, 0xdd]) if !maps.is_empty() => drop(v6(&mut frame[at..], maps)),
                _ => {}
            }
            match self.tagging {
                Tagging::Keep => {}
                Tagging::Strip => drop(frame.drain(12..at - 2)),
                Tagging::One(vid) => {
                    let [high, low] = (vid & 0x0fff).to_be_bytes();
                    frame.splice(12..at - 2, [0x81, 0x00, high, low]);
                }
            }
        }
    }
}

/// Returns the offset behind Ethernet header and tags.
fn network(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    for _ in 0..=wire::flow::MAX_TAGS {
        let kind = EtherType(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        if !kind.is_vlan() {
            return Some(at + 2);
        }
        at += 4;
    }
    None
}

fn v4(packet: &mut [u8], maps: &[PrefixMap]) -> Option<()> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let (protocol, fragment) = (IpProtocol(*packet.get(9)?), u16_at(packet, 6)? & 0x1fff);
    packet.get(..header.max(20))?;
    let mut delta = Delta::ZERO;
    for at in [12, 16] {
        let old = u32::from_be_bytes(*packet.get(at..)?.first_chunk()?);
        if let Some(new) = maps.iter().find_map(|map| map.v4(old)) {
            delta = delta.u32(old, new);
            packet.get_mut(at..at + 4)?.copy_from_slice(&new.to_be_bytes());
        }
    }
    put(packet, 10, delta.apply(u16_at(packet, 10)?));
    if fragment == 0 { transport(packet, header, protocol, delta) } else { Some(()) }
}

fn v6(packet: &mut [u8], maps: &[PrefixMap]) -> Option<()> {
    let header = Ipv6::check(packet).ok()?;
    let parsed = ipv6::Packet::new(packet).ok()?;
    if parsed.extensions().any(|extension| extension.kind == IpProtocol::ROUTING) {
        return None;
    }
    let fragmented = parsed.extensions().any(|extension| extension.kind == IpProtocol::FRAGMENT);
    let protocol = wire::flow::FiveTuple::of_ipv6(packet)?.protocol;
    // Of fragments only the first has a checksum; where that is, tells the header behind the others.
    let later =
        fragmented && packet.get(header.checked_sub(6)?..)?.first_chunk().map(|b| u16::from_be_bytes(*b) >> 3)? != 0;
    let mut delta = Delta::ZERO;
    for at in [8, 24] {
        let old: [u8; 16] = *packet.get(at..)?.first_chunk()?;
        if let Some(new) = maps.iter().find_map(|map| map.v6(u128::from_be_bytes(old))) {
            delta = delta.octets(old, new.to_be_bytes());
            packet.get_mut(at..at + 16)?.copy_from_slice(&new.to_be_bytes());
        }
    }
    if later { Some(()) } else { transport(packet, header, protocol, delta) }
}

/// Returns the checksum of what is above IP, which covers the addresses.
fn transport(packet: &mut [u8], header: usize, protocol: IpProtocol, delta: Delta) -> Option<()> {
    match protocol {
        IpProtocol::TCP => put(packet, header + 16, delta.apply(u16_at(packet, header + 16)?)),
        IpProtocol::UDP => put(packet, header + 6, delta.apply_udp(u16_at(packet, header + 6)?)),
        IpProtocol::ICMPV6 => put(packet, header + 2, delta.apply(u16_at(packet, header + 2)?)),
        _ => {}
    }
    Some(())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::build;
    use wire::flow::FiveTuple;

    fn map(text: &str) -> PrefixMap {
        text.parse().unwrap()
    }

    fn rewrite(maps: &[&str], tagging: Tagging) -> Rewrite {
        Rewrite { prefixes: maps.iter().map(|text| map(text)).collect(), tagging }
    }

    #[test]
    fn texts() {
        assert_eq!(map("10.1.2.3/8=198.0.0.0/8").to_string(), "10.0.0.0/8=198.0.0.0/8");
        assert_eq!(map(" ::/0 = ::/0").to_string(), "::/0=::/0");
        for text in
            ["", "10.0.0.0/8", "10.0.0.0/8=10.0.0.0/9", "10.0.0.0/8=::/8", "10.0.0.0=11.0.0.0", "1.1.1.1/33=1.1.1.1/33"]
        {
            assert!(text.parse::<PrefixMap>().is_err(), "{text}");
        }
        assert!(Rewrite::default().is_nothing() && !rewrite(&[], Tagging::Strip).is_nothing());
    }

    #[test]
    fn texts_of_tags() {
        for (text, tagging) in [("keep", Tagging::Keep), (" strip", Tagging::Strip), ("4094", Tagging::One(4094))] {
            assert_eq!(text.parse(), Ok(tagging));
            assert_eq!(tagging.to_string(), text.trim());
        }
        for text in ["", "4095", "-1", "seven", "70000"] {
            assert!(text.parse::<Tagging>().is_err_and(|e| e.to_string().contains("4094")), "{text}");
        }
        let two = rewrite(&["10.0.0.0/8=11.0.0.0/8", "::/0=::/0"], Tagging::Strip);
        assert_eq!(two.to_string(), "10.0.0.0/8=11.0.0.0/8,::/0=::/0");
    }

    /// The frame of a builder with the addresses before, rewritten, is that with those after.
    macro_rules! becomes {
        ($of:expr, $rewrite:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {{
            let mut frame = $of($a, $b).to_vec();
            $rewrite.apply(&mut frame);
            assert_eq!(frame, $of($c, $d).to_vec(), "{}", stringify!($of));
        }};
    }

    #[test]
    fn checksums_follow_addresses() {
        let to = rewrite(
            &["10.1.0.0/16=172.16.0.0/16", "10.0.0.0/8=11.0.0.0/8", "2001:db8::/32=fd00:1::/32"],
            Tagging::Keep,
        );
        let (a, b, c, d) = ([10, 1, 2, 3], [10, 9, 8, 7], [172, 16, 2, 3], [11, 9, 8, 7]);
        becomes!(|a: [u8; 4], b: [u8; 4]| build::udp4(a, b, 5, 6).payload(b"hello"), to, a, b, c, d);
        becomes!(|a: [u8; 4], b: [u8; 4]| build::tcp4(a, b, 5, 6).vlan(7).payload(b"hello"), to, a, b, c, d);
        becomes!(|a: [u8; 4], b: [u8; 4]| build::echo4(a, b, 5, 6), to, a, b, c, d);
        becomes!(|a: [u8; 4], b: [u8; 4]| build::udp4(a, b, 5, 6), to, [9, 1, 2, 3], b, [9, 1, 2, 3], d);
        let v6 = |net: [u16; 2]| std::net::Ipv6Addr::new(net[0], net[1], 1, 2, 3, 4, 5, 6);
        let (a, c) = (v6([0x2001, 0xdb8]), v6([0xfd00, 1]));
        becomes!(|a, b| build::udp6(a, b, 5, 6).payload(b"hello"), to, a, a, c, c);
        becomes!(|a, b| build::tcp6(a, b, 5, 6).extension(IpProtocol::HOP_BY_HOP, &[]), to, a, a, c, c);
        becomes!(|a, b| build::echo6(a, b, 5, 6), to, a, a, c, c);
        // A later fragment has no checksum where the first has one.
        let mut frame = build::udp4([10, 1, 2, 3], b, 5, 6).payload(&[1; 64]).fragment(8, false).to_vec();
        let payload = frame[34..].to_vec();
        to.apply(&mut frame);
        assert_eq!(frame[26..30], [172, 16, 2, 3]);
        assert_eq!(frame[34..], payload);
        assert!(wire::checksum::verify(&frame[14..34]));
        let mut arp = build::arp_request([10, 1, 2, 3], [10, 1, 2, 4]).to_vec();
        let before = arp.clone();
        to.apply(&mut arp);
        assert_eq!(arp, before);
    }

    #[test]
    fn tags_go_and_come() {
        let of = |n: usize| {
            let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 5, 6).payload(b"hello");
            [frame.clone(), frame.clone().vlan(7), frame.qinq(8).vlan(7)][n].to_vec()
        };
        for n in 0..3 {
            for (tagging, expected) in [(Tagging::Keep, of(n)), (Tagging::Strip, of(0)), (Tagging::One(7), of(1))] {
                let mut frame = of(n);
                rewrite(&[], tagging).apply(&mut frame);
                assert_eq!(frame, expected, "{n} {tagging:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_rewritten(frame in prop::collection::vec(any::<u8>(), 0..120), kind in 0_usize..4, vid: u16) {
            let mut frame = frame;
            if frame.len() > 16 {
                frame[12..16].copy_from_slice(&[[8, 0, 0x45, 0], [0x86, 0xdd, 0x60, 0], [0x81, 0, 0, 5], [8, 0, 0x4f, 0]][kind]);
            }
            rewrite(&["0.0.0.0/0=10.0.0.0/0", "::/0=fd00::/0"], Tagging::One(vid)).apply(&mut frame);
            let _ = FiveTuple::of_frame(&frame);
        }

        #[test]
        fn an_address_moves_with_its_prefix(address: u32, from: u32, to: u32, len in 0_u8..=32) {
            let of = |bits: u32| std::net::Ipv4Addr::from_bits(bits);
            let map = map(&format!("{}/{len}={}/{len}", of(from), of(to)));
            let mask = ((u64::from(u32::MAX) << (32 - len)) & 0xffff_ffff) as u32;
            let expected = (address & mask == from & mask).then_some(to & mask | address & !mask);
            prop_assert_eq!(map.v4(address), expected);
        }
    }
}
