//! Connections, as clients and servers make them.

use crate::Firewall;
use std::net::Ipv6Addr;
use std::time::Duration;
use testkit::Bench;
use wire::{IpProtocol, TcpFlags, build, icmpv4, icmpv6, tcp};

const IN: [u8; 4] = [10, 0, 0, 1];
const OUT: [u8; 4] = [192, 0, 2, 7];
const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const FIN: TcpFlags = TcpFlags::FIN;
const RST: TcpFlags = TcpFlags::RST;

/// One that lets out all that 10.0.0.0/8 begins, and nothing else.
fn tracked(more: &str) -> Bench {
    Bench::of::<Firewall>(&format!("rules = [\"accept src 10.0.0.0/8\", \"accept src fd00::/8\"]\n{more}"))
}

fn plain() -> Bench {
    tracked("track = {}")
}

/// A segment from the inside (`out`) or to it, from port 5000 to port 80 of the server.
fn seg(out: bool, flags: TcpFlags, seq: u32, ack: u32, len: usize, window: u16, scale: Option<u8>) -> Vec<u8> {
    let frame = if out { build::tcp4(IN, OUT, 5000, 80) } else { build::tcp4(OUT, IN, 80, 5000) };
    let mut frame = frame.flags(flags).seq(seq).window(window).payload(&vec![b'x'; len]);
    if flags.contains(ACK) {
        frame = frame.ack(ack);
    }
    if let Some(shift) = scale {
        frame = frame.tcp_options(tcp::options(&[tcp::TcpOption::WindowScale(shift)]).unwrap());
    }
    frame.pad_to(60).to_vec()
}

fn s(out: bool, flags: TcpFlags, seq: u32, ack: u32, len: usize) -> Vec<u8> {
    seg(out, flags, seq, ack, len, 10_000, None)
}

#[track_caller]
fn pass(f: &mut Bench, frame: &[u8]) {
    assert_eq!(f.one(frame), Ok(frame.to_vec()));
}

/// SYN, SYN and ACK, ACK: the client is at 1001, the server at 5001.
fn open(f: &mut Bench) {
    pass(f, &s(true, SYN, 1000, 0, 0));
    pass(f, &s(false, SYN | ACK, 5000, 1001, 0));
    pass(f, &s(true, ACK, 1001, 5001, 0));
}

#[test]
fn a_connection_from_within_goes_both_ways_and_none_comes_in() {
    let mut f = plain();
    assert_eq!(f.one(&s(false, SYN, 5000, 0, 0)), Err("refused_by_default"));
    open(&mut f);
    pass(&mut f, &s(true, ACK, 1001, 5001, 100));
    pass(&mut f, &s(false, ACK, 5001, 1101, 1000));
    pass(&mut f, &s(false, ACK | FIN, 6001, 1101, 0));
    pass(&mut f, &s(true, ACK, 1101, 6002, 50));
    pass(&mut f, &s(true, ACK | FIN, 1151, 6002, 0));
    pass(&mut f, &s(false, ACK, 6002, 1152, 0));
    // closed, and not forgotten yet: another ACK is answered, nobody else gets in, the client may begin anew
    pass(&mut f, &s(true, ACK, 1152, 6002, 0));
    assert_eq!(f.one(&s(false, SYN, 9000, 0, 0)), Err("refused_by_default"));
    pass(&mut f, &s(true, SYN, 70_000, 0, 0));
    pass(&mut f, &s(false, SYN | ACK, 80_000, 70_001, 0));
    assert_eq!(f.counter("connections_new"), 0, "counted when woken");
    f.advance(Duration::from_millis(2));
    assert_eq!((f.counter("connections"), f.counter("connections_new")), (1, 1));
    // the rules were asked twice
    assert_eq!(f.counter("1 accept src 10.0.0.0/8"), 2);
}

#[test]
fn what_is_in_no_connection_is_no_beginning() {
    let mut f = plain();
    for flags in [
        ACK,
        SYN | ACK,
        FIN | ACK,
        RST,
        RST | ACK,
        FIN,
        TcpFlags(0),
        SYN | FIN,
        SYN | RST,
        FIN | TcpFlags::PSH | TcpFlags::URG,
    ] {
        assert_eq!(f.one(&s(true, flags, 1, 1, 0)), Err("not_tracked"), "{flags:?}");
    }
    open(&mut f);
    for flags in [FIN, TcpFlags(0), SYN | FIN, SYN | RST, FIN | RST | ACK] {
        assert_eq!(f.one(&s(true, flags, 1001, 5001, 0)), Err("out_of_state"), "{flags:?}");
    }
    // after all that the connection is as it was
    pass(&mut f, &s(true, ACK, 1001, 5001, 10));
}

#[test]
fn numbers_have_to_be_in_the_window() {
    let mut f = plain();
    open(&mut f);
    // the server has room up to 1001 + 10,000
    pass(&mut f, &s(true, ACK, 11_001, 5001, 0));
    assert_eq!(f.one(&s(true, ACK, 11_002, 5001, 0)), Err("out_of_window"));
    assert_eq!(f.one(&s(true, ACK, 900_000, 5001, 0)), Err("out_of_window"));
    // an acknowledgement of what the server has not sent
    assert_eq!(f.one(&s(true, ACK, 1001, 5003, 0)), Err("out_of_window"));
    // of what was long ago
    assert_eq!(f.one(&s(true, ACK, 1001, 5001u32.wrapping_sub(66_002), 0)), Err("out_of_window"));
    pass(&mut f, &s(true, ACK, 1001, 5001u32.wrapping_sub(66_000), 0));
    // older than the widest window (which is rounded up by a quarter at most)
    pass(&mut f, &s(false, ACK, 5001u32.wrapping_sub(10_000), 1001, 0));
    assert_eq!(f.one(&s(false, ACK, 5001u32.wrapping_sub(12_502), 1001, 0)), Err("out_of_window"));
    assert_eq!(f.drops(), [("out_of_window", 5)]);
}

#[test]
fn windows_are_scaled_as_both_have_said() {
    let mut f = plain();
    pass(&mut f, &seg(true, SYN, u32::MAX - 50_000, 0, 0, 1000, Some(7)));
    pass(&mut f, &seg(false, SYN | ACK, 5000, u32::MAX - 49_999, 0, 1000, Some(14)));
    // 1,000 times 2^7 for the server, from here on
    let at = u32::MAX - 49_999;
    pass(&mut f, &seg(true, ACK, at, 5001, 0, 1000, None));
    pass(&mut f, &seg(false, ACK, 5001 + 128_000, at, 0, 10, None));
    assert_eq!(f.one(&seg(false, ACK, 5001 + 128_129, at, 0, 10, None)), Err("out_of_window"));
    // 10 times 2^14 for the client, over the end of all numbers
    pass(&mut f, &seg(true, ACK, at.wrapping_add(163_840), 5001, 0, 1000, None));
    assert_eq!(f.one(&seg(true, ACK, at.wrapping_add(163_840 + 16_385), 5001, 0, 1000, None)), Err("out_of_window"));

    // one side has not: none scales
    let mut f = plain();
    pass(&mut f, &seg(true, SYN, 1000, 0, 0, 1000, Some(7)));
    pass(&mut f, &seg(false, SYN | ACK, 5000, 1001, 0, 1000, None));
    pass(&mut f, &seg(true, ACK, 1001, 5001, 0, 1000, None));
    assert_eq!(f.one(&seg(false, ACK, 6002, 1001, 0, 1000, None)), Err("out_of_window"));
}

#[test]
fn a_reset_counts_only_where_the_other_waits() {
    let mut f = plain();
    open(&mut f);
    assert_eq!(f.one(&s(false, RST, 900_000, 0, 0)), Err("out_of_window"));
    // in the window: the host will ask (RFC 5961), and nothing is over
    pass(&mut f, &s(false, RST, 5100, 0, 0));
    pass(&mut f, &s(true, ACK, 1001, 5001, 10));
    pass(&mut f, &s(true, RST, 1011, 0, 0));
    // over: a SYN is a new one
    assert_eq!(f.one(&s(false, SYN, 1, 0, 0)), Err("refused_by_default"));
    // a refused connection
    let mut f = plain();
    pass(&mut f, &s(true, SYN, 1000, 0, 0));
    assert_eq!(f.one(&s(false, RST | ACK, 0, 1000, 0)), Err("out_of_window"));
    pass(&mut f, &s(false, RST | ACK, 0, 1001, 0));
    assert_eq!(f.one(&s(false, SYN | ACK, 5000, 1001, 0)), Err("out_of_state"));
}

#[test]
fn both_sides_may_begin_at_once_where_rules_let_the_first() {
    let mut f = plain();
    pass(&mut f, &s(true, SYN, 1000, 0, 0));
    pass(&mut f, &s(false, SYN, 5000, 0, 0));
    pass(&mut f, &s(true, SYN | ACK, 1000, 5001, 0));
    pass(&mut f, &s(false, SYN | ACK, 5000, 1001, 0));
    pass(&mut f, &s(true, ACK, 1001, 5001, 100));
    pass(&mut f, &s(false, ACK, 5001, 1101, 100));
    // an answer to another SYN is none
    let mut f = plain();
    pass(&mut f, &s(true, SYN, 1000, 0, 0));
    assert_eq!(f.one(&s(false, SYN | ACK, 5000, 999, 0)), Err("out_of_window"));
    assert_eq!(f.one(&s(false, SYN | ACK, 5000, 1002, 0)), Err("out_of_window"));
    assert_eq!(f.one(&s(false, FIN | ACK, 5000, 1001, 0)), Err("out_of_state"));
}

#[test]
fn a_wrong_checksum_changes_nothing() {
    let mut f = plain();
    open(&mut f);
    let mut reset = s(false, RST, 5001, 0, 0);
    reset[50] ^= 1;
    assert_eq!(f.one(&reset), Err("bad_checksum"));
    pass(&mut f, &s(true, ACK, 1001, 5001, 10));
    assert_eq!(f.one(&s(false, SYN, 1, 0, 0)), Ok(s(false, SYN, 1, 0, 0)), "it is open still: its host asks");
}

#[test]
fn a_piece_of_a_reset_ends_nothing() {
    let mut f = plain();
    open(&mut f);
    let reset = s(false, RST, 5001, 0, 0);
    let piece = build::ipv4(OUT, IN, IpProtocol::TCP).payload(&reset[34..58]).fragment(0, true).to_vec();
    assert_eq!(f.one(&piece), Err("out_of_state"));
    pass(&mut f, &s(true, ACK, 1001, 5001, 10));
    assert!(f.one(&s(false, SYN, 1, 0, 0)).is_ok(), "it is open still: its host asks");
}

#[test]
fn udp_and_queries_are_answered() {
    let mut f = plain();
    let (there, back) = (build::udp4(IN, OUT, 5000, 53).to_vec(), build::udp4(OUT, IN, 53, 5000).to_vec());
    assert_eq!(f.one(&back), Err("refused_by_default"));
    pass(&mut f, &there);
    pass(&mut f, &back);
    assert_eq!(f.one(&build::udp4(OUT, IN, 54, 5000).to_vec()), Err("refused_by_default"));

    let answer = |id| build::icmp4(OUT, IN, icmpv4::Repr::EchoReply { id, seq: 1 }).to_vec();
    assert_eq!(f.one(&answer(7)), Err("not_tracked"));
    pass(&mut f, &build::echo4(IN, OUT, 7, 1).to_vec());
    pass(&mut f, &answer(7));
    pass(&mut f, &answer(7));
    assert_eq!(f.one(&answer(8)), Err("not_tracked"));
    // a request of the other side's with the same identifier is another
    assert_eq!(f.one(&build::echo4(OUT, IN, 7, 1).to_vec()), Err("refused_by_default"));

    let (a, b): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "2001:db8::7".parse().unwrap());
    let answer = build::icmp6(b, a, icmpv6::Repr::EchoReply { id: 7, seq: 1 }).to_vec();
    assert_eq!(f.one(&answer), Err("not_tracked"));
    pass(&mut f, &build::echo6(a, b, 7, 1).to_vec());
    pass(&mut f, &answer);
    pass(&mut f, &build::tcp6(a, b, 1, 2).flags(SYN).seq(1).to_vec());
    pass(&mut f, &build::tcp6(b, a, 2, 1).flags(SYN | ACK).seq(9).ack(2).to_vec());
    pass(&mut f, &build::tcp6(a, b, 1, 2).flags(ACK).seq(2).ack(10).payload(&[0; 20]).to_vec());
    assert_eq!(
        f.one(&build::tcp6(a, b, 1, 2).flags(ACK).seq(2_000_000).ack(10).payload(&[0; 20]).to_vec()),
        Err("out_of_window")
    );
    assert_eq!(f.one(&build::udp6(b, a, 2, 1).to_vec()), Err("refused_by_default"));
}

#[test]
fn errors_about_a_connection_pass_and_no_others() {
    let mut f = plain();
    open(&mut f);
    let quoted = |frame: Vec<u8>| frame[14..14 + 28].to_vec();
    let about = |to: [u8; 4], quoted: Vec<u8>| {
        build::icmp4([203, 0, 113, 1], to, icmpv4::Repr::TimeExceeded { code: 0 }).payload(&quoted).to_vec()
    };
    pass(&mut f, &about(IN, quoted(s(true, ACK, 1001, 5001, 0))));
    // of the other direction
    pass(&mut f, &about(OUT, quoted(s(false, ACK, 5001, 1001, 0))));
    // to somebody else, about a number that was not sent, about another connection, cut short
    assert_eq!(f.one(&about([10, 0, 0, 2], quoted(s(true, ACK, 1001, 5001, 0)))), Err("unrelated_icmp"));
    assert_eq!(f.one(&about(IN, quoted(s(true, ACK, 1002, 5001, 0)))), Err("unrelated_icmp"));
    assert_eq!(
        f.one(&about(IN, quoted(build::udp4(IN, OUT, 5000, 80).payload(&[0; 4]).to_vec()))),
        Err("unrelated_icmp")
    );
    assert_eq!(f.one(&about(IN, quoted(s(true, ACK, 1001, 5001, 0))[..27].to_vec())), Err("unrelated_icmp"));
    let (a, b): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "2001:db8::7".parse().unwrap());
    let there = build::udp6(a, b, 1, 2).payload(&[0; 100]).to_vec();
    let big = |to| build::icmp6(b, to, icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(&there[14..90]).to_vec();
    assert_eq!(f.one(&big(a)), Err("unrelated_icmp"));
    pass(&mut f, &there);
    pass(&mut f, &big(a));
    assert_eq!(f.one(&big(b)), Err("unrelated_icmp"));
}

/// A fragment that waits for its first in vain.
fn lost(f: &mut Bench, frame: &[u8]) {
    let before = f.dropped("no_first_fragment");
    assert!(f.feed(&[frame]).is_empty());
    assert_eq!(f.held(), 1);
    f.advance(Duration::from_secs(3));
    assert_eq!((f.held(), f.dropped("no_first_fragment")), (0, before + 1));
}

#[test]
fn later_fragments_follow_their_first() {
    let mut f = plain();
    let piece = |out: bool, offset, more, id| {
        let (src, dst) = if out { (IN, OUT) } else { (OUT, IN) };
        if offset == 0 {
            return build::udp4(src, dst, if out { 5000 } else { 53 }, if out { 53 } else { 5000 })
                .payload(&[0; 24])
                .id(id)
                .fragment(0, more)
                .to_vec();
        }
        build::ipv4(src, dst, IpProtocol::UDP).payload(&[0; 32]).id(id).fragment(offset, more).to_vec()
    };
    // also those that came before it, in an earlier batch or in the same
    assert!(f.feed(&[piece(true, 32, true, 1)]).is_empty());
    let mut out = f.feed(&[piece(true, 64, false, 1), piece(true, 0, true, 1)]);
    out.sort();
    let mut all = [0, 32, 64].map(|offset| piece(true, offset, offset != 64, 1));
    all.sort();
    assert_eq!((out, f.held()), (all.to_vec(), 0));
    pass(&mut f, &piece(true, 32, true, 1));
    lost(&mut f, &piece(true, 32, true, 2));
    lost(&mut f, &piece(false, 32, true, 1));
    pass(&mut f, &piece(false, 0, true, 9));
    pass(&mut f, &piece(false, 32, false, 9));
    assert_eq!(f.counter("fragments_followed"), 4);
    // one whose first was refused
    let stranger = build::udp4(OUT, IN, 1, 2).payload(&[0; 24]).id(5).fragment(0, true).to_vec();
    assert_eq!(f.one(&stranger), Err("refused_by_default"));
    lost(&mut f, &piece(false, 32, false, 5));
    // after half a minute it is over
    f.wake(Duration::from_secs(20));
    f.advance(Duration::from_secs(5));
    pass(&mut f, &piece(true, 32, true, 1));
    f.wake(Duration::from_secs(40));
    f.advance(Duration::from_secs(5));
    lost(&mut f, &piece(true, 32, true, 1));
    // no more wait than there is room for
    let many: Vec<_> = (0..300).map(|id| piece(true, 32, true, 1000 + id)).collect();
    assert!(f.feed(&many).is_empty());
    assert_eq!(f.held(), 128);
}

#[test]
fn data_in_fragments_may_be_acknowledged() {
    let mut f = plain();
    open(&mut f);
    let whole = s(true, ACK, 1001, 5001, 1000);
    let first = build::ipv4(IN, OUT, IpProtocol::TCP).payload(&whole[34..34 + 520]).id(3).fragment(0, true).to_vec();
    let last = build::ipv4(IN, OUT, IpProtocol::TCP).payload(&whole[34 + 520..]).id(3).fragment(520, false).to_vec();
    pass(&mut f, &first);
    assert_eq!(f.one(&s(false, ACK, 5001, 2001, 0)), Err("out_of_window"));
    pass(&mut f, &last);
    pass(&mut f, &s(false, ACK, 5001, 2001, 0));
    assert_eq!(f.one(&s(false, ACK, 5001, 2003, 0)), Err("out_of_window"));
}

#[test]
fn connections_are_forgotten_in_their_time() {
    let mut f = tracked(
        "track = { tcp_established = 100, tcp_transitory = 10, udp = 40, udp_one_way = 20, icmp = 30, tcp_closed = 5 }",
    );
    let at = |f: &mut Bench, seconds| {
        f.wake(Duration::from_secs(seconds));
        // a look through takes four seconds and a bit
        f.advance(Duration::from_millis(4200));
        f.counter("connections")
    };
    open(&mut f);
    pass(&mut f, &build::tcp4(IN, OUT, 1, 2).flags(SYN).to_vec());
    pass(&mut f, &build::udp4(IN, OUT, 3, 4).to_vec());
    pass(&mut f, &build::udp4(IN, OUT, 5, 6).to_vec());
    pass(&mut f, &build::udp4(OUT, IN, 6, 5).to_vec());
    pass(&mut f, &build::echo4(IN, OUT, 1, 1).to_vec());
    assert_eq!(at(&mut f, 1), 5);
    assert_eq!(at(&mut f, 14), 4, "the SYN");
    assert_eq!(at(&mut f, 24), 3, "UDP one way");
    assert_eq!(at(&mut f, 34), 2, "the query");
    assert_eq!(at(&mut f, 44), 1, "UDP both ways");
    pass(&mut f, &s(true, ACK, 1001, 5001, 0));
    assert_eq!(at(&mut f, 130), 1, "a packet came at 48 s");
    pass(&mut f, &s(true, RST, 1001, 0, 0));
    assert_eq!(at(&mut f, 150), 0, "reset");
    assert_eq!(f.counter("connections_forgotten"), 5);
}

#[test]
fn fragments_follow_a_first_that_has_headers_behind_its_fragment_header() {
    let (a, b): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let mut f = Bench::of::<Firewall>("rules = [\"accept src 2001:db8::1\"]\ntrack = {}");
    let options = IpProtocol(60);
    let first = build::udp6(a, b, 1, 2).payload(&[0; 48]).fragment(0, true, 7).extension(options, &[1, 4, 0, 0, 0, 0]);
    let last = |offset| build::ipv6(a, b, options).payload(&[0; 32]).fragment(offset, false, 7).to_vec();
    assert!(f.feed(&[last(64)]).is_empty());
    assert_eq!(f.feed(&[first.to_vec()]), [first.to_vec(), last(64)]);
    pass(&mut f, &last(64));
}

#[test]
fn a_full_table_refuses_or_evicts() {
    let out = |port| build::udp4(IN, OUT, port, 53).to_vec();
    let mut f = tracked("track = { connections = 64 }");
    (0..64).for_each(|port| pass(&mut f, &out(port)));
    assert_eq!(f.one(&out(64)), Err("table_full"));
    pass(&mut f, &out(3));

    let mut f = tracked("track = { connections = 64, full = \"evict\" }");
    (0..64).for_each(|port| pass(&mut f, &out(port)));
    // nobody has been idle
    assert_eq!(f.one(&out(64)), Err("table_full"));
    f.wake(Duration::from_secs(3));
    // in a table as small as this one it happens that there is nobody at all beside a new one
    let passed = (64..74).filter(|port| f.one(&out(*port)).is_ok()).count() as u64;
    f.advance(Duration::from_millis(2));
    assert_eq!((f.counter("connections"), f.counter("connections_evicted")), (64, passed));
    assert!(passed >= 7, "{passed} of 10");
    // datagrams: the oldest gives way
    let mut f = tracked("track = { fragments = 16 }");
    let first = |id| build::udp4(IN, OUT, 1, 2).payload(&[0; 24]).id(id).fragment(0, true).to_vec();
    let last = |id| build::ipv4(IN, OUT, IpProtocol::UDP).payload(&[0; 8]).id(id).fragment(32, false).to_vec();
    for id in 0..64 {
        f.wake(Duration::from_secs(u64::from(id) * 2));
        pass(&mut f, &first(id));
    }
    pass(&mut f, &last(63));
    lost(&mut f, &last(0));
}

#[test]
fn what_nobody_has_answered_makes_way_where_there_is_no_room() {
    for full in ["refuse", "evict"] {
        let mut f = tracked(&format!("track = {{ connections = 64, full = \"{full}\" }}"));
        let (out, back) =
            (|port| build::udp4(IN, OUT, port, 53).to_vec(), |port| build::udp4(OUT, IN, 53, port).to_vec());
        for port in 0..20 {
            pass(&mut f, &out(port));
            pass(&mut f, &back(port));
        }
        (20..64).for_each(|port| pass(&mut f, &out(port)));
        assert_eq!(f.one(&out(64)), Err("table_full"));
        // not yet their time
        f.advance(Duration::from_secs(8));
        (100..140).for_each(|port| pass(&mut f, &out(port)));
        (0..20).for_each(|port| pass(&mut f, &back(port)));
        f.advance(Duration::from_millis(2));
        assert_eq!((f.counter("connections_evicted"), f.counter("connections") <= 64), (0, true), "{full}");
    }
}

#[test]
fn mid_stream_only_where_it_is_allowed() {
    let mut f = tracked("track = { loose = true }");
    assert_eq!(f.one(&s(false, ACK, 1, 1, 0)), Err("refused_by_default"));
    pass(&mut f, &s(true, ACK, 77_777, 88_888, 10));
    pass(&mut f, &s(false, ACK, 3_000_000, 77_787, 10));
    pass(&mut f, &s(true, RST, 77_787, 0, 0));
    assert_eq!(f.one(&s(true, SYN | ACK, 1, 1, 0)), Err("out_of_state"), "closed");
}

#[test]
fn rules_may_name_states() {
    let rules = "rules = [\"drop state any dst 192.0.2.66\", \"drop state established dst 10.0.0.1 sport 81\", \"accept state invalid src \
                 10.9.0.0/16\", \"drop state related\", \"accept src 10.0.0.0/8\"]\ntrack = {}";
    let mut f = Bench::of::<Firewall>(rules);
    assert_eq!(f.one(&build::udp4(IN, [192, 0, 2, 66], 1, 2).to_vec()), Err("refused"));
    pass(&mut f, &build::udp4(IN, OUT, 1, 81).to_vec());
    assert_eq!(f.one(&build::udp4(OUT, IN, 81, 1).to_vec()), Err("refused"));
    pass(&mut f, &build::udp4(IN, OUT, 1, 82).to_vec());
    pass(&mut f, &build::udp4(OUT, IN, 82, 1).to_vec());
    pass(&mut f, &build::tcp4([10, 9, 0, 1], OUT, 1, 2).flags(ACK).to_vec());
    assert_eq!(f.one(&build::tcp4(IN, OUT, 1, 2).flags(ACK).to_vec()), Err("not_tracked"));
    let there = build::udp4(IN, OUT, 1, 82).to_vec();
    let error = build::icmp4(OUT, IN, icmpv4::Repr::TimeExceeded { code: 0 }).payload(&there[14..42]).to_vec();
    assert_eq!(f.one(&error), Err("refused"));
    let counts: Vec<_> = f.counters().into_iter().take(5).map(|(_, n)| n).collect();
    assert_eq!(counts, [1, 1, 1, 1, 2]);
    for (rules, word) in [
        ("[\"accept state new\"]\n", ""),
        ("[\"accept state established\"]\n", "track"),
        ("[\"accept state old\"]\ntrack = {}", "old"),
        ("[]\ntrack = { udp = 0 }", "udp"),
        ("[]\ntrack = { connections = 0 }", "not 0"),
        ("[]\ntrack = { fragments = 0 }", "not 0"),
    ] {
        match Bench::try_of::<Firewall>(&format!("rules = {rules}")) {
            Ok(_) => assert_eq!(word, "", "{rules}"),
            Err(e) => assert!(!word.is_empty() && e.to_string().contains(word), "{rules}: {e}"),
        }
    }
}

#[test]
fn a_host_that_has_begun_anew_is_followed_where_the_other_answers() {
    // the server has forgotten it too: it answers the SYN, and both go on with other numbers
    let mut f = plain();
    open(&mut f);
    pass(&mut f, &seg(true, SYN, 900_000, 0, 0, 500, Some(3)));
    // what was goes on as long as nobody has answered
    pass(&mut f, &s(false, ACK, 5001, 1001, 100));
    assert_eq!(f.one(&s(false, SYN | ACK, 700_000, 900_002, 0)), Err("out_of_window"), "of another SYN");
    pass(&mut f, &seg(false, SYN | ACK, 700_000, 900_001, 0, 2000, Some(2)));
    pass(&mut f, &seg(true, ACK, 900_001, 700_001, 0, 500, None));
    pass(&mut f, &seg(false, ACK, 700_001, 900_001, 1000, 2000, None));
    // windows are those of the new numbers: 500 times eight
    assert_eq!(f.one(&seg(false, ACK, 700_001 + 4010, 900_001, 0, 2000, None)), Err("out_of_window"));
    assert_eq!(f.one(&s(false, ACK, 5101, 1001, 10)), Err("out_of_window"));

    // the server knows it still: its challenge is answered by a reset, and the next SYN opens another
    let mut f = plain();
    open(&mut f);
    pass(&mut f, &s(true, SYN, 900_000, 0, 0));
    pass(&mut f, &s(false, ACK, 5001, 1001, 0));
    pass(&mut f, &s(true, RST, 1001, 0, 0));
    pass(&mut f, &s(true, SYN, 900_000, 0, 0));
    pass(&mut f, &s(false, SYN | ACK, 700_000, 900_001, 0));
    pass(&mut f, &s(true, ACK, 900_001, 700_001, 0));

    // nobody else begins anew in their place
    let mut f = plain();
    open(&mut f);
    pass(&mut f, &s(false, SYN, 600_000, 0, 0));
    assert_eq!(f.one(&s(true, SYN | ACK, 800_000, 600_001, 0)), Err("out_of_window"));
    assert_eq!(f.one(&s(false, SYN | ACK, 800_000, 1002, 0)), Err("out_of_window"));
    pass(&mut f, &s(true, ACK, 1001, 5001, 10));
}
