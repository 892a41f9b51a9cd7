//! Connection tracking, compared with a model of two endpoints that conform to RFC 9293.

use crate::Firewall;
use proptest::prelude::*;
use std::collections::HashSet;
use testkit::Harness;
use wire::{TcpFlags, build};

/// A step of conforming endpoints on a network that loses, duplicates and delays packets, or of an attacker who does
/// not know the sequence numbers.
#[derive(Clone, Debug)]
enum Step {
    /// A side sends this many octets, within the window, and acknowledges everything it received.
    Send(bool, u16, bool),
    /// An older segment is duplicated.
    Again(prop::sample::Index),
    /// A forged segment for a side; offsets of sequence and acknowledgement number from the right ones.
    Strange(bool, i64, i64),
    Close(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let far = prop_oneof![20_000_000i64..2_000_000_000, -2_000_000_000i64..-20_000_000];
    prop_oneof![
        6 => (any::<bool>(), 0..1400u16, any::<bool>()).prop_map(|(side, len, lost)| Step::Send(side, len, lost)),
        2 => any::<prop::sample::Index>().prop_map(Step::Again),
        2 => (any::<bool>(), far.clone(), Just(0i64)).prop_map(|(side, seq, ack)| Step::Strange(side, seq, ack)),
        1 => (any::<bool>(), Just(0i64), far).prop_map(|(side, seq, ack)| Step::Strange(side, seq, ack)),
        1 => any::<bool>().prop_map(Step::Close),
    ]
}

/// State of an endpoint.
#[derive(Clone, Copy)]
struct Endpoint {
    isn: u32,
    scale: u8,
    window: u16,
    /// Octets sent and received, including SYN and FIN.
    sent: u64,
    got: u64,
    /// Right edge of the window that the other side advertised. Windows of SYNs are not scaled.
    told: u64,
    closed: bool,
}

fn frame(out: bool, flags: TcpFlags, seq: u32, ack: u32, window: u16, len: usize, scale: Option<u8>) -> Vec<u8> {
    let (a, b) = ([10, 0, 0, 1], [192, 0, 2, 7]);
    let f = if out { build::tcp4(a, b, 5000, 80) } else { build::tcp4(b, a, 80, 5000) };
    let mut f = f.flags(flags).seq(seq).window(window).payload(&vec![7; len]);
    if flags.contains(TcpFlags::ACK) {
        f = f.ack(ack);
    }
    if let Some(shift) = scale {
        f = f.tcp_options(wire::tcp::options(&[wire::tcp::TcpOption::WindowScale(shift)]).unwrap());
    }
    f.pad_to(60).to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Segments of conforming endpoints always pass, for all window scales and initial sequence numbers; forged
    /// segments that are far off never do.
    #[test]
    fn conforming_segments_pass_and_forged_ones_do_not(
        isns in any::<[u32; 2]>(),
        scales in (0..=14u8, 0..=14u8),
        windows in (1..=u16::MAX, 1..=u16::MAX),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut f = Harness::new::<Firewall>("rules = [\"accept src 10.0.0.0/8\"]\ntrack = {}");
        let mut ends = [
            Endpoint { isn: isns[0], scale: scales.0.min(8), window: windows.0, sent: 1, got: 1, told: 1 + u64::from(windows.1), closed: false },
            Endpoint { isn: isns[1], scale: scales.1.min(8), window: windows.1, sent: 1, got: 1, told: 1, closed: false },
        ];
        let seq = |e: &Endpoint, octets: u64| e.isn.wrapping_add(octets as u32);
        let (syn, ack) = (TcpFlags::SYN, TcpFlags::ACK);
        for one in [
            frame(true, syn, isns[0], 0, windows.0, 0, Some(ends[0].scale)),
            frame(false, syn | ack, isns[1], isns[0].wrapping_add(1), windows.1, 0, Some(ends[1].scale)),
            frame(true, ack, isns[0].wrapping_add(1), isns[1].wrapping_add(1), windows.0, 0, None),
        ] {
            prop_assert!(f.feed_one(&one).is_ok());
        }
        ends[1].told += u64::from(windows.0) << ends[0].scale;
        let mut old: Vec<(Vec<u8>, u64, usize)> = vec![];
        for (n, step) in steps.iter().enumerate() {
            match *step {
                Step::Send(side, len, lost) => {
                    let (me, peer) = (usize::from(side), usize::from(!side));
                    let (mine, theirs) = (ends[me], ends[peer]);
                    // data in flight is within the peer's window
                    let room = mine.told.saturating_sub(mine.sent);
                    let len = if mine.closed { 0 } else { u64::from(len).min(room) };
                    let segment = frame(me == 0, ack, seq(&mine, mine.sent), seq(&theirs, mine.got), mine.window, len as usize, None);
                    ends[me].sent += len;
                    prop_assert!(f.feed_one(&segment).is_ok(), "step {n}: {step:?}");
                    old.push((segment, ends[me].sent, me));
                    // the firewall has processed it; if the peer has not, only a duplicate reaches it
                    if !lost {
                        if mine.sent == theirs.got {
                            ends[peer].got = ends[me].sent;
                        }
                        ends[peer].told = theirs.told.max(mine.got + (u64::from(mine.window) << mine.scale));
                    }
                }
                Step::Again(index) if !old.is_empty() => {
                    let (segment, end, me) = index.get(&old);
                    // at most a window old: endpoints retransmit only unacknowledged data
                    let peer = ends[me ^ 1];
                    let fresh = *end + (u64::from(peer.window) << peer.scale).min(60_000) > ends[*me].sent;
                    if fresh {
                        let late = f.feed_one(segment);
                        prop_assert!(late.is_ok() || ends[*me].sent - end > 0, "step {n}: {late:?}");
                        ends[me ^ 1].got = ends[me ^ 1].got.max((*end).min(ends[*me].sent));
                    }
                }
                Step::Again(_) => {}
                Step::Strange(side, by_seq, by_ack) => {
                    let (me, peer) = (usize::from(side), usize::from(!side));
                    let far = seq(&ends[me], ends[me].sent).wrapping_add(by_seq as u32);
                    let acks = seq(&ends[peer], ends[me].got).wrapping_add(by_ack as u32);
                    let segment = frame(me == 0, ack, far, acks, 1000, 10, None);
                    prop_assert_eq!(f.feed_one(&segment), Err("out_of_window"), "step {}: {:?}", n, step);
                }
                Step::Close(side) => {
                    let (me, peer) = (usize::from(side), usize::from(!side));
                    // a FIN occupies a sequence number in the window
                    let room = ends[me].told > ends[me].sent;
                    if room && !ends[me].closed && ends[peer].got == ends[me].sent && ends.iter().filter(|e| e.closed).count() == 0 {
                        let fin = frame(me == 0, ack | TcpFlags::FIN, seq(&ends[me], ends[me].sent), seq(&ends[peer], ends[me].got), ends[me].window, 0, None);
                        prop_assert!(f.feed_one(&fin).is_ok());
                        (ends[me].closed, ends[me].sent) = (true, ends[me].sent + 1);
                        ends[peer].got = ends[me].sent;
                    }
                }
            }
        }
    }

    /// UDP: the first packet between two endpoints decides for both directions.
    #[test]
    fn replies_to_datagrams_pass(packets in prop::collection::vec((0..4u8, 0..4u8, 0..4u16, 0..4u16, any::<bool>()), 1..200)) {
        let mut f = Harness::new::<Firewall>("rules = [\"accept src 10.0.0.0/24 dport 0-1\"]\ntrack = {}");
        let mut known: HashSet<(u8, u8, u16, u16)> = HashSet::new();
        let (mut frames, mut expected) = (vec![], vec![]);
        for (a, b, p, q, out) in packets {
            let (inner, outer) = ([10, 0, 0, a], [192, 0, 2, b]);
            let frame = if out { build::udp4(inner, outer, p, q) } else { build::udp4(outer, inner, q, p) }.pad_to(60).to_vec();
            if out && q <= 1 {
                known.insert((a, b, p, q));
            }
            if known.contains(&(a, b, p, q)) {
                expected.push(frame.clone());
            }
            frames.push(frame);
        }
        // singly and in bursts
        prop_assert_eq!(f.feed(&frames), expected);
    }
}
