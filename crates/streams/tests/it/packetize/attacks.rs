//! Packets of attackers outside the connection, and attempts to bypass the node.

use crate::packetize::cases::{Frame, PUSH, Said, a, b, begin, payloads, said, told};
use crate::packetize::world::Between;
use proptest::prelude::*;
use streams::packetize::{Settings, packetize};
use wire::tcp::{TcpOption, options};
use wire::{MacAddr, TcpFlags, build, ethernet, ipv4, vlan};

const MSS: TcpOption<'_> = TcpOption::Mss(1460);
const RST: TcpFlags = TcpFlags::RST;

/// A plus becomes two.
pub(crate) fn plus(settings: &Settings) -> Between {
    let double = |_: &streams::packetize::Flow<'_>, bytes: &[u8], _, out: &mut Vec<u8>| {
        for byte in bytes {
            out.extend_from_slice(if *byte == b'+' { b"++" } else { core::slice::from_ref(byte) });
        }
        bytes.len()
    };
    Between::new(packetize(settings, double).unwrap(), 8192)
}

fn begun() -> Between {
    let mut it = plus(&Settings::default());
    begin(&mut it, &[MSS]);
    it
}

/// Returns the packets that both ends receive in a timer tick.
pub(crate) fn woken(it: &mut Between, now: u64) -> [Vec<Said>; 2] {
    it.wake(now).map(|frames| frames.iter().map(|frame| said(frame)).collect())
}

/// Sequence number, acknowledgment and flags of each.
fn heads(all: &[Said]) -> Vec<(u32, u32, u8)> {
    all.iter().map(|it| (it.0, it.1, it.2)).collect()
}

fn stamped(frame: Frame, value: u32, echo: u32) -> Frame {
    frame.tcp_options(options(&[TcpOption::Timestamps { value, echo }]).unwrap())
}

/// Asserts that sender and receiver can still exchange bytes with the right numbers.
fn goes_on(it: &mut Between, seq: u32, out_seq: u32) {
    let [out, _] = told(it, 0, &a().flags(PUSH).seq(seq).payload(b"on+"));
    assert_eq!((out[0].0, payloads(&out)), (out_seq, b"on++".to_vec()));
    let [_, back] = told(it, 1, &b().ack(out_seq + 4));
    assert_eq!(back[0].1, seq + 3);
}

#[test]
fn only_an_exact_reset_is_believed() {
    let mut it = begun();
    told(&mut it, 0, &a().flags(PUSH).payload(b"a+b"));
    told(&mut it, 1, &b().ack(1004));
    // in the window, but not the next byte: the sender gets a challenge ACK, and nothing is forwarded
    for (n, seq) in [1003 + 5000, 1004, 20_000].into_iter().enumerate() {
        let [out, back] = told(&mut it, 0, &a().flags(RST).seq(seq));
        assert_eq!((out, heads(&back)), (vec![], if n == 0 { vec![(5000, 1003, 0x10)] } else { vec![] }), "{seq}");
    }
    it.wake(200);
    assert_eq!(told(&mut it, 0, &a().flags(RST).seq(1004))[1].len(), 1, "after a while it is answered again");
    // outside
    assert_eq!(told(&mut it, 0, &a().flags(RST).seq(900_000)), [vec![], vec![]]);
    for now in 1..4000 {
        it.wake(200 + now * 4);
    }
    assert_eq!((it.counter("connections"), it.counter("challenged"), it.dropped("out_of_window")), (1, 2, 5));
    goes_on(&mut it, 1003, 1004);
    // exact, in the receiver's numbers
    let [out, _] = told(&mut it, 0, &a().flags(RST).seq(1006));
    assert_eq!(heads(&out), [(1008, 5000, 4)]);
    // the receiver has not got it, and is told again, also after a while
    for now in 0..5000 {
        it.wake(20_000 + now * 4);
    }
    assert_eq!(heads(&told(&mut it, 1, &b().ack(1008))[0]), [(1008, 5000, 4)]);
}

#[test]
fn what_is_not_acceptable_leaves_no_trace() {
    let mut it = plus(&Settings::default());
    let syn = options(&[MSS, TcpOption::Timestamps { value: 1_000_000, echo: 0 }]).unwrap();
    it.feed(0, &[a().flags(TcpFlags::SYN).seq(999).tcp_options(syn).to_vec()]);
    let syn = options(&[MSS, TcpOption::Timestamps { value: 77, echo: 1_000_000 }]).unwrap();
    it.feed(1, &[b().flags(TcpFlags::SYN_ACK).seq(4999).tcp_options(syn).to_vec()]);
    let [first, _] = it.feed(0, &[stamped(a().flags(PUSH).payload(b"real"), 1_000_001, 77).to_vec()]);
    // in the order of the checks: sequence number, acknowledgment; with all that could be taken over
    let poison = |frame: Frame, clock: u32| {
        stamped(frame, clock, 0).ttl(1).src_mac(MacAddr([6; 6])).flags(TcpFlags(0xd8)).payload(b"zz").to_vec()
    };
    let far = 1_000_001u32.wrapping_add(0x7fff_ffff);
    for (seq, ack) in [(3_000_000_000, 5000), (3_000_000_000, 123), (1004, 5001), (1004, 5000u32.wrapping_sub(40_000))]
    {
        let [out, _] = it.feed(0, &[poison(a().seq(seq).ack(ack), far)]);
        assert!(out.is_empty(), "{seq} {ack}");
    }
    // no timestamp, and one of long ago (RFC 7323 §3.2, §5)
    assert!(it.feed(0, &[a().flags(PUSH).seq(1004).payload(b"zz").to_vec()])[0].is_empty());
    let [out, back] = it.feed(0, &[poison(a().seq(1004), 999_999)]);
    assert_eq!((out.len(), back.len()), (0, 1));
    assert_eq!((it.dropped("no_timestamp"), it.dropped("stale"), it.dropped("out_of_window")), (1, 3, 2));
    let [second, _] = it.feed(0, &[stamped(a().flags(PUSH).seq(1004).payload(b"next"), 1_000_010, 77).to_vec()]);
    let headers = |frame: &[u8]| {
        let it = ethernet::Frame::new(frame).unwrap();
        let ip = ipv4::Packet::new(it.payload()).unwrap();
        (frame[..12].to_vec(), ip.header().ttl(), said(frame).2, said(frame).3)
    };
    assert_eq!(headers(&first[0]), headers(&second[0]));
    let tcp = wire::tcp::Segment::new(&second[0][34..]).unwrap();
    assert_eq!(tcp.options().next(), Some(Ok(TcpOption::Timestamps { value: 1_000_010, echo: 77 })));
}

#[test]
fn the_clock_follows_what_reaches_back_to_the_last_acknowledgment() {
    let mut it = plus(&Settings::default());
    let syn = |value| options(&[MSS, TcpOption::Timestamps { value, echo: 0 }]).unwrap();
    it.feed(0, &[a().flags(TcpFlags::SYN).seq(999).tcp_options(syn(10)).to_vec()]);
    it.feed(1, &[b().flags(TcpFlags::SYN_ACK).seq(4999).tcp_options(syn(10)).to_vec()]);
    // one that came before its turn, with a clock of next week
    told(&mut it, 0, &stamped(a().flags(PUSH).seq(1010).payload(b"early"), 1 << 30, 10));
    let [out, _] = it.feed(0, &[stamped(a().flags(PUSH).payload(b"in order: "), 12, 10).to_vec()]);
    let tcp = wire::tcp::Segment::new(&out[0][34..]).unwrap();
    assert_eq!(tcp.options().next(), Some(Ok(TcpOption::Timestamps { value: 12, echo: 10 })));
}

#[test]
fn an_acknowledgment_counts_only_where_its_segment_may_be() {
    let mut it = begun();
    told(&mut it, 0, &a().flags(PUSH).payload(&[b'x'; 1000]));
    assert_eq!(told(&mut it, 1, &b().seq(5000 + (1 << 30)).ack(2000).window(1))[1], []);
    // the bytes are kept, and the window is what it was
    it.wake(4);
    assert!(it.counter("memory_bytes") > 0);
    assert_eq!(payloads(&told(&mut it, 0, &a().payload(&[b'x'; 1000]))[0]).len(), 1000);
    told(&mut it, 1, &b().ack(2000));
    assert_eq!(payloads(&told(&mut it, 0, &a().flags(PUSH).seq(2000).payload(&[b'x'; 1000]))[0]).len(), 1000);
}

#[test]
fn an_acknowledgment_of_long_ago_vouches_for_nothing() {
    let mut it = begun();
    for far in [0x7fff_0000u32, 60_001] {
        let [out, back] = told(&mut it, 0, &a().flags(PUSH).ack(5000u32.wrapping_sub(far)).payload(b"injected"));
        assert_eq!((out, heads(&back)), (vec![], vec![(5000, 1000, 0x10)]), "answered, and dropped");
    }
    // one window back it may have been on its way
    let [out, _] = told(&mut it, 0, &a().flags(PUSH).ack(5000 - 3000).payload(b"late"));
    assert_eq!(payloads(&out), b"late");
}

#[test]
fn a_handshake_is_between_two() {
    let mut it = plus(&Settings::default());
    let list = || options(&[MSS]).unwrap();
    it.feed(0, &[a().flags(TcpFlags::SYN).seq(999).tcp_options(list()).to_vec()]);
    // it answers no SYN
    let forged = b().flags(TcpFlags::SYN_ACK).seq(700_000_000).ack(42).tcp_options(list());
    assert_eq!(told(&mut it, 1, &forged), [vec![], vec![]]);
    // one end says something before the other has agreed
    for seq in [5, 1000] {
        assert_eq!(told(&mut it, 0, &a().flags(PUSH).seq(seq).payload(b"junk")), [vec![], vec![]]);
    }
    assert_eq!((it.dropped("stale"), it.dropped("out_of_window")), (1, 2));
    assert_eq!(told(&mut it, 1, &b().flags(TcpFlags::SYN_ACK).seq(4999).tcp_options(list()))[1].len(), 1);
    goes_on(&mut it, 1000, 1000);
    it.wake(4);
    assert_eq!((it.counter("passed"), it.counter("connections")), (0, 1));
}

#[test]
fn another_connection_takes_the_place_of_one_that_both_ends_have_lost() {
    let mut it = begun();
    told(&mut it, 0, &a().flags(PUSH).payload(b"a+b"));
    told(&mut it, 1, &b().ack(1004));
    // something of the old one waits for time to pass
    told(&mut it, 1, &b().ack(1004).window(0));
    let (n, m) = (3_500_000_000u32, 3_000_000_000u32);
    // a SYN alone, which anybody may send, changes nothing
    assert_eq!(heads(&told(&mut it, 0, &a().flags(TcpFlags::SYN).seq(n - 7))[0])[0].0, n - 7);
    told(&mut it, 0, &a().flags(PUSH).seq(1003).payload(b"waits"));
    assert_eq!(told(&mut it, 0, &a().flags(TcpFlags::SYN).seq(n))[0].len(), 1);
    // nor does an answer to the one before the last
    assert_eq!(told(&mut it, 1, &b().flags(TcpFlags::SYN_ACK).seq(m).ack(n - 6))[1], []);
    assert_eq!(told(&mut it, 1, &b().flags(TcpFlags::SYN_ACK).seq(m).ack(n + 1))[1].len(), 1);
    let [out, _] = told(&mut it, 0, &a().flags(PUSH).seq(n + 1).ack(m + 1).payload(b"new+"));
    assert_eq!((out[0].0, payloads(&out)), (n + 1, b"new++".to_vec()));
    it.wake(4);
    assert_eq!((it.counter("new"), it.counter("connections"), it.counter("waiting")), (2, 1, 0));
}

#[test]
fn an_end_that_still_has_the_old_connection_can_say_so() {
    let mut it = begun();
    told(&mut it, 0, &a().flags(TcpFlags::SYN).seq(77));
    // it asks what that is (RFC 5961 §4.2), and the other knows nothing of it
    assert_eq!(told(&mut it, 1, &b())[1].len(), 1);
    assert_eq!(heads(&told(&mut it, 0, &a().flags(RST).seq(1000))[0]), [(1000, 5000, 4)]);
    told(&mut it, 0, &a().flags(TcpFlags::SYN).seq(77));
    // or it refuses the new one
    let [_, back] = told(&mut it, 1, &b().flags(TcpFlags(0x14)).seq(0).ack(78));
    assert_eq!(heads(&back), [(0, 78, 0x14)]);
}

#[test]
fn who_was_given_up_is_told_so_whatever_comes() {
    let settings = Settings { growth: 1, buffer: 8192, memory: 64 << 10, idle: 60, ..Settings::default() };
    let wild = |_: &streams::packetize::Flow<'_>, bytes: &[u8], _, out: &mut Vec<u8>| {
        match bytes.first() {
            Some(b'!') => out.resize(200_000, 3),
            _ => out.extend_from_slice(bytes),
        }
        bytes.len()
    };
    let mut it = Between::new(packetize(&settings, wild).unwrap(), 512);
    begin(&mut it, &[MSS]);
    told(&mut it, 0, &a().flags(PUSH).payload(b"one "));
    let [out, back] = told(&mut it, 0, &a().flags(PUSH).seq(1004).payload(b"!two"));
    assert_eq!((heads(&out), heads(&back)), (vec![(1000, 5000, 0x14)], vec![(5000, 1000, 0x14)]));
    // for longer than what is over is remembered
    for n in 1..8 {
        (0..1000).for_each(|ms| drop(it.wake(n * 4000 + ms * 4)));
        assert_eq!(heads(&told(&mut it, 1, &b().ack(1004))[0]), [(1004, 5000, 4)]);
        assert_eq!(heads(&told(&mut it, 0, &a().flags(PUSH).seq(1008).payload(b"three"))[1]), [(5000, 1000, 4)]);
    }
    assert_eq!((it.dropped("given_up"), it.counter("memory_bytes"), it.counter("given_up")), (14, 0, 1));
}

#[test]
fn other_tags_are_of_another_network() {
    let mut it = plus(&Settings::default());
    let tagged = |frame: Frame, tag| frame.vlan(tag).to_vec();
    let list = || options(&[MSS]).unwrap();
    it.feed(0, &[tagged(a().flags(TcpFlags::SYN).seq(999).tcp_options(list()), 10)]);
    it.feed(1, &[tagged(b().flags(TcpFlags::SYN_ACK).seq(4999).tcp_options(list()), 11)]);
    for frame in [tagged(b().ack(1000), 20), tagged(b().flags(RST), 20), b().to_vec(), b().vlan(11).qinq(3).to_vec()] {
        assert_eq!(it.feed(1, &[frame]), [const { Vec::<Vec<u8>>::new() }; 2]);
    }
    assert_eq!(it.dropped("other_vlan"), 4);
    let [_, back] = it.feed(1, &[tagged(b().flags(PUSH).payload(b"secret"), 11)]);
    assert_eq!(vlan::Tag::new(&back[0][14..]).unwrap().header().vid(), 11);
}

#[test]
fn packets_of_no_connection_take_no_room() {
    let mut it = plus(&Settings { flows: 64, ..Settings::default() });
    for n in 0..3000u32 {
        let [_, _, x, y] = n.to_be_bytes();
        it.feed(0, &[build::tcp4([10, 9, x, y], [10, 0, 0, 2], 1, 80).flags(TcpFlags::ACK).to_vec()]);
    }
    it.wake(4);
    assert_eq!((it.counter("flows"), it.counter("refused"), it.counter("midstream")), (0, 0, 3000));
    begin(&mut it, &[MSS]);
    goes_on(&mut it, 1000, 1000);
    // unanswered SYNs are evicted, an answered one is not
    for n in 0..3000u32 {
        let [_, _, x, y] = n.to_be_bytes();
        it.feed(0, &[build::tcp4([10, 9, x, y], [10, 0, 0, 2], 1, 80).flags(TcpFlags::SYN).to_vec()]);
    }
    it.wake(8);
    assert!(it.counter("flows") <= 64 && it.counter("evicted") >= 2900 && it.counter("refused") < 40);
    goes_on(&mut it, 1003, 1004);
    // and another still finds room
    let (x, y) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    it.feed(0, &[build::tcp4(x, y, 50_000, 80).flags(TcpFlags::SYN).seq(99).to_vec()]);
    it.feed(1, &[build::tcp4(y, x, 80, 50_000).flags(TcpFlags::SYN_ACK).seq(499).ack(100).window(9000).to_vec()]);
    let data = build::tcp4(x, y, 50_000, 80).flags(PUSH).seq(100).ack(500).payload(b"+");
    assert_eq!(payloads(&told(&mut it, 0, &data)[0]), b"++");
}

proptest! {
    /// Whatever a stranger sends who knows addresses and ports, but neither number: the connection goes on as if nothing had.
    #[test]
    fn a_blind_stranger_changes_nothing(
        forged in prop::collection::vec(
            (any::<bool>(), 0..64u8, 200_000..4_000_000_000u32, 200_000..4_000_000_000u32, any::<u16>(), 0..50usize), 1..60),
    ) {
        let mut it = begun();
        for (n, (back, flags, seq, ack, window, len)) in forged.into_iter().enumerate() {
            let (frame, from) = if back { (b(), 1) } else { (a(), 0) };
            let junk = frame.flags(TcpFlags(flags)).seq(seq).ack(ack).window(window).payload(&vec![b'z'; len]);
            let [out, back] = told(&mut it, from, &junk);
            if flags & 2 == 0 {
                // an answer to who the node takes for the sender, with what it expects
                let (answer, passed) = if from == 0 { (back, out) } else { (out, back) };
                prop_assert!(passed.is_empty() && answer.len() <= 1 && payloads(&answer).is_empty());
            }
            goes_on(&mut it, 1000 + 3 * n as u32, 1000 + 4 * n as u32);
        }
    }
}
