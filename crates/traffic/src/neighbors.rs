//! Answers to ARP requests (RFC 826) and neighbor solicitations (RFC 4861), for the hosts that a generator stands for.
//!
//! ```
//! use traffic::neighbors;
//! use wire::{MacAddr, build};
//!
//! let request = build::arp_request([192, 0, 2, 1], [192, 0, 2, 2]).to_vec();
//! let mac = MacAddr([2, 0, 0, 0, 0, 7]);
//! let reply = neighbors::answer(&request, mac).unwrap();
//! assert_eq!((&reply[6..12], &reply[22..28]), (&mac.0[..], &mac.0[..]));
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::arp::{self, Operation};
use wire::ndp::{Neighbor, OVERRIDE, SOLICITED};
use wire::{EtherType, IpProtocol, MacAddr, build, icmpv6, ipv6};

/// Most VLAN tags in front of a request.
const MAX_TAGS: usize = 2;
/// Bytes of the MAC addresses.
const MACS: usize = 12;

/// Returns the frame with which a host of this MAC address answers a request for any address. None for other frames, for
/// address probes and announcements (RFC 5227 §2.1, RFC 4862 §5.4) and for requests of the host itself.
pub fn answer(frame: &[u8], mac: MacAddr) -> Option<Vec<u8>> {
    let (kind, at) = ether_type(frame)?;
    let (below, body) = (frame.get(..at)?, frame.get(at..)?);
    let answer = match kind {
        EtherType::ARP => of_arp(body, mac),
        EtherType::IPV6 => of_solicitation(MacAddr(*frame.get(6..)?.first_chunk()?), body, mac),
        _ => None,
    }?;
    // the tags stay
    Some([&answer[..MACS], &below[MACS..at - 2], &answer[MACS..]].concat())
}

/// Returns the EtherType behind VLAN tags and the offset behind it.
#[inline(always)]
fn ether_type(frame: &[u8]) -> Option<(EtherType, usize)> {
    let mut at = MACS;
    for _ in 0..=MAX_TAGS {
        let kind = EtherType(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        at += 2;
        if !matches!(kind, EtherType::VLAN | EtherType::QINQ) {
            return Some((kind, at));
        }
        at += 2;
    }
    None
}

fn of_arp(body: &[u8], mac: MacAddr) -> Option<Vec<u8>> {
    let request = arp::Repr::parse(&arp::Packet::new(body).ok()?).ok()?;
    let is_question = request.operation == Operation::Request
        && request.sender_ip != Ipv4Addr::UNSPECIFIED
        && request.sender_ip != request.target_ip
        && request.sender_mac != mac;
    is_question.then(|| build::arp(request.reply(mac)).to_vec())
}

fn of_solicitation(sender: MacAddr, body: &[u8], mac: MacAddr) -> Option<Vec<u8>> {
    let packet = ipv6::Packet::new(body).ok()?;
    let header = packet.header();
    let (asks, src) = (header.next_header() == IpProtocol::ICMPV6 && header.hop_limit() == 255, header.src());
    if !asks || src == Ipv6Addr::UNSPECIFIED || sender == mac {
        return None;
    }
    let message = icmpv6::Message::new(packet.payload()).ok().filter(|message| message.checksum_ok(packet.pseudo()))?;
    let Ok(Neighbor::Solicitation { target, source_mac }) = Neighbor::parse(&message) else { return None };
    let answer = Neighbor::Advertisement { target, flags: SOLICITED | OVERRIDE, target_mac: Some(mac) };
    Some(answer.frame((mac, source_mac.unwrap_or(sender)), target, src))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::ndp;

    const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
    const ROUTER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn solicitation(src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let dst = ndp::solicited_node(target);
        let asked = Neighbor::Solicitation { target, source_mac: (src != Ipv6Addr::UNSPECIFIED).then_some(ROUTER) };
        asked.frame((ROUTER, ndp::multicast_mac(dst)), src, dst)
    }

    #[test]
    fn arp_requests_are_answered_in_their_vlan() {
        let plain = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec();
        let tagged = [&plain[..12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 7], &plain[12..]].concat();
        let reply = answer(&plain, HOST).unwrap();
        let parsed = arp::Repr::parse(&arp::Packet::new(&reply[14..]).unwrap()).unwrap();
        assert_eq!((parsed.operation, parsed.sender_mac, parsed.target_mac), (Operation::Reply, HOST, build::SRC_MAC));
        assert_eq!((parsed.sender_ip, parsed.target_ip), ([10, 0, 0, 2].into(), [10, 0, 0, 1].into()));
        assert_eq!((&reply[..6], &reply[6..12]), (&build::SRC_MAC.0[..], &HOST.0[..]));
        let in_vlan = answer(&tagged, HOST).unwrap();
        assert_eq!([&in_vlan[..12], &in_vlan[20..]].concat(), reply);
        assert_eq!(in_vlan[12..20], tagged[12..20]);
        let deeper = [&tagged[..12], &[0x81, 0, 0, 7], &tagged[12..]].concat();
        assert_eq!(answer(&deeper, HOST), None);
    }

    #[test]
    fn solicitations_are_answered() {
        let (router, host) = ("fe80::9".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let reply = answer(&solicitation(router, host), HOST).unwrap();
        let packet = ipv6::Packet::new(&reply[14..]).unwrap();
        assert_eq!((packet.header().src(), packet.header().dst(), packet.header().hop_limit()), (host, router, 255));
        let message = icmpv6::Message::new(packet.payload()).unwrap();
        assert!(message.checksum_ok(packet.pseudo()));
        let expected = Neighbor::Advertisement { target: host, flags: SOLICITED | OVERRIDE, target_mac: Some(HOST) };
        assert_eq!(Neighbor::parse(&message), Ok(expected));
        assert_eq!((&reply[..6], &reply[6..12]), (&ROUTER.0[..], &HOST.0[..]));
        // an advertisement, a changed byte, a hop
        assert_eq!(answer(&reply, ROUTER), None);
        for at in [21, 60, 79] {
            let mut damaged = solicitation(router, host);
            damaged[at] ^= 1;
            assert_eq!(answer(&damaged, HOST), None, "{at}");
        }
    }

    #[test]
    fn probes_announcements_and_own_requests_are_not_answered() {
        for (sender, target) in [([0, 0, 0, 0], [10, 0, 0, 2]), ([10, 0, 0, 2], [10, 0, 0, 2])] {
            assert_eq!(answer(&build::arp_request(sender, target).to_vec(), HOST), None);
        }
        let request = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec();
        assert_eq!(answer(&request, build::SRC_MAC), None);
        let (router, host) = ("fe80::9".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert_eq!(answer(&solicitation(Ipv6Addr::UNSPECIFIED, host), HOST), None);
        assert_eq!(answer(&solicitation(router, host), ROUTER), None);
    }

    proptest! {
        #[test]
        fn no_frame_panics(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..4_usize, cut in 0..90_usize) {
            let (router, host) = ("fe80::9".parse().unwrap(), "2001:db8::2".parse().unwrap());
            let mut frame = match kind {
                0 => bytes.clone(),
                1 => build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec(),
                _ => solicitation(router, host),
            };
            for (at, byte) in bytes.iter().enumerate().filter(|(at, _)| at % 7 == 0 && *at > 13) {
                if let Some(old) = frame.get_mut(at) {
                    *old = *byte;
                }
            }
            frame.truncate(cut);
            answer(&frame, HOST);
        }
    }
}
