//! Effects of single segments.

use crate::packetize::world::Between;
use streams::packetize::{Settings, packetize};
use wire::tcp::{Segment, TcpOption, options};
use wire::{EtherType, MacAddr, TcpFlags, build, ethernet, ipv4, vlan};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
pub(crate) const PUSH: TcpFlags = TcpFlags(0x18);

pub(crate) type Frame = build::Frame<ipv4::Repr, wire::tcp::Repr>;

/// From `a`, who begins; 1000 is the number of its first byte.
pub(crate) fn a() -> Frame {
    build::tcp4(A, B, 40_000, 80).flags(TcpFlags::ACK).window(30_000).seq(1000).ack(5000)
}

/// From `b`; 5000 is the number of its first byte.
pub(crate) fn b() -> Frame {
    build::tcp4(B, A, 80, 40_000).flags(TcpFlags::ACK).window(30_000).seq(5000).ack(1000)
}

/// Every byte three times.
fn between(settings: &Settings) -> Between {
    let triple = |_: &streams::packetize::Flow<'_>, bytes: &[u8], _, out: &mut Vec<u8>| {
        bytes.iter().for_each(|byte| out.extend([*byte; 3]));
        bytes.len()
    };
    Between::new(packetize(&Settings { growth: 3, ..settings.clone() }, triple).unwrap(), 512)
}

fn begun() -> Between {
    let mut it = between(&Settings::default());
    begin(&mut it, &[TcpOption::Mss(1460)]);
    it
}

pub(crate) fn begin(it: &mut Between, list: &[TcpOption<'_>]) {
    let list = options(list).unwrap();
    it.feed(0, &[a().flags(TcpFlags::SYN).seq(999).tcp_options(list).to_vec()]);
    it.feed(1, &[b().flags(TcpFlags::SYN_ACK).seq(4999).tcp_options(list).to_vec()]);
    assert_eq!(it.feed(0, &[a().to_vec()]).map(|frames| frames.len()), [1, 0]);
}

/// Sequence number, acknowledgment, flags, window and payload of a segment.
pub(crate) type Said = (u32, u32, u8, u16, Vec<u8>);

pub(crate) fn said(frame: &[u8]) -> Said {
    let frame = ethernet::Frame::new(frame).unwrap();
    let mut ip = frame.payload();
    if frame.header().ether_type() == EtherType::VLAN {
        ip = vlan::Tag::new(ip).unwrap().payload();
    }
    let ip = ipv4::Packet::new(ip).unwrap();
    let tcp = Segment::new(ip.payload()).unwrap();
    assert!(ip.checksum_ok() && tcp.checksum_ok(ip.pseudo()));
    let header = tcp.header();
    (header.seq(), header.ack(), header.flags().0, header.window(), tcp.payload().to_vec())
}

/// Returns the packets that `b` and `a` receive after a frame from one side.
pub(crate) fn told(it: &mut Between, from: u16, frame: &Frame) -> [Vec<Said>; 2] {
    it.feed(from, &[frame.to_vec()]).map(|frames| frames.iter().map(|frame| said(frame)).collect())
}

pub(crate) fn payloads(all: &[Said]) -> Vec<u8> {
    all.iter().flat_map(|it| it.4.clone()).collect()
}

#[test]
fn output_fits_the_receiver_and_is_not_longer_than_what_came() {
    let mut it = begun();
    let [out, none] = told(&mut it, 0, &a().flags(PUSH).payload(&[7; 1000]));
    assert!(payloads(&out) == [7; 3000] && none.is_empty());
    assert_eq!(
        out.iter().map(|s| (s.0, s.2, s.4.len())).collect::<Vec<_>>(),
        [(1000, 0x10, 1000), (2000, 0x10, 1000), (3000, 0x18, 1000)]
    );
    // the sender hears of what has arrived with all that was made of it
    assert_eq!(told(&mut it, 1, &b().ack(2000)), [vec![], vec![]]);
    assert_eq!(told(&mut it, 1, &b().ack(4000)), [vec![], vec![(5000, 2000, 0x10, 30_000, vec![])]]);

    let mut small = between(&Settings::default());
    begin(&mut small, &[]);
    let [out, _] = told(&mut small, 0, &a().flags(PUSH).payload(&[7; 1000]));
    assert!(out.iter().all(|s| s.4.len() <= 536), "as nothing else was asked for");
    assert!(payloads(&out) == [7; 3000]);
}

#[test]
fn what_is_sent_again_has_its_output_sent_again() {
    let mut it = begun();
    told(&mut it, 0, &a().flags(PUSH).payload(b"ab"));
    told(&mut it, 0, &a().flags(PUSH).seq(1002).payload(b"cd"));
    let [out, _] = told(&mut it, 0, &a().flags(PUSH).seq(1002).payload(b"cd"));
    assert_eq!(out, [(1006, 5000, 0x10, 30_000, b"cccddd".to_vec())]);
    // one that has arrived is acknowledged from here
    told(&mut it, 1, &b().ack(1006));
    assert_eq!(told(&mut it, 0, &a().payload(b"ab"))[1].iter().map(|s| s.1).collect::<Vec<_>>(), [1002]);
    // what the receiver misses it says to the sender
    let [_, back] = told(&mut it, 1, &b().ack(1006));
    assert_eq!(back.iter().map(|s| s.1).collect::<Vec<_>>(), [1002]);
}

#[test]
fn the_sender_is_told_what_is_missing() {
    let mut it = begun();
    for n in 1..4 {
        let [out, back] = told(&mut it, 0, &a().flags(PUSH).seq(1000 + 2 * n).payload(b"xy"));
        assert_eq!((out.len(), back.iter().map(|s| s.1).collect::<Vec<_>>()), (0, vec![1000]));
    }
    let [out, _] = told(&mut it, 0, &a().payload(b"ab"));
    assert_eq!(payloads(&out), b"aaabbbxxxyyyxxxyyyxxxyyy");
}

#[test]
fn a_closed_window_is_kept_and_asked_about() {
    let mut it = begun();
    told(&mut it, 1, &b().window(4));
    // what the sender had been allowed to send is kept; so little of it does not go at once
    let [out, _] = told(&mut it, 0, &a().flags(PUSH).payload(b"abc"));
    assert_eq!(payloads(&out), b"");
    let [out, _] = it.wake(200).map(|frames| frames.iter().map(|frame| said(frame)).collect::<Vec<_>>());
    assert_eq!(payloads(&out), b"aaab");
    // not all that was made of the first has arrived
    assert_eq!(told(&mut it, 1, &b().ack(1004).window(0)), [vec![], vec![]]);
    // the sender asks, by what it thinks is lost, and so is the receiver asked
    let [out, back] = told(&mut it, 0, &a().payload(b"abc"));
    assert_eq!((payloads(&out), back.len()), (b"b".to_vec(), 0));
    let [out, back] = told(&mut it, 0, &a().seq(999));
    assert_eq!((payloads(&out), back.iter().map(|s| s.1).collect::<Vec<_>>()), (b"b".to_vec(), vec![1000]));
    let [out, _] = told(&mut it, 1, &b().ack(1005).window(1000));
    assert_eq!(payloads(&out), b"bccc");
    let [_, back] = told(&mut it, 1, &b().ack(1009).window(1000));
    assert_eq!(back.iter().map(|s| s.1).collect::<Vec<_>>(), [1003]);
    // with nothing on its way the question goes through
    let [out, back] = told(&mut it, 0, &a().seq(1002));
    assert_eq!((out.iter().map(|s| (s.0, s.4.len())).collect::<Vec<_>>(), back.len()), (vec![(1008, 0)], 0));
}

#[test]
fn ends_resets_and_keep_alives_go_through() {
    let mut it = begun();
    let [out, back] = told(&mut it, 0, &a().seq(999));
    assert_eq!((out, back), (vec![(999, 5000, 0x10, 30_000, vec![])], vec![]));
    let [out, _] = told(&mut it, 0, &a().flags(TcpFlags(0x19)).payload(b"ab"));
    assert_eq!(out, [(1000, 5000, 0x19, 30_000, b"aaabbb".to_vec())]);
    assert_eq!(told(&mut it, 1, &b().ack(1007))[1][0].1, 1003);
    // the other direction goes on
    let [_, back] = told(&mut it, 1, &b().ack(1007).flags(PUSH).payload(b"z"));
    assert_eq!(back, [(5000, 1003, 0x18, 30_000, b"zzz".to_vec())]);
    let [out, _] = told(&mut it, 0, &a().seq(1003).ack(5003));
    assert_eq!(out[0].1, 5001);
    // the end of one that goes on elsewhere
    let [_, back] = told(&mut it, 1, &b().seq(5001).ack(1007).flags(TcpFlags(0x14)));
    assert_eq!(back.iter().map(|s| (s.0, s.1, s.2)).collect::<Vec<_>>(), [(5003, 1003, 0x14)]);
    // and another one between the same ports
    let [out, _] = told(&mut it, 0, &a().flags(TcpFlags::SYN).seq(77_777));
    assert_eq!(out[0].0, 77_777);
    told(&mut it, 1, &b().flags(TcpFlags::SYN_ACK).seq(1).ack(77_778));
    it.wake(4);
    assert_eq!(it.counter("new"), 2);
}

#[test]
fn tags_congestion_bits_and_timestamps_are_carried_on() {
    let mut it = between(&Settings::default());
    let stamp = |value, echo| options(&[TcpOption::Timestamps { value, echo }]).unwrap();
    let tagged = |frame: Frame| frame.vlan(5).src_mac(MacAddr([2, 3, 4, 5, 6, 7]));
    let syn = a().flags(TcpFlags(0xc2)).seq(999).tcp_options(stamp(1, 0));
    let [out, _] = it.feed(0, &[tagged(syn).to_vec()]);
    assert_eq!(said(&out[0]).2, 0xc2);
    it.feed(1, &[tagged(b().flags(TcpFlags(0x52)).seq(4999).tcp_options(stamp(70, 1))).to_vec()]);
    let data = a().flags(TcpFlags(0x98)).tcp_options(stamp(2, 70)).ecn(3).ttl(9).payload(&[1; 900]);
    let [out, _] = it.feed(0, &[tagged(data).to_vec()]);
    assert_eq!(out.len(), 6);
    for frame in &out {
        let tag = vlan::Tag::new(&frame[14..]).unwrap();
        let ip = ipv4::Packet::new(tag.payload()).unwrap();
        let tcp = Segment::new(ip.payload()).unwrap();
        assert_eq!((tag.header().vid(), frame[6..12].to_vec()), (5, vec![2, 3, 4, 5, 6, 7]));
        assert_eq!((ip.header().ecn(), ip.header().ttl()), (3, 9));
        assert_eq!(tcp.options().next(), Some(Ok(TcpOption::Timestamps { value: 2, echo: 70 })));
        assert!(tcp.payload().len() + 12 <= 536 && ip.bytes().len() <= 952);
    }
    assert_eq!(said(&out[0]).2 & 0x80, 0x80, "the window was reduced, once");
    assert!(out[1..].iter().all(|frame| said(frame).2 & 0x80 == 0));
    // the receiver has seen congestion
    let [_, back] =
        it.feed(1, &[tagged(b().flags(TcpFlags(0x50)).ack(1000 + 2700).tcp_options(stamp(71, 2))).to_vec()]);
    assert_eq!((said(&back[0]).1, said(&back[0]).2), (1900, 0x50));
}

#[test]
fn what_must_not_be_changed_is_not() {
    let signature = TcpOption::Unknown { kind: 19, data: &[9; 16] };
    let mut it = between(&Settings::default());
    let syn = a()
        .flags(TcpFlags::SYN)
        .seq(999)
        .tcp_options(options(&[signature, TcpOption::SackPermitted]).unwrap())
        .to_vec();
    let answer = b().flags(TcpFlags::SYN_ACK).seq(4999).to_vec();
    let data = a().payload(b"abc").to_vec();
    let both = [syn, data.clone()];
    assert_eq!(it.feed(0, &both), [both.to_vec(), vec![]]);
    assert_eq!(it.feed(1, std::slice::from_ref(&answer)), [vec![], vec![answer]]);
    // and a connection whose start was not seen
    let mut it = between(&Settings::default());
    assert_eq!(it.feed(0, std::slice::from_ref(&data)), [vec![data], vec![]]);
    it.wake(4);
    assert_eq!((it.counter("midstream"), it.counter("connections")), (1, 0));
}

#[test]
fn one_that_is_given_up_is_reset_on_both_sides() {
    let mut it = between(&Settings { idle: 5, ..Settings::default() });
    begin(&mut it, &[]);
    told(&mut it, 0, &a().flags(PUSH).payload(b"abc"));
    told(&mut it, 1, &b().ack(1009));
    let mut all = [vec![], vec![]];
    for now in 0..5000 {
        let frames = it.wake(now * 4);
        all.iter_mut().zip(frames).for_each(|(all, frames)| all.extend(frames));
    }
    assert_eq!(
        all.map(|frames| frames.iter().map(|f| (said(f).0, said(f).2)).collect::<Vec<_>>()),
        [[(1009, 0x14)], [(5000, 0x14)]]
    );
    assert_eq!((it.counter("given_up"), it.counter("flows")), (1, 0));
}
