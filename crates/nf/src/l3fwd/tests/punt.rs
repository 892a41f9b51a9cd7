//! Packets to and from the control plane.

use super::*;
use wire::{IpProtocol, options::OptionBytes};

/// Interface `lan` has the representor `lan-host`, and `wan` has none.
const INTERFACES: &str = "\
interface.lan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\", representor = \"lan-host\" }
interface.wan = { addresses = [\"192.0.2.2/24\", \"2001:db8:2::2/64\"], mac = \"02:00:00:00:02:00\", mtu = 1300 }
";
const FROM_LAN_HOST: usize = 2;
const TO_LAN_HOST: usize = 3;

fn punting(more: &str) -> Harness {
    Harness::new::<L3fwd>(&format!("{INTERFACES}{DEFAULT}{more}"))
}

/// Returns an ARP reply of the host to the router.
fn arp_reply() -> Vec<u8> {
    let reply = arp::Repr {
        operation: arp::Operation::Reply,
        sender_mac: HOST,
        sender_ip: [10, 0, 0, 5].into(),
        target_mac: LAN,
        target_ip: [10, 0, 0, 1].into(),
    };
    build::arp(reply).src_mac(HOST).dst_mac(LAN).pad_to(60).to_vec()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Returns a packet from the host that is to reach the control plane, and its class.
fn punted() -> Vec<(Vec<u8>, &'static str)> {
    let own = [10, 0, 0, 1];
    let host = [10, 0, 0, 5];
    let (own6, host6) = (v6("2001:db8:1::1"), v6("2001:db8:1::5"));
    let tcp = |from: u16, to: u16| build::tcp4(host, own, from, to).dst_mac(LAN).pad_to(60).to_vec();
    let udp = |to: u16| build::udp4(host, own, 49_152, to).dst_mac(LAN).ttl(255).pad_to(60).to_vec();
    let ospf = IpProtocol(89);
    let group6 = |group: &str| ndp::multicast_mac(v6(group));
    let alert = OptionBytes::new(&[148, 4, 0, 0]).unwrap();
    vec![
        (tcp(40_000, 179), "bgp"),
        (tcp(179, 40_000), "bgp"),
        (tcp(40_000, 22), "other"),
        (build::tcp6(host6, own6, 40_000, 179).dst_mac(LAN).to_vec(), "bgp"),
        (udp(3784), "bfd"),
        (udp(3785), "bfd"),
        (udp(4784), "bfd"),
        (udp(6784), "bfd"),
        (udp(161), "other"),
        (build::ipv4(host, own, ospf).dst_mac(LAN).pad_to(60).to_vec(), "ospf"),
        (
            build::ipv4(host, [224, 0, 0, 5], ospf).ttl(1).dst_mac(MacAddr([1, 0, 0x5e, 0, 0, 5])).pad_to(60).to_vec(),
            "ospf",
        ),
        (build::ipv6(v6("fe80::5"), v6("ff02::5"), ospf).ttl(1).dst_mac(group6("ff02::5")).to_vec(), "ospf"),
        (build::echo4(host, own, 1, 2).dst_mac(LAN).pad_to(60).to_vec(), "icmp"),
        (build::echo4(host, [192, 0, 2, 2], 1, 2).dst_mac(LAN).pad_to(60).to_vec(), "icmp"),
        (build::echo6(host6, own6, 1, 2).dst_mac(LAN).to_vec(), "icmp"),
        (build::echo6(host6, ndp::link_local(LAN), 1, 2).dst_mac(LAN).to_vec(), "icmp"),
        (build::echo6(host6, v6("2001:db8:2::2"), 1, 2).dst_mac(LAN).to_vec(), "icmp"),
        (neighbor_discovery(133, v6("fe80::5"), v6("ff02::2"), 255), "nd"),
        (neighbor_discovery(134, v6("fe80::5"), v6("ff02::1"), 255), "nd"),
        (neighbor_discovery(137, v6("fe80::5"), own6, 255), "nd"),
        // VRRP, IGMP with a router alert
        (
            build::ipv4(host, [224, 0, 0, 18], IpProtocol(112)).dst_mac(MacAddr([1, 0, 0x5e, 0, 0, 18])).to_vec(),
            "other",
        ),
        (
            build::ipv4(host, [224, 0, 0, 22], IpProtocol(2))
                .ip_options(alert)
                .ttl(1)
                .dst_mac(MacAddr([1, 0, 0x5e, 0, 0, 22]))
                .to_vec(),
            "other",
        ),
        (build::udp4([0, 0, 0, 0], [255; 4], 68, 67).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec(), "dhcp"),
        (udp(68), "dhcp"),
        (build::udp6(v6("fe80::5"), v6("ff02::1:2"), 546, 547).dst_mac(group6("ff02::1:2")).to_vec(), "dhcp"),
        (build::udp6(host6, own6, 547, 546).dst_mac(LAN).to_vec(), "dhcp"),
        (
            build::echo6(v6("fe80::5"), v6("ff02::16"), 1, 2)
                .extension(IpProtocol::HOP_BY_HOP, &[5, 2, 0, 0, 1, 0])
                .ttl(1)
                .dst_mac(group6("ff02::16"))
                .to_vec(),
            "icmp",
        ),
        // fragments have no ports
        (build::tcp4(host, own, 179, 179).fragment(0, true).dst_mac(LAN).pad_to(60).to_vec(), "other"),
        (build::tcp4(host, own, 179, 179).fragment(8, false).dst_mac(LAN).pad_to(60).to_vec(), "other"),
        (build::echo4(host, own, 1, 2).fragment(0, true).dst_mac(LAN).pad_to(60).to_vec(), "icmp"),
        // also with an expired time to live
        (build::tcp4(host, own, 179, 179).ttl(1).dst_mac(LAN).pad_to(60).to_vec(), "bgp"),
    ]
}

#[test]
fn packets_to_the_router_go_unchanged_to_the_representor_and_are_counted_by_class() {
    let mut r = punting("");
    assert_eq!(r.outputs(), ["local", "lan", "wan", "lan-host"]);
    for (frame, class) in punted() {
        let before = r.counter(&format!("punted_{class}"));
        let mut out = r.feed_input(FROM_LAN, core::slice::from_ref(&frame));
        assert_eq!(out.swap_remove(TO_LAN_HOST), [frame], "{class}");
        assert_eq!((out.concat().len(), r.counter(&format!("punted_{class}"))), (0, before + 1), "{class}");
    }
    assert_eq!((r.drops(), r.created()), (vec![], 0));
}

#[test]
fn packets_from_an_interface_without_a_representor_go_to_that_of_the_address() {
    let mut r = punting("");
    let host6 = v6("2001:db8:2::9");
    let ssh = |own: [u8; 4]| build::tcp4([192, 0, 2, 9], own, 1, 22).dst_mac(WAN).pad_to(60);
    let echo = |own: [u8; 4]| build::echo4([192, 0, 2, 9], own, 1, 2).dst_mac(WAN).pad_to(60);
    let echo6 = |own: Ipv6Addr| build::echo6(host6, own, 1, 2).dst_mac(WAN);
    // addresses of `lan`: with the MAC address of `lan`, otherwise unchanged
    let (lan, lan6) = ([10, 0, 0, 1], v6("2001:db8:1::1"));
    let out = r.feed_input(FROM_WAN, &[ssh(lan).to_vec(), echo(lan).to_vec(), echo6(lan6).to_vec()]);
    let readdressed =
        [ssh(lan).dst_mac(LAN).to_vec(), echo(lan).dst_mac(LAN).to_vec(), echo6(lan6).dst_mac(LAN).to_vec()];
    assert_eq!((&out[TO_LAN_HOST][..], out.concat().len()), (&readdressed[..], 3));
    // addresses of `wan`: the router answers echo requests, and other packets leave by `local`
    let (wan, wan6) = ([192, 0, 2, 2], v6("2001:db8:2::2"));
    let own = [ssh(wan).to_vec(), echo(wan).to_vec(), echo6(wan6).to_vec(), echo6(ndp::link_local(WAN)).to_vec()];
    let out = r.feed_input(FROM_WAN, &own);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 3, 0]);
    assert_eq!(out[0], [ssh(wan).to_vec()]);
    assert_eq!((r.drops(), r.counter("punted_icmp"), r.counter("punted_other")), (vec![], 2, 1));
    // groups go to the interface that received them only, and link-local addresses are those of a link
    let hello = build::ipv4([192, 0, 2, 9], [224, 0, 0, 5], IpProtocol(89)).dst_mac(MacAddr([1, 0, 0x5e, 0, 0, 5]));
    let hello6 = build::ipv6(v6("fe80::9"), v6("ff02::5"), IpProtocol(89)).dst_mac(ndp::multicast_mac(v6("ff02::5")));
    let other_link = echo6(ndp::link_local(LAN));
    let out = r.feed_input(FROM_WAN, &[hello.pad_to(60).to_vec(), hello6.to_vec(), other_link.to_vec()]);
    assert_eq!((out.concat().len(), r.drops()), (0, vec![("martian", 1), ("multicast", 2)]));
}

#[test]
fn messages_of_neighbours_that_were_forwarded_are_dropped() {
    let mut r = punting("");
    let (host, own) = (v6("2001:db8:1::5"), v6("2001:db8:1::1"));
    let bfd = |port: u16, ttl: u8| {
        let v4 = build::udp4([10, 0, 0, 5], [10, 0, 0, 1], 49_152, port).ttl(ttl).dst_mac(LAN).pad_to(60);
        [v4.to_vec(), build::udp6(host, own, 49_152, port).ttl(ttl).dst_mac(LAN).to_vec()]
    };
    // echoes have been forwarded once, by the neighbour, and multihop sessions by any number of routers
    for (port, ttl, is_dropped) in [
        (3784, 255, false),
        (3784, 254, true),
        (3785, 255, false),
        (3785, 254, false),
        (3785, 253, true),
        (4784, 2, false),
        (6784, 255, false),
    ] {
        let before = r.dropped("gtsm");
        let out = r.feed_input(FROM_LAN, &bfd(port, ttl));
        let dropped = if is_dropped { 2 } else { 0 };
        assert_eq!((out.concat().len(), r.dropped("gtsm") - before), (2 - dropped, dropped as u64), "{port}, {ttl}");
    }
    // also to an interface without a representor
    let to_wan = build::udp4([192, 0, 2, 9], [192, 0, 2, 2], 49_152, 3784).dst_mac(WAN).pad_to(60);
    let out = r.feed_input(FROM_WAN, &[to_wan.clone().ttl(254).to_vec(), to_wan.ttl(255).to_vec()]);
    assert_eq!((out[0].len(), out.concat().len()), (1, 1));
    // neighbor discovery: router solicitation to redirect, to an address or a group, also behind options
    let mut r = punting("");
    let mut dropped = 0;
    for message_type in 133..=137 {
        for to in [own, v6("ff02::1")] {
            let frames = [254, 1].map(|hop_limit| neighbor_discovery(message_type, host, to, hop_limit));
            let sent = r.feed_input(FROM_LAN, &frames).concat().len();
            dropped += 2;
            assert_eq!((sent, r.drops()), (0, vec![("gtsm", dropped)]), "type {message_type} to {to}");
        }
    }
    let mut behind_options = neighbor_discovery(137, host, own, 254);
    behind_options.splice(54..54, [58, 0, 1, 4, 0, 0, 0, 0]);
    (behind_options[19], behind_options[20]) = (behind_options[19] + 8, 0);
    assert_eq!(r.feed_input(FROM_LAN, &[behind_options]).concat().len(), 0);
    assert_eq!(r.drops(), [("gtsm", dropped + 1)]);
}

/// Returns a message of a type, 133 to 137, with a correct checksum.
fn neighbor_discovery(message_type: u8, from: Ipv6Addr, to: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
    let mac = if to.is_multicast() { ndp::multicast_mac(to) } else { LAN };
    let target = from.octets();
    let message = build::icmp6(from, to, icmpv6::Repr::NeighborSolicitation).payload(&target).ttl(hop_limit);
    let mut frame = message.dst_mac(mac).to_vec();
    let sum = u16::from_be_bytes([frame[56], frame[57]]);
    let (old, new) = (u16::from_be_bytes([frame[54], 0]), u16::from_be_bytes([message_type, 0]));
    frame[54] = message_type;
    frame[56..58].copy_from_slice(&wire::checksum::update16(sum, old, new).to_be_bytes());
    frame
}

#[test]
fn other_packets_are_forwarded_and_dropped_as_without_a_representor() {
    let mut r = punting("");
    learn_host(&mut r);
    let out = r.feed_input(FROM_LAN, &[lan4([8, 8, 8, 8]).to_vec(), lan6("2001:db8:9::9").to_vec()]);
    assert_eq!((out[2].len(), out[TO_LAN_HOST].len()), (2, 0));
    let expired = r.feed_input(FROM_LAN, &[lan4([8, 8, 8, 8]).ttl(1).to_vec()]);
    assert_eq!((expired[1].len(), expired[TO_LAN_HOST].len()), (1, 0));
    for (frame, reason) in [
        (lan4([239, 1, 1, 1]).dst_mac(MacAddr([1, 0, 0x5e, 1, 1, 1])).to_vec(), "multicast"),
        (lan4([224, 0, 1, 1]).dst_mac(MacAddr([1, 0, 0x5e, 0, 1, 1])).to_vec(), "multicast"),
        (lan6("ff05::2").dst_mac(ndp::multicast_mac(v6("ff05::2"))).to_vec(), "multicast"),
        (lan4([10, 0, 0, 255]).dst_mac(MacAddr::BROADCAST).to_vec(), "link_broadcast"),
        (lan4([10, 0, 0, 1]).dst_mac(HOST).to_vec(), "other_mac"),
    ] {
        let before = r.dropped(reason);
        assert_eq!(r.feed_input(FROM_LAN, &[frame]).concat().len(), 0, "{reason}");
        assert_eq!(r.dropped(reason), before + 1, "{reason}");
    }
}

#[test]
fn answers_of_neighbours_are_learned_and_copied() {
    let mut r = punting("");
    let reply = |sender: [u8; 4], target: [u8; 4], operation| arp::Repr {
        operation,
        sender_mac: HOST,
        sender_ip: sender.into(),
        target_mac: LAN,
        target_ip: target.into(),
    };
    let frame = |repr, to| build::arp(repr).src_mac(HOST).dst_mac(to).pad_to(60).to_vec();
    let answer = frame(reply([10, 0, 0, 5], [10, 0, 0, 1], arp::Operation::Reply), LAN);
    let host6 = v6("2001:db8:1::5");
    let advertisement = Neighbor::Advertisement { target: host6, flags: ndp::SOLICITED, target_mac: Some(HOST) };
    let advertisement = advertisement.frame((HOST, LAN), host6, v6("2001:db8:1::1"));
    let out = r.feed_input(FROM_LAN, &[answer.clone(), advertisement.clone()]);
    assert_eq!(out[TO_LAN_HOST], [answer, advertisement]);
    assert_eq!((r.created(), r.drops()), (2, vec![("consumed", 2)]));
    // the router forwards to the host without a request of its own
    let to_host = build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).pad_to(60).to_vec();
    assert_eq!(macs(&r.feed_input(FROM_WAN, &[to_host])[1][0]), (HOST, LAN));
    // announcements are copied; requests are answered, or are for others
    let announcement = frame(reply([10, 0, 0, 7], [10, 0, 0, 7], arp::Operation::Request), MacAddr::BROADCAST);
    assert_eq!(r.feed_input(FROM_LAN, core::slice::from_ref(&announcement))[TO_LAN_HOST], [announcement]);
    let request = frame(reply([10, 0, 0, 5], [10, 0, 0, 1], arp::Operation::Request), MacAddr::BROADCAST);
    let other = frame(reply([10, 0, 0, 5], [10, 0, 0, 9], arp::Operation::Request), MacAddr::BROADCAST);
    let out = r.feed_input(FROM_LAN, &[request, other]);
    assert_eq!((out[1].len(), out[TO_LAN_HOST].len()), (1, 0));
    assert_eq!((r.counter("punted_arp"), r.counter("punted_nd")), (2, 1));
}

#[test]
fn a_class_that_exceeds_its_rate_takes_nothing_from_the_others() {
    let mut r = punting("punt = { other = \"100 pps\", bgp = \"50 pps\", arp = \"10 pps\" }\n");
    let of = |port: u16, n: usize| {
        vec![build::tcp4([10, 0, 0, 5], [10, 0, 0, 1], 40_000, port).dst_mac(LAN).pad_to(60).to_vec(); n]
    };
    // a tenth of a second at once
    assert_eq!(r.feed_input(FROM_LAN, &of(22, 500))[TO_LAN_HOST].len(), 10);
    assert_eq!(r.feed_input(FROM_LAN, &of(179, 500))[TO_LAN_HOST].len(), 5);
    assert_eq!(r.drops(), [("punt_exceeded", 985)]);
    let count = |r: &Harness| ["punted_other", "punt_exceeded_other", "punted_bgp"].map(|name| r.counter(name));
    assert_eq!(count(&r), [10, 490, 5]);
    // and no more than the rate over time
    let mut punted = 0;
    for ms in (100..=2000).step_by(50) {
        r.jump_to(Duration::from_millis(ms));
        punted += r.feed_input(FROM_LAN, &of(22, 30))[TO_LAN_HOST].len();
    }
    assert_eq!(punted, 200, "100 a second, for two seconds");
    // a copy above the rate is not made, and the message is learned nevertheless
    let reply = arp_reply();
    assert_eq!(r.feed_input(FROM_LAN, &vec![reply; 40])[TO_LAN_HOST].len(), 1);
    assert_eq!((r.counter("punt_exceeded_arp"), r.dropped("consumed"), r.created()), (39, 40, 1));
}

#[test]
fn interfaces_have_rates_of_their_own() {
    let settings = "\
interface.lan = { addresses = [\"10.0.0.1/24\"], mac = \"02:00:00:00:01:00\", representor = \"lan-host\" }
interface.wan = { addresses = [\"192.0.2.2/24\"], mac = \"02:00:00:00:02:00\", representor = \"wan-host\" }
punt = { other = \"100 pps\" }
";
    let mut r = Harness::new::<L3fwd>(settings);
    assert_eq!(r.outputs(), ["local", "lan", "wan", "lan-host", "wan-host"]);
    let to = |mac| vec![build::tcp4([10, 0, 0, 5], [10, 0, 0, 1], 1, 22).dst_mac(mac).pad_to(60).to_vec(); 100];
    assert_eq!(r.feed_input(FROM_LAN, &to(LAN))[3].len(), 10);
    // an address of `lan` that is reached by `wan` goes to the representor of `wan`, with its MAC address
    let out = r.feed_input(FROM_WAN, &to(WAN));
    assert_eq!((out[3].len(), out[4].len(), macs(&out[4][0]).0), (0, 10, WAN));
}

#[test]
fn copies_of_the_router_share_the_rate_of_an_interface() {
    let settings = format!("{INTERFACES}{DEFAULT}punt = {{ other = \"100 pps\" }}\n");
    let mut copies = HarnessBuilder::new::<L3fwd>(&settings).build_copies(2).unwrap();
    let frames = vec![build::tcp4([10, 0, 0, 5], [10, 0, 0, 1], 1, 22).dst_mac(LAN).pad_to(60).to_vec(); 6];
    let punted: Vec<_> = copies.iter_mut().map(|r| r.feed_input(FROM_LAN, &frames)[TO_LAN_HOST].len()).collect();
    assert_eq!(punted, [6, 4], "a burst of 10");
    let counted = |name: &str| copies.iter().map(|r| r.counter(name)).collect::<Vec<_>>();
    assert_eq!((counted("punted_other"), counted("punt_exceeded_other")), (vec![6, 4], vec![0, 2]));
}

#[test]
fn copies_without_a_buffer_are_not_counted_as_punted() {
    let builder = HarnessBuilder::new::<L3fwd>(&format!("{INTERFACES}{DEFAULT}"));
    let reply = arp_reply();
    for (buffers, copies) in [(1, 0), (2, 1)] {
        let mut r = builder.clone().buffers(buffers).build().unwrap();
        assert_eq!(r.feed_input(FROM_LAN, core::slice::from_ref(&reply))[TO_LAN_HOST].len(), copies);
        let counts = ["punted_arp", "punt_exceeded_arp", "no_buffer"].map(|name| r.counter(name));
        assert_eq!(counts, [copies as u64, 0, 1 - copies as u64], "{buffers} buffers");
    }
}

#[test]
fn frames_of_the_control_plane_leave_unchanged_by_its_interface() {
    let mut r = punting("");
    let out = |frame: build::Frame<ipv4::Repr, wire::udp::Repr>| frame.src_mac(LAN).dst_mac(HOST);
    let udp = build::udp4([10, 0, 0, 1], [8, 8, 8, 8], 1, 2);
    let hello = build::ipv4([10, 0, 0, 1], [224, 0, 0, 5], IpProtocol(89)).ttl(1).src_mac(LAN);
    let request = build::arp_request([10, 0, 0, 1], [10, 0, 0, 5]).src_mac(LAN);
    let longest = out(udp.clone()).payload(&[7; 1472]).to_vec();
    assert_eq!(longest.len(), 1514);
    let hello6 = build::ipv6(ndp::link_local(LAN), v6("ff02::5"), IpProtocol(89)).ttl(1).src_mac(LAN);
    let sent = [out(udp.clone()).ttl(1).to_vec(), hello.to_vec(), hello6.to_vec(), request.to_vec(), longest];
    let mut frames = sent.to_vec();
    let mut foreign = out(udp.clone()).src_mac(HOST).to_vec();
    foreign.truncate(50);
    let of_type = |ether_type: u16, dst: [u8; 6]| {
        let mut frame = out(udp.clone()).pad_to(60).dst_mac(MacAddr(dst)).to_vec();
        frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
        frame
    };
    let refused = [
        foreign,
        out(udp.clone()).payload(&[7; 1473]).to_vec(),
        vec![2; 13],
        // a virtual router's address
        out(udp.clone()).src_mac(MacAddr([0, 0, 0x5e, 0, 1, 7])).to_vec(),
        // VLAN, LLDP, LACP, a length as in IS-IS and STP
        of_type(0x8100, HOST.0),
        of_type(0x88cc, [1, 0x80, 0xc2, 0, 0, 0x0e]),
        of_type(0x8809, [1, 0x80, 0xc2, 0, 0, 2]),
        of_type(46, [1, 0x80, 0xc2, 0, 0, 0]),
        of_type(0x0800, [1, 0x80, 0xc2, 0, 0, 0x21]),
    ];
    frames.extend(refused.clone());
    let all = r.feed_input(FROM_LAN_HOST, &frames);
    assert_eq!(all[1], sent);
    assert_eq!(all.concat().len(), sent.len());
    assert_eq!((r.drops(), r.counter("injected")), (vec![("inject_refused", refused.len() as u64)], 5));
    assert_eq!(r.counter("neighbour_requests"), 0);
}

#[test]
fn rejects_representors_that_are_not_ports_of_their_own() {
    let with = |lan: &str, wan: &str, more: &str| {
        let settings = format!(
            "interface.lan = {{ addresses = [\"10.0.0.1/24\"], representor = {lan:?} }}\n\
             interface.wan = {{ addresses = [\"192.0.2.2/24\"], representor = {wan:?} }}\n{more}"
        );
        Harness::try_new::<L3fwd>(&settings).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(with("a", "b", ""), "");
    for (lan, wan, more, words) in [
        ("a", "a", "", ["a", "two interfaces"]),
        ("wan", "b", "", ["wan", "also an interface"]),
        ("local", "b", "", ["local", "reserved"]),
        ("a", "b", "punt.bgp = \"1 Gbps\"", ["1000000000 bit", "packets per second"]),
        ("a", "b", "punt.bgp = \"0 pps\"", ["rate", "kpps"]),
        ("a", "b", "punt.rsvp = \"1 kpps\"", ["rsvp", "bgp"]),
    ] {
        let error = with(lan, wan, more);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}
