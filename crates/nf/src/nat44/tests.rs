//! The translation against what the RFCs ask for.

mod kept;
mod model;

use crate::Nat44;
use std::net::Ipv4Addr;
use std::time::Duration;
use testkit::Bench;
use wire::checksum::Pseudo;
use wire::{Ethernet, IpProtocol, TcpFlags, build, icmpv4, ipv4};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const WORLD: [u8; 4] = [198, 18, 0, 1];
const OTHER: [u8; 4] = [198, 18, 0, 2];
const OUR: [u8; 4] = [203, 0, 113, 1];

/// What a translated packet says, once its checksums have been seen to be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Told {
    src: [u8; 4],
    src_port: u16,
    dst: [u8; 4],
    dst_port: u16,
}

fn told(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16) -> Told {
    Told { src, src_port, dst, dst_port }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads an untagged packet; every checksum in it has to be right.
fn tell(frame: &[u8]) -> Told {
    let ip = ipv4::Packet::new(&frame[size_of::<Ethernet>()..]).unwrap();
    assert!(ip.checksum_ok(), "the IP checksum of {frame:02x?}");
    let (h, body) = (ip.header(), ip.payload());
    let pseudo = Pseudo::v4(h.src(), h.dst(), h.protocol());
    let ports = match h.protocol() {
        _ if h.is_later_fragment() => (0, 0),
        IpProtocol::ICMPV4 => {
            assert!(wire::checksum::verify(body), "the ICMP checksum of {frame:02x?}");
            let id = number(body, 4);
            if body[0] == 8 { (id, 0) } else { (0, id) }
        }
        protocol => {
            let none = protocol == IpProtocol::UDP && number(body, 6) == 0;
            assert!(none || h.more_fragments() || pseudo.sum(body).is_valid(), "the checksum of {frame:02x?}");
            (number(body, 0), number(body, 2))
        }
    };
    told(h.src().octets(), ports.0, h.dst().octets(), ports.1)
}

/// A translation on the bench.
struct Nat(Bench);

impl Nat {
    fn new(settings: &str) -> Nat {
        let external = if settings.contains("external") { "" } else { "external = [\"203.0.113.1\"]\n" };
        Nat(Bench::of::<Nat44>(&format!("{external}{settings}")))
    }

    fn feed(&mut self, input: usize, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let before = self.0.drops();
        let mut out = self.0.feed_by(input, &[frame]).concat();
        let count = |drops: &[(&'static str, u64)], name: &str| drops.iter().find(|d| d.0 == name).map_or(0, |d| d.1);
        match out.pop() {
            Some(frame) => Ok(frame),
            None => {
                let after = self.0.drops();
                Err(after.iter().find(|(name, n)| *n > count(&before, name)).map_or("held", |(name, _)| *name))
            }
        }
    }

    fn out(&mut self, frame: &[u8]) -> Result<Told, &'static str> {
        self.feed(0, frame).map(|frame| tell(&frame))
    }

    fn inn(&mut self, frame: &[u8]) -> Result<Told, &'static str> {
        self.feed(1, frame).map(|frame| tell(&frame))
    }

    fn after(&mut self, seconds: u64) {
        // every bucket is seen within four seconds
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
fn a_packet_goes_out_and_its_answer_comes_back() {
    let mut nat = Nat::new("");
    let out = nat.out(&udp(A, 5000, WORLD, 53)).unwrap();
    assert_eq!(out, told(OUR, 5000, WORLD, 53));
    for _ in 0..3 {
        assert_eq!(nat.out(&udp(A, 5000, WORLD, 53)), Ok(out), "as the first");
        assert_eq!(nat.inn(&udp(WORLD, 53, OUR, 5000)), Ok(told(WORLD, 53, A, 5000)));
    }
    assert_eq!(nat.inn(&udp(WORLD, 53, OUR, 5001)), Err("no_session"));
    // another subscriber with the same port gets another, of the same parity (RFC 4787 REQ-4)
    let second = nat.out(&udp(B, 5000, WORLD, 53)).unwrap();
    assert!(second.src == OUR && second.src_port != 5000 && second.src_port.is_multiple_of(2));
    assert_eq!(nat.inn(&udp(WORLD, 53, OUR, second.src_port)), Ok(told(WORLD, 53, B, 5000)));
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("mappings"), nat.0.counter("subscribers")), (2, 2, 2));
}

#[test]
fn what_is_no_ipv4_passes_and_what_has_no_ports_does_not() {
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
    let gre = build::ipv4(A, WORLD, IpProtocol(47)).payload(&[0; 30]).to_vec();
    let back = build::ipv4(WORLD, OUR, IpProtocol(47)).payload(&[0; 30]).to_vec();
    assert_eq!((nat.feed(0, &gre), nat.feed(1, &back)), (Err("other_protocol"), Err("other_protocol")));
    // the router's own packets, and those of others
    for src in [OUR, [172, 16, 0, 1]] {
        let frame = udp(src, 5000, WORLD, 53);
        assert_eq!(nat.feed(0, &frame), Ok(frame));
    }
    let elsewhere = udp(WORLD, 53, [203, 0, 113, 9], 5000);
    assert_eq!(nat.feed(1, &elsewhere), Ok(elsewhere));
}

#[test]
fn tagged_packets_and_those_with_options_are_translated_too() {
    let mut nat = Nat::new("");
    let option = ipv4::options(&[ipv4::Ipv4Option::RouterAlert(0)]).unwrap();
    let frame = build::udp4(A, WORLD, 5000, 53).ip_options(option).payload(b"abc").to_vec();
    assert_eq!(nat.out(&frame), Ok(told(OUR, 5000, WORLD, 53)));
    let tagged = build::udp4(A, WORLD, 5000, 53).vlan(7).payload(b"abc").to_vec();
    let out = nat.feed(0, &tagged).unwrap();
    assert_eq!(out[12..18], tagged[12..18]);
    assert_eq!(out[30..34], OUR);
    let none = {
        let mut frame = udp(A, 5001, WORLD, 53);
        frame[40..42].copy_from_slice(&[0, 0]);
        frame
    };
    let out = nat.feed(0, &none).unwrap();
    assert_eq!((&out[26..30], &out[40..42]), (&OUR[..], &[0, 0][..]), "no checksum stays none");
}

#[test]
fn mapping_is_independent_of_the_endpoint_or_not() {
    let mut nat = Nat::new("mapping = \"endpoint-independent\"");
    nat.out(&udp(B, 5000, WORLD, 53)).unwrap();
    let ports: Vec<_> = [(WORLD, 53), (WORLD, 54), (OTHER, 53)]
        .map(|(to, port)| nat.out(&udp(A, 5000, to, port)).unwrap().src_port)
        .into();
    assert!(ports.iter().all(|port| *port == ports[0]), "RFC 4787 REQ-1");
    // another protocol has ports of its own
    assert_eq!(nat.out(&tcp(A, 5000, WORLD, 80, TcpFlags::SYN)), Ok(told(OUR, 5000, WORLD, 80)));

    let mut nat = Nat::new("mapping = \"endpoint-dependent\"");
    assert_eq!(nat.out(&udp(A, 5000, WORLD, 53)), Ok(told(OUR, 5000, WORLD, 53)));
    // one port serves two subscribers, who talk to different destinations
    assert_eq!(nat.out(&udp(B, 5000, OTHER, 53)), Ok(told(OUR, 5000, OTHER, 53)));
    assert_eq!(nat.inn(&udp(WORLD, 53, OUR, 5000)), Ok(told(WORLD, 53, A, 5000)));
    assert_eq!(nat.inn(&udp(OTHER, 53, OUR, 5000)), Ok(told(OTHER, 53, B, 5000)));
    assert_ne!(nat.out(&udp(B, 5000, WORLD, 53)).unwrap().src_port, 5000);
}

#[test]
fn filtering_is_independent_of_the_endpoint_or_not() {
    let ask = |filtering: &str| {
        let mut nat = Nat::new(&format!("filtering = \"{filtering}\""));
        nat.out(&udp(A, 5000, WORLD, 53)).unwrap();
        [(WORLD, 53), (WORLD, 54), (OTHER, 53)].map(|(from, port)| nat.inn(&udp(from, port, OUR, 5000)).map(|t| t.dst))
    };
    assert_eq!(ask("endpoint-independent"), [Ok(A), Ok(A), Ok(A)]);
    assert_eq!(ask("address-dependent"), [Ok(A), Ok(A), Err("filtered")]);
    assert_eq!(ask("address-and-port-dependent"), [Ok(A), Err("filtered"), Err("filtered")]);
}

#[test]
fn tcp_begins_with_a_syn_from_inside() {
    let mut nat = Nat::new("");
    assert_eq!(nat.out(&tcp(A, 5000, WORLD, 80, TcpFlags::ACK)), Err("not_syn"));
    assert_eq!(nat.out(&tcp(A, 5000, WORLD, 80, TcpFlags::SYN_ACK)), Err("not_syn"));
    assert_eq!(nat.inn(&tcp(WORLD, 80, OUR, 5000, TcpFlags::SYN)), Err("no_session"));
    assert_eq!(nat.out(&tcp(A, 5000, WORLD, 80, TcpFlags::SYN)), Ok(told(OUR, 5000, WORLD, 80)));
    assert_eq!(nat.inn(&tcp(WORLD, 80, OUR, 5000, TcpFlags::SYN_ACK)), Ok(told(WORLD, 80, A, 5000)));
    assert_eq!(nat.out(&tcp(A, 5000, WORLD, 80, TcpFlags::ACK)), Ok(told(OUR, 5000, WORLD, 80)));
}

#[test]
fn sessions_end_when_their_timers_say() {
    let settings = "timers = { udp = 30, tcp_established = 100, tcp_transitory = 20, icmp = 10 }";
    let mut nat = Nat::new(settings);
    let sessions = |nat: &Nat| nat.0.counter("sessions");
    nat.out(&udp(A, 1111, WORLD, 53)).unwrap();
    nat.out(&echo(A, WORLD, 2)).unwrap();
    nat.out(&tcp(A, 3333, WORLD, 80, TcpFlags::SYN)).unwrap();
    // established
    nat.out(&tcp(A, 4444, WORLD, 80, TcpFlags::SYN)).unwrap();
    nat.inn(&tcp(WORLD, 80, OUR, 4444, TcpFlags::SYN_ACK)).unwrap();
    nat.out(&tcp(A, 4444, WORLD, 80, TcpFlags::ACK)).unwrap();
    assert_eq!(sessions(&nat), 4);
    nat.after(11);
    assert_eq!(sessions(&nat), 3, "the query is over");
    nat.after(6);
    assert_eq!(sessions(&nat), 2, "nobody has answered the SYN");
    nat.after(10);
    assert_eq!(sessions(&nat), 1, "UDP");
    nat.after(40);
    // both have closed
    nat.out(&tcp(A, 4444, WORLD, 80, TcpFlags::FIN | TcpFlags::ACK)).unwrap();
    nat.after(25);
    assert_eq!(sessions(&nat), 1, "half closed, it is established still");
    nat.inn(&tcp(WORLD, 80, OUR, 4444, TcpFlags::FIN | TcpFlags::ACK)).unwrap();
    nat.after(21);
    assert_eq!((sessions(&nat), nat.0.counter("ended"), nat.0.counter("mappings")), (0, 4, 0));
    assert_eq!(nat.0.counter("subscribers"), 0);
}

#[test]
fn a_connection_that_was_reset_may_begin_anew() {
    let mut nat = Nat::new("timers = { tcp_established = 100, tcp_transitory = 20 }");
    let open = |nat: &mut Nat| {
        nat.out(&tcp(A, 4444, WORLD, 80, TcpFlags::SYN)).unwrap();
        nat.inn(&tcp(WORLD, 80, OUR, 4444, TcpFlags::SYN_ACK)).unwrap();
        nat.out(&tcp(A, 4444, WORLD, 80, TcpFlags::ACK)).unwrap();
    };
    open(&mut nat);
    nat.inn(&tcp(WORLD, 80, OUR, 4444, TcpFlags::RST)).unwrap();
    open(&mut nat);
    nat.after(50);
    assert_eq!(nat.0.counter("sessions"), 1, "established again");
    nat.out(&tcp(A, 4444, WORLD, 80, TcpFlags::RST)).unwrap();
    nat.after(21);
    assert_eq!(nat.0.counter("sessions"), 0);
}

#[test]
fn pings_and_the_errors_about_packets_are_translated() {
    let mut nat = Nat::new("");
    assert_eq!(nat.out(&echo(A, WORLD, 77)), Ok(told(OUR, 77, WORLD, 0)));
    assert_eq!(nat.inn(&reply(WORLD, OUR, 77)), Ok(told(WORLD, 0, A, 77)));
    let second = nat.out(&echo(B, WORLD, 77)).unwrap();
    assert_eq!(nat.inn(&reply(WORLD, OUR, second.src_port)), Ok(told(WORLD, 0, B, 77)));
    assert_eq!(nat.inn(&echo(WORLD, OUR, 77)), Err("no_session"));

    // a router on the way answers (RFC 5508 REQ-4)
    let router = [192, 0, 2, 9];
    for sent in [udp(A, 5000, WORLD, 53), tcp(A, 5000, WORLD, 80, TcpFlags::SYN), echo(B, WORLD, 78)] {
        let out = nat.feed(0, &sent).unwrap();
        for quoted in [28, out.len() - 14] {
            let error = icmpv4::Repr::TimeExceeded { code: 0 };
            let error = build::icmp4(router, OUR, error).payload(&out[14..14 + quoted]).to_vec();
            let back = nat.feed(1, &error).unwrap();
            tell(&back);
            let expected = &sent[14..14 + quoted];
            let (got, at) = (&back[42..42 + quoted], back.len().min(42 + quoted));
            assert_eq!(back[30..34], sent[26..30], "to who has sent it");
            assert_eq!(back[26..30], router);
            assert_eq!((got, at), (expected, 42 + quoted), "what is quoted is what was sent, checksums included");
        }
    }
    // an error from inside, about what came from outside (RFC 5508 REQ-5)
    let came = nat.feed(1, &udp(WORLD, 53, OUR, 5000)).unwrap();
    let error = icmpv4::Repr::DestUnreachable { code: 3 };
    let error = build::icmp4(A, WORLD, error).payload(&came[14..]).to_vec();
    let out = nat.feed(0, &error).unwrap();
    tell(&out);
    assert_eq!((&out[26..30], &out[30..34]), (&OUR[..], &WORLD[..]));
    assert_eq!(out[42..], udp(WORLD, 53, OUR, 5000)[14..42 - 14 + came.len() - 28 + 14 - 14]);
}

#[test]
fn errors_about_nothing_and_wrong_ones_are_dropped() {
    let mut nat = Nat::new("");
    let out = nat.feed(0, &udp(A, 5000, WORLD, 53)).unwrap();
    let error =
        |quoted: &[u8]| build::icmp4(WORLD, OUR, icmpv4::Repr::DestUnreachable { code: 3 }).payload(quoted).to_vec();
    let mut wrong = error(&out[14..42]);
    wrong[50] ^= 1;
    assert_eq!(nat.feed(1, &wrong), Err("bad_icmp_error"));
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
    assert_eq!(nat.feed(1, &redirect), Err("other_protocol"));
}

#[test]
fn fragments_go_where_the_first_went_whatever_their_order() {
    let mut nat = Nat::new("");
    let whole = build::udp4(A, WORLD, 5000, 53).payload(&[9; 100]).to_vec();
    let piece = |id: u16, offset: u16, more: bool| {
        let body = &whole[34..];
        let part = if more { &body[offset.into()..usize::from(offset) + 56] } else { &body[offset.into()..] };
        build::ipv4(A, WORLD, IpProtocol::UDP).id(id).fragment(offset, more).payload(part).to_vec()
    };
    assert_eq!(nat.out(&piece(1, 0, true)), Ok(told(OUR, 5000, WORLD, 53)));
    assert_eq!(nat.out(&piece(1, 56, false)).map(|t| t.src), Ok(OUR));
    // the other way round (RFC 4787 REQ-14)
    assert_eq!(nat.out(&piece(2, 56, false)), Err("held"));
    assert_eq!(nat.0.held(), 1);
    let both = nat.0.feed_by(0, &[piece(2, 0, true)]).concat();
    assert_eq!(both.iter().map(|f| tell(f).src).collect::<Vec<_>>(), [OUR, OUR]);
    assert_eq!(nat.0.held(), 0);
    let both = nat.0.feed_by(0, &[piece(6, 56, false), piece(6, 0, true)]).concat();
    assert_eq!((both.len(), nat.0.held()), (2, 0), "also of one batch");
    // without the first
    assert_eq!(nat.out(&piece(3, 56, false)), Err("held"));
    nat.after(3);
    assert_eq!((nat.0.held(), nat.0.dropped("unknown_fragment")), (0, 1));
    // too short to have ports
    let tiny = build::ipv4(A, WORLD, IpProtocol::TCP).id(4).fragment(0, true).payload(&[0; 16]).to_vec();
    assert_eq!(nat.out(&tiny), Err("tiny_fragment"));
    // what comes back in pieces
    let back = build::udp4(WORLD, OUR, 53, 5000).payload(&[8; 100]).to_vec();
    let first = build::ipv4(WORLD, OUR, IpProtocol::UDP).id(5).fragment(0, true).payload(&back[34..90]).to_vec();
    let last = build::ipv4(WORLD, OUR, IpProtocol::UDP).id(5).fragment(56, false).payload(&back[90..]).to_vec();
    assert_eq!(nat.inn(&first), Ok(told(WORLD, 53, A, 5000)));
    assert_eq!(nat.inn(&last).map(|t| t.dst), Ok(A));
}

#[test]
fn subscribers_reach_each_other_by_external_addresses() {
    let mut nat = Nat::new("filtering = \"endpoint-independent\"");
    let b = nat.out(&udp(B, 6000, WORLD, 53)).unwrap().src_port;
    // the source is the external address as well (RFC 4787 REQ-9)
    assert_eq!(nat.out(&udp(A, 5000, OUR, b)), Ok(told(OUR, 5000, B, 6000)));
    assert_eq!(nat.out(&udp(B, 6000, OUR, 5000)), Ok(told(OUR, b, A, 5000)));
    assert_eq!(nat.out(&udp(A, 5000, OUR, b)), Ok(told(OUR, 5000, B, 6000)), "again, by the table");
    assert_eq!(nat.out(&udp(A, 5000, OUR, 9)), Err("no_hairpin"));
    assert_eq!(nat.0.counter("hairpinned"), 3);

    let mut nat = Nat::new("hairpin = false");
    nat.out(&udp(B, 6000, WORLD, 53)).unwrap();
    assert_eq!(nat.out(&udp(A, 5000, OUR, 6000)), Ok(told(OUR, 5000, OUR, 6000)), "left to others");
}

#[test]
fn forwards_lead_inside() {
    let mut nat =
        Nat::new("forward = [\"tcp 203.0.113.1:8080 -> 10.0.0.2:80\", \"udp 203.0.113.1:53 -> 10.0.0.2:5353\"]");
    assert_eq!(nat.inn(&tcp(WORLD, 4000, OUR, 8080, TcpFlags::SYN)), Ok(told(WORLD, 4000, B, 80)));
    assert_eq!(nat.out(&tcp(B, 80, WORLD, 4000, TcpFlags::SYN_ACK)), Ok(told(OUR, 8080, WORLD, 4000)));
    assert_eq!(nat.inn(&udp(OTHER, 4000, OUR, 53)), Ok(told(OTHER, 4000, B, 5353)));
    // it uses its port for what it begins as well
    assert_eq!(nat.out(&udp(B, 5353, WORLD, 99)), Ok(told(OUR, 53, WORLD, 99)));
    // from inside, by the external address
    assert_eq!(nat.out(&tcp(A, 7000, OUR, 8080, TcpFlags::SYN)), Ok(told(OUR, 7000, B, 80)));
    assert_eq!(nat.out(&tcp(B, 80, OUR, 7000, TcpFlags::SYN_ACK)), Ok(told(OUR, 8080, A, 7000)));
    nat.after(400);
    assert_eq!(nat.inn(&tcp(WORLD, 4001, OUR, 8080, TcpFlags::SYN)), Ok(told(WORLD, 4001, B, 80)), "they stay");
}

#[test]
fn what_nobody_asked_for_may_pass_to_the_router() {
    let mut nat = Nat::new("unmatched = \"pass\"");
    let ping = echo(WORLD, OUR, 5);
    assert_eq!(nat.feed(1, &ping), Ok(ping));
    assert_eq!(nat.0.counter("untranslated"), 1);
    let mut hairpin = Nat::new("unmatched = \"pass\"");
    assert_eq!(hairpin.out(&udp(A, 5000, OUR, 9)), Err("no_hairpin"));
}

#[test]
fn nobody_outside_has_an_inside_address() {
    let mut nat = Nat::new("inside = [\"10.0.0.0/8\"]\nfiltering = \"endpoint-independent\"");
    let port = nat.out(&udp(B, 6000, WORLD, 53)).unwrap().src_port;
    nat.out(&udp(A, 5000, OUR, port)).unwrap();
    // to an inside address, from one, and as if a subscriber turned round
    for frame in [udp(WORLD, 53, A, 5000), udp(A, 5000, OUR, port), udp(OUR, 5000, OUR, port)] {
        assert_eq!(nat.feed(1, &frame), Err("spoofed"));
    }
    assert_eq!(nat.out(&udp(A, 5000, OUR, port)), Ok(told(OUR, 5000, B, 6000)), "who does turn round does");
}

#[test]
fn only_queries_begin_and_only_answers_come_in() {
    let mut nat = Nat::new("filtering = \"endpoint-independent\"");
    assert_eq!(nat.out(&reply(A, WORLD, 7)), Err("no_session"));
    nat.out(&echo(A, WORLD, 0)).unwrap();
    assert_eq!(nat.inn(&echo(WORLD, OUR, 0)), Err("no_session"));
    assert_eq!(nat.inn(&reply(WORLD, OUR, 0)), Ok(told(WORLD, 0, A, 0)));
    assert_eq!(nat.inn(&reply(OTHER, OUR, 0)), Ok(told(OTHER, 0, A, 0)), "anyone may answer");
}

#[test]
fn what_is_no_subscribers_passes_whatever_it_is() {
    let mut nat = Nat::new("inside = [\"10.0.0.0/8\"]");
    let ospf = build::ipv4([192, 0, 2, 1], [224, 0, 0, 5], IpProtocol(89)).payload(&[0; 30]).to_vec();
    assert_eq!((nat.feed(0, &ospf), nat.feed(1, &ospf)), (Ok(ospf.clone()), Ok(ospf)));
    let esp = build::ipv4(WORLD, OUR, IpProtocol(50)).payload(&[0; 30]).to_vec();
    assert_eq!(nat.feed(1, &esp), Err("other_protocol"));
    let mut router = Nat::new("unmatched = \"pass\"");
    assert_eq!(router.feed(1, &esp), Ok(esp));
}

#[test]
fn a_fragment_that_cannot_turn_round_does_not_leave() {
    let mut nat = Nat::new("");
    let body = udp(A, 5000, OUR, 9)[34..58].to_vec();
    let first = build::ipv4(A, OUR, IpProtocol::UDP).id(3).fragment(0, true).payload(&body).to_vec();
    let last = build::ipv4(A, OUR, IpProtocol::UDP).id(3).fragment(24, false).payload(&body).to_vec();
    assert_eq!(nat.feed(0, &first), Err("no_hairpin"));
    assert_eq!(nat.feed(0, &last), Err("unknown_fragment"));
    assert_eq!(nat.0.held(), 0);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let refused = |settings: &str, key: &str| {
        let Err(d) = Bench::try_of::<Nat44>(settings) else { panic!("{settings} was taken") };
        let told = format!("{} {d}", d.key.unwrap_or(""));
        assert!(told.contains(key), "{told} for {settings}");
    };
    refused("", "external");
    refused("external = [\"203.0.113.x\"]", "203.0.113.x");
    refused("external = [\"203.0.113.1\", \"203.0.113.0/30\"]", "twice");
    refused("external = [\"10.0.0.0/8\"]", "too many");
    let with = |more: &str| format!("external = [\"203.0.113.1\"]\n{more}");
    refused(&with("inside = [\"203.0.0.0/16\"]"), "203.0.0.0/16");
    refused(&with("block_size = 4"), "block_size");
    refused(&with("first_port = 65500"), "first_port");
    refused(&with("sessions = 0"), "sessions");
    refused(&with("timers = { udp = 0 }"), "timers.udp");
    refused(&with("forward = [\"tcp 203.0.113.1:80\"]"), "forward");
    refused(&with("forward = [\"tcp 203.0.113.2:80 -> 10.0.0.1:80\"]"), "not external");
    refused(
        &with("forward = [\"tcp 203.0.113.1:80 -> 10.0.0.1:80\", \"tcp 203.0.113.1:80 -> 10.0.0.2:80\"]"),
        "another",
    );
    refused(&with("allocation = \"deterministic\""), "inside");
    refused(&with("allocation = \"deterministic\"\ninside = [\"10.0.0.0/8\"]"), "blocks");
    refused(&with("log = \"here\""), "log");
    let copies = testkit::Setup::of::<Nat44>("external = [\"203.0.113.1\"]").copies(2);
    assert!(copies.is_err_and(|d| d.to_string().contains("fewer addresses than cores")));
}

fn address(n: u32) -> [u8; 4] {
    Ipv4Addr::from_bits(n).octets()
}
