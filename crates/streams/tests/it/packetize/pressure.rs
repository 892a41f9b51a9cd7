//! Receivers that read slowly or not at all, senders that ask for much, and what that may cost.

use crate::packetize::attacks::{plus, woken};
use crate::packetize::cases::{PUSH, Said, a, b, begin, payloads, said, told};
use crate::packetize::world::Between;
use streams::packetize::{Flow, Settings, packetize};
use wire::tcp::{TcpOption, options};
use wire::{TcpFlags, build, ethernet, ipv4};

const MSS: TcpOption<'_> = TcpOption::Mss(1460);
const RST: u8 = 4;
/// Segments made at a time in one direction.
const AT_ONCE: usize = 64;

/// Lets nothing go before it has to.
fn holder(settings: &Settings) -> Between {
    let hold = |_: &Flow<'_>, bytes: &[u8], more: bool, out: &mut Vec<u8>| {
        if more {
            return 0;
        }
        out.extend_from_slice(bytes);
        bytes.len()
    };
    Between::new(packetize(settings, hold).unwrap(), 8192)
}

/// Bytes that wait here, told to have arrived, for a receiver without room.
fn closed() -> Between {
    let mut it = holder(&Settings::default());
    it.wake(0);
    begin(&mut it, &[MSS]);
    told(&mut it, 0, &a().flags(PUSH).payload(b"last words"));
    told(&mut it, 1, &b().window(0));
    it
}

#[test]
fn a_receiver_without_room_is_asked_until_it_answers() {
    let mut it = closed();
    let mut asked = vec![];
    // its window update is lost
    for now in 1..2000 {
        let [out, _] = woken(&mut it, now * 4);
        asked.extend(out);
    }
    assert!(asked.len() >= 2 && asked.iter().all(|s| s.4 == b"l" && s.0 == 1000 && s.2 & RST == 0), "{asked:?}");
    let [out, _] = told(&mut it, 1, &b().ack(1001).window(1000));
    assert_eq!(payloads(&out), b"ast words");
    // without an answer it is given up eventually
    let mut it = closed();
    let resets: usize = (1..60_000).map(|n| woken(&mut it, n * 4)[0].iter().filter(|s| s.2 & RST != 0).count()).sum();
    assert_eq!((resets, it.counter("given_up")), (1, 1));
}

#[test]
fn a_receiver_that_answers_is_never_given_up() {
    let mut it = closed();
    let (mut asked, mut last) = (0, 0);
    for now in 1..150_000u64 {
        let [mut out, back] = woken(&mut it, now * 4);
        assert!(out.iter().chain(&back).all(|s| s.2 & RST == 0), "at {} ms", now * 4);
        if now % 25_000 == 0 {
            // the sender keeps it alive
            out.extend(told(&mut it, 0, &a().seq(1009))[0].clone());
        }
        if out.iter().any(|s| !s.4.is_empty()) {
            (asked, last) = (asked + 1, now * 4);
            told(&mut it, 1, &b().window(0));
        }
    }
    assert!((10..40).contains(&asked) && last > 500_000, "{asked} questions, the last at {last} ms");
    assert_eq!(payloads(&told(&mut it, 1, &b().ack(1001).window(1000))[0]), b"ast words");
}

#[test]
fn nothing_comes_behind_the_end() {
    let mut it = plus(&Settings::default());
    begin(&mut it, &[MSS]);
    told(&mut it, 0, &a().flags(PUSH).seq(1010).payload(b"afterfin"));
    told(&mut it, 0, &a().flags(PUSH).seq(1005).payload(b"5678901234"));
    let [out, _] = told(&mut it, 0, &a().flags(TcpFlags(0x11)).payload(b"0123456789"));
    assert_eq!((payloads(&out), out.last().unwrap().2 & 1), (b"0123456789".to_vec(), 1));
    let [_, back] = told(&mut it, 1, &b().ack(1011));
    assert_eq!(back[0].1, 1011);
    // again, and more
    assert_eq!(told(&mut it, 0, &a().flags(PUSH).seq(1011).payload(b"more"))[0], []);
    it.wake(4);
    assert_eq!(it.counter("memory_bytes"), 0);
}

#[test]
fn what_is_repeated_leads_to_no_more_than_was_made_of_it() {
    let mut it = plus(&Settings { growth: 2, ..Settings::default() });
    begin(&mut it, &[MSS, TcpOption::WindowScale(8)]);
    told(&mut it, 1, &b());
    let mut seq = 1000;
    for _ in 0..1024 {
        told(&mut it, 0, &a().flags(PUSH).seq(seq).payload(b"x"));
        seq += 1;
    }
    for _ in 0..80 {
        told(&mut it, 0, &a().flags(PUSH).seq(seq).payload(&[b'+'; 1400]));
        seq += 1400;
    }
    let again = a().flags(PUSH).seq(seq - 1).payload(b"x").to_vec();
    let out: Vec<Said> = it.feed(0, &vec![again.clone(); 32])[0].iter().map(|frame| said(frame)).collect();
    assert!((1..=2).contains(&out.len()) && payloads(&out).len() <= 1460, "{} packets", out.len());
    // a segment of the middle: twice its length, once a millisecond
    let again = a().flags(PUSH).seq(seq - 14_000).payload(&[b'+'; 1400]).to_vec();
    for now in 1..4 {
        it.wake(now);
        let out: Vec<Said> = it.feed(0, &vec![again.clone(); 32])[0].iter().map(|frame| said(frame)).collect();
        assert!((2..=3).contains(&out.len()) && payloads(&out).len() <= 2800, "{} packets", out.len());
    }
}

#[test]
fn a_window_that_opens_far_is_filled_in_parts() {
    let mut it = plus(&Settings { growth: 1, ..Settings::default() });
    let list = |mss| options(&[TcpOption::Mss(mss), TcpOption::WindowScale(8)]).unwrap();
    it.feed(0, &[a().flags(TcpFlags::SYN).seq(999).tcp_options(list(64)).to_vec()]);
    it.feed(1, &[b().flags(TcpFlags::SYN_ACK).seq(4999).tcp_options(list(1460)).to_vec()]);
    told(&mut it, 0, &a().window(2000));
    told(&mut it, 0, &a().window(0));
    for n in 0..140 {
        told(&mut it, 1, &b().seq(5000 + n * 1400).payload(&[n as u8; 1400]));
    }
    let mut all = vec![];
    let first = told(&mut it, 0, &a().window(2000))[1].len();
    for now in 1..200 {
        let [_, back] = woken(&mut it, now * 4);
        assert!(back.len() <= AT_ONCE + 2, "{} packets at once", back.len());
        all.extend(back.into_iter().flat_map(|s| s.4));
    }
    assert!(first <= AT_ONCE + 2 && all.len() > 100_000, "{first} at first, {} bytes then", all.len());
}

#[test]
fn slivers_of_a_window_are_left_alone() {
    let mut it = plus(&Settings { growth: 1, ..Settings::default() });
    begin(&mut it, &[MSS]);
    told(&mut it, 1, &b().window(0));
    for n in 0..20 {
        told(&mut it, 0, &a().flags(PUSH).seq(1000 + n * 1400).payload(&[b'x'; 1400]));
    }
    // three bytes at a time (RFC 9293 §3.8.6.2.1)
    for n in 0..50 {
        assert_eq!(payloads(&told(&mut it, 1, &b().window(3 * (n % 2)))[0]), b"");
    }
    told(&mut it, 1, &b().window(3));
    // but not for ever
    let sent: usize = (1..100).map(|n| payloads(&woken(&mut it, n * 4)[0]).len()).sum();
    assert_eq!(sent, 3);
    assert!(payloads(&told(&mut it, 1, &b().ack(1003).window(1460))[0]).len() == 1400);
}

#[test]
fn congestion_is_told_with_the_bytes_that_met_it() {
    let mut it = plus(&Settings::default());
    begin(&mut it, &[MSS]);
    let marks = |frames: &[Vec<u8>]| -> Vec<u8> {
        let ecn = |frame: &Vec<u8>| {
            let it = ethernet::Frame::new(frame).unwrap();
            ipv4::Packet::new(it.payload()).unwrap().header().ecn()
        };
        frames.iter().map(ecn).collect()
    };
    let [out, _] = it.feed(0, &[a().flags(PUSH).ecn(3).seq(1004).payload(b"late").to_vec()]);
    assert!(out.is_empty());
    let [out, _] = it.feed(0, &[a().flags(PUSH).ecn(2).payload(b"1st!").to_vec()]);
    assert!(!out.is_empty() && marks(&out).iter().all(|mark| *mark == 3));
    // it is told once; and not by one that is not taken
    it.feed(0, &[a().flags(PUSH).ecn(3).seq(900_000).payload(b"far").to_vec()]);
    let [out, _] = it.feed(0, &[a().flags(PUSH).ecn(2).seq(1008).payload(b"more").to_vec()]);
    assert_eq!(marks(&out), [2]);
}

#[test]
fn a_window_that_is_told_is_never_shifted_away() {
    let mut it = plus(&Settings { growth: 32, ..Settings::default() });
    let list = options(&[MSS, TcpOption::WindowScale(14)]).unwrap();
    it.feed(0, &[a().flags(TcpFlags::SYN).seq(999).tcp_options(list).to_vec()]);
    let [_, syn] = it.feed(1, &[b().flags(TcpFlags::SYN_ACK).seq(4999).tcp_options(list).to_vec()]);
    let tcp = wire::tcp::Segment::new(&syn[0][34..]).unwrap();
    assert!(tcp.options().any(|it| it == Ok(TcpOption::WindowScale(0))), "8192 bytes need no scale");
    let mut seq = 1000;
    for _ in 0..20 {
        told(&mut it, 0, &a().flags(PUSH).seq(seq).payload(&[b'a'; 1000]));
        seq += 1000;
        let [_, back] = told(&mut it, 1, &b().ack(seq).window(100));
        assert!(back[0].1 == seq && back[0].3 >= 4000, "{:?}", (back[0].1, back[0].3));
    }
}

/// Of connection `n`.
fn nth(n: u16, back: bool, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
    let (x, y) = ([10, 1, 0, 1], [10, 1, 0, 2]);
    let segment = if back { build::tcp4(y, x, 80, 10_000 + n) } else { build::tcp4(x, y, 10_000 + n, 80) };
    let list = options(&[MSS, TcpOption::WindowScale(3)]).unwrap();
    let segment = segment.seq(seq).ack(ack).flags(TcpFlags(flags)).window(30_000);
    if flags & 2 != 0 { segment.tcp_options(list).to_vec() } else { segment.payload(payload).to_vec() }
}

fn open_nth(it: &mut Between, n: u16) {
    it.feed(0, &[nth(n, false, 2, 999, 0, b"")]);
    it.feed(1, &[nth(n, true, 0x12, 4999, 1000, b"")]);
    it.feed(0, &[nth(n, false, 0x10, 1000, 5000, b"")]);
}

#[test]
fn readers_that_do_not_read_leave_room_for_the_others() {
    let memory = 8 << 20;
    let mut it = plus(&Settings { growth: 2, memory, ..Settings::default() });
    it.wake(0);
    (0..101).for_each(|n| open_nth(&mut it, n));
    for k in 0..90 {
        for n in 0..100 {
            it.feed(1, &[nth(n, true, 0x10, 5000 + k * 1400, 1000, &[b'x'; 1400])]);
        }
    }
    it.wake(4);
    assert!(it.counter("memory_bytes") <= memory);
    // an honest one is served all the time
    let mut got = 0;
    for k in 0..500u32 {
        it.wake(8 + u64::from(k) * 4);
        for frame in &it.feed(1, &[nth(100, true, 0x18, 5000 + got, 1000, &[b'h'; 1000])])[1] {
            let it = said(frame);
            got += if it.4.first() == Some(&b'h') && it.0 == 5000 + got { it.4.len() as u32 } else { 0 };
        }
        it.feed(0, &[nth(100, false, 0x10, 1000, 5000 + got, b"")]);
    }
    assert!(got >= 300_000, "{got} bytes in two seconds");
    assert_eq!((it.counter("new"), it.counter("connections")), (101, 101));
}

#[test]
fn windows_are_not_promised_that_memory_does_not_hold() {
    let memory = 3 << 20;
    let mut it = plus(&Settings { growth: 1, memory, ..Settings::default() });
    it.wake(0);
    for n in 0..60 {
        it.feed(0, &[nth(n, false, 2, 999, 0, b"")]);
        it.feed(1, &[nth(n, true, 0x12, 4999, 1000, b"")]);
    }
    // more than half is taken by what the SYNs had promised; then the clients have 240,000 bytes of room each
    for n in 0..60 {
        for k in 0..30 {
            it.feed(1, &[nth(n, true, 0x18, 5000 + k * 1000, 1000, &[b'x'; 1000])]);
        }
    }
    let mut promised = 0;
    for n in 0..60 {
        let [told, _] = it.feed(0, &[nth(n, false, 0x10, 1000, 5001, b"")]);
        let (_, ack, _, window, _) = said(told.last().unwrap());
        // shifted by 3: 256 KiB at most
        promised += ack + (u32::from(window) << 3) - 5000;
    }
    assert!((60 * 40_000..=memory as u32).contains(&promised), "{promised} bytes");
}

#[test]
fn when_memory_is_full_who_takes_nothing_makes_way() {
    let mut it = plus(&Settings { growth: 1, buffer: 16 << 10, memory: 64 << 10, ..Settings::default() });
    it.wake(0);
    (0..10).for_each(|n| open_nth(&mut it, n));
    for k in 0..16 {
        for n in 0..9 {
            it.feed(1, &[nth(n, true, 0x18, 5000 + k * 1000, 1000, &[b'x'; 1000])]);
        }
    }
    let honest = nth(9, true, 0x18, 5000, 1000, &[b'h'; 1000]);
    let payload = |it: &mut Between| -> usize {
        it.feed(1, std::slice::from_ref(&honest))[1].iter().filter(|f| said(f).4.contains(&b'h')).count()
    };
    // not at once: receivers take a while
    it.wake(400);
    assert_eq!((payload(&mut it), it.counter("given_up")), (0, 0));
    it.wake(600);
    assert_eq!(payload(&mut it), 0);
    it.wake(604);
    assert_eq!(it.counter("given_up"), 1);
    assert_eq!(payload(&mut it), 1);
    assert!(it.dropped("no_memory") > 2);
}

#[test]
fn a_reset_gives_memory_back() {
    let mut it = plus(&Settings::default());
    open_nth(&mut it, 0);
    for k in 0..30 {
        it.feed(1, &[nth(0, true, 0x10, 5000 + k * 1000, 1000, &[b'x'; 1000])]);
    }
    it.wake(4);
    assert!(it.counter("memory_bytes") >= 30_000);
    it.feed(0, &[nth(0, false, 4, 1000, 0, b"")]);
    it.wake(8);
    assert_eq!(it.counter("memory_bytes"), 0);
}

#[test]
fn those_that_are_dead_make_way() {
    let mut it = plus(&Settings { flows: 64, ..Settings::default() });
    for n in 0..500 {
        open_nth(&mut it, n);
        let [out, _] = it.feed(0, &[nth(n, false, 0x18, 1000, 5000, b"+")]);
        assert_eq!(out.iter().map(|frame| said(frame).4).collect::<Vec<_>>(), [b"++"], "{n}");
        it.feed(0, &[nth(n, false, RST, 1001, 0, b"")]);
    }
    it.wake(4);
    assert!(it.counter("flows") <= 64);
    assert_eq!((it.counter("new"), it.counter("refused")), (500, 0));
}

#[test]
fn bytes_that_wait_are_counted() {
    let mut it = holder(&Settings::default());
    open_nth(&mut it, 0);
    it.feed(0, &[nth(0, false, 0x18, 1000, 5000, &[b'x'; 1000])]);
    it.wake(4);
    assert_eq!(it.counter("memory_bytes"), 1000);
}

#[test]
fn those_that_wait_take_turns() {
    let mut it = holder(&Settings { timeout: 50, ..Settings::default() });
    it.wake(4);
    for n in 0..3000 {
        open_nth(&mut it, n);
        it.feed(0, &[nth(n, false, 0x18, 1000, 5000, b"c")]);
    }
    it.wake(8);
    assert_eq!(it.counter("waiting"), 3000);
    let sent: Vec<_> = (0..3).map(|n| it.wake(100 + n * 4)[0].len()).collect();
    assert_eq!((sent[0], sent.iter().sum::<usize>()), (1024, 3000));
}
