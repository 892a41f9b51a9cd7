//! Behaviour that the RFCs require.

mod model;
mod reload;
mod resources;
mod saved;

use crate::Nat44;
use std::net::Ipv4Addr;
use std::time::Duration;
use testkit::Harness;
use wire::checksum::Pseudo;
use wire::{Ethernet, IpProtocol, TcpFlags, build, icmpv4, ipv4};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const REMOTE: [u8; 4] = [198, 18, 0, 1];
const OTHER_REMOTE: [u8; 4] = [198, 18, 0, 2];
const EXTERNAL: [u8; 4] = [203, 0, 113, 1];

/// Endpoints of a translated packet with valid checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Endpoints {
    src: [u8; 4],
    src_port: u16,
    dst: [u8; 4],
    dst_port: u16,
}

fn endpoints(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16) -> Endpoints {
    Endpoints { src, src_port, dst, dst_port }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Parses an untagged packet and verifies all its checksums.
fn parse(frame: &[u8]) -> Endpoints {
    let ip = ipv4::Packet::new(&frame[size_of::<Ethernet>()..]).unwrap();
    assert!(ip.checksum_ok(), "the IP checksum of {frame:02x?}");
    let (h, body) = (ip.header(), ip.payload());
    let pseudo = Pseudo::v4(h.src(), h.dst(), h.protocol());
    let ports = match h.protocol() {
        _ if h.is_later_fragment() => (0, 0),
        IpProtocol::ICMPV4 => {
            assert!(wire::checksum::verify(body), "the ICMP checksum of {frame:02x?}");
            let id = u16_at(body, 4);
            if body[0] == 8 { (id, 0) } else { (0, id) }
        }
        protocol => {
            let none = protocol == IpProtocol::UDP && u16_at(body, 6) == 0;
            assert!(none || h.more_fragments() || pseudo.sum(body).is_valid(), "the checksum of {frame:02x?}");
            (u16_at(body, 0), u16_at(body, 2))
        }
    };
    endpoints(h.src().octets(), ports.0, h.dst().octets(), ports.1)
}

/// A translator on the test bench.
struct Nat(Harness);

impl Nat {
    fn new(settings: &str) -> Nat {
        let external = if settings.contains("external") { "" } else { "external = [\"203.0.113.1\"]\n" };
        Nat(Harness::new::<Nat44>(&format!("{external}{settings}")))
    }

    fn feed(&mut self, input: usize, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let before = self.0.drops();
        let mut out = self.0.feed_input(input, &[frame]).concat();
        let count = |drops: &[(&'static str, u64)], name: &str| drops.iter().find(|d| d.0 == name).map_or(0, |d| d.1);
        match out.pop() {
            Some(frame) => Ok(frame),
            None => {
                let after = self.0.drops();
                Err(after.iter().find(|(name, n)| *n > count(&before, name)).map_or("held", |(name, _)| *name))
            }
        }
    }

    fn outbound(&mut self, frame: &[u8]) -> Result<Endpoints, &'static str> {
        self.feed(0, frame).map(|frame| parse(&frame))
    }

    fn inbound(&mut self, frame: &[u8]) -> Result<Endpoints, &'static str> {
        self.feed(1, frame).map(|frame| parse(&frame))
    }

    fn advance_seconds(&mut self, seconds: u64) {
        // all buckets are scanned within four seconds
        (0..seconds * 10).for_each(|_| drop(self.0.advance(Duration::from_millis(100))));
        (0..400).for_each(|_| drop(self.0.advance(Duration::from_millis(10))));
    }
}

fn udp(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16) -> Vec<u8> {
    build::udp4(src, dst, src_port, dst_port).payload(b"what it says").pad_to(60).to_vec()
}

fn tcp(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16, flags: TcpFlags) -> Vec<u8> {
    build::tcp4(src, dst, src_port, dst_port).flags(flags).payload(b"x").pad_to(60).to_vec()
}

fn echo(src: [u8; 4], dst: [u8; 4], id: u16) -> Vec<u8> {
    build::echo4(src, dst, id, 1).payload(&[7; 20]).to_vec()
}

fn reply(src: [u8; 4], dst: [u8; 4], id: u16) -> Vec<u8> {
    build::icmp4(src, dst, icmpv4::Repr::EchoReply { id, seq: 1 }).payload(&[7; 20]).to_vec()
}

#[test]
fn translates_a_packet_and_its_reply() {
    let mut nat = Nat::new("");
    let out = nat.outbound(&udp(A, 5000, REMOTE, 53)).unwrap();
    assert_eq!(out, endpoints(EXTERNAL, 5000, REMOTE, 53));
    for _ in 0..3 {
        assert_eq!(nat.outbound(&udp(A, 5000, REMOTE, 53)), Ok(out), "same mapping as the first");
        assert_eq!(nat.inbound(&udp(REMOTE, 53, EXTERNAL, 5000)), Ok(endpoints(REMOTE, 53, A, 5000)));
    }
    assert_eq!(nat.inbound(&udp(REMOTE, 53, EXTERNAL, 5001)), Err("no_session"));
    // another subscriber with the same port gets another external port of the same parity (RFC 4787 REQ-4)
    let second = nat.outbound(&udp(B, 5000, REMOTE, 53)).unwrap();
    assert!(second.src == EXTERNAL && second.src_port != 5000 && second.src_port.is_multiple_of(2));
    assert_eq!(nat.inbound(&udp(REMOTE, 53, EXTERNAL, second.src_port)), Ok(endpoints(REMOTE, 53, B, 5000)));
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("mappings"), nat.0.counter("subscribers")), (2, 2, 2));
}

#[test]
fn passes_other_ether_types_and_drops_protocols_without_ports() {
    let mut nat = Nat::new("inside = [\"10.0.0.0/8\"]");
    let arp = build::arp_request(A, B).to_vec();
    let v6 = build::udp6(
        "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap(),
        "2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap(),
        1,
        2,
    )
    .to_vec();
    for frame in [arp, v6] {
        assert_eq!(nat.feed(0, &frame), Ok(frame.clone()));
        assert_eq!(nat.feed(1, &frame), Ok(frame));
    }
    let gre = build::ipv4(A, REMOTE, IpProtocol(47)).payload(&[0; 30]).to_vec();
    let back = build::ipv4(REMOTE, EXTERNAL, IpProtocol(47)).payload(&[0; 30]).to_vec();
    assert_eq!((nat.feed(0, &gre), nat.feed(1, &back)), (Err("unsupported_protocol"), Err("unsupported_protocol")));
    // packets of the router and of other hosts
    for src in [EXTERNAL, [172, 16, 0, 1]] {
        let frame = udp(src, 5000, REMOTE, 53);
        assert_eq!(nat.feed(0, &frame), Ok(frame));
    }
    let elsewhere = udp(REMOTE, 53, [203, 0, 113, 9], 5000);
    assert_eq!(nat.feed(1, &elsewhere), Ok(elsewhere));
}

#[test]
fn translates_packets_with_vlan_tags_and_options() {
    let mut nat = Nat::new("");
    let option = ipv4::options(&[ipv4::Ipv4Option::RouterAlert(0)]).unwrap();
    let frame = build::udp4(A, REMOTE, 5000, 53).ip_options(option).payload(b"abc").to_vec();
    assert_eq!(nat.outbound(&frame), Ok(endpoints(EXTERNAL, 5000, REMOTE, 53)));
    let tagged = build::udp4(A, REMOTE, 5000, 53).vlan(7).payload(b"abc").to_vec();
    let out = nat.feed(0, &tagged).unwrap();
    assert_eq!(out[12..18], tagged[12..18]);
    assert_eq!(out[30..34], EXTERNAL);
    let none = {
        let mut frame = udp(A, 5001, REMOTE, 53);
        frame[40..42].copy_from_slice(&[0, 0]);
        frame
    };
    let out = nat.feed(0, &none).unwrap();
    assert_eq!((&out[26..30], &out[40..42]), (&EXTERNAL[..], &[0, 0][..]), "a missing UDP checksum stays missing");
}

#[test]
fn endpoint_independent_and_dependent_mapping() {
    let mut nat = Nat::new("mapping = \"endpoint-independent\"");
    nat.outbound(&udp(B, 5000, REMOTE, 53)).unwrap();
    let ports: Vec<_> = [(REMOTE, 53), (REMOTE, 54), (OTHER_REMOTE, 53)]
        .map(|(to, port)| nat.outbound(&udp(A, 5000, to, port)).unwrap().src_port)
        .into();
    assert!(ports.iter().all(|port| *port == ports[0]), "RFC 4787 REQ-1");
    // ports are separate for each protocol
    assert_eq!(nat.outbound(&tcp(A, 5000, REMOTE, 80, TcpFlags::SYN)), Ok(endpoints(EXTERNAL, 5000, REMOTE, 80)));

    let mut nat = Nat::new("mapping = \"endpoint-dependent\"");
    assert_eq!(nat.outbound(&udp(A, 5000, REMOTE, 53)), Ok(endpoints(EXTERNAL, 5000, REMOTE, 53)));
    // one port serves two subscribers with different destinations
    assert_eq!(nat.outbound(&udp(B, 5000, OTHER_REMOTE, 53)), Ok(endpoints(EXTERNAL, 5000, OTHER_REMOTE, 53)));
    assert_eq!(nat.inbound(&udp(REMOTE, 53, EXTERNAL, 5000)), Ok(endpoints(REMOTE, 53, A, 5000)));
    assert_eq!(nat.inbound(&udp(OTHER_REMOTE, 53, EXTERNAL, 5000)), Ok(endpoints(OTHER_REMOTE, 53, B, 5000)));
    assert_ne!(nat.outbound(&udp(B, 5000, REMOTE, 53)).unwrap().src_port, 5000);
}

#[test]
fn endpoint_independent_and_dependent_filtering() {
    let result_with = |filtering: &str| {
        let mut nat = Nat::new(&format!("filtering = \"{filtering}\""));
        nat.outbound(&udp(A, 5000, REMOTE, 53)).unwrap();
        [(REMOTE, 53), (REMOTE, 54), (OTHER_REMOTE, 53)]
            .map(|(from, port)| nat.inbound(&udp(from, port, EXTERNAL, 5000)).map(|t| t.dst))
    };
    assert_eq!(result_with("endpoint-independent"), [Ok(A), Ok(A), Ok(A)]);
    assert_eq!(result_with("address-dependent"), [Ok(A), Ok(A), Err("filtered")]);
    assert_eq!(result_with("address-and-port-dependent"), [Ok(A), Err("filtered"), Err("filtered")]);
}

#[test]
fn tcp_sessions_start_with_a_syn() {
    let mut nat = Nat::new("");
    assert_eq!(nat.outbound(&tcp(A, 5000, REMOTE, 80, TcpFlags::ACK)), Err("not_syn"));
    assert_eq!(nat.outbound(&tcp(A, 5000, REMOTE, 80, TcpFlags::SYN_ACK)), Err("not_syn"));
    assert_eq!(nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 5000, TcpFlags::SYN)), Err("no_session"));
    assert_eq!(nat.outbound(&tcp(A, 5000, REMOTE, 80, TcpFlags::SYN)), Ok(endpoints(EXTERNAL, 5000, REMOTE, 80)));
    assert_eq!(nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 5000, TcpFlags::SYN_ACK)), Ok(endpoints(REMOTE, 80, A, 5000)));
    assert_eq!(nat.outbound(&tcp(A, 5000, REMOTE, 80, TcpFlags::ACK)), Ok(endpoints(EXTERNAL, 5000, REMOTE, 80)));
}

#[test]
fn sessions_expire_after_their_timeouts() {
    let settings = "timers = { udp = 30, tcp_established = 100, tcp_transitory = 20, icmp = 10 }";
    let mut nat = Nat::new(settings);
    let sessions = |nat: &Nat| nat.0.counter("sessions");
    nat.outbound(&udp(A, 1111, REMOTE, 53)).unwrap();
    nat.outbound(&echo(A, REMOTE, 2)).unwrap();
    nat.outbound(&tcp(A, 3333, REMOTE, 80, TcpFlags::SYN)).unwrap();
    // established
    nat.outbound(&tcp(A, 4444, REMOTE, 80, TcpFlags::SYN)).unwrap();
    nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 4444, TcpFlags::SYN_ACK)).unwrap();
    nat.outbound(&tcp(A, 4444, REMOTE, 80, TcpFlags::ACK)).unwrap();
    assert_eq!(sessions(&nat), 4);
    nat.advance_seconds(11);
    assert_eq!(sessions(&nat), 3, "the query has expired");
    nat.advance_seconds(6);
    assert_eq!(sessions(&nat), 2, "the SYN is unanswered");
    nat.advance_seconds(10);
    assert_eq!(sessions(&nat), 1, "UDP");
    nat.advance_seconds(40);
    // both sides have closed
    nat.outbound(&tcp(A, 4444, REMOTE, 80, TcpFlags::FIN | TcpFlags::ACK)).unwrap();
    nat.advance_seconds(25);
    assert_eq!(sessions(&nat), 1, "half closed, it is established still");
    nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 4444, TcpFlags::FIN | TcpFlags::ACK)).unwrap();
    nat.advance_seconds(21);
    assert_eq!((sessions(&nat), nat.0.counter("expired"), nat.0.counter("mappings")), (0, 4, 0));
    assert_eq!(nat.0.counter("subscribers"), 0);
}

#[test]
fn a_reset_connection_can_be_reopened() {
    let mut nat = Nat::new("timers = { tcp_established = 100, tcp_transitory = 20 }");
    let open = |nat: &mut Nat| {
        nat.outbound(&tcp(A, 4444, REMOTE, 80, TcpFlags::SYN)).unwrap();
        nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 4444, TcpFlags::SYN_ACK)).unwrap();
        nat.outbound(&tcp(A, 4444, REMOTE, 80, TcpFlags::ACK)).unwrap();
    };
    open(&mut nat);
    nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 4444, TcpFlags::RST)).unwrap();
    open(&mut nat);
    nat.advance_seconds(50);
    assert_eq!(nat.0.counter("sessions"), 1, "the reopened connection is established");
    nat.outbound(&tcp(A, 4444, REMOTE, 80, TcpFlags::RST)).unwrap();
    nat.advance_seconds(21);
    assert_eq!(nat.0.counter("sessions"), 0);
}

#[test]
fn translates_echoes_and_icmp_errors() {
    let mut nat = Nat::new("");
    assert_eq!(nat.outbound(&echo(A, REMOTE, 77)), Ok(endpoints(EXTERNAL, 77, REMOTE, 0)));
    assert_eq!(nat.inbound(&reply(REMOTE, EXTERNAL, 77)), Ok(endpoints(REMOTE, 0, A, 77)));
    let second = nat.outbound(&echo(B, REMOTE, 77)).unwrap();
    assert_eq!(nat.inbound(&reply(REMOTE, EXTERNAL, second.src_port)), Ok(endpoints(REMOTE, 0, B, 77)));
    assert_eq!(nat.inbound(&echo(REMOTE, EXTERNAL, 77)), Err("no_session"));

    // an error from a router on the path (RFC 5508 REQ-4)
    let router = [192, 0, 2, 9];
    for sent in [udp(A, 5000, REMOTE, 53), tcp(A, 5000, REMOTE, 80, TcpFlags::SYN), echo(B, REMOTE, 78)] {
        let out = nat.feed(0, &sent).unwrap();
        for quoted in [28, out.len() - 14] {
            let error = icmpv4::Repr::TimeExceeded { code: 0 };
            let error = build::icmp4(router, EXTERNAL, error).payload(&out[14..14 + quoted]).to_vec();
            let back = nat.feed(1, &error).unwrap();
            parse(&back);
            let expected = &sent[14..14 + quoted];
            let (got, at) = (&back[42..42 + quoted], back.len().min(42 + quoted));
            assert_eq!(back[30..34], sent[26..30], "to the source of the quoted packet");
            assert_eq!(back[26..30], router);
            assert_eq!((got, at), (expected, 42 + quoted), "what is quoted is what was sent, checksums included");
        }
    }
    // an error from inside about a packet from outside (RFC 5508 REQ-5)
    let inbound_packet = nat.feed(1, &udp(REMOTE, 53, EXTERNAL, 5000)).unwrap();
    let error = icmpv4::Repr::DestUnreachable { code: 3 };
    let error = build::icmp4(A, REMOTE, error).payload(&inbound_packet[14..]).to_vec();
    let out = nat.feed(0, &error).unwrap();
    parse(&out);
    assert_eq!((&out[26..30], &out[30..34]), (&EXTERNAL[..], &REMOTE[..]));
    assert_eq!(out[42..], udp(REMOTE, 53, EXTERNAL, 5000)[14..42 - 14 + inbound_packet.len() - 28 + 14 - 14]);
}

#[test]
fn drops_invalid_icmp_errors_and_errors_without_session() {
    let mut nat = Nat::new("");
    let out = nat.feed(0, &udp(A, 5000, REMOTE, 53)).unwrap();
    let error = |quoted: &[u8]| {
        build::icmp4(REMOTE, EXTERNAL, icmpv4::Repr::DestUnreachable { code: 3 }).payload(quoted).to_vec()
    };
    let mut corrupt = error(&out[14..42]);
    corrupt[50] ^= 1;
    assert_eq!(nat.feed(1, &corrupt), Err("bad_icmp_error"));
    assert_eq!(nat.feed(1, &error(&out[14..40])), Err("bad_icmp_error"), "too short");
    let mut other = out.clone();
    other[34] ^= 1;
    assert_eq!(nat.feed(1, &error(&other[14..42])), Err("unknown_icmp_error"));
    assert!(nat.feed(1, &error(&out[14..42])).is_ok());
    let redirect = {
        let mut frame = error(&out[14..42]);
        frame[34] = 5;
        frame
    };
    assert_eq!(nat.feed(1, &redirect), Err("unsupported_protocol"));
}

#[test]
fn translates_fragments_in_any_order() {
    let mut nat = Nat::new("");
    let whole = build::udp4(A, REMOTE, 5000, 53).payload(&[9; 100]).to_vec();
    let piece = |id: u16, offset: u16, more: bool| {
        let body = &whole[34..];
        let part = if more { &body[offset.into()..usize::from(offset) + 56] } else { &body[offset.into()..] };
        build::ipv4(A, REMOTE, IpProtocol::UDP).id(id).fragment(offset, more).payload(part).to_vec()
    };
    assert_eq!(nat.outbound(&piece(1, 0, true)), Ok(endpoints(EXTERNAL, 5000, REMOTE, 53)));
    assert_eq!(nat.outbound(&piece(1, 56, false)).map(|t| t.src), Ok(EXTERNAL));
    // out of order (RFC 4787 REQ-14)
    assert_eq!(nat.outbound(&piece(2, 56, false)), Err("held"));
    assert_eq!(nat.0.held(), 1);
    let both = nat.0.feed_input(0, &[piece(2, 0, true)]).concat();
    assert_eq!(both.iter().map(|f| parse(f).src).collect::<Vec<_>>(), [EXTERNAL, EXTERNAL]);
    assert_eq!(nat.0.held(), 0);
    let both = nat.0.feed_input(0, &[piece(6, 56, false), piece(6, 0, true)]).concat();
    assert_eq!((both.len(), nat.0.held()), (2, 0), "also within one batch");
    // the first fragment is missing
    assert_eq!(nat.outbound(&piece(3, 56, false)), Err("held"));
    nat.advance_seconds(3);
    assert_eq!((nat.0.held(), nat.0.dropped("unknown_fragment")), (0, 1));
    // too short to contain ports
    let tiny = build::ipv4(A, REMOTE, IpProtocol::TCP).id(4).fragment(0, true).payload(&[0; 16]).to_vec();
    assert_eq!(nat.outbound(&tiny), Err("tiny_fragment"));
    // a fragmented reply
    let back = build::udp4(REMOTE, EXTERNAL, 53, 5000).payload(&[8; 100]).to_vec();
    let first = build::ipv4(REMOTE, EXTERNAL, IpProtocol::UDP).id(5).fragment(0, true).payload(&back[34..90]).to_vec();
    let last = build::ipv4(REMOTE, EXTERNAL, IpProtocol::UDP).id(5).fragment(56, false).payload(&back[90..]).to_vec();
    assert_eq!(nat.inbound(&first), Ok(endpoints(REMOTE, 53, A, 5000)));
    assert_eq!(nat.inbound(&last).map(|t| t.dst), Ok(A));
}

#[test]
fn hairpins_between_subscribers() {
    let mut nat = Nat::new("filtering = \"endpoint-independent\"");
    let b = nat.outbound(&udp(B, 6000, REMOTE, 53)).unwrap().src_port;
    // the source is an external address, too (RFC 4787 REQ-9)
    assert_eq!(nat.outbound(&udp(A, 5000, EXTERNAL, b)), Ok(endpoints(EXTERNAL, 5000, B, 6000)));
    assert_eq!(nat.outbound(&udp(B, 6000, EXTERNAL, 5000)), Ok(endpoints(EXTERNAL, b, A, 5000)));
    assert_eq!(nat.outbound(&udp(A, 5000, EXTERNAL, b)), Ok(endpoints(EXTERNAL, 5000, B, 6000)), "again, by the table");
    assert_eq!(nat.outbound(&udp(A, 5000, EXTERNAL, 9)), Err("no_hairpin"));
    assert_eq!(nat.0.counter("hairpinned"), 3);

    let mut nat = Nat::new("hairpin = false");
    nat.outbound(&udp(B, 6000, REMOTE, 53)).unwrap();
    assert_eq!(nat.outbound(&udp(A, 5000, EXTERNAL, 6000)), Ok(endpoints(EXTERNAL, 5000, EXTERNAL, 6000)), "passed on");
}

#[test]
fn port_forwards() {
    let mut nat =
        Nat::new("forward = [\"tcp 203.0.113.1:8080 -> 10.0.0.2:80\", \"udp 203.0.113.1:53 -> 10.0.0.2:5353\"]");
    assert_eq!(nat.inbound(&tcp(REMOTE, 4000, EXTERNAL, 8080, TcpFlags::SYN)), Ok(endpoints(REMOTE, 4000, B, 80)));
    assert_eq!(nat.outbound(&tcp(B, 80, REMOTE, 4000, TcpFlags::SYN_ACK)), Ok(endpoints(EXTERNAL, 8080, REMOTE, 4000)));
    assert_eq!(nat.inbound(&udp(OTHER_REMOTE, 4000, EXTERNAL, 53)), Ok(endpoints(OTHER_REMOTE, 4000, B, 5353)));
    // the host also uses the port for outbound sessions
    assert_eq!(nat.outbound(&udp(B, 5353, REMOTE, 99)), Ok(endpoints(EXTERNAL, 53, REMOTE, 99)));
    // from inside through the external address
    assert_eq!(nat.outbound(&tcp(A, 7000, EXTERNAL, 8080, TcpFlags::SYN)), Ok(endpoints(EXTERNAL, 7000, B, 80)));
    assert_eq!(nat.outbound(&tcp(B, 80, EXTERNAL, 7000, TcpFlags::SYN_ACK)), Ok(endpoints(EXTERNAL, 8080, A, 7000)));
    nat.advance_seconds(400);
    assert_eq!(
        nat.inbound(&tcp(REMOTE, 4001, EXTERNAL, 8080, TcpFlags::SYN)),
        Ok(endpoints(REMOTE, 4001, B, 80)),
        "forwards never expire"
    );
}

#[test]
fn unmatched_packets_can_pass() {
    let mut nat = Nat::new("unmatched = \"pass\"");
    let ping = echo(REMOTE, EXTERNAL, 5);
    assert_eq!(nat.feed(1, &ping), Ok(ping));
    assert_eq!(nat.0.counter("untranslated"), 1);
    let mut hairpin = Nat::new("unmatched = \"pass\"");
    assert_eq!(hairpin.outbound(&udp(A, 5000, EXTERNAL, 9)), Err("no_hairpin"));
}

#[test]
fn drops_spoofed_packets() {
    let mut nat = Nat::new("inside = [\"10.0.0.0/8\"]\nfiltering = \"endpoint-independent\"");
    let port = nat.outbound(&udp(B, 6000, REMOTE, 53)).unwrap().src_port;
    nat.outbound(&udp(A, 5000, EXTERNAL, port)).unwrap();
    // to an inside address, from an inside address, and from an external address
    for frame in [udp(REMOTE, 53, A, 5000), udp(A, 5000, EXTERNAL, port), udp(EXTERNAL, 5000, EXTERNAL, port)] {
        assert_eq!(nat.feed(1, &frame), Err("spoofed"));
    }
    assert_eq!(
        nat.outbound(&udp(A, 5000, EXTERNAL, port)),
        Ok(endpoints(EXTERNAL, 5000, B, 6000)),
        "a real hairpin passes"
    );
}

#[test]
fn icmp_sessions_start_with_a_query_from_inside() {
    let mut nat = Nat::new("filtering = \"endpoint-independent\"");
    assert_eq!(nat.outbound(&reply(A, REMOTE, 7)), Err("no_session"));
    nat.outbound(&echo(A, REMOTE, 0)).unwrap();
    assert_eq!(nat.inbound(&echo(REMOTE, EXTERNAL, 0)), Err("no_session"));
    assert_eq!(nat.inbound(&reply(REMOTE, EXTERNAL, 0)), Ok(endpoints(REMOTE, 0, A, 0)));
    assert_eq!(
        nat.inbound(&reply(OTHER_REMOTE, EXTERNAL, 0)),
        Ok(endpoints(OTHER_REMOTE, 0, A, 0)),
        "endpoint-independent filtering"
    );
}

#[test]
fn packets_of_other_sources_pass_untranslated() {
    let mut nat = Nat::new("inside = [\"10.0.0.0/8\"]");
    let ospf = build::ipv4([192, 0, 2, 1], [224, 0, 0, 5], IpProtocol(89)).payload(&[0; 30]).to_vec();
    assert_eq!((nat.feed(0, &ospf), nat.feed(1, &ospf)), (Ok(ospf.clone()), Ok(ospf)));
    let esp = build::ipv4(REMOTE, EXTERNAL, IpProtocol(50)).payload(&[0; 30]).to_vec();
    assert_eq!(nat.feed(1, &esp), Err("unsupported_protocol"));
    let mut router = Nat::new("unmatched = \"pass\"");
    assert_eq!(router.feed(1, &esp), Ok(esp));
}

#[test]
fn drops_fragments_that_cannot_be_hairpinned() {
    let mut nat = Nat::new("");
    let body = udp(A, 5000, EXTERNAL, 9)[34..58].to_vec();
    let first = build::ipv4(A, EXTERNAL, IpProtocol::UDP).id(3).fragment(0, true).payload(&body).to_vec();
    let last = build::ipv4(A, EXTERNAL, IpProtocol::UDP).id(3).fragment(24, false).payload(&body).to_vec();
    assert_eq!(nat.feed(0, &first), Err("no_hairpin"));
    assert_eq!(nat.feed(0, &last), Err("unknown_fragment"));
    assert_eq!(nat.0.held(), 0);
}

#[test]
fn rejects_invalid_settings() {
    let rejects = |settings: &str, key: &str| {
        let Err(d) = Harness::try_new::<Nat44>(settings) else { panic!("{settings} was taken") };
        let message = format!("{} {d}", d.key.unwrap_or(""));
        assert!(message.contains(key), "{message} for {settings}");
    };
    rejects("", "external");
    rejects("external = [\"203.0.113.x\"]", "203.0.113.x");
    rejects("external = [\"203.0.113.1\", \"203.0.113.0/30\"]", "twice");
    rejects("external = [\"10.0.0.0/8\"]", "largest number");
    let with = |more: &str| format!("external = [\"203.0.113.1\"]\n{more}");
    rejects(&with("inside = [\"203.0.0.0/16\"]"), "203.0.0.0/16");
    rejects(&with("block_size = 4"), "block_size");
    rejects(&with("first_port = 65500"), "first_port");
    rejects(&with("sessions = 0"), "sessions");
    rejects(&with("timers = { udp = 0 }"), "timers.udp");
    rejects(&with("forward = [\"tcp 203.0.113.1:80\"]"), "forward");
    rejects(&with("forward = [\"tcp 203.0.113.2:80 -> 10.0.0.1:80\"]"), "not external");
    rejects(
        &with("forward = [\"tcp 203.0.113.1:80 -> 10.0.0.1:80\", \"tcp 203.0.113.1:80 -> 10.0.0.2:80\"]"),
        "another",
    );
    rejects(&with("allocation = \"deterministic\""), "inside");
    rejects(&with("allocation = \"deterministic\"\ninside = [\"10.0.0.0/8\"]"), "blocks");
    rejects(&with("log = \"here\""), "log");
    let copies = testkit::HarnessBuilder::new::<Nat44>("external = [\"203.0.113.1\"]").build_copies(2);
    assert!(copies.is_err_and(|d| d.to_string().contains("fewer addresses than cores")));
}

fn address(n: u32) -> [u8; 4] {
    Ipv4Addr::from_bits(n).octets()
}
