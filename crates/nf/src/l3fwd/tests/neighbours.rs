//! Messages of ARP and neighbor discovery that are ignored, and packets that wait across a reload.

use super::*;

const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 1, 9]);

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Returns the MAC addresses that packets to the host have, for IPv4 and IPv6.
fn macs_of_host(r: &mut Harness) -> Vec<MacAddr> {
    let to_host = [
        build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).pad_to(60).to_vec(),
        build::udp6(v6("2001:db8:2::9"), v6("2001:db8:1::5"), 1, 1).dst_mac(WAN).to_vec(),
    ];
    let is_ip = |frame: &&Vec<u8>| frame[12..14] != [8, 6];
    r.feed_input(FROM_WAN, &to_host)[1].iter().filter(is_ip).map(|frame| macs(frame).0).collect()
}

#[test]
fn a_group_is_not_the_mac_address_of_a_host() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    for mac in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 5]), MacAddr([0; 6])] {
        for operation in [arp::Operation::Request, arp::Operation::Reply] {
            let message = arp::Repr {
                operation,
                sender_mac: mac,
                sender_ip: [10, 0, 0, 5].into(),
                target_mac: LAN,
                target_ip: [10, 0, 0, 1].into(),
            };
            let frame = build::arp(message).src_mac(HOST).dst_mac(LAN).pad_to(60).to_vec();
            assert_eq!(r.feed_input(FROM_LAN, &[frame]).concat().len(), 0, "{mac}");
        }
        let own = v6("2001:db8:1::1");
        let solicitation = Neighbor::Solicitation { target: own, source_mac: Some(mac) };
        let advertisement =
            Neighbor::Advertisement { target: v6("2001:db8:1::5"), flags: ndp::OVERRIDE, target_mac: Some(mac) };
        for message in [solicitation, advertisement] {
            let frame = message.frame((HOST, LAN), v6("2001:db8:1::5"), own);
            assert_eq!(r.feed_input(FROM_LAN, &[frame]).concat().len(), 0, "{mac}");
        }
    }
    assert_eq!((r.dropped("malformed_arp"), r.dropped("malformed_ip")), (6, 6));
    assert_eq!(macs_of_host(&mut r), [HOST, HOST]);
}

#[test]
fn solicitations_without_a_source_address_are_answered_if_valid() {
    let mut r = router(DEFAULT);
    let own = v6("2001:db8:1::1");
    let group = ndp::solicited_node(own);
    let frame = |source_mac, to: Ipv6Addr| {
        let mac = if to.is_multicast() { ndp::multicast_mac(to) } else { LAN };
        Neighbor::Solicitation { target: own, source_mac }.frame((HOST, mac), Ipv6Addr::UNSPECIFIED, to)
    };
    for (source_mac, to) in [(Some(HOST), group), (None, own), (None, v6("ff02::1"))] {
        assert_eq!(r.feed_input(FROM_LAN, &[frame(source_mac, to)]).concat().len(), 0, "{source_mac:?}, {to}");
    }
    assert_eq!(r.drops(), [("malformed_ip", 3)]);
    // duplicate address detection
    let out = r.feed_input(FROM_LAN, &[frame(None, group)]);
    assert_eq!(out[1].len(), 1);
    assert_eq!(macs(&out[1][0]), (ndp::multicast_mac(v6("ff02::1")), LAN));
}

#[test]
fn an_advertisement_replaces_a_mac_address_only_with_the_override_flag() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    let (host, own, all) = (v6("2001:db8:1::5"), v6("2001:db8:1::1"), v6("ff02::1"));
    let advertise = |r: &mut Harness, flags: u8, to: Ipv6Addr| {
        let mac = if to.is_multicast() { ndp::multicast_mac(to) } else { LAN };
        let message = Neighbor::Advertisement { target: host, flags, target_mac: Some(OTHER) };
        r.feed_input(FROM_LAN, &[message.frame((OTHER, mac), host, to)]);
        macs_of_host(r).pop()
    };
    assert_eq!(advertise(&mut r, ndp::SOLICITED, own), Some(HOST));
    assert_eq!(advertise(&mut r, 0, all), Some(HOST));
    // a solicited answer is not sent to a group
    assert_eq!((advertise(&mut r, ndp::SOLICITED | ndp::OVERRIDE, all), r.dropped("malformed_ip")), (Some(HOST), 1));
    assert_eq!(advertise(&mut r, ndp::OVERRIDE, all), Some(OTHER));
    // of an unresolved neighbour any is learned
    let mut r = router(DEFAULT);
    assert_eq!(
        r.feed_input(FROM_WAN, &[build::udp6(v6("2001:db8:2::9"), host, 1, 1).dst_mac(WAN).to_vec()])[1].len(),
        1
    );
    assert_eq!(advertise(&mut r, ndp::SOLICITED, own), Some(OTHER));
}

#[test]
fn packets_for_a_neighbour_that_does_not_fit_after_a_reload_are_dropped_with_a_reason() {
    let settings = |max: usize| format!("{TWO}neighbours_max = {max}\n");
    let before = HarnessBuilder::new::<L3fwd>(&settings(3));
    let mut r = before.clone().build().unwrap();
    learn_host(&mut r);
    let to_others = [77, 78].map(|host| lan4([10, 0, 0, host]).to_vec());
    assert_eq!(r.feed_input(FROM_LAN, &to_others)[1].len(), 1, "a request for the third neighbour");
    assert_eq!((r.held(), r.dropped("neighbour_table_full")), (1, 1));
    HarnessBuilder::new::<L3fwd>(&settings(2)).reload(&before, &mut r).unwrap();
    let out = r.advance(Duration::from_millis(20));
    assert_eq!((r.held(), r.dropped("neighbour_unresolved")), (0, 1));
    let (.., repr, _) = error4(&out[1]);
    assert_eq!(repr, icmpv4::Repr::DestUnreachable { code: 1 });
}
