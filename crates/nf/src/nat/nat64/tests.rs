//! Behaviour that the RFCs require.

mod fragments;
mod model;
mod saved;

use crate::Nat64;
use std::net::Ipv6Addr;
use std::time::Duration;
use testkit::Harness;
use wire::checksum::Pseudo;
use wire::{EtherType, IpProtocol, TcpFlags, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

const A: &str = "2001:db8::a";
const B: &str = "2001:db8::b";
const REMOTE: [u8; 4] = [198, 18, 0, 1];
const OTHER_REMOTE: [u8; 4] = [198, 18, 0, 2];
const EXTERNAL: [u8; 4] = [203, 0, 113, 1];

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Embeds an IPv4 address in the well-known prefix.
fn embedded(address: [u8; 4]) -> Ipv6Addr {
    let [a, b, c, d] = address;
    v6(&format!("64:ff9b::{a}.{b}.{c}.{d}"))
}

/// Endpoints of a packet with valid checksums; the ICMP identifier is the port of the requester.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Endpoints {
    src: String,
    src_port: u16,
    dst: String,
    dst_port: u16,
    hops: u8,
    class: u8,
}

fn endpoints(src: impl ToString, src_port: u16, dst: impl ToString, dst_port: u16) -> Endpoints {
    Endpoints { src: src.to_string(), src_port, dst: dst.to_string(), dst_port, hops: 63, class: 0 }
}

fn ipv4_text(a: [u8; 4]) -> String {
    std::net::Ipv4Addr::from(a).to_string()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Parses an untagged packet of either version and verifies all its checksums.
#[track_caller]
fn parse(frame: &[u8]) -> Endpoints {
    let link = ethernet::Frame::new(frame).unwrap();
    let (src, dst, hops, class, protocol, body, pseudo, later, part) = if link.header().ether_type() == EtherType::IPV4
    {
        let ip = ipv4::Packet::new(link.payload()).unwrap();
        assert!(ip.checksum_ok(), "the IP checksum of {frame:02x?}");
        let h = ip.header();
        let pseudo = Pseudo::v4(h.src(), h.dst(), h.protocol());
        let (src, dst, part) = (h.src().to_string(), h.dst().to_string(), h.is_fragment());
        let class = link.payload()[1];
        (src, dst, h.ttl(), class, h.protocol(), ip.payload().to_vec(), pseudo, h.is_later_fragment(), part)
    } else {
        assert_eq!(link.header().ether_type(), EtherType::IPV6);
        let ip = ipv6::Packet::new(link.payload()).unwrap();
        let h = ip.header();
        assert_eq!(h.flow_label(), 0, "RFC 7915 §4.1");
        let (protocol, later) = ip.upper();
        let part = ip.extensions().next().is_some();
        let (src, dst) = (h.src().to_string(), h.dst().to_string());
        (src, dst, h.hop_limit(), h.traffic_class(), protocol, ip.payload().to_vec(), ip.pseudo(), later, part)
    };
    let ports = match protocol {
        _ if later => (0, 0),
        IpProtocol::ICMPV4 | IpProtocol::ICMPV6 => {
            let right = if protocol == IpProtocol::ICMPV4 {
                wire::checksum::verify(&body)
            } else {
                pseudo.sum(&body).is_valid()
            };
            assert!(part || right, "the ICMP checksum of {frame:02x?}");
            let id = u16_at(&body, 4);
            match body[0] {
                8 | 128 => (id, 0),
                0 | 129 => (0, id),
                _ => (0, 0),
            }
        }
        _ => {
            assert!(part || pseudo.sum(&body).is_valid(), "the checksum of {frame:02x?}");
            (u16_at(&body, 0), u16_at(&body, 2))
        }
    };
    Endpoints { src, src_port: ports.0, dst, dst_port: ports.1, hops, class }
}

/// A translator on the test bench.
struct Nat(Harness);

impl Nat {
    fn new(settings: &str) -> Nat {
        let external = if settings.contains("external") { "" } else { "external = [\"203.0.113.1\"]\n" };
        Nat(Harness::new::<Nat64>(&format!("{external}{settings}")))
    }

    /// Returns the packets that come out, or the drop reason.
    fn feed(&mut self, input: usize, frame: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
        let before = self.0.drops();
        let out = self.0.feed_input(input, &[frame]).concat();
        let count = |drops: &[(&'static str, u64)], name: &str| drops.iter().find(|d| d.0 == name).map_or(0, |d| d.1);
        let after = self.0.drops();
        match after.iter().find(|(name, n)| *n > count(&before, name)) {
            Some((name, _)) if out.is_empty() => Err(name),
            _ if out.is_empty() => Err("held"),
            _ => Ok(out),
        }
    }

    fn one(&mut self, input: usize, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut all = self.feed(input, frame)?;
        assert_eq!(all.len(), 1);
        Ok(all.remove(0))
    }

    fn outbound(&mut self, frame: &[u8]) -> Result<Endpoints, &'static str> {
        self.one(0, frame).map(|frame| parse(&frame))
    }

    fn inbound(&mut self, frame: &[u8]) -> Result<Endpoints, &'static str> {
        self.one(1, frame).map(|frame| parse(&frame))
    }

    fn advance_seconds(&mut self, seconds: u64) {
        // all buckets are scanned within four seconds
        (0..seconds * 10).for_each(|_| drop(self.0.advance(Duration::from_millis(100))));
        (0..400).for_each(|_| drop(self.0.advance(Duration::from_millis(10))));
    }
}

fn udp6(src: &str, src_port: u16, dst: Ipv6Addr, dst_port: u16) -> Vec<u8> {
    build::udp6(v6(src), dst, src_port, dst_port).payload(b"what it says").to_vec()
}

fn udp4(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16) -> Vec<u8> {
    build::udp4(src, dst, src_port, dst_port).payload(b"what it says").pad_to(60).to_vec()
}

fn tcp6(src: &str, src_port: u16, dst: Ipv6Addr, dst_port: u16, flags: TcpFlags) -> Vec<u8> {
    build::tcp6(v6(src), dst, src_port, dst_port).flags(flags).payload(b"x").to_vec()
}

fn tcp4(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16, flags: TcpFlags) -> Vec<u8> {
    build::tcp4(src, dst, src_port, dst_port).flags(flags).payload(b"x").pad_to(60).to_vec()
}

#[test]
fn translates_a_packet_and_its_reply() {
    let mut nat = Nat::new("");
    let out = nat.outbound(&udp6(A, 5000, embedded(REMOTE), 53)).unwrap();
    assert_eq!(out, endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 53));
    for _ in 0..3 {
        assert_eq!(nat.outbound(&udp6(A, 5000, embedded(REMOTE), 53)), Ok(out.clone()), "same mapping as the first");
        assert_eq!(nat.inbound(&udp4(REMOTE, 53, EXTERNAL, 5000)), Ok(endpoints(embedded(REMOTE), 53, A, 5000)));
    }
    assert_eq!(nat.inbound(&udp4(REMOTE, 53, EXTERNAL, 5001)), Err("no_session"));
    // another host with the same port gets another external port of the same parity
    let second = nat.outbound(&udp6(B, 5000, embedded(REMOTE), 53)).unwrap();
    assert!(second.src_port != 5000 && second.src_port.is_multiple_of(2));
    assert_eq!(nat.inbound(&udp4(REMOTE, 53, EXTERNAL, second.src_port)), Ok(endpoints(embedded(REMOTE), 53, B, 5000)));
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("mappings"), nat.0.counter("subscribers")), (2, 2, 2));
    assert_eq!(nat.0.occupancy("sessions"), (2, 65_536));
    // all of them expire
    nat.advance_seconds(301);
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("ports"), nat.0.counter("subscribers")), (0, 0, 0));
    assert_eq!(nat.inbound(&udp4(REMOTE, 53, EXTERNAL, 5000)), Err("no_session"));
}

#[test]
fn tcp_sessions_start_with_a_syn_and_expire() {
    let mut nat = Nat::new("timers = { tcp_established = 100, tcp_transitory = 5 }");
    assert_eq!(nat.outbound(&tcp6(A, 5000, embedded(REMOTE), 80, TcpFlags::ACK)), Err("not_syn"));
    let there = endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 80);
    assert_eq!(nat.outbound(&tcp6(A, 5000, embedded(REMOTE), 80, TcpFlags::SYN)), Ok(there.clone()));
    assert_eq!(
        nat.inbound(&tcp4(REMOTE, 80, EXTERNAL, 5000, TcpFlags::SYN_ACK)),
        Ok(endpoints(embedded(REMOTE), 80, A, 5000))
    );
    assert_eq!(nat.outbound(&tcp6(A, 5000, embedded(REMOTE), 80, TcpFlags::ACK)), Ok(there));
    nat.advance_seconds(20);
    assert_eq!(nat.0.counter("sessions"), 1, "it is established");
    nat.outbound(&tcp6(A, 5000, embedded(REMOTE), 80, TcpFlags::FIN)).unwrap();
    nat.inbound(&tcp4(REMOTE, 80, EXTERNAL, 5000, TcpFlags::FIN)).unwrap();
    nat.advance_seconds(6);
    assert_eq!(nat.0.counter("sessions"), 0);
}

#[test]
fn translates_echoes_with_valid_checksums() {
    let mut nat = Nat::new("");
    let request = build::echo6(v6(A), embedded(REMOTE), 77, 3).payload(&[9; 31]).to_vec();
    assert_eq!(nat.outbound(&request), Ok(endpoints(ipv4_text(EXTERNAL), 77, ipv4_text(REMOTE), 0)));
    let answer = build::icmp4(REMOTE, EXTERNAL, icmpv4::Repr::EchoReply { id: 77, seq: 3 }).payload(&[9; 31]).to_vec();
    let back = nat.one(1, &answer).unwrap();
    assert_eq!(parse(&back), endpoints(embedded(REMOTE), 0, A, 77));
    let message = icmpv6::Message::new(&back[54..]).unwrap();
    assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::EchoReply { id: 77, seq: 3 });
    assert_eq!(message.payload(), [9; 31]);
    // only replies are accepted from outside
    assert_eq!(nat.inbound(&build::echo4(REMOTE, EXTERNAL, 77, 1).to_vec()), Err("no_session"));
    let lone = build::icmp6(v6(A), embedded(REMOTE), icmpv6::Repr::EchoReply { id: 77, seq: 1 }).to_vec();
    assert_eq!(nat.outbound(&lone), Err("no_session"));
    // a timestamp is not translated (RFC 7915 §4.2)
    let mut stamp = build::echo4(REMOTE, EXTERNAL, 77, 1).payload(&[0; 12]).to_vec();
    stamp[34] = 14;
    assert_eq!(nat.inbound(&stamp), Err("unsupported_protocol"));
}

#[test]
fn translates_headers() {
    let mut nat = Nat::new("");
    let frame = |len: usize| {
        build::udp6(v6(A), embedded(REMOTE), 5000, 53).traffic_class(0xb9).ttl(9).payload(&vec![1; len]).to_vec()
    };
    let small = nat.one(0, &frame(100)).unwrap();
    assert_eq!((parse(&small).hops, parse(&small).class), (8, 0xb9));
    assert_eq!(small[20..22], [0, 0], "up to 1260 bytes it may be cut");
    assert_eq!(nat.one(0, &frame(1232)).unwrap()[20..22], [0, 0]);
    let large = nat.one(0, &frame(1233)).unwrap();
    assert_eq!(large[20..22], [0x40, 0], "a longer packet must not be fragmented");
    let ids: Vec<_> = (0..50).map(|_| u16_at(&nat.one(0, &frame(9)).unwrap(), 18)).collect();
    assert!(ids.windows(2).all(|w| w[0] != w[1]), "identifications differ");
    // inbound
    let back = build::udp4(REMOTE, EXTERNAL, 53, 5000).dscp(46).ecn(1).ttl(7).payload(b"abc").pad_to(60).to_vec();
    let ipv6 = nat.one(1, &back).unwrap();
    assert_eq!((parse(&ipv6).hops, parse(&ipv6).class), (6, 0xb9));
    assert_eq!((u16_at(&ipv6, 18), ipv6[20]), (11, 17), "neither padding nor a fragment header");
    assert_eq!(&ipv6[..12], &back[..12], "MAC addresses are unchanged");
    // options are removed
    let option = ipv4::options(&[ipv4::Ipv4Option::RouterAlert(0)]).unwrap();
    let back = build::udp4(REMOTE, EXTERNAL, 53, 5000).ip_options(option).payload(b"abc").to_vec();
    assert_eq!(nat.inbound(&back), Ok(endpoints(embedded(REMOTE), 53, A, 5000)));
}

#[test]
fn removes_extension_headers_and_rejects_source_routes() {
    let mut nat = Nat::new("");
    let options = [1, 4, 0, 0, 0, 0];
    let frame = build::udp6(v6(A), embedded(REMOTE), 5000, 53)
        .extension(IpProtocol::HOP_BY_HOP, &options)
        .extension(IpProtocol::DESTINATION_OPTIONS, &options)
        .payload(b"abc")
        .to_vec();
    assert_eq!(nat.outbound(&frame), Ok(endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 53)));
    let route = |left: u8| {
        let body = [0, left, 0, 0, 0, 0];
        build::udp6(v6(A), embedded(REMOTE), 5000, 53).extension(IpProtocol::ROUTING, &body).payload(b"abc").to_vec()
    };
    assert_eq!(nat.outbound(&route(0)), Ok(endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 53)));
    // the error points to the segments left
    let mut told = nat.feed(0, &route(1)).unwrap();
    let told = told.remove(0);
    assert_eq!(nat.0.dropped("source_routed"), 1);
    let message = icmpv6::Message::new(&told[54..]).unwrap();
    assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::ParameterProblem { code: 0, pointer: 43 });
    assert_eq!((parse(&told).src, parse(&told).dst), (embedded(EXTERNAL).to_string(), A.to_string()));
    assert_eq!(message.payload(), &route(1)[14..]);
    // authenticated packets cannot be translated
    let sealed = build::udp6(v6(A), embedded(REMOTE), 5000, 53).extension(IpProtocol::AH, &[0; 14]).to_vec();
    assert_eq!(nat.outbound(&sealed), Err("unsupported_protocol"));
    let esp = build::ipv6(v6(A), embedded(REMOTE), IpProtocol::ESP).payload(&[0; 30]).to_vec();
    assert_eq!(nat.outbound(&esp), Err("unsupported_protocol"));
    // an unfinished source route
    let loose = wire::options::OptionBytes::new(&[131, 7, 4, 192, 0, 2, 1, 0]).unwrap();
    let routed = build::udp4(REMOTE, EXTERNAL, 53, 5000).ip_options(loose).payload(b"abc").to_vec();
    let answer = nat.one(1, &routed).unwrap();
    assert_eq!((nat.0.dropped("source_routed"), answer[34], answer[35]), (2, 3, 5));
    let ended = wire::options::OptionBytes::new(&[131, 7, 8, 192, 0, 2, 1, 0]).unwrap();
    let routed = build::udp4(REMOTE, EXTERNAL, 53, 5000).ip_options(ended).payload(b"abc").to_vec();
    assert!(nat.inbound(&routed).is_ok());
}

#[test]
fn sends_time_exceeded() {
    let mut nat = Nat::new("");
    let frame = build::udp6(v6(A), embedded(REMOTE), 5000, 53).ttl(1).payload(b"abc").to_vec();
    let answer = nat.one(0, &frame).unwrap();
    assert_eq!(
        (answer[0..6].to_vec(), answer[6..12].to_vec()),
        (frame[6..12].to_vec(), frame[0..6].to_vec()),
        "it goes back"
    );
    let message = icmpv6::Message::new(&answer[54..]).unwrap();
    assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::TimeExceeded { code: 0 });
    assert_eq!((parse(&answer).src, parse(&answer).dst), (embedded(EXTERNAL).to_string(), A.to_string()));
    assert_eq!((nat.0.dropped("ttl_expired"), nat.0.counter("sessions")), (1, 0));
    let frame = build::udp4(REMOTE, EXTERNAL, 53, 5000).ttl(1).payload(b"abc").pad_to(60).to_vec();
    let answer = nat.one(1, &frame).unwrap();
    assert_eq!((parse(&answer).src, parse(&answer).dst, answer[34]), (ipv4_text(EXTERNAL), ipv4_text(REMOTE), 11));
    // not about errors, and rate-limited
    let error =
        build::icmp4(REMOTE, EXTERNAL, icmpv4::Repr::DestUnreachable { code: 1 }).ttl(1).payload(&[0; 28]).to_vec();
    assert_eq!(nat.one(1, &error), Err("ttl_expired"));
    let sent = (0..500).filter(|_| nat.feed(1, &frame).is_ok()).count();
    assert_eq!((sent, nat.0.counter("icmp_rate_limited")), (98, 402));
}

#[test]
fn drops_invalid_addresses() {
    let mut nat = Nat::new("inside = [\"2001:db8::/64\"]");
    for bad in
        [[10, 0, 0, 1], [192, 168, 1, 1], [172, 20, 0, 1], [127, 0, 0, 1], [224, 0, 0, 1], [0, 0, 0, 1], [255; 4]]
    {
        assert_eq!(nat.outbound(&udp6(A, 5000, embedded(bad), 53)), Err("invalid_address"), "{bad:?}");
    }
    assert_eq!(nat.outbound(&udp6("2001:db8:1::1", 5000, embedded(REMOTE), 53)), Err("not_inside"));
    let looped = build::udp6(embedded(OTHER_REMOTE), embedded(REMOTE), 5000, 53).to_vec();
    assert_eq!(nat.outbound(&looped), Err("spoofed"), "RFC 6146 §3.5");
    assert_eq!(nat.inbound(&udp4(EXTERNAL, 53, EXTERNAL, 5000)), Err("spoofed"));
    assert_eq!(nat.inbound(&udp4([127, 0, 0, 1], 53, EXTERNAL, 5000)), Err("invalid_address"));
    // packets to neither the prefix nor an external address pass
    let others = [
        udp6(A, 5000, v6(B), 53),
        udp4(REMOTE, 53, OTHER_REMOTE, 5000),
        build::arp_request(REMOTE, OTHER_REMOTE).to_vec(),
    ];
    for frame in others {
        assert_eq!((nat.one(0, &frame), nat.one(1, &frame)), (Ok(frame.clone()), Ok(frame)));
    }
    // a network-specific prefix may embed private addresses
    let mut nat = Nat::new("prefix = \"2001:db8:64::/96\"");
    let private = v6("2001:db8:64::10.0.0.1");
    assert_eq!(
        nat.outbound(&udp6(A, 5000, private, 53)),
        Ok(endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text([10, 0, 0, 1]), 53))
    );
    assert_eq!(nat.inbound(&udp4([10, 0, 0, 1], 53, EXTERNAL, 5000)), Ok(endpoints(private, 53, A, 5000)));
}

#[test]
fn all_prefix_lengths() {
    for (prefix, address) in [
        ("2001:db8::/32", "2001:db8:c612:1::"),
        ("2001:db8:100::/40", "2001:db8:1c6:1200:1::"),
        ("2001:db8:122::/48", "2001:db8:122:c612:0:100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c6:12:1::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c6:1200:100::"),
    ] {
        let mut nat = Nat::new(&format!("prefix = \"{prefix}\""));
        let host = "fd00::1";
        assert_eq!(
            nat.outbound(&udp6(host, 5000, v6(address), 53)),
            Ok(endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 53)),
            "{prefix}"
        );
        assert_eq!(
            nat.inbound(&udp4(REMOTE, 53, EXTERNAL, 5000)),
            Ok(endpoints(v6(address), 53, host, 5000)),
            "{prefix}"
        );
    }
}

#[test]
fn filtering_and_forwards() {
    let result_with = |filtering: &str| {
        let mut nat = Nat::new(&format!("filtering = \"{filtering}\""));
        nat.outbound(&udp6(A, 5000, embedded(REMOTE), 53)).unwrap();
        [(REMOTE, 53), (REMOTE, 54), (OTHER_REMOTE, 53)]
            .map(|(from, port)| nat.inbound(&udp4(from, port, EXTERNAL, 5000)).is_ok())
    };
    assert_eq!(result_with("endpoint-independent"), [true, true, true]);
    assert_eq!(result_with("address-dependent"), [true, true, false]);
    assert_eq!(result_with("address-and-port-dependent"), [true, false, false]);
    let mut nat = Nat::new(
        "forward = [\"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\", \"udp 203.0.113.1:53 -> [2001:db8::6]:53\"]",
    );
    let begin = tcp4(REMOTE, 999, EXTERNAL, 8080, TcpFlags::SYN);
    assert_eq!(nat.inbound(&begin), Ok(endpoints(embedded(REMOTE), 999, "2001:db8::5", 80)));
    let answer = tcp6("2001:db8::5", 80, embedded(REMOTE), 999, TcpFlags::SYN_ACK);
    assert_eq!(nat.outbound(&answer), Ok(endpoints(ipv4_text(EXTERNAL), 8080, ipv4_text(REMOTE), 999)));
    assert_eq!(
        nat.inbound(&udp4(OTHER_REMOTE, 9, EXTERNAL, 53)),
        Ok(endpoints(embedded(OTHER_REMOTE), 9, "2001:db8::6", 53))
    );
    // the mapping of a forward outlives its sessions
    nat.advance_seconds(301);
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("mappings")), (0, 2));
    assert_eq!(
        nat.inbound(&udp4(OTHER_REMOTE, 9, EXTERNAL, 53)),
        Ok(endpoints(embedded(OTHER_REMOTE), 9, "2001:db8::6", 53))
    );
}

#[test]
fn hairpins_between_inside_hosts() {
    let mut nat = Nat::new("filtering = \"endpoint-independent\"");
    nat.outbound(&udp6(B, 6000, embedded(REMOTE), 53)).unwrap();
    let request = udp6(A, 5000, embedded(EXTERNAL), 6000);
    let got = nat.one(0, &request).unwrap();
    assert_eq!(parse(&got), endpoints(embedded(EXTERNAL), 5000, B, 6000));
    assert_eq!((&got[..6], &got[6..12]), (&request[6..12], &request[..6]), "MAC addresses are swapped");
    let answer = nat.one(0, &udp6(B, 6000, embedded(EXTERNAL), 5000)).unwrap();
    assert_eq!(parse(&answer), endpoints(embedded(EXTERNAL), 6000, A, 5000));
    assert_eq!(nat.0.counter("hairpinned"), 2);
    assert_eq!(nat.outbound(&udp6(A, 5000, embedded(EXTERNAL), 6001)), Err("no_hairpin"));
    // echoes, too
    nat.outbound(&build::echo6(v6(B), embedded(REMOTE), 9, 1).to_vec()).unwrap();
    assert_eq!(
        nat.outbound(&build::echo6(v6(A), embedded(EXTERNAL), 9, 1).to_vec()),
        Err("no_hairpin"),
        "no session has the identifier of B"
    );
    let mut nat = Nat::new("hairpin = false");
    assert!(
        nat.outbound(&udp6(A, 5000, embedded(EXTERNAL), 6000)).is_ok_and(|t| t.dst == ipv4_text(EXTERNAL)),
        "it is sent to the outside"
    );
}

#[test]
fn missing_udp_checksums() {
    let mut nat = Nat::new("");
    nat.outbound(&udp6(A, 5000, embedded(REMOTE), 53)).unwrap();
    let mut none = udp4(REMOTE, 53, EXTERNAL, 5000);
    none[40..42].fill(0);
    // `parse` verifies the computed checksum
    assert_eq!(nat.inbound(&none), Ok(endpoints(embedded(REMOTE), 53, A, 5000)));
    let mut piece = build::udp4(REMOTE, EXTERNAL, 53, 5000).fragment(0, true).payload(&[1; 24]).to_vec();
    piece[40..42].fill(0);
    piece[24..26].fill(0);
    let sum = wire::checksum::of(&piece[14..34]);
    piece[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(nat.inbound(&piece), Err("no_checksum"), "RFC 7915 §4.5");
    let mut none = udp6(A, 5000, embedded(REMOTE), 53);
    none[60..62].fill(0);
    assert_eq!(nat.outbound(&none), Err("no_checksum"), "RFC 8200 §8.1");
}

/// Builds an ICMP error about a packet from a router on its path.
fn error4(from: [u8; 4], about: &[u8], repr: icmpv4::Repr) -> Vec<u8> {
    let ip = ipv4::Packet::new(&about[14..]).unwrap();
    build::icmp4(from, ip.header().src(), repr).payload(&ip.bytes()[..ip.bytes().len().min(200)]).pad_to(60).to_vec()
}

fn error6(from: &str, about: &[u8], repr: icmpv6::Repr) -> Vec<u8> {
    let ip = ipv6::Packet::new(&about[14..]).unwrap();
    build::icmp6(v6(from), ip.header().src(), repr).payload(&ip.bytes()[..ip.bytes().len().min(900)]).to_vec()
}

#[test]
fn translates_icmp_errors() {
    let mut nat = Nat::new("");
    let sent = [
        udp6(A, 5000, embedded(REMOTE), 53),
        tcp6(A, 5001, embedded(REMOTE), 80, TcpFlags::SYN),
        build::echo6(v6(A), embedded(REMOTE), 77, 1).payload(b"abcd").to_vec(),
    ];
    for frame in &sent {
        let outside = nat.one(0, frame).unwrap();
        let router = [192, 0, 2, 9];
        let error = error4(router, &outside, icmpv4::Repr::DestUnreachable { code: 3 });
        let got = nat.one(1, &error).unwrap();
        let about = parse(&got);
        assert_eq!((about.src, about.dst), (embedded(router).to_string(), A.to_string()));
        let ip = ipv6::Packet::new(&got[14..]).unwrap();
        let message = icmpv6::Message::new(ip.payload()).unwrap();
        assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::DestUnreachable { code: 4 });
        // the quote equals the sent packet except for the hop limit and the IPv4 padding
        let (mut expected, quoted) = (frame[14..].to_vec(), message.payload());
        expected[7] -= 1;
        assert_eq!(&quoted[..expected.len().min(quoted.len())], &expected[..quoted.len().min(expected.len())]);
    }
    // the opposite direction: an error from the inside host
    for frame in [udp4(REMOTE, 53, EXTERNAL, 5000), tcp4(REMOTE, 80, EXTERNAL, 5001, TcpFlags::SYN_ACK)] {
        let inside = nat.one(1, &frame).unwrap();
        let error = error6(A, &inside, icmpv6::Repr::DestUnreachable { code: 4 });
        let got = nat.one(0, &error).unwrap();
        let about = parse(&got);
        assert_eq!((about.src, about.dst), (ipv4_text(EXTERNAL), ipv4_text(REMOTE)));
        let message = icmpv4::Message::new(&got[34..]).unwrap();
        assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::DestUnreachable { code: 3 });
        let quoted = ipv4::Packet::new(message.payload());
        let quoted = quoted.unwrap();
        assert!(quoted.checksum_ok());
        assert_eq!(quoted.payload(), &frame[34..34 + quoted.payload().len()], "ports and checksum are translated back");
    }
    assert_eq!(nat.0.counter("sessions"), 3);
    // without a session, and with a wrong checksum
    let never = error4(REMOTE, &udp4(EXTERNAL, 4000, REMOTE, 53), icmpv4::Repr::DestUnreachable { code: 1 });
    assert_eq!(nat.one(1, &never), Err("unknown_icmp_error"));
    let mut bent = error4(REMOTE, &udp4(EXTERNAL, 5000, REMOTE, 53), icmpv4::Repr::DestUnreachable { code: 1 });
    bent[50] ^= 1;
    assert_eq!(nat.one(1, &bent), Err("bad_icmp_error"));
}

#[test]
fn adjusts_path_mtus_by_20_bytes() {
    let mut nat = Nat::new("mtu = 1480");
    let outside = nat.one(0, &udp6(A, 5000, embedded(REMOTE), 53)).unwrap();
    let mtu = |got: &[u8]| {
        let message = icmpv6::Message::new(&got[54..]).unwrap();
        match icmpv6::Repr::parse(&message).unwrap() {
            icmpv6::Repr::PacketTooBig { mtu } => mtu,
            other => panic!("{other:?}"),
        }
    };
    for (told, gets) in [(1400, 1420), (576, 1280), (1500, 1480)] {
        let error = error4(REMOTE, &outside, icmpv4::Repr::FragmentationNeeded { mtu: told });
        assert_eq!(mtu(&nat.one(1, &error).unwrap()), gets);
    }
    let inside = nat.one(1, &udp4(REMOTE, 53, EXTERNAL, 5000)).unwrap();
    let error = error6("2001:db8::ffff", &inside, icmpv6::Repr::PacketTooBig { mtu: 1300 });
    let got = nat.one(0, &error).unwrap();
    assert_eq!(parse(&got).src, ipv4_text(EXTERNAL), "a router inside speaks by the host's address");
    let message = icmpv4::Message::new(&got[34..]).unwrap();
    assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::FragmentationNeeded { mtu: 1280 });
    // too long for the inside link, with "don't fragment"
    let large = build::udp4(REMOTE, EXTERNAL, 53, 5000).dont_fragment().payload(&[1; 1433]).to_vec();
    let got = nat.one(1, &large).unwrap();
    let message = icmpv4::Message::new(&got[34..]).unwrap();
    assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::FragmentationNeeded { mtu: 1460 });
    assert_eq!((nat.0.dropped("too_big"), parse(&got).dst), (1, ipv4_text(REMOTE)));
    let fits = build::udp4(REMOTE, EXTERNAL, 53, 5000).dont_fragment().payload(&[1; 1432]).to_vec();
    assert_eq!(nat.inbound(&fits), Ok(endpoints(embedded(REMOTE), 53, A, 5000)));
}

#[test]
fn limits_are_enforced_and_hosts_are_removed() {
    let mut nat = Nat::new("subscribers = 2\nsessions = 10\nsubscriber_sessions = 4\ntimers = { udp = 5 }");
    for round in 0..5u16 {
        let host = |n: u16| format!("2001:db8:{round}::{n}");
        for n in 1..=2 {
            for port in 0..4 {
                nat.outbound(&udp6(&host(n), 5000 + port, embedded(REMOTE), 53)).unwrap();
            }
            assert_eq!(nat.outbound(&udp6(&host(n), 6000, embedded(REMOTE), 53)), Err("too_many_sessions"));
        }
        assert_eq!(nat.outbound(&udp6(&host(3), 5000, embedded(REMOTE), 53)), Err("too_many_subscribers"));
        nat.advance_seconds(6);
        assert_eq!((nat.0.counter("sessions"), nat.0.counter("subscribers"), nat.0.counter("ports")), (0, 0, 0));
    }
    let mut nat = Nat::new("allocation = \"blocks\"\nblock_size = 8\nmax_blocks = 1");
    let ports: Vec<_> =
        (0..8).map(|n| nat.outbound(&udp6(A, 5000 + n, embedded(REMOTE), 53)).unwrap().src_port).collect();
    assert!(ports.iter().max().unwrap() - ports.iter().min().unwrap() < 8);
    assert_eq!(nat.outbound(&udp6(A, 6000, embedded(REMOTE), 53)), Err("no_port"));
    assert_eq!(nat.0.counter("blocks"), 1);
}

#[test]
fn copies_have_separate_addresses_and_receive_their_packets() {
    let settings = "external = [\"203.0.113.0/30\"]\nforward = [\"tcp 203.0.113.2:80 -> [2001:db8::5]:80\"]";
    let registry = crate::registry();
    let kind = registry.get("nat64").unwrap();
    let mut copies = testkit::HarnessBuilder::from_kind(kind, settings).build_copies(2).unwrap();
    let table: toml::Table = toml::from_str(settings).unwrap();
    let read = serde_json::from_value::<super::Settings>(serde_json::to_value(table).unwrap()).unwrap();
    let lane = <Nat64 as graph::Nf>::steering(&read, 2).unwrap();
    let mut used = [false; 2];
    for n in 1..60u16 {
        let host = format!("2001:db8:{n}::1");
        let frame = udp6(&host, 5000, embedded(REMOTE), 53);
        let copy = lane(0, &frame);
        used[copy] = true;
        let out = copies[copy].feed_input(0, &[&frame]).concat().concat();
        let out = parse(&out);
        let ours: std::net::Ipv4Addr = out.src.parse().unwrap();
        let back = udp4(REMOTE, 53, ours.octets(), out.src_port);
        assert_eq!(lane(1, &back), copy);
        let inside = copies[copy].feed_input(1, &[&back]).concat().concat();
        assert_eq!(parse(&inside).dst, host);
        // an error from an inside router about an inbound packet
        let error = error6("2001:db8:ffff::1", &inside, icmpv6::Repr::DestUnreachable { code: 0 });
        assert_eq!(lane(0, &error), copy);
        let error = error4(
            [192, 0, 2, 1],
            &udp4(ours.octets(), out.src_port, REMOTE, 53),
            icmpv4::Repr::TimeExceeded { code: 0 },
        );
        assert_eq!(lane(1, &error), copy);
    }
    assert_eq!(used, [true; 2]);
    // packets that pass are on one core in both directions, for other NFs of the chain
    for n in 1..60u16 {
        let (host, far) = (format!("2001:db8:{n}::1"), "2001:db8:f::2");
        assert_eq!(lane(1, &udp6(far, 53, v6(&host), 5000)), lane(0, &udp6(&host, 5000, v6(far), 53)), "{host}");
    }
    // a host with a forward belongs to the copy of the external address
    assert_eq!(lane(0, &tcp6("2001:db8::5", 80, embedded(REMOTE), 999, TcpFlags::SYN)), 0);
}

#[test]
fn rejects_invalid_settings() {
    let error_of = |settings: &str| {
        let text = format!("external = [\"203.0.113.1\"]\n{settings}");
        Harness::try_new::<Nat64>(&text).err().map(|d| d.to_string()).unwrap_or_default()
    };
    for (settings, expected) in [
        ("prefix = \"64:ff9b::/80\"", "64:ff9b::/80"),
        ("inside = [\"10.0.0.0/8\"]", "10.0.0.0/8"),
        ("mtu = 1279", "1279"),
        ("fragment_size = 1501", "1501"),
        ("forward = [\"tcp 203.0.113.1:80 -> 10.0.0.1:80\"]", "is not a port forward"),
        ("forward = [\"tcp 203.0.113.2:80 -> [2001:db8::1]:80\"]", "not external"),
        ("inside = [\"2001:db8::/64\"]\nforward = [\"tcp 203.0.113.1:80 -> [2001:db9::1]:80\"]", "not inside"),
        (
            "forward = [\"tcp 203.0.113.1:80 -> [fd00::1]:80\", \"tcp 203.0.113.1:80 -> [fd00::2]:80\"]",
            "another forward",
        ),
        ("block_size = 4", "not a valid block size"),
        ("log = \"nowhere\"", "nowhere"),
    ] {
        assert!(error_of(settings).contains(expected), "{settings}: {}", error_of(settings));
    }
}
