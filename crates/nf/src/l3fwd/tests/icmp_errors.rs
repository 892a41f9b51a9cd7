//! Source addresses of ICMP errors, and packets about which none are sent.

use super::*;

#[test]
fn expired_packets_that_are_not_forwarded_cause_no_error() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    for (frame, reason) in [
        (lan4([192, 0, 2, 255]).ttl(1).to_vec(), "directed_broadcast"),
        (lan4([10, 0, 0, 255]).ttl(0).to_vec(), "directed_broadcast"),
        (lan4([240, 0, 0, 1]).ttl(1).to_vec(), "martian"),
        (lan4([203, 0, 113, 1]).ttl(1).to_vec(), "blackhole"),
        (lan6("fe80::99").ttl(1).to_vec(), "martian"),
    ] {
        let before = r.dropped(reason);
        assert_eq!(r.feed_input(FROM_LAN, &[frame]).concat().len(), 0, "{reason}");
        assert_eq!((r.dropped(reason), r.dropped("ttl_expired")), (before + 1, 0), "{reason}");
    }
    assert_eq!(r.counter("icmp_sent"), 0);
}

#[test]
fn packets_to_the_router_by_broadcast_are_not_answered() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    let host6: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    for own in ["2001:db8:1::1".parse().unwrap(), ndp::link_local(LAN)] {
        let echo6 = build::echo6(host6, own, 1, 2).src_mac(HOST).dst_mac(ndp::multicast_mac(own));
        assert_eq!(r.feed_input(FROM_LAN, &[echo6.to_vec()]).concat().len(), 0);
    }
    let echo = build::echo4([10, 0, 0, 5], [10, 0, 0, 1], 1, 2).src_mac(HOST).dst_mac(MacAddr::BROADCAST);
    assert_eq!(r.feed_input(FROM_LAN, &[echo.pad_to(60).to_vec()]).concat().len(), 0);
    assert_eq!(r.dropped("link_broadcast"), 3);
}

#[test]
fn the_link_local_address_of_another_interface_is_not_answered() {
    let mut r = router(DEFAULT);
    let echo = build::echo6("2001:db8:1::5".parse::<Ipv6Addr>().unwrap(), ndp::link_local(WAN), 1, 2);
    assert_eq!(r.feed_input(FROM_LAN, &[echo.src_mac(HOST).dst_mac(LAN).to_vec()]).concat().len(), 0);
    assert_eq!(r.drops(), [("martian", 1)]);
}

#[test]
fn an_interface_without_an_address_of_the_ip_version_uses_that_of_another() {
    let mut r = Harness::new::<L3fwd>(
        "interface.v4 = { addresses = [\"10.0.0.1/24\"], mac = \"02:00:00:00:02:00\" }\n\
         interface.v6 = { addresses = [\"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\" }\n\
         route = [{ prefix = \"192.0.2.0/24\", via = [\"10.0.0.9\"] }, { prefix = \"2001:db8:2::/48\", via = [\"2001:db8:1::9\"] }]\n\
         neighbour = { \"10.0.0.9\" = \"02:00:00:00:01:09\", \"2001:db8:1::9\" = \"02:00:00:00:01:09\" }\n",
    );
    let (from_v4, from_v6, to_v4, to_v6) = (0, 1, 1, 2);
    let expired = build::udp4([192, 0, 2, 5], [8, 8, 8, 8], 1, 2).ttl(1).dst_mac(LAN).pad_to(60).to_vec();
    let (from, to, ..) = error4(&r.feed_input(from_v6, &[expired])[to_v4]);
    assert_eq!((from, to), ([10, 0, 0, 1].into(), [192, 0, 2, 5].into()));
    let src: Ipv6Addr = "2001:db8:2::5".parse().unwrap();
    let dst: Ipv6Addr = "2001:db8:9::9".parse().unwrap();
    let out = r.feed_input(from_v4, &[build::udp6(src, dst, 1, 2).ttl(1).dst_mac(WAN).to_vec()]);
    assert_eq!(error6(&out[to_v6]), icmpv6::Repr::TimeExceeded { code: 0 });
    let from = ipv6::Packet::new(&out[to_v6][0][14..]).unwrap().header().src();
    assert_eq!(from, "2001:db8:1::1".parse::<Ipv6Addr>().unwrap());
}

#[test]
fn errors_are_not_longer_than_the_mtu() {
    let mut r = Harness::new::<L3fwd>(
        "interface.lan = { addresses = [\"10.0.0.1/24\"], mac = \"02:00:00:00:01:00\", mtu = 200 }\n\
         interface.wan = { addresses = [\"192.0.2.2/24\"], mac = \"02:00:00:00:02:00\" }\n\
         neighbour = { \"10.0.0.5\" = \"02:00:00:00:01:05\" }\n",
    );
    let long = build::udp4([10, 0, 0, 5], [8, 8, 8, 8], 1, 2).payload(&[7; 1000]);
    let out = r.feed_input(FROM_LAN, &[long.clone().dst_mac(LAN).to_vec()]);
    error4(&out[1]);
    assert_eq!(out[1][0].len(), 14 + 200);
    // received from another interface than the one to the sender
    let out = r.feed_input(FROM_WAN, &[long.dst_mac(WAN).to_vec()]);
    assert_eq!((out.concat().len(), r.drops()), (0, vec![("too_big", 1), ("no_route", 2)]));
}
