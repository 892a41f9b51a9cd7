//! Text of a header stack.

use super::{Encapsulation, Link, MAX_LAYERS, Shim, Stack, Tags, Tunnel};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// VLAN of a tag that names none.
const VLAN: u16 = 100;
/// Label that is not named: the first one that is not reserved (RFC 3032 §2.1).
const LABEL: u32 = 16;
/// PPPoE session that is not named; 0 and 65535 are reserved (RFC 2516 §4).
const SESSION: u16 = 1;
/// Network or TEID of a tunnel that names none.
const TUNNEL: u32 = 1;

/// The text is no stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no header stack; give `eth/ipv4/udp` with ipv6 or tcp instead, behind eth `/vlan:7` once or twice and `/mpls:16` up \
     to {MAX_LAYERS} times or `/pppoe:1`, or all of it in `vxlan:5(eth/ipv4/udp)`, or `gtpu:5(ipv4/udp)` and `srv6(ipv4/udp)`, \
     with endpoints as in `vxlan:5@192.0.2.1-192.0.2.2(...)`; VLANs are 0 to 4094, networks below 16777216, labels below \
     1048576"
)]
pub struct NotStack(String);

impl FromStr for Stack {
    type Err = NotStack;

    fn from_str(text: &str) -> Result<Self, NotStack> {
        stack(text.trim()).ok_or_else(|| NotStack(text.chars().take(120).collect()))
    }
}

fn stack(text: &str) -> Option<Stack> {
    let Some((outer, inner)) = text.split_once('(') else { return frame(text) };
    let inner = inner.trim().strip_suffix(')')?.trim();
    let outer = outer.trim();
    // an address may not contain a slash, so the last one ends the link layer
    let (front, tunnel) = outer.rsplit_once('/').map_or(("eth", outer), |(front, tunnel)| (front, tunnel));
    let (name, ends) = tunnel.split_once('@').map_or((tunnel, None), |(name, ends)| (name, Some(ends)));
    let (name, id) = name.split_once(':').map_or((name, None), |(name, id)| (name, Some(id)));
    let number = || id.map_or(Some(TUNNEL), |id| id.parse().ok());
    let (encapsulation, inner) = match name {
        "vxlan" => {
            let (vni, (src, dst)) = (number()?, endpoints(ends)?);
            ((vni < 1 << 24).then_some(Encapsulation::Vxlan { vni, src, dst })?, frame(inner)?)
        }
        "gtpu" => {
            let (teid, (src, dst)) = (number()?, endpoints(ends)?);
            (Encapsulation::GtpU { teid, src, dst }, packet(inner)?)
        }
        "srv6" if id.is_none() => (segments(ends)?, packet(inner)?),
        _ => return None,
    };
    Some(Stack { tunnel: Some(Tunnel { link: link(front)?, encapsulation }), ..inner })
}

/// `192.0.2.1-192.0.2.2`
fn endpoints(text: Option<&str>) -> Option<(IpAddr, IpAddr)> {
    let Some(text) = text else {
        return Some((Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into()));
    };
    let (src, dst) = text.split_once('-')?;
    let (src, dst): (IpAddr, IpAddr) = (src.trim().parse().ok()?, dst.trim().parse().ok()?);
    (src.is_ipv4() == dst.is_ipv4()).then_some((src, dst))
}

/// `2001:db8::1-2001:db8::2,2001:db8::3`
fn segments(text: Option<&str>) -> Option<Encapsulation> {
    let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    let Some(text) = text else { return Some(Encapsulation::Srv6 { src: address(1), segments: vec![address(2)] }) };
    let (src, segments) = text.split_once('-')?;
    let segments: Vec<_> = segments.split(',').map(|s| s.trim().parse().ok()).collect::<Option<_>>()?;
    (segments.len() <= MAX_LAYERS).then_some(Encapsulation::Srv6 { src: src.trim().parse().ok()?, segments })
}

/// `eth/vlan/ipv4/udp` and the like.
fn frame(text: &str) -> Option<Stack> {
    let (at, _) = text.rmatch_indices('/').nth(1)?;
    Some(Stack { link: link(&text[..at])?, ..packet(&text[at + 1..])? })
}

/// `ipv4/udp` and the like.
fn packet(text: &str) -> Option<Stack> {
    let (ip, transport) = text.split_once('/')?;
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
    Some(Stack { ipv6, tcp, ..Stack::default() })
}

/// `eth/vlan:7/mpls:16` and the like.
fn link(text: &str) -> Option<Link> {
    let mut words = text.split('/');
    if words.next() != Some("eth") {
        return None;
    }
    let (mut vids, mut labels, mut session) = (vec![], vec![], None);
    for word in words {
        let (name, number) = word.split_once(':').map_or((word, None), |(name, number)| (name, Some(number)));
        let number = |default: u32| number.map_or(Some(default), |number| number.parse().ok());
        // each only behind those above it
        match name {
            "vlan" if labels.is_empty() && session.is_none() => vids.push(number(VLAN.into())?),
            "mpls" if session.is_none() => labels.push(number(LABEL)?),
            "pppoe" if labels.is_empty() && session.is_none() => session = Some(number(SESSION.into())?),
            _ => return None,
        }
    }
    if vids.iter().any(|vid| *vid > 4094) || labels.iter().any(|label| *label >= 1 << 20) || labels.len() > MAX_LAYERS {
        return None;
    }
    let tags = match vids[..] {
        [] => Tags::None,
        [vid] => Tags::One(vid as u16),
        [outer, inner] => Tags::Two(outer as u16, inner as u16),
        _ => return None,
    };
    let shim = match session {
        Some(session) => Shim::Pppoe(u16::try_from(session).ok()?),
        None if labels.is_empty() => Shim::None,
        None => Shim::Mpls(labels),
    };
    Some(Link { tags, shim })
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
            "eth/mpls:1048575/ipv4/udp",
            "eth/vlan:7/mpls:16/mpls:17/ipv6/udp",
            "eth/vlan:9/vlan:7/pppoe:65535/ipv4/tcp",
            "vxlan:5@192.0.2.1-192.0.2.2(eth/ipv4/udp)",
            "eth/vlan:1/vlan:2/vxlan:16777215@2001:db8::1-2001:db8::2(eth/vlan:3/vlan:4/ipv6/udp)",
            "eth/mpls:16/vxlan:5@192.0.2.1-192.0.2.2(eth/pppoe:7/ipv4/udp)",
            "eth/vlan:7/gtpu:4294967295@192.0.2.1-192.0.2.2(ipv6/tcp)",
            "srv6@2001:db8::1-2001:db8::2(ipv4/udp)",
            "eth/vlan:7/srv6@2001:db8::1-2001:db8::2,2001:db8::3(ipv6/udp)",
        ] {
            assert_eq!(text.parse::<Stack>().unwrap().to_string(), text);
        }
        let same = |a: &str, b: &str| assert_eq!(a.parse::<Stack>(), b.parse::<Stack>(), "{a}");
        same("eth/vlan/vlan:2/ipv4/udp", "eth/vlan:100/vlan:2/ipv4/udp");
        same("eth/mpls/mpls:17/ipv4/udp", "eth/mpls:16/mpls:17/ipv4/udp");
        same("eth/pppoe/ipv4/udp", "eth/pppoe:1/ipv4/udp");
        same(" vxlan(eth/ipv4/udp) ", "eth/vxlan:1@192.0.2.1-192.0.2.2(eth/ipv4/udp)");
        same("gtpu(ipv4/udp)", "gtpu:1@192.0.2.1-192.0.2.2(ipv4/udp)");
        same("srv6(ipv4/udp)", "eth/srv6@2001:db8::1-2001:db8::2(ipv4/udp)");
        assert_eq!(Stack::default().to_string(), "eth/ipv4/udp");
    }

    #[test]
    fn refusals() {
        let labels = format!("eth{}/ipv4/udp", "/mpls".repeat(9));
        let segments = format!("srv6@2001:db8::1-{}(ipv4/udp)", ["2001:db8::2"; 9].join(","));
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
            "eth/mpls:1048576/ipv4/udp",
            "eth/mpls/vlan/ipv4/udp",
            "eth/mpls/pppoe/ipv4/udp",
            "eth/pppoe:65536/ipv4/udp",
            "eth/pppoe/pppoe/ipv4/udp",
            &labels,
            "vxlan:16777216(eth/ipv4/udp)",
            "vxlan(vxlan(eth/ipv4/udp))",
            "vxlan(ipv4/udp)",
            "vxlan(eth/ipv4/udp",
            "vxlan@192.0.2.1(eth/ipv4/udp)",
            "vxlan@192.0.2.1-::1(eth/ipv4/udp)",
            "gtpu(eth/ipv4/udp)",
            "gtpu:4294967296(ipv4/udp)",
            "srv6:1(ipv4/udp)",
            "srv6:7(ipv4/udp)",
            "srv6@192.0.2.1-192.0.2.2(ipv4/udp)",
            &segments,
            "gre(eth/ipv4/udp)",
        ] {
            let why = text.parse::<Stack>().unwrap_err();
            let shown: String = text.chars().take(120).collect();
            assert!(why.to_string().starts_with(&format!("`{shown}` is no header stack")), "{why}");
        }
    }

    #[test]
    fn reverses() {
        for (text, reversed) in [
            ("eth/mpls:16/ipv4/udp", "eth/mpls:16/ipv4/udp"),
            ("gtpu:5@192.0.2.1-192.0.2.2(ipv4/udp)", "gtpu:5@192.0.2.2-192.0.2.1(ipv4/udp)"),
            ("srv6@::1-::2,::3(ipv4/udp)", "srv6@::3-::2,::1(ipv4/udp)"),
        ] {
            assert_eq!(text.parse::<Stack>().unwrap().reversed().to_string(), reversed);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "(eth|vlan|mpls|pppoe|vxlan|gtpu|srv6|ipv[46]|udp|tcp|[0-9:.@(/)-]){0,14}",
        ) {
            if let Ok(stack) = text.parse::<Stack>() {
                prop_assert_eq!(stack.to_string().parse(), Ok(stack));
            }
        }
    }
}
