//! Connection tracking scenarios.

use crate::Firewall;
use std::net::Ipv6Addr;
use std::time::Duration;
use testkit::Harness;
use wire::{IpProtocol, TcpFlags, build, icmpv4, icmpv6, tcp};

const IN: [u8; 4] = [10, 0, 0, 1];
const OUT: [u8; 4] = [192, 0, 2, 7];
const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const FIN: TcpFlags = TcpFlags::FIN;
const RST: TcpFlags = TcpFlags::RST;

/// A firewall that accepts connections from 10.0.0.0/8 only.
fn tracked(more: &str) -> Harness {
    Harness::new::<Firewall>(&format!("rules = [\"accept src 10.0.0.0/8\", \"accept src fd00::/8\"]\n{more}"))
}

fn plain() -> Harness {
    tracked("track = {}")
}

/// Builds a segment between port 5000 of the client and port 80 of the server, from the client if `out`.
fn segment_with_window(
    out: bool,
    flags: TcpFlags,
    seq: u32,
    ack: u32,
    len: usize,
    window: u16,
    scale: Option<u8>,
) -> Vec<u8> {
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

fn segment(out: bool, flags: TcpFlags, seq: u32, ack: u32, len: usize) -> Vec<u8> {
    segment_with_window(out, flags, seq, ack, len, 10_000, None)
}

#[track_caller]
fn pass(f: &mut Harness, frame: &[u8]) {
    assert_eq!(f.feed_one(frame), Ok(frame.to_vec()));
}

/// Opens a connection; the next sequence numbers are 1001 (client) and 5001 (server).
fn open(f: &mut Harness) {
    pass(f, &segment(true, SYN, 1000, 0, 0));
    pass(f, &segment(false, SYN | ACK, 5000, 1001, 0));
    pass(f, &segment(true, ACK, 1001, 5001, 0));
}

#[test]
fn connections_can_be_opened_from_inside_only() {
    let mut f = plain();
    assert_eq!(f.feed_one(&segment(false, SYN, 5000, 0, 0)), Err("denied_by_default"));
    open(&mut f);
    pass(&mut f, &segment(true, ACK, 1001, 5001, 100));
    pass(&mut f, &segment(false, ACK, 5001, 1101, 1000));
    pass(&mut f, &segment(false, ACK | FIN, 6001, 1101, 0));
    pass(&mut f, &segment(true, ACK, 1101, 6002, 50));
    pass(&mut f, &segment(true, ACK | FIN, 1151, 6002, 0));
    pass(&mut f, &segment(false, ACK, 6002, 1152, 0));
    // closed but not yet expired: a late ACK passes, no new connection from outside, the client may reopen it
    pass(&mut f, &segment(true, ACK, 1152, 6002, 0));
    assert_eq!(f.feed_one(&segment(false, SYN, 9000, 0, 0)), Err("denied_by_default"));
    pass(&mut f, &segment(true, SYN, 70_000, 0, 0));
    pass(&mut f, &segment(false, SYN | ACK, 80_000, 70_001, 0));
    assert_eq!(f.counter("connections_new"), 0, "counted by the timer");
    f.advance(Duration::from_millis(2));
    assert_eq!((f.counter("connections"), f.counter("connections_new")), (1, 1));
    // the rules were evaluated twice
    assert_eq!(f.counter("1 accept src 10.0.0.0/8"), 2);
}

#[test]
fn drops_packets_that_neither_belong_to_a_connection_nor_open_one() {
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
        assert_eq!(f.feed_one(&segment(true, flags, 1, 1, 0)), Err("no_connection"), "{flags:?}");
    }
    open(&mut f);
    for flags in [FIN, TcpFlags(0), SYN | FIN, SYN | RST, FIN | RST | ACK] {
        assert_eq!(f.feed_one(&segment(true, flags, 1001, 5001, 0)), Err("out_of_state"), "{flags:?}");
    }
    // the connection is unaffected
    pass(&mut f, &segment(true, ACK, 1001, 5001, 10));
}

#[test]
fn sequence_numbers_are_checked_against_the_window() {
    let mut f = plain();
    open(&mut f);
    // the server accepts up to 1001 + 10,000
    pass(&mut f, &segment(true, ACK, 11_001, 5001, 0));
    assert_eq!(f.feed_one(&segment(true, ACK, 11_002, 5001, 0)), Err("out_of_window"));
    assert_eq!(f.feed_one(&segment(true, ACK, 900_000, 5001, 0)), Err("out_of_window"));
    // acknowledges data that the server has not sent
    assert_eq!(f.feed_one(&segment(true, ACK, 1001, 5003, 0)), Err("out_of_window"));
    // acknowledges data that is too old
    assert_eq!(f.feed_one(&segment(true, ACK, 1001, 5001u32.wrapping_sub(66_002), 0)), Err("out_of_window"));
    pass(&mut f, &segment(true, ACK, 1001, 5001u32.wrapping_sub(66_000), 0));
    // older than the largest window (which is rounded up by at most a quarter)
    pass(&mut f, &segment(false, ACK, 5001u32.wrapping_sub(10_000), 1001, 0));
    assert_eq!(f.feed_one(&segment(false, ACK, 5001u32.wrapping_sub(12_502), 1001, 0)), Err("out_of_window"));
    assert_eq!(f.drops(), [("out_of_window", 5)]);
}

#[test]
fn window_scaling() {
    let mut f = plain();
    pass(&mut f, &segment_with_window(true, SYN, u32::MAX - 50_000, 0, 0, 1000, Some(7)));
    pass(&mut f, &segment_with_window(false, SYN | ACK, 5000, u32::MAX - 49_999, 0, 1000, Some(14)));
    // 1,000 * 2^7 bytes for the server from here on
    let at = u32::MAX - 49_999;
    pass(&mut f, &segment_with_window(true, ACK, at, 5001, 0, 1000, None));
    pass(&mut f, &segment_with_window(false, ACK, 5001 + 128_000, at, 0, 10, None));
    assert_eq!(f.feed_one(&segment_with_window(false, ACK, 5001 + 128_129, at, 0, 10, None)), Err("out_of_window"));
    // 10 * 2^14 bytes for the client, across the wrap-around
    pass(&mut f, &segment_with_window(true, ACK, at.wrapping_add(163_840), 5001, 0, 1000, None));
    assert_eq!(
        f.feed_one(&segment_with_window(true, ACK, at.wrapping_add(163_840 + 16_385), 5001, 0, 1000, None)),
        Err("out_of_window")
    );

    // one side does not offer a scale, so neither scales
    let mut f = plain();
    pass(&mut f, &segment_with_window(true, SYN, 1000, 0, 0, 1000, Some(7)));
    pass(&mut f, &segment_with_window(false, SYN | ACK, 5000, 1001, 0, 1000, None));
    pass(&mut f, &segment_with_window(true, ACK, 1001, 5001, 0, 1000, None));
    assert_eq!(f.feed_one(&segment_with_window(false, ACK, 6002, 1001, 0, 1000, None)), Err("out_of_window"));
}

#[test]
fn only_exact_resets_close_a_connection() {
    let mut f = plain();
    open(&mut f);
    assert_eq!(f.feed_one(&segment(false, RST, 900_000, 0, 0)), Err("out_of_window"));
    // in the window but not exact: the host sends a challenge ACK (RFC 5961) and the connection stays
    pass(&mut f, &segment(false, RST, 5100, 0, 0));
    pass(&mut f, &segment(true, ACK, 1001, 5001, 10));
    pass(&mut f, &segment(true, RST, 1011, 0, 0));
    // closed: a SYN opens a new connection
    assert_eq!(f.feed_one(&segment(false, SYN, 1, 0, 0)), Err("denied_by_default"));
    // a refused connection
    let mut f = plain();
    pass(&mut f, &segment(true, SYN, 1000, 0, 0));
    assert_eq!(f.feed_one(&segment(false, RST | ACK, 0, 1000, 0)), Err("out_of_window"));
    pass(&mut f, &segment(false, RST | ACK, 0, 1001, 0));
    assert_eq!(f.feed_one(&segment(false, SYN | ACK, 5000, 1001, 0)), Err("out_of_state"));
}

#[test]
fn simultaneous_open_if_the_rules_accept_the_first_syn() {
    let mut f = plain();
    pass(&mut f, &segment(true, SYN, 1000, 0, 0));
    pass(&mut f, &segment(false, SYN, 5000, 0, 0));
    pass(&mut f, &segment(true, SYN | ACK, 1000, 5001, 0));
    pass(&mut f, &segment(false, SYN | ACK, 5000, 1001, 0));
    pass(&mut f, &segment(true, ACK, 1001, 5001, 100));
    pass(&mut f, &segment(false, ACK, 5001, 1101, 100));
    // a SYN-ACK for another SYN is dropped
    let mut f = plain();
    pass(&mut f, &segment(true, SYN, 1000, 0, 0));
    assert_eq!(f.feed_one(&segment(false, SYN | ACK, 5000, 999, 0)), Err("out_of_window"));
    assert_eq!(f.feed_one(&segment(false, SYN | ACK, 5000, 1002, 0)), Err("out_of_window"));
    assert_eq!(f.feed_one(&segment(false, FIN | ACK, 5000, 1001, 0)), Err("out_of_state"));
}

#[test]
fn segments_with_a_wrong_checksum_do_not_change_the_state() {
    let mut f = plain();
    open(&mut f);
    let mut reset = segment(false, RST, 5001, 0, 0);
    reset[50] ^= 1;
    assert_eq!(f.feed_one(&reset), Err("bad_checksum"));
    pass(&mut f, &segment(true, ACK, 1001, 5001, 10));
    assert_eq!(
        f.feed_one(&segment(false, SYN, 1, 0, 0)),
        Ok(segment(false, SYN, 1, 0, 0)),
        "it is open still: its host asks"
    );
}

#[test]
fn a_fragmented_reset_does_not_close_a_connection() {
    let mut f = plain();
    open(&mut f);
    let reset = segment(false, RST, 5001, 0, 0);
    let piece = build::ipv4(OUT, IN, IpProtocol::TCP).payload(&reset[34..58]).fragment(0, true).to_vec();
    assert_eq!(f.feed_one(&piece), Err("out_of_state"));
    pass(&mut f, &segment(true, ACK, 1001, 5001, 10));
    assert!(f.feed_one(&segment(false, SYN, 1, 0, 0)).is_ok(), "it is open still: its host asks");
}

#[test]
fn replies_to_udp_and_icmp_queries_pass() {
    let mut f = plain();
    let (there, back) = (build::udp4(IN, OUT, 5000, 53).to_vec(), build::udp4(OUT, IN, 53, 5000).to_vec());
    assert_eq!(f.feed_one(&back), Err("denied_by_default"));
    pass(&mut f, &there);
    pass(&mut f, &back);
    assert_eq!(f.feed_one(&build::udp4(OUT, IN, 54, 5000).to_vec()), Err("denied_by_default"));

    let answer = |id| build::icmp4(OUT, IN, icmpv4::Repr::EchoReply { id, seq: 1 }).to_vec();
    assert_eq!(f.feed_one(&answer(7)), Err("no_connection"));
    pass(&mut f, &build::echo4(IN, OUT, 7, 1).to_vec());
    pass(&mut f, &answer(7));
    pass(&mut f, &answer(7));
    assert_eq!(f.feed_one(&answer(8)), Err("no_connection"));
    // a request from the other side with the same identifier is another query
    assert_eq!(f.feed_one(&build::echo4(OUT, IN, 7, 1).to_vec()), Err("denied_by_default"));

    let (a, b): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "2001:db8::7".parse().unwrap());
    let answer = build::icmp6(b, a, icmpv6::Repr::EchoReply { id: 7, seq: 1 }).to_vec();
    assert_eq!(f.feed_one(&answer), Err("no_connection"));
    pass(&mut f, &build::echo6(a, b, 7, 1).to_vec());
    pass(&mut f, &answer);
    pass(&mut f, &build::tcp6(a, b, 1, 2).flags(SYN).seq(1).to_vec());
    pass(&mut f, &build::tcp6(b, a, 2, 1).flags(SYN | ACK).seq(9).ack(2).to_vec());
    pass(&mut f, &build::tcp6(a, b, 1, 2).flags(ACK).seq(2).ack(10).payload(&[0; 20]).to_vec());
    assert_eq!(
        f.feed_one(&build::tcp6(a, b, 1, 2).flags(ACK).seq(2_000_000).ack(10).payload(&[0; 20]).to_vec()),
        Err("out_of_window")
    );
    assert_eq!(f.feed_one(&build::udp6(b, a, 2, 1).to_vec()), Err("denied_by_default"));
}

#[test]
fn only_icmp_errors_about_connections_pass() {
    let mut f = plain();
    open(&mut f);
    let quoted = |frame: Vec<u8>| frame[14..14 + 28].to_vec();
    let about = |to: [u8; 4], quoted: Vec<u8>| {
        build::icmp4([203, 0, 113, 1], to, icmpv4::Repr::TimeExceeded { code: 0 }).payload(&quoted).to_vec()
    };
    pass(&mut f, &about(IN, quoted(segment(true, ACK, 1001, 5001, 0))));
    // about the other direction
    pass(&mut f, &about(OUT, quoted(segment(false, ACK, 5001, 1001, 0))));
    // to another host, about an unsent sequence number, about another connection, truncated
    assert_eq!(f.feed_one(&about([10, 0, 0, 2], quoted(segment(true, ACK, 1001, 5001, 0)))), Err("unrelated_icmp"));
    assert_eq!(f.feed_one(&about(IN, quoted(segment(true, ACK, 1002, 5001, 0)))), Err("unrelated_icmp"));
    assert_eq!(
        f.feed_one(&about(IN, quoted(build::udp4(IN, OUT, 5000, 80).payload(&[0; 4]).to_vec()))),
        Err("unrelated_icmp")
    );
    assert_eq!(f.feed_one(&about(IN, quoted(segment(true, ACK, 1001, 5001, 0))[..27].to_vec())), Err("unrelated_icmp"));
    let (a, b): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "2001:db8::7".parse().unwrap());
    let there = build::udp6(a, b, 1, 2).payload(&[0; 100]).to_vec();
    let big = |to| build::icmp6(b, to, icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(&there[14..90]).to_vec();
    assert_eq!(f.feed_one(&big(a)), Err("unrelated_icmp"));
    pass(&mut f, &there);
    pass(&mut f, &big(a));
    assert_eq!(f.feed_one(&big(b)), Err("unrelated_icmp"));
}

/// Checks that a fragment is held and dropped after the timeout.
fn dropped_after_hold(f: &mut Harness, frame: &[u8]) {
    let before = f.dropped("no_first_fragment");
    assert!(f.feed(&[frame]).is_empty());
    assert_eq!(f.held(), 1);
    f.advance(Duration::from_secs(3));
    assert_eq!((f.held(), f.dropped("no_first_fragment")), (0, before + 1));
}

#[test]
fn later_fragments_pass_if_the_first_has_passed() {
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
    // also fragments that arrive before it, in an earlier or the same batch
    assert!(f.feed(&[piece(true, 32, true, 1)]).is_empty());
    let mut out = f.feed(&[piece(true, 64, false, 1), piece(true, 0, true, 1)]);
    out.sort();
    let mut all = [0, 32, 64].map(|offset| piece(true, offset, offset != 64, 1));
    all.sort();
    assert_eq!((out, f.held()), (all.to_vec(), 0));
    pass(&mut f, &piece(true, 32, true, 1));
    dropped_after_hold(&mut f, &piece(true, 32, true, 2));
    dropped_after_hold(&mut f, &piece(false, 32, true, 1));
    pass(&mut f, &piece(false, 0, true, 9));
    pass(&mut f, &piece(false, 32, false, 9));
    assert_eq!(f.counter("fragments_matched"), 4);
    // the first fragment was denied
    let stranger = build::udp4(OUT, IN, 1, 2).payload(&[0; 24]).id(5).fragment(0, true).to_vec();
    assert_eq!(f.feed_one(&stranger), Err("denied_by_default"));
    dropped_after_hold(&mut f, &piece(false, 32, false, 5));
    // the entry expires after 30 s
    f.jump_to(Duration::from_secs(20));
    f.advance(Duration::from_secs(5));
    pass(&mut f, &piece(true, 32, true, 1));
    f.jump_to(Duration::from_secs(40));
    f.advance(Duration::from_secs(5));
    dropped_after_hold(&mut f, &piece(true, 32, true, 1));
    // the number of held fragments is limited
    let many: Vec<_> = (0..300).map(|id| piece(true, 32, true, 1000 + id)).collect();
    assert!(f.feed(&many).is_empty());
    assert_eq!(f.held(), 128);
}

#[test]
fn data_in_fragments_may_be_acknowledged() {
    let mut f = plain();
    open(&mut f);
    let whole = segment(true, ACK, 1001, 5001, 1000);
    let first = build::ipv4(IN, OUT, IpProtocol::TCP).payload(&whole[34..34 + 520]).id(3).fragment(0, true).to_vec();
    let last = build::ipv4(IN, OUT, IpProtocol::TCP).payload(&whole[34 + 520..]).id(3).fragment(520, false).to_vec();
    pass(&mut f, &first);
    assert_eq!(f.feed_one(&segment(false, ACK, 5001, 2001, 0)), Err("out_of_window"));
    pass(&mut f, &last);
    pass(&mut f, &segment(false, ACK, 5001, 2001, 0));
    assert_eq!(f.feed_one(&segment(false, ACK, 5001, 2003, 0)), Err("out_of_window"));
}

#[test]
fn connections_expire_after_their_timeouts() {
    let mut f = tracked(
        "track = { tcp_established = 100, tcp_transitory = 10, udp = 40, udp_one_way = 20, icmp = 30, tcp_closed = 5 }",
    );
    let at = |f: &mut Harness, seconds| {
        f.jump_to(Duration::from_secs(seconds));
        // a scan takes slightly more than four seconds
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
    pass(&mut f, &segment(true, ACK, 1001, 5001, 0));
    assert_eq!(at(&mut f, 130), 1, "a packet came at 48 s");
    pass(&mut f, &segment(true, RST, 1001, 0, 0));
    assert_eq!(at(&mut f, 150), 0, "reset");
    assert_eq!(f.counter("connections_expired"), 5);
}

#[test]
fn later_fragments_pass_if_the_first_has_headers_after_its_fragment_header() {
    let (a, b): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let mut f = Harness::new::<Firewall>("rules = [\"accept src 2001:db8::1\"]\ntrack = {}");
    let options = IpProtocol(60);
    let first = build::udp6(a, b, 1, 2).payload(&[0; 48]).fragment(0, true, 7).extension(options, &[1, 4, 0, 0, 0, 0]);
    let last = |offset| build::ipv6(a, b, options).payload(&[0; 32]).fragment(offset, false, 7).to_vec();
    assert!(f.feed(&[last(64)]).is_empty());
    assert_eq!(f.feed(&[first.to_vec()]), [first.to_vec(), last(64)]);
    pass(&mut f, &last(64));
}

#[test]
fn a_full_table_refuses_or_evicts_connections() {
    let out = |port| build::udp4(IN, OUT, port, 53).to_vec();
    let mut f = tracked("track = { connections = 64 }");
    (0..64).for_each(|port| pass(&mut f, &out(port)));
    assert_eq!(f.feed_one(&out(64)), Err("table_full"));
    pass(&mut f, &out(3));
    f.advance(Duration::from_millis(2));
    assert_eq!(["connections_ipv4", "connections_ipv6"].map(|table| f.occupancy(table)), [(64, 64), (0, 64)]);

    let mut f = tracked("track = { connections = 64, full = \"evict\" }");
    (0..64).for_each(|port| pass(&mut f, &out(port)));
    // no connection has been idle
    assert_eq!(f.feed_one(&out(64)), Err("table_full"));
    f.jump_to(Duration::from_secs(3));
    // in such a small table a new connection may have no candidates for eviction
    let passed = (64..74).filter(|port| f.feed_one(&out(*port)).is_ok()).count() as u64;
    f.advance(Duration::from_millis(2));
    assert_eq!((f.counter("connections"), f.counter("connections_evicted")), (64, passed));
    assert!(passed >= 7, "{passed} of 10");
    // datagrams: the oldest is removed
    let mut f = tracked("track = { fragments = 16 }");
    let first = |id| build::udp4(IN, OUT, 1, 2).payload(&[0; 24]).id(id).fragment(0, true).to_vec();
    let last = |id| build::ipv4(IN, OUT, IpProtocol::UDP).payload(&[0; 8]).id(id).fragment(32, false).to_vec();
    for id in 0..64 {
        f.jump_to(Duration::from_secs(u64::from(id) * 2));
        pass(&mut f, &first(id));
    }
    pass(&mut f, &last(63));
    dropped_after_hold(&mut f, &last(0));
}

#[test]
fn unanswered_connections_are_evicted_from_a_full_table() {
    for full in ["refuse", "evict"] {
        let mut f = tracked(&format!("track = {{ connections = 64, full = \"{full}\" }}"));
        let (out, back) =
            (|port| build::udp4(IN, OUT, port, 53).to_vec(), |port| build::udp4(OUT, IN, 53, port).to_vec());
        for port in 0..20 {
            pass(&mut f, &out(port));
            pass(&mut f, &back(port));
        }
        (20..64).for_each(|port| pass(&mut f, &out(port)));
        assert_eq!(f.feed_one(&out(64)), Err("table_full"));
        // less than their timeout
        f.advance(Duration::from_secs(8));
        (100..140).for_each(|port| pass(&mut f, &out(port)));
        (0..20).for_each(|port| pass(&mut f, &back(port)));
        f.advance(Duration::from_millis(2));
        assert_eq!((f.counter("connections_evicted"), f.counter("connections") <= 64), (0, true), "{full}");
    }
}

#[test]
fn mid_stream_connections_only_with_loose() {
    let mut f = tracked("track = { loose = true }");
    assert_eq!(f.feed_one(&segment(false, ACK, 1, 1, 0)), Err("denied_by_default"));
    pass(&mut f, &segment(true, ACK, 77_777, 88_888, 10));
    pass(&mut f, &segment(false, ACK, 3_000_000, 77_787, 10));
    pass(&mut f, &segment(true, RST, 77_787, 0, 0));
    assert_eq!(f.feed_one(&segment(true, SYN | ACK, 1, 1, 0)), Err("out_of_state"), "closed");
}

#[test]
fn rules_match_states() {
    let rules = "rules = [\"drop state any dst 192.0.2.66\", \"drop state established dst 10.0.0.1 sport 81\", \"accept state invalid src \
                 10.9.0.0/16\", \"drop state related\", \"accept src 10.0.0.0/8\"]\ntrack = {}";
    let mut f = Harness::new::<Firewall>(rules);
    assert_eq!(f.feed_one(&build::udp4(IN, [192, 0, 2, 66], 1, 2).to_vec()), Err("denied"));
    pass(&mut f, &build::udp4(IN, OUT, 1, 81).to_vec());
    assert_eq!(f.feed_one(&build::udp4(OUT, IN, 81, 1).to_vec()), Err("denied"));
    pass(&mut f, &build::udp4(IN, OUT, 1, 82).to_vec());
    pass(&mut f, &build::udp4(OUT, IN, 82, 1).to_vec());
    pass(&mut f, &build::tcp4([10, 9, 0, 1], OUT, 1, 2).flags(ACK).to_vec());
    assert_eq!(f.feed_one(&build::tcp4(IN, OUT, 1, 2).flags(ACK).to_vec()), Err("no_connection"));
    let there = build::udp4(IN, OUT, 1, 82).to_vec();
    let error = build::icmp4(OUT, IN, icmpv4::Repr::TimeExceeded { code: 0 }).payload(&there[14..42]).to_vec();
    assert_eq!(f.feed_one(&error), Err("denied"));
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
        match Harness::try_new::<Firewall>(&format!("rules = {rules}")) {
            Ok(_) => assert_eq!(word, "", "{rules}"),
            Err(e) => assert!(!word.is_empty() && e.to_string().contains(word), "{rules}: {e}"),
        }
    }
}

#[test]
fn a_restarted_host_reopens_its_connection() {
    // the server has lost the connection, too: it answers the SYN, and both continue with new sequence numbers
    let mut f = plain();
    open(&mut f);
    pass(&mut f, &segment_with_window(true, SYN, 900_000, 0, 0, 500, Some(3)));
    // the old connection continues until the SYN is answered
    pass(&mut f, &segment(false, ACK, 5001, 1001, 100));
    assert_eq!(f.feed_one(&segment(false, SYN | ACK, 700_000, 900_002, 0)), Err("out_of_window"), "of another SYN");
    pass(&mut f, &segment_with_window(false, SYN | ACK, 700_000, 900_001, 0, 2000, Some(2)));
    pass(&mut f, &segment_with_window(true, ACK, 900_001, 700_001, 0, 500, None));
    pass(&mut f, &segment_with_window(false, ACK, 700_001, 900_001, 1000, 2000, None));
    // the windows are those of the new SYNs: 500 * 8 bytes
    assert_eq!(
        f.feed_one(&segment_with_window(false, ACK, 700_001 + 4010, 900_001, 0, 2000, None)),
        Err("out_of_window")
    );
    assert_eq!(f.feed_one(&segment(false, ACK, 5101, 1001, 10)), Err("out_of_window"));

    // the server still has the connection: its challenge ACK is answered by a reset, and the next SYN opens a new one
    let mut f = plain();
    open(&mut f);
    pass(&mut f, &segment(true, SYN, 900_000, 0, 0));
    pass(&mut f, &segment(false, ACK, 5001, 1001, 0));
    pass(&mut f, &segment(true, RST, 1001, 0, 0));
    pass(&mut f, &segment(true, SYN, 900_000, 0, 0));
    pass(&mut f, &segment(false, SYN | ACK, 700_000, 900_001, 0));
    pass(&mut f, &segment(true, ACK, 900_001, 700_001, 0));

    // other hosts cannot reopen it
    let mut f = plain();
    open(&mut f);
    pass(&mut f, &segment(false, SYN, 600_000, 0, 0));
    assert_eq!(f.feed_one(&segment(true, SYN | ACK, 800_000, 600_001, 0)), Err("out_of_window"));
    assert_eq!(f.feed_one(&segment(false, SYN | ACK, 800_000, 1002, 0)), Err("out_of_window"));
    pass(&mut f, &segment(true, ACK, 1001, 5001, 10));
}
