//! One router between `lan` and `wan`, frame by frame.

use crate::L3fwd;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use testkit::{Bench, Setup};
use wire::ndp::{self, Neighbor};
use wire::{MacAddr, arp, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

const LAN: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);
const WAN: MacAddr = MacAddr([2, 0, 0, 0, 2, 0]);
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 1, 5]);
const GATEWAY: MacAddr = MacAddr([2, 0, 0, 0, 2, 1]);
/// Inputs, and one less than the outputs.
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

fn router(more: &str) -> Bench {
    Bench::of::<L3fwd>(&format!("{TWO}{more}"))
}

fn lan4(dst: [u8; 4]) -> build::Frame<ipv4::Repr, wire::udp::Repr> {
    build::udp4([10, 0, 0, 5], dst, 1000, 53).src_mac(HOST).dst_mac(LAN).pad_to(60)
}

fn lan6(dst: &str) -> build::Frame<build::V6, wire::udp::Repr> {
    let (src, dst): (Ipv6Addr, Ipv6Addr) = ("2001:db8:1::5".parse().unwrap(), dst.parse().unwrap());
    build::udp6(src, dst, 1000, 53).src_mac(HOST).dst_mac(LAN)
}

/// The host says who it is, as by an ARP request for the router and a neighbor solicitation.
fn introduce(router: &mut Bench) {
    let ask = arp::Repr {
        operation: arp::Operation::Request,
        sender_mac: HOST,
        sender_ip: [10, 0, 0, 5].into(),
        target_mac: MacAddr([0; 6]),
        target_ip: [10, 0, 0, 1].into(),
    };
    let ask = build::arp(ask).src_mac(HOST).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec();
    let answer = router.feed_by(FROM_LAN, &[ask]).swap_remove(1);
    let reply = arp::Repr::parse(&arp::Packet::new(&answer[0][14..]).unwrap()).unwrap();
    assert_eq!((reply.operation, reply.sender_mac, reply.target_mac), (arp::Operation::Reply, LAN, HOST));
    assert_eq!(answer[0][..6], HOST.0);
    let own: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let ask = Neighbor::Solicitation { target: own, source_mac: Some(HOST) };
    let group = ndp::solicited_node(own);
    let ask = ask.frame((HOST, ndp::multicast_mac(group)), "2001:db8:1::5".parse().unwrap(), group);
    let answer = router.feed_by(FROM_LAN, &[ask]).swap_remove(1);
    let ip = ipv6::Packet::new(&answer[0][14..]).unwrap();
    let message = icmpv6::Message::new(ip.payload()).unwrap();
    assert!(message.checksum_ok(ip.pseudo()));
    let told = Neighbor::parse(&message).unwrap();
    let Neighbor::Advertisement { target, flags, target_mac } = told else { panic!("{told:?}") };
    assert_eq!((target, flags, target_mac), (own, ndp::ROUTER | ndp::SOLICITED | ndp::OVERRIDE, Some(LAN)));
}

fn macs(frame: &[u8]) -> (MacAddr, MacAddr) {
    let frame = ethernet::Frame::new(frame).unwrap();
    (frame.header().dst(), frame.header().src())
}

/// The one ICMP error among `out`, its checksums seen to be right, and the packet that it quotes.
fn error4(out: &[Vec<u8>]) -> (Ipv4Addr, Ipv4Addr, icmpv4::Repr, Vec<u8>) {
    let [frame] = out else { panic!("one error, not {}", out.len()) };
    let ip = ipv4::Packet::new(&frame[14..]).unwrap();
    let message = icmpv4::Message::new(ip.payload()).unwrap();
    assert!(ip.checksum_ok() && message.checksum_ok());
    let repr = icmpv4::Repr::parse(&message).unwrap();
    (ip.header().src(), ip.header().dst(), repr, message.payload().to_vec())
}

fn error6(out: &[Vec<u8>]) -> icmpv6::Repr {
    let [frame] = out else { panic!("one error, not {}", out.len()) };
    let ip = ipv6::Packet::new(&frame[14..]).unwrap();
    let message = icmpv6::Message::new(ip.payload()).unwrap();
    assert!(message.checksum_ok(ip.pseudo()));
    icmpv6::Repr::parse(&message).unwrap()
}

#[test]
fn forwards_and_rewrites() {
    let mut r = router(DEFAULT);
    let out = r.feed_by(FROM_LAN, &[lan4([8, 8, 8, 8]).ttl(9).to_vec(), lan6("2001:db8:9::9").ttl(9).to_vec()]);
    assert_eq!((out[0].len(), out[1].len(), out[2].len()), (0, 0, 2));
    assert_eq!(macs(&out[2][0]), (GATEWAY, WAN));
    assert_eq!(macs(&out[2][1]), (GATEWAY, WAN));
    let ip = ipv4::Packet::new(&out[2][0][14..]).unwrap();
    assert_eq!((ip.header().ttl(), ip.checksum_ok()), (8, true));
    assert_eq!(ipv6::Packet::new(&out[2][1][14..]).unwrap().header().hop_limit(), 8);
    // all else is as it was
    let mut expected = lan4([8, 8, 8, 8]).ttl(8).src_mac(WAN).dst_mac(GATEWAY).to_vec();
    assert_eq!(out[2][0], expected);
    expected = lan6("2001:db8:9::9").ttl(8).src_mac(WAN).dst_mac(GATEWAY).to_vec();
    assert_eq!(out[2][1], expected);
}

#[test]
fn asks_for_a_neighbour_and_keeps_its_packets() {
    let mut r = router(DEFAULT);
    let to_host = |n: u16| build::udp4([192, 0, 2, 9], [10, 0, 0, 5], n, 1).dst_mac(WAN).pad_to(60).to_vec();
    let out = r.feed_by(FROM_WAN, &[to_host(1), to_host(2)]);
    assert_eq!(out[1].len(), 1, "one question for both");
    let asked = arp::Repr::parse(&arp::Packet::new(&out[1][0][14..]).unwrap()).unwrap();
    assert_eq!(
        (asked.operation, asked.sender_mac, asked.sender_ip),
        (arp::Operation::Request, LAN, [10, 0, 0, 1].into())
    );
    assert_eq!((asked.target_ip, macs(&out[1][0])), ([10, 0, 0, 5].into(), (MacAddr::BROADCAST, LAN)));
    let reply = build::arp(asked.reply(HOST)).src_mac(HOST).dst_mac(LAN).pad_to(60).to_vec();
    let out = r.feed_by(FROM_LAN, &[reply]);
    let ports: Vec<_> = out[1].iter().map(|f| u16::from_be_bytes([f[34], f[35]])).collect();
    assert_eq!((ports, macs(&out[1][0])), (vec![1, 2], (HOST, LAN)), "in order");
    let out = r.feed_by(FROM_WAN, &[to_host(3)]);
    assert_eq!((out[1].len(), macs(&out[1][0])), (1, (HOST, LAN)));
}

#[test]
fn asks_for_an_ipv6_neighbour() {
    let mut r = router(DEFAULT);
    let host: Ipv6Addr = "2001:db8:1::77".parse().unwrap();
    let src: Ipv6Addr = "2001:db8:2::9".parse().unwrap();
    let out = r.feed_by(FROM_WAN, &[build::udp6(src, host, 1, 2).dst_mac(WAN).to_vec()]);
    let ip = ipv6::Packet::new(&out[1][0][14..]).unwrap();
    let asked = Neighbor::parse(&icmpv6::Message::new(ip.payload()).unwrap()).unwrap();
    assert_eq!(asked, Neighbor::Solicitation { target: host, source_mac: Some(LAN) });
    assert_eq!((ip.header().dst(), ip.header().hop_limit()), (ndp::solicited_node(host), 255));
    let told = Neighbor::Advertisement { target: host, flags: ndp::SOLICITED, target_mac: Some(HOST) };
    let out = r.feed_by(FROM_LAN, &[told.frame((HOST, LAN), host, "2001:db8:1::1".parse().unwrap())]);
    assert_eq!((out[1].len(), macs(&out[1][0])), (1, (HOST, LAN)));
}

#[test]
fn a_neighbour_that_keeps_silent_is_asked_three_times_and_given_up() {
    let mut r = router(DEFAULT);
    introduce(&mut r);
    let mut asked = r.feed_by(FROM_LAN, &[lan4([10, 0, 0, 77]).to_vec()])[1].len();
    let mut told = vec![];
    for ms in (0..6000).step_by(100) {
        for frame in r.wake(Duration::from_millis(ms)).swap_remove(1) {
            match frame[12..14] {
                [8, 6] => asked += 1,
                _ => told.push(frame),
            }
        }
    }
    assert_eq!(asked, 3);
    let (from, to, repr, _) = error4(&told);
    assert_eq!((from, to), ([10, 0, 0, 1].into(), [10, 0, 0, 5].into()));
    assert_eq!(repr, icmpv4::Repr::DestUnreachable { code: 1 });
    assert!(r.drops().contains(&("neighbour_silent", 1)));
    // and may be asked anew
    assert_eq!(r.feed_by(FROM_LAN, &[lan4([10, 0, 0, 77]).to_vec()])[1].len(), 1);
}

#[test]
fn what_waits_is_bounded() {
    let mut r = router("queue = 3\nneighbours = 2\n");
    let to = |host: u8| build::udp4([192, 0, 2, 9], [10, 0, 0, host], 1, 1).dst_mac(WAN).pad_to(60).to_vec();
    r.feed_by(FROM_WAN, &[to(5), to(5), to(5), to(5), to(6), to(7)]);
    assert_eq!(r.drops(), [("neighbour_queue_full", 1), ("neighbour_table_full", 1)]);
}

#[test]
fn an_old_neighbour_is_asked_at_its_address_and_kept_when_it_answers() {
    let mut r = router("lifetime = 10\n");
    introduce(&mut r);
    let questions: Vec<_> =
        (0..10_900).step_by(500).flat_map(|ms| r.wake(Duration::from_millis(ms)).swap_remove(1)).collect();
    let arps: Vec<_> = questions.iter().filter(|f| f[12..14] == [8, 6]).collect();
    assert_eq!((arps.len(), macs(arps[0])), (1, (HOST, LAN)), "not to all");
    introduce(&mut r);
    let out = r.feed_by(FROM_WAN, &[build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).to_vec()]);
    assert_eq!(out[1].len(), 1);
    assert_eq!(out[1][0][12..14], [8, 0], "sent at once");
}

#[test]
fn an_ipv6_neighbour_that_answers_without_its_mac_address_is_kept() {
    let mut r = router("lifetime = 10\n");
    introduce(&mut r);
    let (host, own): (Ipv6Addr, Ipv6Addr) = ("2001:db8:1::5".parse().unwrap(), "2001:db8:1::1".parse().unwrap());
    let mut asked = 0;
    for ms in (0..40_000).step_by(500) {
        let questions = r.wake(Duration::from_millis(ms)).swap_remove(1);
        for frame in questions.iter().filter(|f| f[12..14] == [0x86, 0xdd]) {
            assert_eq!(macs(frame), (HOST, LAN), "not to all");
            asked += 1;
            let told = Neighbor::Advertisement { target: host, flags: ndp::SOLICITED, target_mac: None };
            r.feed_by(FROM_LAN, &[told.frame((HOST, LAN), host, own)]);
        }
    }
    assert_eq!(asked, 3);
    let src: Ipv6Addr = "2001:db8:2::9".parse().unwrap();
    let out = r.feed_by(FROM_WAN, &[build::udp6(src, host, 1, 2).dst_mac(WAN).to_vec()]);
    assert_eq!((out[1].len(), macs(&out[1][0])), (1, (HOST, LAN)), "sent at once");
}

#[test]
fn the_sender_of_an_expired_packet_is_told() {
    let mut r = router(DEFAULT);
    introduce(&mut r);
    let expired = lan4([8, 8, 8, 8]).ttl(1).to_vec();
    let out = r.feed_by(FROM_LAN, core::slice::from_ref(&expired));
    let (from, to, repr, quoted) = error4(&out[1]);
    assert_eq!((from, to), ([10, 0, 0, 1].into(), [10, 0, 0, 5].into()));
    assert_eq!(repr, icmpv4::Repr::TimeExceeded { code: 0 });
    assert_eq!(quoted[..28], expired[14..42], "the packet as it came");
    assert_eq!(
        error6(&r.feed_by(FROM_LAN, &[lan6("2001:db8:9::9").ttl(1).to_vec()])[1]),
        icmpv6::Repr::TimeExceeded { code: 0 }
    );
    assert_eq!(r.drops(), [("ttl_expired", 2), ("answered", 1)]);
}

#[test]
fn without_a_route_the_sender_is_told() {
    let mut r = router("");
    introduce(&mut r);
    let (.., repr, _) = error4(&r.feed_by(FROM_LAN, &[lan4([8, 8, 8, 8]).to_vec()])[1]);
    assert_eq!(repr, icmpv4::Repr::DestUnreachable { code: 0 });
    assert_eq!(
        error6(&r.feed_by(FROM_LAN, &[lan6("2001:db8:9::9").to_vec()])[1]),
        icmpv6::Repr::DestUnreachable { code: 0 }
    );
    let mut r = router(DEFAULT);
    introduce(&mut r);
    assert_eq!(r.feed_by(FROM_LAN, &[lan4([203, 0, 113, 1]).to_vec()]).concat().len(), 0);
    let (.., repr, _) = error4(&r.feed_by(FROM_LAN, &[lan4([198, 51, 100, 1]).to_vec()])[1]);
    assert_eq!(repr, icmpv4::Repr::DestUnreachable { code: 0 });
    assert_eq!(r.drops(), [("unreachable", 1), ("blackhole", 1), ("answered", 1)]);
}

#[test]
fn nothing_is_told_about_errors_fragments_and_broadcasts() {
    let mut r = router("");
    introduce(&mut r);
    let quoted = lan4([10, 0, 0, 5]).to_vec();
    let icmp = |repr| build::icmp4([10, 0, 0, 5], [8, 8, 8, 8], repr).payload(&quoted[14..]).src_mac(HOST).dst_mac(LAN);
    let silent = [
        icmp(icmpv4::Repr::TimeExceeded { code: 0 }).to_vec(),
        icmp(icmpv4::Repr::DestUnreachable { code: 3 }).to_vec(),
        lan4([8, 8, 8, 8]).fragment(8, false).to_vec(),
        lan4([8, 8, 8, 8]).dst_mac(MacAddr::BROADCAST).to_vec(),
        lan4([255, 255, 255, 255]).to_vec(),
    ];
    assert_eq!(r.feed_by(FROM_LAN, &silent).concat().len(), 0);
    let told =
        [icmp(icmpv4::Repr::EchoRequest { id: 1, seq: 1 }).to_vec(), lan4([8, 8, 8, 8]).fragment(0, true).to_vec()];
    assert_eq!(r.feed_by(FROM_LAN, &told)[1].len(), 2);
    let quoted6 = lan6("2001:db8:1::5").to_vec();
    let from: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    let to: Ipv6Addr = "2001:db8:9::9".parse().unwrap();
    let error = build::icmp6(from, to, icmpv6::Repr::DestUnreachable { code: 0 }).payload(&quoted6[14..]).dst_mac(LAN);
    assert_eq!(r.feed_by(FROM_LAN, &[error.to_vec()]).concat().len(), 0);
}

#[test]
fn what_is_told_is_limited() {
    let mut r = router("icmp_rate = 7\n");
    introduce(&mut r);
    let many: Vec<_> = (0..100).map(|_| lan4([8, 8, 8, 8]).ttl(1).to_vec()).collect();
    assert_eq!(r.feed_by(FROM_LAN, &many)[1].len(), 7);
    assert!(r.counters().contains(&("icmp_limited".to_owned(), 93)));
    r.wake(Duration::from_millis(1000));
    assert_eq!(r.feed_by(FROM_LAN, &many)[1].len(), 7);
}

#[test]
fn a_packet_too_long_is_cut_or_told_of() {
    let mut r = router(DEFAULT);
    introduce(&mut r);
    let long = lan4([8, 8, 8, 8]).payload(&[7; 1400]);
    let (.., repr, quoted) = error4(&r.feed_by(FROM_LAN, &[long.clone().dont_fragment().to_vec()])[1]);
    assert_eq!((repr, quoted.len()), (icmpv4::Repr::FragmentationNeeded { mtu: 1300 }, 548));
    let out = r.feed_by(FROM_LAN, &[long.ttl(9).to_vec()]);
    let bytes: usize = out[2].iter().map(|f| ipv4::Packet::new(&f[14..]).unwrap().payload().len()).sum();
    assert_eq!((out[2].len(), bytes), (2, 1408));
    assert!(out[2].iter().all(|f| macs(f) == (GATEWAY, WAN)));
    assert!(out[2].iter().all(|f| ipv4::Packet::new(&f[14..]).unwrap().header().ttl() == 8));
    let out = r.feed_by(FROM_LAN, &[lan6("2001:db8:9::9").payload(&[7; 1400]).to_vec()]);
    assert_eq!(error6(&out[1]), icmpv6::Repr::PacketTooBig { mtu: 1300 });
    assert_eq!(r.drops(), [("too_big", 2), ("fragmented", 1), ("answered", 1)]);
}

#[test]
fn answers_echo_on_all_its_addresses() {
    let mut r = router(DEFAULT);
    for own in [[10, 0, 0, 1], [192, 0, 2, 2]] {
        let ask = build::echo4([10, 0, 0, 5], own, 7, 8).payload(b"hello").src_mac(HOST).dst_mac(LAN).to_vec();
        let out = r.feed_by(FROM_LAN, &[ask]);
        let ip = ipv4::Packet::new(&out[1][0][14..]).unwrap();
        let message = icmpv4::Message::new(ip.payload()).unwrap();
        assert!(ip.checksum_ok() && message.checksum_ok());
        assert_eq!((ip.header().src(), ip.header().dst()), (own.into(), [10, 0, 0, 5].into()));
        assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::EchoReply { id: 7, seq: 8 });
        assert_eq!((message.payload(), macs(&out[1][0])), (&b"hello"[..], (HOST, LAN)));
    }
    let src: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    for own in ["2001:db8:1::1".parse().unwrap(), "2001:db8:2::2".parse().unwrap(), ndp::link_local(LAN)] {
        let ask = build::echo6(src, own, 7, 8).payload(b"hello").src_mac(HOST).dst_mac(LAN).to_vec();
        let out = r.feed_by(FROM_LAN, &[ask]);
        let ip = ipv6::Packet::new(&out[1][0][14..]).unwrap();
        let message = icmpv6::Message::new(ip.payload()).unwrap();
        assert!(message.checksum_ok(ip.pseudo()));
        assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::EchoReply { id: 7, seq: 8 });
        assert_eq!((ip.header().src(), ip.header().dst()), (own, src));
    }
    // other packets to it go to whatever stands behind its output
    assert_eq!(r.feed_by(FROM_LAN, &[lan4([10, 0, 0, 1]).to_vec()])[0].len(), 1);
}

#[test]
fn refuses_what_it_must() {
    let mut r = router(DEFAULT);
    introduce(&mut r);
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
        let out = r.feed_by(FROM_LAN, &[frame]).concat();
        let new: Vec<_> = r.drops().into_iter().filter(|d| !before.contains(d)).map(|(r, _)| r).collect();
        assert_eq!((out.len(), new), (0, vec![reason]));
    }
}

#[test]
fn flows_are_spread_over_next_hops_and_each_keeps_to_one() {
    let via: Vec<String> = (11..15).map(|n| format!("\"192.0.2.{n}\"")).collect();
    let macs_of: Vec<String> = (11..15).map(|n| format!("\"192.0.2.{n}\" = \"02:00:00:00:02:{n}\"")).collect();
    let mut r = router(&format!(
        "route = [{{ prefix = \"0.0.0.0/0\", via = [{}] }}]\nneighbour = {{ {} }}\n",
        via.join(", "),
        macs_of.join(", ")
    ));
    let frame = |port: u16| build::udp4([10, 0, 0, 5], [8, 8, 8, 8], port, 53).dst_mac(LAN).pad_to(60).to_vec();
    let frames: Vec<_> = (0..1000).map(frame).collect();
    let first: Vec<_> = r.feed_by(FROM_LAN, &frames)[2].iter().map(|f| macs(f).0).collect();
    let again: Vec<_> = r.feed_by(FROM_LAN, &frames)[2].iter().map(|f| macs(f).0).collect();
    assert_eq!(first, again);
    for mac in first.iter().collect::<BTreeSet<_>>() {
        let n = first.iter().filter(|m| *m == mac).count();
        assert!((150..350).contains(&n), "{n} of 1000 flows to {mac}");
    }
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn a_batch_for_several_interfaces_is_parted() {
    let mut r = router(DEFAULT);
    introduce(&mut r);
    let to_host = build::udp4([10, 0, 0, 9], [10, 0, 0, 5], 1, 1).dst_mac(LAN).pad_to(60).to_vec();
    let away = lan4([8, 8, 8, 8]).to_vec();
    let frames: Vec<_> = (0..64).map(|i| if i % 3 == 0 { to_host.clone() } else { away.clone() }).collect();
    let out = r.feed_by(FROM_LAN, &frames);
    assert_eq!((out[1].len(), out[2].len()), (22, 42));
}

#[test]
fn wrong_settings_are_named() {
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
        let e = Bench::try_of::<L3fwd>(settings).err().unwrap_or_default().to_string();
        assert!(e.contains(word), "{settings}: {e}");
    }
}

#[test]
fn all_of_a_real_table_is_loaded_and_agrees_with_the_longest_prefix() {
    let data =
        std::env::var_os("BONDSTONE_DATA").map_or_else(|| "../../../shared/data".into(), std::path::PathBuf::from);
    let routes = data.join("routes/prefixes.txt.gz");
    if !routes.exists() {
        println!("skipped: there is no {}", routes.display());
        return;
    }
    // each line's next hop is the next of four
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
        let known = (0..=32u8).rev().find_map(|len| longest.get(&(super::config::mask4(dst, len), len)));
        let special = dst.is_multicast() || dst.is_loopback() || matches!(dst.octets()[0], 0 | 240..);
        let own = [(10, 0, 0), (192, 0, 2)].contains(&(dst.octets()[0], dst.octets()[1], dst.octets()[2]));
        let (Some(known), false) = (known, special || own) else { continue };
        let out = r.feed_by(FROM_LAN, &[lan4(dst.octets()).to_vec()]);
        assert_eq!(macs(&out[2][0]).0, MacAddr([2, 0, 0, 0, 2, *known as u8]), "{dst}");
        compared += 1;
    }
    assert!(compared > 5000, "{compared}");
}

/// A host at one of the interfaces asks for the router's address there, and so says who it is.
fn says_who_it_is(router: &mut Bench, input: usize, host: &str, own: &str) {
    let frame = match (host.parse(), own.parse()) {
        (Ok(std::net::IpAddr::V4(host)), Ok(std::net::IpAddr::V4(own))) => {
            let ask = arp::Repr {
                operation: arp::Operation::Request,
                sender_mac: HOST,
                sender_ip: host,
                target_mac: MacAddr([0; 6]),
                target_ip: own,
            };
            build::arp(ask).src_mac(HOST).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec()
        }
        (Ok(std::net::IpAddr::V6(host)), Ok(std::net::IpAddr::V6(own))) => {
            let group = ndp::solicited_node(own);
            let ask = Neighbor::Solicitation { target: own, source_mac: Some(HOST) };
            ask.frame((HOST, ndp::multicast_mac(group)), host, group)
        }
        other => panic!("{other:?}"),
    };
    let out = router.feed_by(input, &[frame]);
    assert!(!out[input + 1].is_empty(), "answered");
}

/// What becomes of a packet from the WAN: the outputs by which anything leaves, and the new reasons for drops.
fn from_wan(r: &mut Bench, dst: &str) -> (Vec<usize>, Vec<&'static str>) {
    let frame = match dst.parse().unwrap() {
        std::net::IpAddr::V4(dst) => build::udp4([192, 0, 2, 9], dst, 1, 2).dst_mac(WAN).pad_to(60).to_vec(),
        std::net::IpAddr::V6(dst) => {
            build::udp6("2001:db8:2::9".parse::<Ipv6Addr>().unwrap(), dst, 1, 2).dst_mac(WAN).to_vec()
        }
    };
    let before = r.drops();
    let out = r.feed_by(FROM_WAN, &[frame]);
    let left = (0..out.len()).filter(|n| !out[*n].is_empty()).collect();
    (left, r.drops().into_iter().filter(|d| !before.contains(d)).map(|(reason, _)| reason).collect())
}

#[test]
fn no_host_takes_the_place_of_a_route_or_of_a_broadcast_address() {
    let mut r = router(
        "route = [{ prefix = \"10.0.0.66/32\", to = \"blackhole\" }, { prefix = \"2001:db8:1::66/128\", to = \"blackhole\" },\n\
         { prefix = \"10.0.0.128/28\", to = \"blackhole\" }, { prefix = \"2001:db8:1:0:7::/80\", to = \"blackhole\" }]\n\
         lifetime = 10\n",
    );
    let refused = [
        ("10.0.0.66", "10.0.0.1", "blackhole"),
        ("10.0.0.130", "10.0.0.1", "blackhole"),
        ("10.0.0.255", "10.0.0.1", "directed_broadcast"),
        ("10.0.0.0", "10.0.0.1", "directed_broadcast"),
        ("2001:db8:1::66", "2001:db8:1::1", "blackhole"),
        ("2001:db8:1:0:7::5", "2001:db8:1::1", "blackhole"),
    ];
    for (host, own, reason) in refused {
        assert_eq!(from_wan(&mut r, host), (vec![], vec![reason]), "{host}, before it speaks");
        says_who_it_is(&mut r, FROM_LAN, host, own);
        assert_eq!(from_wan(&mut r, host), (vec![], vec![reason]), "{host}, after it has spoken");
    }
    // others are heard, and forgotten again
    says_who_it_is(&mut r, FROM_LAN, "10.0.0.67", "10.0.0.1");
    assert_eq!(from_wan(&mut r, "10.0.0.67"), (vec![1], vec![]));
    (0..30_000).step_by(500).for_each(|ms| drop(r.wake(Duration::from_millis(ms))));
    for (host, _, reason) in refused {
        assert_eq!(from_wan(&mut r, host), (vec![], vec![reason]), "{host}, when all are forgotten");
    }
}

#[test]
fn a_host_takes_no_address_on_a_network_of_another_interface() {
    let settings = "\
interface.dmz = { addresses = [\"10.1.0.1/16\", \"2001:db8:0:1::1/64\"], mac = \"02:00:00:00:03:00\" }
interface.lan = { addresses = [\"10.0.0.1/8\", \"2001:db8::1/48\"], mac = \"02:00:00:00:01:00\" }
route = [{ prefix = \"192.0.2.0/24\", via = [\"10.1.0.9\"] }]
neighbour = { \"10.1.0.8\" = \"02:00:00:00:03:08\", \"10.1.0.9\" = \"02:00:00:00:03:09\", \"2001:db8:0:1::8\" = \"02:00:00:00:03:08\" }
";
    let (dmz, lan) = (1, 2);
    let mut r = Bench::of::<L3fwd>(settings);
    for (host, own) in [("10.1.0.7", "10.0.0.1"), ("10.1.0.1", "10.0.0.1"), ("10.1.0.8", "10.0.0.1")] {
        says_who_it_is(&mut r, lan - 1, host, own);
    }
    for (host, own) in [("2001:db8:0:1::7", "2001:db8::1"), ("2001:db8:0:1::1", "2001:db8::1")] {
        says_who_it_is(&mut r, lan - 1, host, own);
    }
    // asked for where it is
    let out = r.feed_by(lan - 1, &[lan4([10, 1, 0, 7]).to_vec(), lan6("2001:db8:0:1::7").to_vec()]);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 0]);
    // the router's own stays its own
    let out = r.feed_by(lan - 1, &[lan4([10, 1, 0, 1]).to_vec(), lan6("2001:db8:0:1::1").to_vec()]);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 0]);
    // what the settings say of hosts on the longer network holds there
    let eight = MacAddr([2, 0, 0, 0, 3, 8]);
    for (frame, mac) in [
        (lan4([10, 1, 0, 8]).to_vec(), eight),
        (lan6("2001:db8:0:1::8").to_vec(), eight),
        (lan4([192, 0, 2, 1]).to_vec(), MacAddr([2, 0, 0, 0, 3, 9])),
    ] {
        let out = r.feed_by(lan - 1, &[frame]);
        assert_eq!((out[dmz].len(), macs(&out[dmz][0]).0), (1, mac));
    }
}

#[test]
fn neighbours_of_the_settings_and_next_hops_leave_routes_to_their_addresses_alone() {
    let mut r = router(
        "route = [{ prefix = \"198.51.100.0/24\", via = [\"10.0.0.66\"] }, { prefix = \"10.0.0.66/32\", to = \"blackhole\" },\n\
         { prefix = \"10.0.0.128/28\", to = \"blackhole\" }, { prefix = \"203.0.113.0/24\", via = [\"10.0.0.68\"] }]\n\
         neighbour = { \"10.0.0.66\" = \"02:00:00:00:01:66\", \"10.0.0.67\" = \"02:00:00:00:01:67\", \"10.0.0.130\" = \"02:00:00:00:01:82\" }\n",
    );
    assert_eq!(from_wan(&mut r, "10.0.0.66"), (vec![], vec!["blackhole"]));
    assert_eq!(from_wan(&mut r, "198.51.100.1"), (vec![1], vec![]), "by way of it");
    assert_eq!(from_wan(&mut r, "10.0.0.67"), (vec![1], vec![]));
    // the settings know better than a route to the hosts around it
    assert_eq!(from_wan(&mut r, "10.0.0.130"), (vec![1], vec![]));
    assert_eq!(from_wan(&mut r, "10.0.0.131"), (vec![], vec!["blackhole"]));
    // a next hop without a MAC address is asked for, and found for both its routes
    assert_eq!(from_wan(&mut r, "203.0.113.1"), (vec![1], vec![]));
    says_who_it_is(&mut r, FROM_LAN, "10.0.0.68", "10.0.0.1");
    for dst in [[203, 0, 113, 1], [10, 0, 0, 68]] {
        let out = r.feed_by(FROM_WAN, &[build::udp4([192, 0, 2, 9], dst, 1, 2).dst_mac(WAN).pad_to(60).to_vec()]);
        assert_eq!(macs(&out[1][0]), (HOST, LAN));
    }
    for own in ["10.0.0.1", "192.0.2.2", "10.0.0.255", "2001:db8:1::1"] {
        let settings = format!("{TWO}neighbour = {{ \"{own}\" = \"02:00:00:00:01:66\" }}");
        let e = Bench::try_of::<L3fwd>(&settings).err().unwrap_or_default().to_string();
        assert!(e.contains(own), "{own}: {e}");
    }
}

#[test]
fn a_packet_whose_pieces_are_not_all_sent_is_not_counted_as_cut() {
    let long = lan4([8, 8, 8, 8]).payload(&[7; 1900]);
    for (buffers, pieces, reason) in [(3, 2, "fragmented"), (2, 1, "no_fragment_buffer"), (1, 0, "no_fragment_buffer")]
    {
        let mut r = Setup::of::<L3fwd>(&format!("{TWO}{DEFAULT}")).buffers(buffers).build().unwrap();
        let out = r.feed_by(FROM_LAN, &[long.clone().to_vec()]);
        assert_eq!((out[2].len(), r.drops()), (pieces, vec![(reason, 1)]), "{buffers} buffers");
    }
    // a piece that ends beyond the longest packet
    let mut r = router(DEFAULT);
    let out = r.feed_by(FROM_LAN, &[long.fragment(65_528, true).to_vec()]);
    assert_eq!((out.concat().len(), r.drops()), (0, vec![("malformed_ip", 1)]));
}

#[test]
fn routes_to_hosts_are_found_in_either_table() {
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
        let out = r.feed_by(FROM_LAN, &frames);
        let to: Vec<_> = out[2].iter().map(|frame| macs(frame).0).collect();
        assert_eq!(to, [GATEWAY, other, GATEWAY, other, GATEWAY, other, GATEWAY], "{table}");
        assert_eq!(r.drops(), [("blackhole", 1)]);
        let out = r.feed_by(FROM_LAN, &[lan4([203, 0, 114, 9]).to_vec(), lan6("2001:db8:9::ff").to_vec()]);
        let to: Vec<_> = out[2].iter().map(|frame| macs(frame).0).collect();
        assert_eq!(to, [other, GATEWAY], "{table}");
        // neighbours that are learnt stand in the same table
        introduce(&mut r);
        let to_host = build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).pad_to(60).to_vec();
        assert_eq!(macs(&r.feed_by(FROM_WAN, &[to_host])[1][0]).0, HOST, "{table}");
        r.advance(Duration::from_millis(20));
        assert_eq!(r.counter("hosts") > 256 + 256, table == "exact", "{table}");
    }
}

#[test]
fn networks_too_large_for_routes_to_hosts_are_named() {
    let wrong = format!("{TWO}route = [{{ prefix = \"2001:db8::/64\", hosts = true, via = [\"2001:db8:2::1\"] }}]");
    let e = Bench::try_of::<L3fwd>(&wrong).unwrap_err().to_string();
    assert!(e.contains("2001:db8::/64") && e.contains("4294967296"), "{e}");
    let wrong = format!("{TWO}route = [{{ prefix = \"203.0.113.0/24\", hosts = true }}]");
    let e = Bench::try_of::<L3fwd>(&wrong).unwrap_err().to_string();
    assert!(e.contains("203.0.113.0/24") && e.contains("next hops"), "{e}");
}
