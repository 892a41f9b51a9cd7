//! Fragments, both ways, in any order.

use super::*;
use proptest::prelude::*;

/// A UDP datagram as it is behind the header.
fn datagram6(len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
    build::udp6(v6(A), far(WORLD), 5000, 53).payload(&payload).to_vec()[54..].to_vec()
}

fn datagram4(len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
    build::udp4(WORLD, OUR, 53, 5000).payload(&payload).to_vec()[34..].to_vec()
}

fn offsets(len: usize, room: usize) -> impl Iterator<Item = (usize, usize, bool)> {
    (0..len).step_by(room).map(move |at| (at, len.min(at + room), at + room < len))
}

fn pieces6(protocol: IpProtocol, upper: &[u8], room: usize, id: u32) -> Vec<Vec<u8>> {
    let piece = |(from, to, more): (usize, usize, bool)| {
        build::ipv6(v6(A), far(WORLD), protocol).fragment(from as u16, more, id).payload(&upper[from..to]).to_vec()
    };
    offsets(upper.len(), room).map(piece).collect()
}

fn pieces4(protocol: IpProtocol, upper: &[u8], room: usize, id: u16) -> Vec<Vec<u8>> {
    let piece = |(from, to, more): (usize, usize, bool)| {
        build::ipv4(WORLD, OUR, protocol).id(id).fragment(from as u16, more).payload(&upper[from..to]).to_vec()
    };
    offsets(upper.len(), room).map(piece).collect()
}

/// Puts fragments together, of either version: the packet, and the identification.
#[track_caller]
fn whole(frames: &[Vec<u8>]) -> (Vec<u8>, u32) {
    let (mut parts, mut id, mut last) = (vec![], None, 0);
    for frame in frames {
        let (piece, from, more, body) = if frame[12..14] == [8, 0] {
            let ip = ipv4::Packet::new(&frame[14..]).unwrap();
            assert!(ip.checksum_ok());
            let h = ip.header();
            (u32::from(h.id()), h.fragment_offset(), h.more_fragments(), ip.payload().to_vec())
        } else {
            let ip = ipv6::Packet::new(&frame[14..]).unwrap();
            let f = ip.extensions().next().unwrap().fragment().unwrap();
            (f.id, f.offset, f.more, ip.payload().to_vec())
        };
        assert_eq!(*id.get_or_insert(piece), piece, "one datagram");
        assert!(!more || body.len().is_multiple_of(8));
        last += usize::from(!more);
        parts.push((usize::from(from), body));
    }
    assert_eq!(last, 1, "one is the last");
    parts.sort();
    let mut upper = vec![];
    for (from, body) in parts {
        assert_eq!(from, upper.len(), "no gap and no overlap");
        upper.extend(body);
    }
    let head = &frames[0];
    let packet = if head[12..14] == [8, 0] {
        let ip = ipv4::Packet::new(&head[14..]).unwrap();
        build::ipv4(ip.header().src(), ip.header().dst(), ip.header().protocol()).ttl(63).payload(&upper).to_vec()
    } else {
        let ip = ipv6::Packet::new(&head[14..]).unwrap();
        build::ipv6(ip.header().src(), ip.header().dst(), ip.upper().0).ttl(63).payload(&upper).to_vec()
    };
    (packet, id.unwrap())
}

fn all(nat: &mut Nat, input: usize, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().flat_map(|frame| nat.feed(input, frame).unwrap_or_default()).collect()
}

#[test]
fn a_whole_fragment_has_its_identification() {
    let mut nat = Nat::new("");
    // atomic (RFC 6946): it need not be put together
    let atomic = build::udp6(v6(A), far(WORLD), 5000, 53).fragment(0, false, 0x1234_5678).payload(&[1; 1300]).to_vec();
    let out = nat.one(0, &atomic).unwrap();
    assert_eq!(tell(&out), told(ip4(OUR), 5000, ip4(WORLD), 53));
    assert_eq!((number(&out, 18), number(&out, 20)), (0x5678, 0), "RFC 7915 §5.1.1");
    assert_eq!(nat.0.counter("fragments"), 0);
}

#[test]
fn what_nobody_has_begun_and_what_is_too_short() {
    let mut nat = Nat::new("fragments = 4");
    let pieces = pieces6(IpProtocol::UDP, &datagram6(2000), 800, 7);
    assert_eq!(nat.feed(0, &pieces[1]), Err("held"));
    nat.0.advance(Duration::from_secs(3));
    assert_eq!(nat.0.dropped("unknown_fragment"), 1);
    let tiny = build::ipv6(v6(A), far(WORLD), IpProtocol::TCP).fragment(0, true, 1).payload(&[0; 8]).to_vec();
    assert_eq!(nat.feed(0, &tiny), Err("tiny_fragment"), "RFC 1858");
    // the number of those that are remembered is bounded
    for id in 0..20 {
        nat.feed(0, &pieces6(IpProtocol::UDP, &datagram6(2000), 800, id)[0]).unwrap();
    }
    assert_eq!(nat.0.counter("fragments"), 4);
    // options behind the fragment header would have to be put together
    let odd = build::ipv6(v6(A), far(WORLD), IpProtocol::UDP)
        .fragment(0, true, 1)
        .extension(IpProtocol::DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0])
        .payload(&datagram6(100))
        .to_vec();
    assert_eq!(nat.feed(0, &odd), Err("malformed_ip"));
}

#[test]
fn a_long_ping_waits_for_its_end() {
    let mut nat = Nat::new("");
    let ask = build::echo6(v6(A), far(WORLD), 77, 3).payload(&[5; 3000]).to_vec()[54..].to_vec();
    let pieces = pieces6(IpProtocol::ICMPV6, &ask, 1232, 9);
    assert_eq!([nat.feed(0, &pieces[0]), nat.feed(0, &pieces[1])], [Err("held"), Err("held")]);
    let out = nat.feed(0, &pieces[2]).unwrap();
    assert_eq!(out.len(), 3, "all at once");
    assert_eq!(tell(&whole(&out).0), told(ip4(OUR), 77, ip4(WORLD), 0));
    let answer = build::icmp4(WORLD, OUR, icmpv4::Repr::EchoReply { id: 77, seq: 3 }).payload(&[5; 3000]).to_vec();
    let back = all(&mut nat, 1, &pieces4(IpProtocol::ICMPV4, &answer[34..], 1480, 8));
    assert!(back.len() > 3 && back.iter().all(|frame| frame.len() <= 14 + 1280), "cut once more");
    assert_eq!(tell(&whole(&back).0), told(far(WORLD), 0, A, 77));
    assert_eq!(nat.0.counter("cut"), 2);
}

#[test]
fn fragments_of_one_batch_find_each_other() {
    let mut nat = Nat::new("");
    let ask = build::echo6(v6(A), far(WORLD), 77, 3).payload(&[5; 3000]).to_vec()[54..].to_vec();
    let out = nat.0.feed_by(0, &pieces6(IpProtocol::ICMPV6, &ask, 1232, 9)).concat();
    assert_eq!(tell(&whole(&out).0), told(ip4(OUR), 77, ip4(WORLD), 0));
    let mut pieces = pieces6(IpProtocol::UDP, &datagram6(3000), 1232, 10);
    pieces.reverse();
    let out = nat.0.feed_by(0, &pieces).concat();
    assert_eq!(tell(&whole(&out).0), told(ip4(OUR), 5000, ip4(WORLD), 53));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn fragments_go_out_in_any_order(len in 1400..6000usize, units in 20..180usize, order in Just(()).prop_perturb(|(), mut r| r.next_u64())) {
        let mut nat = Nat::new("");
        let mut pieces = pieces6(IpProtocol::UDP, &datagram6(len), units * 8, 0xabcd_1234);
        shuffle(&mut pieces, order);
        let out = all(&mut nat, 0, &pieces);
        prop_assert_eq!(out.len(), pieces.len());
        let (packet, id) = whole(&out);
        prop_assert_eq!(tell(&packet), told(ip4(OUR), 5000, ip4(WORLD), 53));
        prop_assert_eq!(id, 0x1234, "the low half of the identification");
        prop_assert_eq!(packet[42..].to_vec(), datagram6(len)[8..].to_vec());
        prop_assert_eq!(nat.0.held(), 0);
    }

    #[test]
    fn fragments_come_in_in_any_order_and_are_cut(
        len in 1400..6000usize, units in 20..183usize, order in Just(()).prop_perturb(|(), mut r| r.next_u64()), most in 1280..1500usize
    ) {
        let mut nat = Nat::new(&format!("fragment = {most}"));
        nat.out(&udp6(A, 5000, far(WORLD), 53)).unwrap();
        let mut pieces = pieces4(IpProtocol::UDP, &datagram4(len), units * 8, 99);
        shuffle(&mut pieces, order);
        let out = all(&mut nat, 1, &pieces);
        prop_assert!(out.iter().all(|frame| frame.len() <= 14 + most));
        let (packet, id) = whole(&out);
        prop_assert_eq!(tell(&packet), told(far(WORLD), 53, A, 5000));
        prop_assert_eq!(id, 99);
        prop_assert_eq!(packet[62..].to_vec(), datagram4(len)[8..].to_vec());
        prop_assert_eq!(nat.0.held(), 0);
    }

    #[test]
    fn what_may_be_cut_is_cut(len in 0..1472usize) {
        let mut nat = Nat::new("");
        nat.out(&udp6(A, 5000, far(WORLD), 53)).unwrap();
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let frame = build::udp4(WORLD, OUR, 53, 5000).id(77).payload(&payload).to_vec();
        let out = nat.feed(1, &frame).unwrap();
        prop_assert_eq!(out.len(), if len + 48 > 1280 { 2 } else { 1 });
        let packet = if out.len() == 1 { out[0].clone() } else { whole(&out).0 };
        prop_assert_eq!(tell(&packet), told(far(WORLD), 53, A, 5000));
        prop_assert_eq!(&packet[62..62 + len], &payload[..]);
    }
}

/// Another order, the same for the same number (Fisher and Yates).
fn shuffle(frames: &mut [Vec<u8>], mut random: u64) {
    for n in (1..frames.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        frames.swap(n, (random >> 33) as usize % (n + 1));
    }
}
