//! Tests of a router with the interfaces `lan` and `wan`.

mod adversarial;
mod icmp_errors;
mod neighbours;
mod punt;
mod saved;
mod shared_ports;
mod tenants;

use super::fib::Fib;
use crate::L3fwd;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use testkit::{Harness, HarnessBuilder};
use wire::ndp::{self, Neighbor};
use wire::{MacAddr, arp, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

const LAN: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);
const WAN: MacAddr = MacAddr([2, 0, 0, 0, 2, 0]);
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 1, 5]);
const GATEWAY: MacAddr = MacAddr([2, 0, 0, 0, 2, 1]);
/// Input numbers; the output of an interface is one more.
const FROM_LAN: usize = 0;
const FROM_WAN: usize = 1;

const TWO: &str = "\
interface.lan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\" }
interface.wan = { addresses = [\"192.0.2.2/24\", \"2001:db8:2::2/64\"], mac = \"02:00:00:00:02:00\", mtu = 1300 }
";
const DEFAULT: &str = "\
route = [{ prefix = \"0.0.0.0/0\", via = [\"192.0.2.1\"] }, { prefix = \"::/0\", via = [\"2001:db8:2::1\"] },
  { prefix = \"203.0.113.0/24\", to = \"blackhole\" }, { prefix = \"198.51.100.0/24\", to = \"unreachable\" }]
neighbour = { \"192.0.2.1\" = \"02:00:00:00:02:01\", \"2001:db8:2::1\" = \"02:00:00:00:02:01\" }
";

fn router(more: &str) -> Harness {
    Harness::new::<L3fwd>(&format!("{TWO}{more}"))
}

fn lan4(dst: [u8; 4]) -> build::Frame<ipv4::Repr, wire::udp::Repr> {
    build::udp4([10, 0, 0, 5], dst, 1000, 53).src_mac(HOST).dst_mac(LAN).pad_to(60)
}

fn lan6(dst: &str) -> build::Frame<build::V6, wire::udp::Repr> {
    let (src, dst): (Ipv6Addr, Ipv6Addr) = ("2001:db8:1::5".parse().unwrap(), dst.parse().unwrap());
    build::udp6(src, dst, 1000, 53).src_mac(HOST).dst_mac(LAN)
}

/// Sends an ARP request and a neighbor solicitation for the router from a host, which the router thereby learns.
fn learn_host(router: &mut Harness) {
    let request = arp::Repr {
        operation: arp::Operation::Request,
        sender_mac: HOST,
        sender_ip: [10, 0, 0, 5].into(),
        target_mac: MacAddr([0; 6]),
        target_ip: [10, 0, 0, 1].into(),
    };
    let request = build::arp(request).src_mac(HOST).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec();
    let replies = router.feed_input(FROM_LAN, &[request]).swap_remove(1);
    let reply = arp::Repr::parse(&arp::Packet::new(&replies[0][14..]).unwrap()).unwrap();
    assert_eq!((reply.operation, reply.sender_mac, reply.target_mac), (arp::Operation::Reply, LAN, HOST));
    assert_eq!(replies[0][..6], HOST.0);
    let own: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let request = Neighbor::Solicitation { target: own, source_mac: Some(HOST) };
    let group = ndp::solicited_node(own);
    let request = request.frame((HOST, ndp::multicast_mac(group)), "2001:db8:1::5".parse().unwrap(), group);
    let replies = router.feed_input(FROM_LAN, &[request]).swap_remove(1);
    let ip = ipv6::Packet::new(&replies[0][14..]).unwrap();
    let message = icmpv6::Message::new(ip.payload()).unwrap();
    assert!(message.checksum_ok(ip.pseudo()));
    let advertisement = Neighbor::parse(&message).unwrap();
    let Neighbor::Advertisement { target, flags, target_mac } = advertisement else { panic!("{advertisement:?}") };
    assert_eq!((target, flags, target_mac), (own, ndp::ROUTER | ndp::SOLICITED | ndp::OVERRIDE, Some(LAN)));
}

fn macs(frame: &[u8]) -> (MacAddr, MacAddr) {
    let frame = ethernet::Frame::new(frame).unwrap();
    (frame.header().dst(), frame.header().src())
}

/// Returns source, destination and contents of the only frame, an ICMP error with valid checksums, and the packet it
/// quotes.
fn error4(out: &[Vec<u8>]) -> (Ipv4Addr, Ipv4Addr, icmpv4::Repr, Vec<u8>) {
    let [frame] = out else { panic!("expected one error, got {}", out.len()) };
    let ip = ipv4::Packet::new(&frame[14..]).unwrap();
    let message = icmpv4::Message::new(ip.payload()).unwrap();
    assert!(ip.checksum_ok() && message.checksum_ok());
    let repr = icmpv4::Repr::parse(&message).unwrap();
    (ip.header().src(), ip.header().dst(), repr, message.payload().to_vec())
}

fn error6(out: &[Vec<u8>]) -> icmpv6::Repr {
    let [frame] = out else { panic!("expected one error, got {}", out.len()) };
    let ip = ipv6::Packet::new(&frame[14..]).unwrap();
    let message = icmpv6::Message::new(ip.payload()).unwrap();
    assert!(message.checksum_ok(ip.pseudo()));
    icmpv6::Repr::parse(&message).unwrap()
}

#[test]
fn forwards_and_rewrites() {
    let mut r = router(DEFAULT);
    let out = r.feed_input(FROM_LAN, &[lan4([8, 8, 8, 8]).ttl(9).to_vec(), lan6("2001:db8:9::9").ttl(9).to_vec()]);
    assert_eq!((out[0].len(), out[1].len(), out[2].len()), (0, 0, 2));
    assert_eq!(macs(&out[2][0]), (GATEWAY, WAN));
    assert_eq!(macs(&out[2][1]), (GATEWAY, WAN));
    let ip = ipv4::Packet::new(&out[2][0][14..]).unwrap();
    assert_eq!((ip.header().ttl(), ip.checksum_ok()), (8, true));
    assert_eq!(ipv6::Packet::new(&out[2][1][14..]).unwrap().header().hop_limit(), 8);
    // nothing else has changed
    let mut expected = lan4([8, 8, 8, 8]).ttl(8).src_mac(WAN).dst_mac(GATEWAY).to_vec();
    assert_eq!(out[2][0], expected);
    expected = lan6("2001:db8:9::9").ttl(8).src_mac(WAN).dst_mac(GATEWAY).to_vec();
    assert_eq!(out[2][1], expected);
}

#[test]
fn resolves_a_neighbour_and_holds_its_packets() {
    let mut r = router(DEFAULT);
    let to_host = |n: u16| build::udp4([192, 0, 2, 9], [10, 0, 0, 5], n, 1).dst_mac(WAN).pad_to(60).to_vec();
    let out = r.feed_input(FROM_WAN, &[to_host(1), to_host(2)]);
    assert_eq!(out[1].len(), 1, "one request for both");
    let request = arp::Repr::parse(&arp::Packet::new(&out[1][0][14..]).unwrap()).unwrap();
    assert_eq!(
        (request.operation, request.sender_mac, request.sender_ip),
        (arp::Operation::Request, LAN, [10, 0, 0, 1].into())
    );
    assert_eq!((request.target_ip, macs(&out[1][0])), ([10, 0, 0, 5].into(), (MacAddr::BROADCAST, LAN)));
    let reply = build::arp(request.reply(HOST)).src_mac(HOST).dst_mac(LAN).pad_to(60).to_vec();
    let out = r.feed_input(FROM_LAN, &[reply]);
    let ports: Vec<_> = out[1].iter().map(|f| u16::from_be_bytes([f[34], f[35]])).collect();
    assert_eq!((ports, macs(&out[1][0])), (vec![1, 2], (HOST, LAN)), "in order");
    let out = r.feed_input(FROM_WAN, &[to_host(3)]);
    assert_eq!((out[1].len(), macs(&out[1][0])), (1, (HOST, LAN)));
}

#[test]
fn resolves_an_ipv6_neighbour() {
    let mut r = router(DEFAULT);
    let host: Ipv6Addr = "2001:db8:1::77".parse().unwrap();
    let src: Ipv6Addr = "2001:db8:2::9".parse().unwrap();
    let out = r.feed_input(FROM_WAN, &[build::udp6(src, host, 1, 2).dst_mac(WAN).to_vec()]);
    let ip = ipv6::Packet::new(&out[1][0][14..]).unwrap();
    let request = Neighbor::parse(&icmpv6::Message::new(ip.payload()).unwrap()).unwrap();
    assert_eq!(request, Neighbor::Solicitation { target: host, source_mac: Some(LAN) });
    assert_eq!((ip.header().dst(), ip.header().hop_limit()), (ndp::solicited_node(host), 255));
    let advertisement = Neighbor::Advertisement { target: host, flags: ndp::SOLICITED, target_mac: Some(HOST) };
    let out = r.feed_input(FROM_LAN, &[advertisement.frame((HOST, LAN), host, "2001:db8:1::1".parse().unwrap())]);
    assert_eq!((out[1].len(), macs(&out[1][0])), (1, (HOST, LAN)));
}

#[test]
fn resolution_fails_after_three_requests() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    let mut requests = r.feed_input(FROM_LAN, &[lan4([10, 0, 0, 77]).to_vec()])[1].len();
    let mut errors = vec![];
    for ms in (0..6000).step_by(100) {
        for frame in r.jump_to(Duration::from_millis(ms)).swap_remove(1) {
            match frame[12..14] {
                [8, 6] => requests += 1,
                _ => errors.push(frame),
            }
        }
    }
    assert_eq!(requests, 3);
    let (from, to, repr, _) = error4(&errors);
    assert_eq!((from, to), ([10, 0, 0, 1].into(), [10, 0, 0, 5].into()));
    assert_eq!(repr, icmpv4::Repr::DestUnreachable { code: 1 });
    assert!(r.drops().contains(&("neighbour_unresolved", 1)));
    // resolution starts again with the next packet
    assert_eq!(r.feed_input(FROM_LAN, &[lan4([10, 0, 0, 77]).to_vec()])[1].len(), 1);
}

#[test]
fn held_packets_are_bounded() {
    let mut r = router("neighbour_queue = 3\nneighbours_max = 2\n");
    let to = |host: u8| build::udp4([192, 0, 2, 9], [10, 0, 0, host], 1, 1).dst_mac(WAN).pad_to(60).to_vec();
    r.feed_input(FROM_WAN, &[to(5), to(5), to(5), to(5), to(6), to(7)]);
    assert_eq!(r.drops(), [("neighbour_queue_full", 1), ("neighbour_table_full", 1)]);
    r.advance(Duration::from_millis(20));
    assert_eq!(r.occupancy("neighbours"), (2, 2));
}

#[test]
fn an_old_neighbour_is_probed_by_unicast_and_kept_if_it_answers() {
    let mut r = router("reachable_time = 10\n");
    learn_host(&mut r);
    let requests: Vec<_> =
        (0..10_900).step_by(500).flat_map(|ms| r.jump_to(Duration::from_millis(ms)).swap_remove(1)).collect();
    let arps: Vec<_> = requests.iter().filter(|f| f[12..14] == [8, 6]).collect();
    assert_eq!((arps.len(), macs(arps[0])), (1, (HOST, LAN)), "sent by unicast");
    learn_host(&mut r);
    let out = r.feed_input(FROM_WAN, &[build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).to_vec()]);
    assert_eq!(out[1].len(), 1);
    assert_eq!(out[1][0][12..14], [8, 0], "sent at once");
}

#[test]
fn an_ipv6_advertisement_without_mac_address_confirms_the_neighbour() {
    let mut r = router("reachable_time = 10\n");
    learn_host(&mut r);
    let (host, own): (Ipv6Addr, Ipv6Addr) = ("2001:db8:1::5".parse().unwrap(), "2001:db8:1::1".parse().unwrap());
    let mut requests = 0;
    for ms in (0..40_000).step_by(500) {
        let frames = r.jump_to(Duration::from_millis(ms)).swap_remove(1);
        for frame in frames.iter().filter(|f| f[12..14] == [0x86, 0xdd]) {
            assert_eq!(macs(frame), (HOST, LAN), "sent by unicast");
            requests += 1;
            let advertisement = Neighbor::Advertisement { target: host, flags: ndp::SOLICITED, target_mac: None };
            r.feed_input(FROM_LAN, &[advertisement.frame((HOST, LAN), host, own)]);
        }
    }
    assert_eq!(requests, 3);
    let src: Ipv6Addr = "2001:db8:2::9".parse().unwrap();
    let out = r.feed_input(FROM_WAN, &[build::udp6(src, host, 1, 2).dst_mac(WAN).to_vec()]);
    assert_eq!((out[1].len(), macs(&out[1][0])), (1, (HOST, LAN)), "sent at once");
}

#[test]
fn sends_time_exceeded_for_expired_packets() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    let expired = lan4([8, 8, 8, 8]).ttl(1).to_vec();
    let out = r.feed_input(FROM_LAN, core::slice::from_ref(&expired));
    let (from, to, repr, quoted) = error4(&out[1]);
    assert_eq!((from, to), ([10, 0, 0, 1].into(), [10, 0, 0, 5].into()));
    assert_eq!(repr, icmpv4::Repr::TimeExceeded { code: 0 });
    assert_eq!(quoted[..28], expired[14..42], "the packet as received");
    assert_eq!(
        error6(&r.feed_input(FROM_LAN, &[lan6("2001:db8:9::9").ttl(1).to_vec()])[1]),
        icmpv6::Repr::TimeExceeded { code: 0 }
    );
    assert_eq!(r.drops(), [("ttl_expired", 2), ("consumed", 1)]);
}

#[test]
fn sends_unreachable_without_a_route() {
    let mut r = router("");
    learn_host(&mut r);
    let (.., repr, _) = error4(&r.feed_input(FROM_LAN, &[lan4([8, 8, 8, 8]).to_vec()])[1]);
    assert_eq!(repr, icmpv4::Repr::DestUnreachable { code: 0 });
    assert_eq!(
        error6(&r.feed_input(FROM_LAN, &[lan6("2001:db8:9::9").to_vec()])[1]),
        icmpv6::Repr::DestUnreachable { code: 0 }
    );
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    assert_eq!(r.feed_input(FROM_LAN, &[lan4([203, 0, 113, 1]).to_vec()]).concat().len(), 0);
    let (.., repr, _) = error4(&r.feed_input(FROM_LAN, &[lan4([198, 51, 100, 1]).to_vec()])[1]);
    assert_eq!(repr, icmpv4::Repr::DestUnreachable { code: 0 });
    assert_eq!(r.drops(), [("unreachable", 1), ("blackhole", 1), ("consumed", 1)]);
}

#[test]
fn sends_no_errors_about_errors_fragments_and_broadcasts() {
    let mut r = router("");
    learn_host(&mut r);
    let quoted = lan4([10, 0, 0, 5]).to_vec();
    let icmp = |repr| build::icmp4([10, 0, 0, 5], [8, 8, 8, 8], repr).payload(&quoted[14..]).src_mac(HOST).dst_mac(LAN);
    let silent = [
        icmp(icmpv4::Repr::TimeExceeded { code: 0 }).to_vec(),
        icmp(icmpv4::Repr::DestUnreachable { code: 3 }).to_vec(),
        lan4([8, 8, 8, 8]).fragment(8, false).to_vec(),
        lan4([8, 8, 8, 8]).dst_mac(MacAddr::BROADCAST).to_vec(),
        lan4([255, 255, 255, 255]).to_vec(),
    ];
    assert_eq!(r.feed_input(FROM_LAN, &silent).concat().len(), 0);
    let frames =
        [icmp(icmpv4::Repr::EchoRequest { id: 1, seq: 1 }).to_vec(), lan4([8, 8, 8, 8]).fragment(0, true).to_vec()];
    assert_eq!(r.feed_input(FROM_LAN, &frames)[1].len(), 2);
    let quoted6 = lan6("2001:db8:1::5").to_vec();
    let from: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    let to: Ipv6Addr = "2001:db8:9::9".parse().unwrap();
    let error = build::icmp6(from, to, icmpv6::Repr::DestUnreachable { code: 0 }).payload(&quoted6[14..]).dst_mac(LAN);
    assert_eq!(r.feed_input(FROM_LAN, &[error.to_vec()]).concat().len(), 0);
}

#[test]
fn limits_the_rate_of_errors() {
    let mut r = router("icmp_rate = 7\n");
    learn_host(&mut r);
    let many: Vec<_> = (0..100).map(|_| lan4([8, 8, 8, 8]).ttl(1).to_vec()).collect();
    assert_eq!(r.feed_input(FROM_LAN, &many)[1].len(), 7);
    assert!(r.counters().contains(&("icmp_rate_limited".to_owned(), 93)));
    r.jump_to(Duration::from_millis(1000));
    assert_eq!(r.feed_input(FROM_LAN, &many)[1].len(), 7);
}

#[test]
fn fragments_long_packets_or_reports_the_mtu() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    let long = lan4([8, 8, 8, 8]).payload(&[7; 1400]);
    let (.., repr, quoted) = error4(&r.feed_input(FROM_LAN, &[long.clone().dont_fragment().to_vec()])[1]);
    assert_eq!((repr, quoted.len()), (icmpv4::Repr::FragmentationNeeded { mtu: 1300 }, 548));
    let out = r.feed_input(FROM_LAN, &[long.ttl(9).to_vec()]);
    let bytes: usize = out[2].iter().map(|f| ipv4::Packet::new(&f[14..]).unwrap().payload().len()).sum();
    assert_eq!((out[2].len(), bytes), (2, 1408));
    assert!(out[2].iter().all(|f| macs(f) == (GATEWAY, WAN)));
    assert!(out[2].iter().all(|f| ipv4::Packet::new(&f[14..]).unwrap().header().ttl() == 8));
    let out = r.feed_input(FROM_LAN, &[lan6("2001:db8:9::9").payload(&[7; 1400]).to_vec()]);
    assert_eq!(error6(&out[1]), icmpv6::Repr::PacketTooBig { mtu: 1300 });
    assert_eq!(r.drops(), [("too_big", 2), ("fragmented", 1), ("consumed", 1)]);
}

#[test]
fn replies_to_echo_requests_to_all_own_addresses() {
    let mut r = router(DEFAULT);
    for own in [[10, 0, 0, 1], [192, 0, 2, 2]] {
        let request = build::echo4([10, 0, 0, 5], own, 7, 8).payload(b"hello").src_mac(HOST).dst_mac(LAN).to_vec();
        let out = r.feed_input(FROM_LAN, &[request]);
        let ip = ipv4::Packet::new(&out[1][0][14..]).unwrap();
        let message = icmpv4::Message::new(ip.payload()).unwrap();
        assert!(ip.checksum_ok() && message.checksum_ok());
        assert_eq!((ip.header().src(), ip.header().dst()), (own.into(), [10, 0, 0, 5].into()));
        assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::EchoReply { id: 7, seq: 8 });
        assert_eq!((message.payload(), macs(&out[1][0])), (&b"hello"[..], (HOST, LAN)));
    }
    let src: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    for own in ["2001:db8:1::1".parse().unwrap(), "2001:db8:2::2".parse().unwrap(), ndp::link_local(LAN)] {
        let request = build::echo6(src, own, 7, 8).payload(b"hello").src_mac(HOST).dst_mac(LAN).to_vec();
        let out = r.feed_input(FROM_LAN, &[request]);
        let ip = ipv6::Packet::new(&out[1][0][14..]).unwrap();
        let message = icmpv6::Message::new(ip.payload()).unwrap();
        assert!(message.checksum_ok(ip.pseudo()));
        assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::EchoReply { id: 7, seq: 8 });
        assert_eq!((ip.header().src(), ip.header().dst()), (own, src));
    }
    // other packets to the router leave by the output `local`
    assert_eq!(r.feed_input(FROM_LAN, &[lan4([10, 0, 0, 1]).to_vec()])[0].len(), 1);
}

#[test]
fn drops_invalid_packets() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    let from = |src: [u8; 4]| build::udp4(src, [8, 8, 8, 8], 1, 2).dst_mac(LAN).pad_to(60).to_vec();
    let mut broken = lan4([8, 8, 8, 8]).to_vec();
    broken[24] ^= 1;
    let mut lying = lan4([8, 8, 8, 8]).to_vec();
    lying[17] = 0xff;
    let mut eight = lan4([8, 8, 8, 8]).to_vec();
    eight[12..14].copy_from_slice(&[0x88, 0x99]);
    let routed = wire::options::OptionBytes::new(&[131, 7, 4, 1, 2, 3, 4, 0]).unwrap();
    for (frame, reason) in [
        (from([127, 0, 0, 1]), "martian"),
        (from([224, 0, 0, 1]), "martian"),
        (from([0, 1, 2, 3]), "martian"),
        (from([255, 255, 255, 255]), "martian"),
        (lan4([127, 0, 0, 1]).to_vec(), "martian"),
        (lan4([240, 0, 0, 1]).to_vec(), "martian"),
        (lan4([224, 0, 0, 5]).to_vec(), "multicast"),
        (lan4([192, 0, 2, 255]).to_vec(), "directed_broadcast"),
        (lan4([192, 0, 2, 0]).to_vec(), "directed_broadcast"),
        (lan4([8, 8, 8, 8]).ip_options(routed).to_vec(), "source_route"),
        (lan4([8, 8, 8, 8]).dst_mac(HOST).to_vec(), "other_mac"),
        (lan4([8, 8, 8, 8]).dst_mac(MacAddr::BROADCAST).to_vec(), "link_broadcast"),
        (lan6("ff02::5").dst_mac(ndp::multicast_mac("ff02::5".parse().unwrap())).to_vec(), "multicast"),
        (lan6("::1").to_vec(), "martian"),
        (lan6("fe80::99").to_vec(), "martian"),
        (broken, "bad_checksum"),
        (lying, "malformed_ip"),
        (eight, "not_ip"),
        (vec![2; 13], "malformed_ethernet"),
    ] {
        let before = r.drops();
        let out = r.feed_input(FROM_LAN, &[frame]).concat();
        let new: Vec<_> = r.drops().into_iter().filter(|d| !before.contains(d)).map(|(r, _)| r).collect();
        assert_eq!((out.len(), new), (0, vec![reason]));
    }
}

#[test]
fn spreads_flows_over_next_hops() {
    let via: Vec<String> = (11..15).map(|n| format!("\"192.0.2.{n}\"")).collect();
    let macs_of: Vec<String> = (11..15).map(|n| format!("\"192.0.2.{n}\" = \"02:00:00:00:02:{n}\"")).collect();
    let mut r = router(&format!(
        "route = [{{ prefix = \"0.0.0.0/0\", via = [{}] }}]\nneighbour = {{ {} }}\n",
        via.join(", "),
        macs_of.join(", ")
    ));
    let frame = |port: u16| build::udp4([10, 0, 0, 5], [8, 8, 8, 8], port, 53).dst_mac(LAN).pad_to(60).to_vec();
    let frames: Vec<_> = (0..1000).map(frame).collect();
    let first: Vec<_> = r.feed_input(FROM_LAN, &frames)[2].iter().map(|f| macs(f).0).collect();
    let again: Vec<_> = r.feed_input(FROM_LAN, &frames)[2].iter().map(|f| macs(f).0).collect();
    assert_eq!(first, again);
    for mac in first.iter().collect::<BTreeSet<_>>() {
        let n = first.iter().filter(|m| *m == mac).count();
        assert!((150..350).contains(&n), "{n} of 1000 flows to {mac}");
    }
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn splits_a_batch_for_several_interfaces() {
    let mut r = router(DEFAULT);
    learn_host(&mut r);
    let to_host = build::udp4([10, 0, 0, 9], [10, 0, 0, 5], 1, 1).dst_mac(LAN).pad_to(60).to_vec();
    let away = lan4([8, 8, 8, 8]).to_vec();
    let frames: Vec<_> = (0..64).map(|i| if i % 3 == 0 { to_host.clone() } else { away.clone() }).collect();
    let out = r.feed_input(FROM_LAN, &frames);
    assert_eq!((out[1].len(), out[2].len()), (22, 42));
}

#[test]
fn rejects_invalid_settings() {
    for (settings, word) in [
        (
            "interface.lan = { addresses = [\"10.0.0.1/24\"] }\nroute = [{ prefix = \"::/0\", via = [\"10.0.0.2\"] }]",
            "IP version",
        ),
        ("", "interfaces"),
        ("interface.lan = { addresses = [] }", "address"),
        ("interface.lan = { addresses = [\"10.0.0.0/24\"] }", "network"),
        ("interface.lan = { addresses = [\"10.0.0.1/33\"] }", "10.0.0.1/33"),
        ("interface.lan = { addresses = [\"10.0.0.1/24\"], mtu = 20 }", "20"),
        ("interface.local = { addresses = [\"10.0.0.1/24\"] }", "local"),
        ("interface.lan = { addresses = [\"10.0.0.1/24\"] }\nroute = [{ prefix = \"::/0\" }]", "next hops"),
        (
            "interface.lan = { addresses = [\"10.0.0.1/24\"] }\nroute = [{ prefix = \"0.0.0.0/0\", via = [\"10.9.9.9\"] }]",
            "10.9.9.9",
        ),
        ("interface.lan = { addresses = [\"10.0.0.1/24\"] }\nroutes = \"absent.txt\"", "absent.txt"),
        (
            "interface.lan = { addresses = [\"10.0.0.1/24\"] }\nneighbour = { \"1.2.3.4\" = \"02:00:00:00:00:01\" }",
            "1.2.3.4",
        ),
    ] {
        let e = Harness::try_new::<L3fwd>(settings).err().unwrap_or_default().to_string();
        assert!(e.contains(word), "{settings}: {e}");
    }
}

#[test]
fn forwards_by_the_longest_prefix_of_an_internet_routing_table() {
    let data =
        std::env::var_os("BONDSTONE_DATA").map_or_else(|| "../../../shared/data".into(), std::path::PathBuf::from);
    let routes = data.join("routes/prefixes.txt.gz");
    if !routes.exists() {
        println!("skipped: {} does not exist", routes.display());
        return;
    }
    // lines have four next hops in turn
    let hop = |n: usize| format!("192.0.2.{}", 11 + n % 4);
    let via: Vec<_> = (0..4).map(|n| format!("\"{}\", \"2001:db8:2::{}\"", hop(n), 11 + n)).collect();
    let neighbours: Vec<_> = (0..4)
        .map(|n| {
            format!(
                "\"{}\" = \"02:00:00:00:02:{n:02}\", \"2001:db8:2::{}\" = \"02:00:00:00:06:{n:02}\"",
                hop(n),
                11 + n
            )
        })
        .collect();
    let settings =
        format!("routes = {routes:?}\nvia = [{}]\nneighbour = {{ {} }}\n", via.join(", "), neighbours.join(", "));
    let mut r = router(&settings);
    let mut text = String::new();
    std::io::Read::read_to_string(
        &mut flate2::read::MultiGzDecoder::new(std::fs::File::open(routes).unwrap()),
        &mut text,
    )
    .unwrap();
    let mut longest = std::collections::HashMap::new();
    for (n, line) in text.lines().filter(|l| l.contains('.')).enumerate() {
        let net: ipnet::Ipv4Net = line.trim().parse().unwrap();
        longest.insert((net.network().to_bits(), net.prefix_len()), n % 4);
    }
    let mut random = 88_172_645_463_325_252u64;
    let mut compared = 0;
    for _ in 0..20_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let dst = Ipv4Addr::from_bits(random as u32);
        let known = (0..=32u8).rev().find_map(|len| longest.get(&(super::interface::mask4(dst, len), len)));
        let special = dst.is_multicast() || dst.is_loopback() || matches!(dst.octets()[0], 0 | 240..);
        let own = [(10, 0, 0), (192, 0, 2)].contains(&(dst.octets()[0], dst.octets()[1], dst.octets()[2]));
        let (Some(known), false) = (known, special || own) else { continue };
        let out = r.feed_input(FROM_LAN, &[lan4(dst.octets()).to_vec()]);
        assert_eq!(macs(&out[2][0]).0, MacAddr([2, 0, 0, 0, 2, *known as u8]), "{dst}");
        compared += 1;
    }
    assert!(compared > 5000, "{compared}");
}

/// Sends a request for an address of the router from a host at an input, which the router may thereby learn.
fn send_request_from(router: &mut Harness, input: usize, host: &str, own: &str) {
    let frame = match (host.parse(), own.parse()) {
        (Ok(IpAddr::V4(host)), Ok(IpAddr::V4(own))) => {
            let request = arp::Repr {
                operation: arp::Operation::Request,
                sender_mac: HOST,
                sender_ip: host,
                target_mac: MacAddr([0; 6]),
                target_ip: own,
            };
            build::arp(request).src_mac(HOST).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec()
        }
        (Ok(IpAddr::V6(host)), Ok(IpAddr::V6(own))) => {
            let group = ndp::solicited_node(own);
            let request = Neighbor::Solicitation { target: own, source_mac: Some(HOST) };
            request.frame((HOST, ndp::multicast_mac(group)), host, group)
        }
        other => panic!("{other:?}"),
    };
    let out = router.feed_input(input, &[frame]);
    assert!(!out[input + 1].is_empty(), "no reply");
}

/// Sends a packet from the WAN, and returns the outputs with packets and the new drop reasons.
fn from_wan(r: &mut Harness, dst: &str) -> (Vec<usize>, Vec<&'static str>) {
    let frame = match dst.parse().unwrap() {
        IpAddr::V4(dst) => build::udp4([192, 0, 2, 9], dst, 1, 2).dst_mac(WAN).pad_to(60).to_vec(),
        IpAddr::V6(dst) => build::udp6("2001:db8:2::9".parse::<Ipv6Addr>().unwrap(), dst, 1, 2).dst_mac(WAN).to_vec(),
    };
    let before = r.drops();
    let out = r.feed_input(FROM_WAN, &[frame]);
    let left = (0..out.len()).filter(|n| !out[*n].is_empty()).collect();
    (left, r.drops().into_iter().filter(|d| !before.contains(d)).map(|(reason, _)| reason).collect())
}

#[test]
fn hosts_do_not_replace_routes_or_broadcast_addresses() {
    let mut r = router(
        "route = [{ prefix = \"10.0.0.66/32\", to = \"blackhole\" }, { prefix = \"2001:db8:1::66/128\", to = \"blackhole\" },\n\
         { prefix = \"10.0.0.128/28\", to = \"blackhole\" }, { prefix = \"2001:db8:1:0:7::/80\", to = \"blackhole\" }]\n\
         reachable_time = 10\n",
    );
    let reserved = [
        ("10.0.0.66", "10.0.0.1", "blackhole"),
        ("10.0.0.130", "10.0.0.1", "blackhole"),
        ("10.0.0.255", "10.0.0.1", "directed_broadcast"),
        ("10.0.0.0", "10.0.0.1", "directed_broadcast"),
        ("2001:db8:1::66", "2001:db8:1::1", "blackhole"),
        ("2001:db8:1:0:7::5", "2001:db8:1::1", "blackhole"),
    ];
    for (host, own, reason) in reserved {
        assert_eq!(from_wan(&mut r, host), (vec![], vec![reason]), "{host}, before its request");
        send_request_from(&mut r, FROM_LAN, host, own);
        assert_eq!(from_wan(&mut r, host), (vec![], vec![reason]), "{host}, after its request");
    }
    // other hosts are learned, and expire
    send_request_from(&mut r, FROM_LAN, "10.0.0.67", "10.0.0.1");
    assert_eq!(from_wan(&mut r, "10.0.0.67"), (vec![1], vec![]));
    (0..30_000).step_by(500).for_each(|ms| drop(r.jump_to(Duration::from_millis(ms))));
    for (host, _, reason) in reserved {
        assert_eq!(from_wan(&mut r, host), (vec![], vec![reason]), "{host}, after neighbours have expired");
    }
}

#[test]
fn hosts_are_not_learned_from_another_interface() {
    let settings = "\
interface.dmz = { addresses = [\"10.1.0.1/16\", \"2001:db8:0:1::1/64\"], mac = \"02:00:00:00:03:00\" }
interface.lan = { addresses = [\"10.0.0.1/8\", \"2001:db8::1/48\"], mac = \"02:00:00:00:01:00\" }
route = [{ prefix = \"192.0.2.0/24\", via = [\"10.1.0.9\"] }]
neighbour = { \"10.1.0.8\" = \"02:00:00:00:03:08\", \"10.1.0.9\" = \"02:00:00:00:03:09\", \"2001:db8:0:1::8\" = \"02:00:00:00:03:08\" }
";
    let (dmz, lan) = (1, 2);
    let mut r = Harness::new::<L3fwd>(settings);
    for (host, own) in [("10.1.0.7", "10.0.0.1"), ("10.1.0.1", "10.0.0.1"), ("10.1.0.8", "10.0.0.1")] {
        send_request_from(&mut r, lan - 1, host, own);
    }
    for (host, own) in [("2001:db8:0:1::7", "2001:db8::1"), ("2001:db8:0:1::1", "2001:db8::1")] {
        send_request_from(&mut r, lan - 1, host, own);
    }
    // resolved on the interface of its network
    let out = r.feed_input(lan - 1, &[lan4([10, 1, 0, 7]).to_vec(), lan6("2001:db8:0:1::7").to_vec()]);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 0]);
    // own addresses remain those of the router
    let out = r.feed_input(lan - 1, &[lan4([10, 1, 0, 1]).to_vec(), lan6("2001:db8:0:1::1").to_vec()]);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 0]);
    // static neighbours belong to the interface with the longest prefix
    let eight = MacAddr([2, 0, 0, 0, 3, 8]);
    for (frame, mac) in [
        (lan4([10, 1, 0, 8]).to_vec(), eight),
        (lan6("2001:db8:0:1::8").to_vec(), eight),
        (lan4([192, 0, 2, 1]).to_vec(), MacAddr([2, 0, 0, 0, 3, 9])),
    ] {
        let out = r.feed_input(lan - 1, &[frame]);
        assert_eq!((out[dmz].len(), macs(&out[dmz][0]).0), (1, mac));
    }
}

#[test]
fn static_neighbours_and_next_hops_do_not_replace_routes_to_their_addresses() {
    let mut r = router(
        "route = [{ prefix = \"198.51.100.0/24\", via = [\"10.0.0.66\"] }, { prefix = \"10.0.0.66/32\", to = \"blackhole\" },\n\
         { prefix = \"10.0.0.128/28\", to = \"blackhole\" }, { prefix = \"203.0.113.0/24\", via = [\"10.0.0.68\"] }]\n\
         neighbour = { \"10.0.0.66\" = \"02:00:00:00:01:66\", \"10.0.0.67\" = \"02:00:00:00:01:67\", \"10.0.0.130\" = \"02:00:00:00:01:82\" }\n",
    );
    assert_eq!(from_wan(&mut r, "10.0.0.66"), (vec![], vec!["blackhole"]));
    assert_eq!(from_wan(&mut r, "198.51.100.1"), (vec![1], vec![]), "via 10.0.0.66");
    assert_eq!(from_wan(&mut r, "10.0.0.67"), (vec![1], vec![]));
    // a static neighbour takes precedence over a shorter prefix
    assert_eq!(from_wan(&mut r, "10.0.0.130"), (vec![1], vec![]));
    assert_eq!(from_wan(&mut r, "10.0.0.131"), (vec![], vec!["blackhole"]));
    // an unresolved next hop is resolved for the route via it and the route to it
    assert_eq!(from_wan(&mut r, "203.0.113.1"), (vec![1], vec![]));
    send_request_from(&mut r, FROM_LAN, "10.0.0.68", "10.0.0.1");
    for dst in [[203, 0, 113, 1], [10, 0, 0, 68]] {
        let out = r.feed_input(FROM_WAN, &[build::udp4([192, 0, 2, 9], dst, 1, 2).dst_mac(WAN).pad_to(60).to_vec()]);
        assert_eq!(macs(&out[1][0]), (HOST, LAN));
    }
    for own in ["10.0.0.1", "192.0.2.2", "10.0.0.255", "2001:db8:1::1"] {
        let settings = format!("{TWO}neighbour = {{ \"{own}\" = \"02:00:00:00:01:66\" }}");
        let e = Harness::try_new::<L3fwd>(&settings).err().unwrap_or_default().to_string();
        assert!(e.contains(own), "{own}: {e}");
    }
}

#[test]
fn counts_incomplete_fragmentation_separately() {
    let long = lan4([8, 8, 8, 8]).payload(&[7; 1900]);
    for (buffers, fragments, reason) in
        [(3, 2, "fragmented"), (2, 1, "no_fragment_buffer"), (1, 0, "no_fragment_buffer")]
    {
        let mut r = HarnessBuilder::new::<L3fwd>(&format!("{TWO}{DEFAULT}")).buffers(buffers).build().unwrap();
        let out = r.feed_input(FROM_LAN, &[long.clone().to_vec()]);
        assert_eq!((out[2].len(), r.drops()), (fragments, vec![(reason, 1)]), "{buffers} buffers");
    }
    // a fragment that ends beyond the longest packet
    let mut r = router(DEFAULT);
    let out = r.feed_input(FROM_LAN, &[long.fragment(65_528, true).to_vec()]);
    assert_eq!((out.concat().len(), r.drops()), (0, vec![("malformed_ip", 1)]));
}

#[test]
fn finds_host_routes_in_both_tables() {
    for table in ["lpm", "exact"] {
        let mut r = router(&format!(
            "table = \"{table}\"\nroute = [
              {{ prefix = \"203.0.113.0/24\", hosts = true, via = [\"192.0.2.1\", \"192.0.2.3\"] }},
              {{ prefix = \"203.0.113.7/32\", to = \"blackhole\" }},
              {{ prefix = \"203.0.114.0/24\", via = [\"192.0.2.3\"] }},
              {{ prefix = \"2001:db8:9::/120\", hosts = true, via = [\"2001:db8:2::1\"] }}]
             neighbour = {{ \"192.0.2.1\" = \"02:00:00:00:02:01\", \"192.0.2.3\" = \"02:00:00:00:02:03\",
               \"2001:db8:2::1\" = \"02:00:00:00:02:01\" }}"
        ));
        let other = MacAddr([2, 0, 0, 0, 2, 3]);
        let frames: Vec<_> = (0..8).map(|n| lan4([203, 0, 113, n]).to_vec()).collect();
        let out = r.feed_input(FROM_LAN, &frames);
        let to: Vec<_> = out[2].iter().map(|frame| macs(frame).0).collect();
        assert_eq!(to, [GATEWAY, other, GATEWAY, other, GATEWAY, other, GATEWAY], "{table}");
        assert_eq!(r.drops(), [("blackhole", 1)]);
        let out = r.feed_input(FROM_LAN, &[lan4([203, 0, 114, 9]).to_vec(), lan6("2001:db8:9::ff").to_vec()]);
        let to: Vec<_> = out[2].iter().map(|frame| macs(frame).0).collect();
        assert_eq!(to, [other, GATEWAY], "{table}");
        // learned neighbours are in the same table
        learn_host(&mut r);
        let to_host = build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).pad_to(60).to_vec();
        assert_eq!(macs(&r.feed_input(FROM_WAN, &[to_host])[1][0]).0, HOST, "{table}");
        r.advance(Duration::from_millis(20));
        assert_eq!(r.counter("host_routes") > 256 + 256, table == "exact", "{table}");
    }
}

#[test]
fn rejects_host_routes_for_large_networks() {
    let settings = format!("{TWO}route = [{{ prefix = \"2001:db8::/64\", hosts = true, via = [\"2001:db8:2::1\"] }}]");
    let e = Harness::try_new::<L3fwd>(&settings).unwrap_err().to_string();
    assert!(e.contains("2001:db8::/64") && e.contains("4294967296"), "{e}");
    let settings = format!("{TWO}route = [{{ prefix = \"203.0.113.0/24\", hosts = true }}]");
    let e = Harness::try_new::<L3fwd>(&settings).unwrap_err().to_string();
    assert!(e.contains("203.0.113.0/24") && e.contains("next hops"), "{e}");
}

#[test]
fn a_trace_names_the_prefix_of_the_route() {
    let more = "route = [{ prefix = \"0.0.0.0/0\", via = [\"192.0.2.1\"] }, { prefix = \"198.18.0.0/15\", via = [\"192.0.2.9\"] },
        { prefix = \"198.18.7.7/32\", via = [\"192.0.2.1\"] }, { prefix = \"198.19.0.0/16\", to = \"blackhole\" },
        { prefix = \"2001:db8:9::/48\", via = [\"2001:db8:2::1\", \"2001:db8:2::3\"] },
        { prefix = \"2001:db8:9:1::/64\", via = [\"2001:db8:2::1\"] }, { prefix = \"2001:db8:a::/48\", to = \"unreachable\" }]
        neighbour = { \"192.0.2.1\" = \"02:00:00:00:02:01\", \"2001:db8:2::1\" = \"02:00:00:00:02:01\" }\n";
    for table in ["lpm", "exact"] {
        let builder = HarnessBuilder::new::<L3fwd>(&format!("table = \"{table}\"\n{more}{TWO}"));
        let mut router = builder.clone().build().unwrap();
        learn_host(&mut router);
        let fib = builder.shared::<Fib>().unwrap();
        let mut routes = fib.readers();
        for (address, expected) in [
            ("8.8.8.8", "route 0.0.0.0/0 via 192.0.2.1"),
            ("198.18.0.1", "route 198.18.0.0/15 via 192.0.2.9, whose MAC address is not known"),
            ("198.18.7.7", "route 198.18.7.7/32 via 192.0.2.1"),
            ("198.19.0.1", "route 198.19.0.0/16 blackhole"),
            ("10.0.0.5", "connected network 10.0.0.0/24"),
            ("10.0.0.6", "connected network 10.0.0.0/24; the MAC address of the host is not known"),
            ("10.0.0.1", "the router itself"),
            ("10.0.0.255", "broadcast address of a network"),
            ("127.0.0.1", "127.0.0.0/8, which is not forwarded to"),
            ("2001:db8:9:1::8", "route 2001:db8:9:1::/64 via 2001:db8:2::1"),
            ("2001:db8:9:2::8", "route 2001:db8:9::/48 via several next hops"),
            ("2001:db8:a::1", "route 2001:db8:a::/48 unreachable"),
            ("2001:db8:1::5", "connected network 2001:db8:1::/64"),
            ("2001:db9::1", "no route"),
        ] {
            let (address, mut found) = (address.parse::<IpAddr>().unwrap(), [0]);
            match address {
                IpAddr::V4(a) => routes.look_up4(super::fib::OWN, &[a.to_bits()], &mut found),
                IpAddr::V6(a) => routes.look_up6(super::fib::OWN, &[a.to_bits()], &mut found),
            }
            assert_eq!(fib.describe(super::fib::OWN, address, found[0]), expected, "{address}");
        }
    }
}
