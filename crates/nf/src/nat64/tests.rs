//! The translation against what the RFCs ask for.

mod model;
mod pieces;

use crate::Nat64;
use std::net::Ipv6Addr;
use std::time::Duration;
use testkit::Bench;
use wire::checksum::Pseudo;
use wire::{EtherType, IpProtocol, TcpFlags, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

const A: &str = "2001:db8::a";
const B: &str = "2001:db8::b";
const WORLD: [u8; 4] = [198, 18, 0, 1];
const OTHER: [u8; 4] = [198, 18, 0, 2];
const OUR: [u8; 4] = [203, 0, 113, 1];

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// An address of IPv4 behind the well-known prefix.
fn far(address: [u8; 4]) -> Ipv6Addr {
    let [a, b, c, d] = address;
    v6(&format!("64:ff9b::{a}.{b}.{c}.{d}"))
}

/// What a packet says, once its checksums have been seen to be right; ICMP's identifier is the port of whoever asks.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    src: String,
    src_port: u16,
    dst: String,
    dst_port: u16,
    hops: u8,
    class: u8,
}

fn told(src: impl ToString, src_port: u16, dst: impl ToString, dst_port: u16) -> Told {
    Told { src: src.to_string(), src_port, dst: dst.to_string(), dst_port, hops: 63, class: 0 }
}

fn ip4(a: [u8; 4]) -> String {
    std::net::Ipv4Addr::from(a).to_string()
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads an untagged packet of either version; every checksum in it has to be right.
#[track_caller]
fn tell(frame: &[u8]) -> Told {
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
            let id = number(&body, 4);
            match body[0] {
                8 | 128 => (id, 0),
                0 | 129 => (0, id),
                _ => (0, 0),
            }
        }
        _ => {
            assert!(part || pseudo.sum(&body).is_valid(), "the checksum of {frame:02x?}");
            (number(&body, 0), number(&body, 2))
        }
    };
    Told { src, src_port: ports.0, dst, dst_port: ports.1, hops, class }
}

/// A translation on the bench.
struct Nat(Bench);

impl Nat {
    fn new(settings: &str) -> Nat {
        let external = if settings.contains("external") { "" } else { "external = [\"203.0.113.1\"]\n" };
        Nat(Bench::of::<Nat64>(&format!("{external}{settings}")))
    }

    /// All that comes out, or why nothing does.
    fn feed(&mut self, input: usize, frame: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
        let before = self.0.drops();
        let out = self.0.feed_by(input, &[frame]).concat();
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

    fn out(&mut self, frame: &[u8]) -> Result<Told, &'static str> {
        self.one(0, frame).map(|frame| tell(&frame))
    }

    fn inn(&mut self, frame: &[u8]) -> Result<Told, &'static str> {
        self.one(1, frame).map(|frame| tell(&frame))
    }

    fn after(&mut self, seconds: u64) {
        // every bucket is seen within four seconds
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
fn a_packet_goes_out_and_its_answer_comes_back() {
    let mut nat = Nat::new("");
    let out = nat.out(&udp6(A, 5000, far(WORLD), 53)).unwrap();
    assert_eq!(out, told(ip4(OUR), 5000, ip4(WORLD), 53));
    for _ in 0..3 {
        assert_eq!(nat.out(&udp6(A, 5000, far(WORLD), 53)), Ok(out.clone()), "as the first");
        assert_eq!(nat.inn(&udp4(WORLD, 53, OUR, 5000)), Ok(told(far(WORLD), 53, A, 5000)));
    }
    assert_eq!(nat.inn(&udp4(WORLD, 53, OUR, 5001)), Err("no_session"));
    // another host with the same port gets another, of the same parity
    let second = nat.out(&udp6(B, 5000, far(WORLD), 53)).unwrap();
    assert!(second.src_port != 5000 && second.src_port.is_multiple_of(2));
    assert_eq!(nat.inn(&udp4(WORLD, 53, OUR, second.src_port)), Ok(told(far(WORLD), 53, B, 5000)));
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("mappings"), nat.0.counter("subscribers")), (2, 2, 2));
    // and all are forgotten
    nat.after(301);
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("ports"), nat.0.counter("subscribers")), (0, 0, 0));
    assert_eq!(nat.inn(&udp4(WORLD, 53, OUR, 5000)), Err("no_session"));
}

#[test]
fn tcp_begins_with_a_syn_and_ends() {
    let mut nat = Nat::new("timers = { tcp_established = 100, tcp_transitory = 5 }");
    assert_eq!(nat.out(&tcp6(A, 5000, far(WORLD), 80, TcpFlags::ACK)), Err("not_syn"));
    let there = told(ip4(OUR), 5000, ip4(WORLD), 80);
    assert_eq!(nat.out(&tcp6(A, 5000, far(WORLD), 80, TcpFlags::SYN)), Ok(there.clone()));
    assert_eq!(nat.inn(&tcp4(WORLD, 80, OUR, 5000, TcpFlags::SYN_ACK)), Ok(told(far(WORLD), 80, A, 5000)));
    assert_eq!(nat.out(&tcp6(A, 5000, far(WORLD), 80, TcpFlags::ACK)), Ok(there));
    nat.after(20);
    assert_eq!(nat.0.counter("sessions"), 1, "it is established");
    nat.out(&tcp6(A, 5000, far(WORLD), 80, TcpFlags::FIN)).unwrap();
    nat.inn(&tcp4(WORLD, 80, OUR, 5000, TcpFlags::FIN)).unwrap();
    nat.after(6);
    assert_eq!(nat.0.counter("sessions"), 0);
}

#[test]
fn pings_are_answered_both_sums_right() {
    let mut nat = Nat::new("");
    let ask = build::echo6(v6(A), far(WORLD), 77, 3).payload(&[9; 31]).to_vec();
    assert_eq!(nat.out(&ask), Ok(told(ip4(OUR), 77, ip4(WORLD), 0)));
    let answer = build::icmp4(WORLD, OUR, icmpv4::Repr::EchoReply { id: 77, seq: 3 }).payload(&[9; 31]).to_vec();
    let back = nat.one(1, &answer).unwrap();
    assert_eq!(tell(&back), told(far(WORLD), 0, A, 77));
    let message = icmpv6::Message::new(&back[54..]).unwrap();
    assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::EchoReply { id: 77, seq: 3 });
    assert_eq!(message.payload(), [9; 31]);
    // from outside only answers come
    assert_eq!(nat.inn(&build::echo4(WORLD, OUR, 77, 1).to_vec()), Err("no_session"));
    let lone = build::icmp6(v6(A), far(WORLD), icmpv6::Repr::EchoReply { id: 77, seq: 1 }).to_vec();
    assert_eq!(nat.out(&lone), Err("no_session"));
    // a timestamp is not translated (RFC 7915 §4.2)
    let mut stamp = build::echo4(WORLD, OUR, 77, 1).payload(&[0; 12]).to_vec();
    stamp[34] = 14;
    assert_eq!(nat.inn(&stamp), Err("other_protocol"));
}

#[test]
fn headers_are_as_the_rfc_says() {
    let mut nat = Nat::new("");
    let frame = |len: usize| {
        build::udp6(v6(A), far(WORLD), 5000, 53).traffic_class(0xb9).ttl(9).payload(&vec![1; len]).to_vec()
    };
    let small = nat.one(0, &frame(100)).unwrap();
    assert_eq!((tell(&small).hops, tell(&small).class), (8, 0xb9));
    assert_eq!(small[20..22], [0, 0], "up to 1260 bytes it may be cut");
    assert_eq!(nat.one(0, &frame(1232)).unwrap()[20..22], [0, 0]);
    let large = nat.one(0, &frame(1233)).unwrap();
    assert_eq!(large[20..22], [0x40, 0], "a longer one may not");
    let ids: Vec<_> = (0..50).map(|_| number(&nat.one(0, &frame(9)).unwrap(), 18)).collect();
    assert!(ids.windows(2).all(|w| w[0] != w[1]), "each has another identification");
    // inwards
    let back = build::udp4(WORLD, OUR, 53, 5000).dscp(46).ecn(1).ttl(7).payload(b"abc").pad_to(60).to_vec();
    let six = nat.one(1, &back).unwrap();
    assert_eq!((tell(&six).hops, tell(&six).class), (6, 0xb9));
    assert_eq!((number(&six, 18), six[20]), (11, 17), "neither padding nor a fragment header");
    assert_eq!(&six[..12], &back[..12], "addresses of the link stay");
    // options are left out
    let option = ipv4::options(&[ipv4::Ipv4Option::RouterAlert(0)]).unwrap();
    let back = build::udp4(WORLD, OUR, 53, 5000).ip_options(option).payload(b"abc").to_vec();
    assert_eq!(nat.inn(&back), Ok(told(far(WORLD), 53, A, 5000)));
}

#[test]
fn extension_headers_are_left_out_and_a_route_is_refused() {
    let mut nat = Nat::new("");
    let options = [1, 4, 0, 0, 0, 0];
    let frame = build::udp6(v6(A), far(WORLD), 5000, 53)
        .extension(IpProtocol::HOP_BY_HOP, &options)
        .extension(IpProtocol::DESTINATION_OPTIONS, &options)
        .payload(b"abc")
        .to_vec();
    assert_eq!(nat.out(&frame), Ok(told(ip4(OUR), 5000, ip4(WORLD), 53)));
    let route = |left: u8| {
        let body = [0, left, 0, 0, 0, 0];
        build::udp6(v6(A), far(WORLD), 5000, 53).extension(IpProtocol::ROUTING, &body).payload(b"abc").to_vec()
    };
    assert_eq!(nat.out(&route(0)), Ok(told(ip4(OUR), 5000, ip4(WORLD), 53)));
    // its sender is told which byte it was
    let mut told = nat.feed(0, &route(1)).unwrap();
    let told = told.remove(0);
    assert_eq!(nat.0.dropped("routed"), 1);
    let message = icmpv6::Message::new(&told[54..]).unwrap();
    assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::ParameterProblem { code: 0, pointer: 43 });
    assert_eq!((tell(&told).src, tell(&told).dst), (far(OUR).to_string(), A.to_string()));
    assert_eq!(message.payload(), &route(1)[14..]);
    // what is authenticated cannot be changed
    let sealed = build::udp6(v6(A), far(WORLD), 5000, 53).extension(IpProtocol::AH, &[0; 14]).to_vec();
    assert_eq!(nat.out(&sealed), Err("other_protocol"));
    let esp = build::ipv6(v6(A), far(WORLD), IpProtocol::ESP).payload(&[0; 30]).to_vec();
    assert_eq!(nat.out(&esp), Err("other_protocol"));
    // a source route that has not ended
    let loose = wire::options::OptionBytes::new(&[131, 7, 4, 192, 0, 2, 1, 0]).unwrap();
    let routed = build::udp4(WORLD, OUR, 53, 5000).ip_options(loose).payload(b"abc").to_vec();
    let answer = nat.one(1, &routed).unwrap();
    assert_eq!((nat.0.dropped("routed"), answer[34], answer[35]), (2, 3, 5));
    let ended = wire::options::OptionBytes::new(&[131, 7, 8, 192, 0, 2, 1, 0]).unwrap();
    let routed = build::udp4(WORLD, OUR, 53, 5000).ip_options(ended).payload(b"abc").to_vec();
    assert!(nat.inn(&routed).is_ok());
}

#[test]
fn who_has_gone_too_far_is_told() {
    let mut nat = Nat::new("");
    let frame = build::udp6(v6(A), far(WORLD), 5000, 53).ttl(1).payload(b"abc").to_vec();
    let answer = nat.one(0, &frame).unwrap();
    assert_eq!(
        (answer[0..6].to_vec(), answer[6..12].to_vec()),
        (frame[6..12].to_vec(), frame[0..6].to_vec()),
        "it goes back"
    );
    let message = icmpv6::Message::new(&answer[54..]).unwrap();
    assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::TimeExceeded { code: 0 });
    assert_eq!((tell(&answer).src, tell(&answer).dst), (far(OUR).to_string(), A.to_string()));
    assert_eq!((nat.0.dropped("ttl_expired"), nat.0.counter("sessions")), (1, 0));
    let frame = build::udp4(WORLD, OUR, 53, 5000).ttl(1).payload(b"abc").pad_to(60).to_vec();
    let answer = nat.one(1, &frame).unwrap();
    assert_eq!((tell(&answer).src, tell(&answer).dst, answer[34]), (ip4(OUR), ip4(WORLD), 11));
    // not of errors, and not too often
    let error = build::icmp4(WORLD, OUR, icmpv4::Repr::DestUnreachable { code: 1 }).ttl(1).payload(&[0; 28]).to_vec();
    assert_eq!(nat.one(1, &error), Err("ttl_expired"));
    let sent = (0..500).filter(|_| nat.feed(1, &frame).is_ok()).count();
    assert_eq!((sent, nat.0.counter("icmp_limited")), (98, 402));
}

#[test]
fn addresses_that_mean_nothing_outside_are_not_translated() {
    let mut nat = Nat::new("inside = [\"2001:db8::/64\"]");
    for bad in
        [[10, 0, 0, 1], [192, 168, 1, 1], [172, 20, 0, 1], [127, 0, 0, 1], [224, 0, 0, 1], [0, 0, 0, 1], [255; 4]]
    {
        assert_eq!(nat.out(&udp6(A, 5000, far(bad), 53)), Err("no_host"), "{bad:?}");
    }
    assert_eq!(nat.out(&udp6("2001:db8:1::1", 5000, far(WORLD), 53)), Err("not_inside"));
    let looped = build::udp6(far(OTHER), far(WORLD), 5000, 53).to_vec();
    assert_eq!(nat.out(&looped), Err("spoofed"), "RFC 6146 §3.5");
    assert_eq!(nat.inn(&udp4(OUR, 53, OUR, 5000)), Err("spoofed"));
    assert_eq!(nat.inn(&udp4([127, 0, 0, 1], 53, OUR, 5000)), Err("no_host"));
    // what is neither for the prefix nor for the pool is not ours
    let others = [udp6(A, 5000, v6(B), 53), udp4(WORLD, 53, OTHER, 5000), build::arp_request(WORLD, OTHER).to_vec()];
    for frame in others {
        assert_eq!((nat.one(0, &frame), nat.one(1, &frame)), (Ok(frame.clone()), Ok(frame)));
    }
    // behind a prefix of one's own may be a network of one's own
    let mut nat = Nat::new("prefix = \"2001:db8:64::/96\"");
    let private = v6("2001:db8:64::10.0.0.1");
    assert_eq!(nat.out(&udp6(A, 5000, private, 53)), Ok(told(ip4(OUR), 5000, ip4([10, 0, 0, 1]), 53)));
    assert_eq!(nat.inn(&udp4([10, 0, 0, 1], 53, OUR, 5000)), Ok(told(private, 53, A, 5000)));
}

#[test]
fn every_prefix_of_the_rfc_works() {
    for (prefix, address) in [
        ("2001:db8::/32", "2001:db8:c612:1::"),
        ("2001:db8:100::/40", "2001:db8:1c6:1200:1::"),
        ("2001:db8:122::/48", "2001:db8:122:c612:0:100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c6:12:1::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c6:1200:100::"),
    ] {
        let mut nat = Nat::new(&format!("prefix = \"{prefix}\""));
        let host = "fd00::1";
        assert_eq!(nat.out(&udp6(host, 5000, v6(address), 53)), Ok(told(ip4(OUR), 5000, ip4(WORLD), 53)), "{prefix}");
        assert_eq!(nat.inn(&udp4(WORLD, 53, OUR, 5000)), Ok(told(v6(address), 53, host, 5000)), "{prefix}");
    }
}

#[test]
fn filtering_and_forwards() {
    let ask = |filtering: &str| {
        let mut nat = Nat::new(&format!("filtering = \"{filtering}\""));
        nat.out(&udp6(A, 5000, far(WORLD), 53)).unwrap();
        [(WORLD, 53), (WORLD, 54), (OTHER, 53)].map(|(from, port)| nat.inn(&udp4(from, port, OUR, 5000)).is_ok())
    };
    assert_eq!(ask("endpoint-independent"), [true, true, true]);
    assert_eq!(ask("address-dependent"), [true, true, false]);
    assert_eq!(ask("address-and-port-dependent"), [true, false, false]);
    let mut nat = Nat::new(
        "forward = [\"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\", \"udp 203.0.113.1:53 -> [2001:db8::6]:53\"]",
    );
    let begin = tcp4(WORLD, 999, OUR, 8080, TcpFlags::SYN);
    assert_eq!(nat.inn(&begin), Ok(told(far(WORLD), 999, "2001:db8::5", 80)));
    let answer = tcp6("2001:db8::5", 80, far(WORLD), 999, TcpFlags::SYN_ACK);
    assert_eq!(nat.out(&answer), Ok(told(ip4(OUR), 8080, ip4(WORLD), 999)));
    assert_eq!(nat.inn(&udp4(OTHER, 9, OUR, 53)), Ok(told(far(OTHER), 9, "2001:db8::6", 53)));
    // its mapping stays when its sessions are gone
    nat.after(301);
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("mappings")), (0, 2));
    assert_eq!(nat.inn(&udp4(OTHER, 9, OUR, 53)), Ok(told(far(OTHER), 9, "2001:db8::6", 53)));
}

#[test]
fn hosts_inside_meet_by_their_external_addresses() {
    let mut nat = Nat::new("filtering = \"endpoint-independent\"");
    nat.out(&udp6(B, 6000, far(WORLD), 53)).unwrap();
    let ask = udp6(A, 5000, far(OUR), 6000);
    let got = nat.one(0, &ask).unwrap();
    assert_eq!(tell(&got), told(far(OUR), 5000, B, 6000));
    assert_eq!((&got[..6], &got[6..12]), (&ask[6..12], &ask[..6]), "it goes back over the link");
    let answer = nat.one(0, &udp6(B, 6000, far(OUR), 5000)).unwrap();
    assert_eq!(tell(&answer), told(far(OUR), 6000, A, 5000));
    assert_eq!(nat.0.counter("hairpinned"), 2);
    assert_eq!(nat.out(&udp6(A, 5000, far(OUR), 6001)), Err("no_hairpin"));
    // a ping as well
    nat.out(&build::echo6(v6(B), far(WORLD), 9, 1).to_vec()).unwrap();
    assert_eq!(
        nat.out(&build::echo6(v6(A), far(OUR), 9, 1).to_vec()),
        Err("no_hairpin"),
        "nobody answers for B's identifier"
    );
    let mut nat = Nat::new("hairpin = false");
    assert!(nat.out(&udp6(A, 5000, far(OUR), 6000)).is_ok_and(|t| t.dst == ip4(OUR)), "it goes out");
}

#[test]
fn checksums_that_are_missing() {
    let mut nat = Nat::new("");
    nat.out(&udp6(A, 5000, far(WORLD), 53)).unwrap();
    let mut none = udp4(WORLD, 53, OUR, 5000);
    none[40..42].fill(0);
    // `tell` sees that it is right now
    assert_eq!(nat.inn(&none), Ok(told(far(WORLD), 53, A, 5000)));
    let mut piece = build::udp4(WORLD, OUR, 53, 5000).fragment(0, true).payload(&[1; 24]).to_vec();
    piece[40..42].fill(0);
    piece[24..26].fill(0);
    let sum = wire::checksum::of(&piece[14..34]);
    piece[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(nat.inn(&piece), Err("no_checksum"), "RFC 7915 §4.5");
    let mut none = udp6(A, 5000, far(WORLD), 53);
    none[60..62].fill(0);
    assert_eq!(nat.out(&none), Err("no_checksum"), "RFC 8200 §8.1");
}

/// An error about a packet, from a router on its way.
fn error4(from: [u8; 4], about: &[u8], repr: icmpv4::Repr) -> Vec<u8> {
    let ip = ipv4::Packet::new(&about[14..]).unwrap();
    build::icmp4(from, ip.header().src(), repr).payload(&ip.bytes()[..ip.bytes().len().min(200)]).pad_to(60).to_vec()
}

fn error6(from: &str, about: &[u8], repr: icmpv6::Repr) -> Vec<u8> {
    let ip = ipv6::Packet::new(&about[14..]).unwrap();
    build::icmp6(v6(from), ip.header().src(), repr).payload(&ip.bytes()[..ip.bytes().len().min(900)]).to_vec()
}

#[test]
fn errors_find_who_has_sent_what_they_are_about() {
    let mut nat = Nat::new("");
    let sent = [
        udp6(A, 5000, far(WORLD), 53),
        tcp6(A, 5001, far(WORLD), 80, TcpFlags::SYN),
        build::echo6(v6(A), far(WORLD), 77, 1).payload(b"abcd").to_vec(),
    ];
    for frame in &sent {
        let outside = nat.one(0, frame).unwrap();
        let router = [192, 0, 2, 9];
        let error = error4(router, &outside, icmpv4::Repr::DestUnreachable { code: 3 });
        let got = nat.one(1, &error).unwrap();
        let about = tell(&got);
        assert_eq!((about.src, about.dst), (far(router).to_string(), A.to_string()));
        let ip = ipv6::Packet::new(&got[14..]).unwrap();
        let message = icmpv6::Message::new(ip.payload()).unwrap();
        assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::DestUnreachable { code: 4 });
        // what it quotes is what was sent, but for the hop limit and a wrong IPv4 padding
        let (mut expected, quoted) = (frame[14..].to_vec(), message.payload());
        expected[7] -= 1;
        assert_eq!(&quoted[..expected.len().min(quoted.len())], &expected[..quoted.len().min(expected.len())]);
    }
    // and the other way round: the host refuses what was sent to it
    for frame in [udp4(WORLD, 53, OUR, 5000), tcp4(WORLD, 80, OUR, 5001, TcpFlags::SYN_ACK)] {
        let inside = nat.one(1, &frame).unwrap();
        let error = error6(A, &inside, icmpv6::Repr::DestUnreachable { code: 4 });
        let got = nat.one(0, &error).unwrap();
        let about = tell(&got);
        assert_eq!((about.src, about.dst), (ip4(OUR), ip4(WORLD)));
        let message = icmpv4::Message::new(&got[34..]).unwrap();
        assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::DestUnreachable { code: 3 });
        let quoted = ipv4::Packet::new(message.payload());
        let quoted = quoted.unwrap();
        assert!(quoted.checksum_ok());
        assert_eq!(quoted.payload(), &frame[34..34 + quoted.payload().len()], "ports and checksum as they were sent");
    }
    assert_eq!(nat.0.counter("sessions"), 3);
    // about nothing that was sent, and with a wrong checksum
    let never = error4(WORLD, &udp4(OUR, 4000, WORLD, 53), icmpv4::Repr::DestUnreachable { code: 1 });
    assert_eq!(nat.one(1, &never), Err("unknown_icmp_error"));
    let mut bent = error4(WORLD, &udp4(OUR, 5000, WORLD, 53), icmpv4::Repr::DestUnreachable { code: 1 });
    bent[50] ^= 1;
    assert_eq!(nat.one(1, &bent), Err("bad_icmp_error"));
}

#[test]
fn lengths_of_paths_are_told_with_20_bytes_between() {
    let mut nat = Nat::new("mtu = 1480");
    let outside = nat.one(0, &udp6(A, 5000, far(WORLD), 53)).unwrap();
    let mtu = |got: &[u8]| {
        let message = icmpv6::Message::new(&got[54..]).unwrap();
        match icmpv6::Repr::parse(&message).unwrap() {
            icmpv6::Repr::PacketTooBig { mtu } => mtu,
            other => panic!("{other:?}"),
        }
    };
    for (told, gets) in [(1400, 1420), (576, 1280), (1500, 1480)] {
        let error = error4(WORLD, &outside, icmpv4::Repr::FragmentationNeeded { mtu: told });
        assert_eq!(mtu(&nat.one(1, &error).unwrap()), gets);
    }
    let inside = nat.one(1, &udp4(WORLD, 53, OUR, 5000)).unwrap();
    let error = error6("2001:db8::ffff", &inside, icmpv6::Repr::PacketTooBig { mtu: 1300 });
    let got = nat.one(0, &error).unwrap();
    assert_eq!(tell(&got).src, ip4(OUR), "a router inside speaks by the host's address");
    let message = icmpv4::Message::new(&got[34..]).unwrap();
    assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::FragmentationNeeded { mtu: 1280 });
    // what is too long for the link inside, and must not be cut
    let large = build::udp4(WORLD, OUR, 53, 5000).dont_fragment().payload(&[1; 1433]).to_vec();
    let got = nat.one(1, &large).unwrap();
    let message = icmpv4::Message::new(&got[34..]).unwrap();
    assert_eq!(icmpv4::Repr::parse(&message).unwrap(), icmpv4::Repr::FragmentationNeeded { mtu: 1460 });
    assert_eq!((nat.0.dropped("too_big"), tell(&got).dst), (1, ip4(WORLD)));
    let fits = build::udp4(WORLD, OUR, 53, 5000).dont_fragment().payload(&[1; 1432]).to_vec();
    assert_eq!(nat.inn(&fits), Ok(told(far(WORLD), 53, A, 5000)));
}

#[test]
fn bounds_hold_and_hosts_come_and_go() {
    let mut nat = Nat::new("subscribers = 2\nsessions = 10\nsubscriber_sessions = 4\ntimers = { udp = 5 }");
    for round in 0..5u16 {
        let host = |n: u16| format!("2001:db8:{round}::{n}");
        for n in 1..=2 {
            for port in 0..4 {
                nat.out(&udp6(&host(n), 5000 + port, far(WORLD), 53)).unwrap();
            }
            assert_eq!(nat.out(&udp6(&host(n), 6000, far(WORLD), 53)), Err("too_many_sessions"));
        }
        assert_eq!(nat.out(&udp6(&host(3), 5000, far(WORLD), 53)), Err("too_many_subscribers"));
        nat.after(6);
        assert_eq!((nat.0.counter("sessions"), nat.0.counter("subscribers"), nat.0.counter("ports")), (0, 0, 0));
    }
    let mut nat = Nat::new("allocation = \"blocks\"\nblock_size = 8\nmax_blocks = 1");
    let ports: Vec<_> = (0..8).map(|n| nat.out(&udp6(A, 5000 + n, far(WORLD), 53)).unwrap().src_port).collect();
    assert!(ports.iter().max().unwrap() - ports.iter().min().unwrap() < 8);
    assert_eq!(nat.out(&udp6(A, 6000, far(WORLD), 53)), Err("no_port"));
    assert_eq!(nat.0.counter("blocks"), 1);
}

#[test]
fn each_core_has_its_own_and_both_ways_find_it() {
    let settings = "external = [\"203.0.113.0/30\"]\nforward = [\"tcp 203.0.113.2:80 -> [2001:db8::5]:80\"]";
    let registry = crate::registry();
    let kind = registry.get("nat64").unwrap();
    let mut copies = testkit::Setup::of_kind(kind, settings).copies(2).unwrap();
    let table: toml::Table = toml::from_str(settings).unwrap();
    let read = serde_json::from_value::<super::Settings>(serde_json::to_value(table).unwrap()).unwrap();
    let lane = <Nat64 as graph::Nf>::lane(&read, 2).unwrap();
    let mut used = [false; 2];
    for n in 1..60u16 {
        let host = format!("2001:db8:{n}::1");
        let frame = udp6(&host, 5000, far(WORLD), 53);
        let copy = lane(0, &frame);
        used[copy] = true;
        let out = copies[copy].feed_by(0, &[&frame]).concat().concat();
        let out = tell(&out);
        let ours: std::net::Ipv4Addr = out.src.parse().unwrap();
        let back = udp4(WORLD, 53, ours.octets(), out.src_port);
        assert_eq!(lane(1, &back), copy);
        let inside = copies[copy].feed_by(1, &[&back]).concat().concat();
        assert_eq!(tell(&inside).dst, host);
        // an error from a router inside, about what came in
        let error = error6("2001:db8:ffff::1", &inside, icmpv6::Repr::DestUnreachable { code: 0 });
        assert_eq!(lane(0, &error), copy);
        let error = error4(
            [192, 0, 2, 1],
            &udp4(ours.octets(), out.src_port, WORLD, 53),
            icmpv4::Repr::TimeExceeded { code: 0 },
        );
        assert_eq!(lane(1, &error), copy);
    }
    assert_eq!(used, [true; 2]);
    // a host with a forward is where its external address is
    assert_eq!(lane(0, &tcp6("2001:db8::5", 80, far(WORLD), 999, TcpFlags::SYN)), 0);
}

#[test]
fn wrong_settings_are_refused() {
    let ask = |settings: &str| {
        let text = format!("external = [\"203.0.113.1\"]\n{settings}");
        Bench::try_of::<Nat64>(&text).err().map(|d| d.to_string()).unwrap_or_default()
    };
    for (settings, says) in [
        ("prefix = \"64:ff9b::/80\"", "64:ff9b::/80"),
        ("inside = [\"10.0.0.0/8\"]", "10.0.0.0/8"),
        ("mtu = 1279", "1279"),
        ("fragment = 1501", "1501"),
        ("forward = [\"tcp 203.0.113.1:80 -> 10.0.0.1:80\"]", "is no forward"),
        ("forward = [\"tcp 203.0.113.2:80 -> [2001:db8::1]:80\"]", "not external"),
        ("inside = [\"2001:db8::/64\"]\nforward = [\"tcp 203.0.113.1:80 -> [2001:db9::1]:80\"]", "not inside"),
        (
            "forward = [\"tcp 203.0.113.1:80 -> [fd00::1]:80\", \"tcp 203.0.113.1:80 -> [fd00::2]:80\"]",
            "another forward",
        ),
        ("block_size = 4", "no size of a block"),
        ("log = \"nowhere\"", "nowhere"),
    ] {
        assert!(ask(settings).contains(says), "{settings}: {}", ask(settings));
    }
}
