//! Fragments in both directions, in any order.

use super::*;
use proptest::prelude::*;

/// Builds a UDP datagram without IP header.
fn datagram6(len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
    build::udp6(v6(A), embedded(REMOTE), 5000, 53).payload(&payload).to_vec()[54..].to_vec()
}

fn datagram4(len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
    build::udp4(REMOTE, EXTERNAL, 53, 5000).payload(&payload).to_vec()[34..].to_vec()
}

fn offsets(len: usize, room: usize) -> impl Iterator<Item = (usize, usize, bool)> {
    (0..len).step_by(room).map(move |at| (at, len.min(at + room), at + room < len))
}

fn fragments6(protocol: IpProtocol, upper: &[u8], room: usize, id: u32) -> Vec<Vec<u8>> {
    let fragment = |(from, to, more): (usize, usize, bool)| {
        build::ipv6(v6(A), embedded(REMOTE), protocol)
            .fragment(from as u16, more, id)
            .payload(&upper[from..to])
            .to_vec()
    };
    offsets(upper.len(), room).map(fragment).collect()
}

fn fragments4(protocol: IpProtocol, upper: &[u8], room: usize, id: u16) -> Vec<Vec<u8>> {
    let fragment = |(from, to, more): (usize, usize, bool)| {
        build::ipv4(REMOTE, EXTERNAL, protocol).id(id).fragment(from as u16, more).payload(&upper[from..to]).to_vec()
    };
    offsets(upper.len(), room).map(fragment).collect()
}

/// Reassembles fragments of either version; returns packet and identification.
#[track_caller]
fn reassemble(frames: &[Vec<u8>]) -> (Vec<u8>, u32) {
    let (mut parts, mut id, mut last) = (vec![], None, 0);
    for frame in frames {
        let (fragment, from, more, body) = if frame[12..14] == [8, 0] {
            let ip = ipv4::Packet::new(&frame[14..]).unwrap();
            assert!(ip.checksum_ok());
            let h = ip.header();
            (u32::from(h.id()), h.fragment_offset(), h.more_fragments(), ip.payload().to_vec())
        } else {
            let ip = ipv6::Packet::new(&frame[14..]).unwrap();
            let f = ip.extensions().next().unwrap().fragment().unwrap();
            (f.id, f.offset, f.more, ip.payload().to_vec())
        };
        assert_eq!(*id.get_or_insert(fragment), fragment, "one datagram");
        assert!(!more || body.len().is_multiple_of(8));
        last += usize::from(!more);
        parts.push((usize::from(from), body));
    }
    assert_eq!(last, 1, "exactly one last fragment");
    parts.sort();
    let mut upper = vec![];
    for (from, body) in parts {
        assert_eq!(from, upper.len(), "no gaps or overlaps");
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
fn atomic_fragments_keep_their_identification() {
    let mut nat = Nat::new("");
    // atomic (RFC 6946): nothing to reassemble
    let atomic =
        build::udp6(v6(A), embedded(REMOTE), 5000, 53).fragment(0, false, 0x1234_5678).payload(&[1; 1300]).to_vec();
    let out = nat.one(0, &atomic).unwrap();
    assert_eq!(parse(&out), endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 53));
    assert_eq!((u16_at(&out, 18), u16_at(&out, 20)), (0x5678, 0), "RFC 7915 §5.1.1");
    assert_eq!(nat.0.counter("fragments"), 0);
}

#[test]
fn drops_fragments_without_a_first_and_tiny_ones() {
    let mut nat = Nat::new("fragments = 4");
    let fragments = fragments6(IpProtocol::UDP, &datagram6(2000), 800, 7);
    assert_eq!(nat.feed(0, &fragments[1]), Err("held"));
    nat.0.advance(Duration::from_secs(3));
    assert_eq!(nat.0.dropped("unknown_fragment"), 1);
    let tiny = build::ipv6(v6(A), embedded(REMOTE), IpProtocol::TCP).fragment(0, true, 1).payload(&[0; 8]).to_vec();
    assert_eq!(nat.feed(0, &tiny), Err("tiny_fragment"), "RFC 1858");
    // the table is bounded
    for id in 0..20 {
        nat.feed(0, &fragments6(IpProtocol::UDP, &datagram6(2000), 800, id)[0]).unwrap();
    }
    assert_eq!(nat.0.counter("fragments"), 4);
    // options after the fragment header would require reassembly
    let odd = build::ipv6(v6(A), embedded(REMOTE), IpProtocol::UDP)
        .fragment(0, true, 1)
        .extension(IpProtocol::DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0])
        .payload(&datagram6(100))
        .to_vec();
    assert_eq!(nat.feed(0, &odd), Err("malformed_ip"));
}

#[test]
fn long_echoes_are_held_until_the_last_fragment() {
    let mut nat = Nat::new("");
    let ask = build::echo6(v6(A), embedded(REMOTE), 77, 3).payload(&[5; 3000]).to_vec()[54..].to_vec();
    let fragments = fragments6(IpProtocol::ICMPV6, &ask, 1232, 9);
    assert_eq!([nat.feed(0, &fragments[0]), nat.feed(0, &fragments[1])], [Err("held"), Err("held")]);
    let out = nat.feed(0, &fragments[2]).unwrap();
    assert_eq!(out.len(), 3, "all at once");
    assert_eq!(parse(&reassemble(&out).0), endpoints(ipv4_text(EXTERNAL), 77, ipv4_text(REMOTE), 0));
    let answer =
        build::icmp4(REMOTE, EXTERNAL, icmpv4::Repr::EchoReply { id: 77, seq: 3 }).payload(&[5; 3000]).to_vec();
    let back = all(&mut nat, 1, &fragments4(IpProtocol::ICMPV4, &answer[34..], 1480, 8));
    assert!(back.len() > 3 && back.iter().all(|frame| frame.len() <= 14 + 1280), "fragmented again");
    assert_eq!(parse(&reassemble(&back).0), endpoints(embedded(REMOTE), 0, A, 77));
    assert_eq!(nat.0.counter("fragmented"), 2);
}

#[test]
fn fragments_of_one_batch_are_matched() {
    let mut nat = Nat::new("");
    let ask = build::echo6(v6(A), embedded(REMOTE), 77, 3).payload(&[5; 3000]).to_vec()[54..].to_vec();
    let out = nat.0.feed_input(0, &fragments6(IpProtocol::ICMPV6, &ask, 1232, 9)).concat();
    assert_eq!(parse(&reassemble(&out).0), endpoints(ipv4_text(EXTERNAL), 77, ipv4_text(REMOTE), 0));
    let mut fragments = fragments6(IpProtocol::UDP, &datagram6(3000), 1232, 10);
    fragments.reverse();
    let out = nat.0.feed_input(0, &fragments).concat();
    assert_eq!(parse(&reassemble(&out).0), endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 53));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn translates_outbound_fragments_in_any_order(len in 1400..6000usize, units in 20..180usize, order in Just(()).prop_perturb(|(), mut r| r.next_u64())) {
        let mut nat = Nat::new("");
        let mut fragments = fragments6(IpProtocol::UDP, &datagram6(len), units * 8, 0xabcd_1234);
        shuffle(&mut fragments, order);
        let out = all(&mut nat, 0, &fragments);
        prop_assert_eq!(out.len(), fragments.len());
        let (packet, id) = reassemble(&out);
        prop_assert_eq!(parse(&packet), endpoints(ipv4_text(EXTERNAL), 5000, ipv4_text(REMOTE), 53));
        prop_assert_eq!(id, 0x1234, "the low half of the identification");
        prop_assert_eq!(packet[42..].to_vec(), datagram6(len)[8..].to_vec());
        prop_assert_eq!(nat.0.held(), 0);
    }

    #[test]
    fn translates_and_refragments_inbound_fragments_in_any_order(
        // several fragments: a packet that is none has no identification in IPv6
        len in 1400..6000usize, units in 20..176usize, order in Just(()).prop_perturb(|(), mut r| r.next_u64()), most in 1280..1500usize
    ) {
        let mut nat = Nat::new(&format!("fragment_size = {most}"));
        nat.outbound(&udp6(A, 5000, embedded(REMOTE), 53)).unwrap();
        let mut fragments = fragments4(IpProtocol::UDP, &datagram4(len), units * 8, 99);
        shuffle(&mut fragments, order);
        let out = all(&mut nat, 1, &fragments);
        prop_assert!(out.iter().all(|frame| frame.len() <= 14 + most));
        let (packet, id) = reassemble(&out);
        prop_assert_eq!(parse(&packet), endpoints(embedded(REMOTE), 53, A, 5000));
        prop_assert_eq!(id, 99);
        prop_assert_eq!(packet[62..].to_vec(), datagram4(len)[8..].to_vec());
        prop_assert_eq!(nat.0.held(), 0);
    }

    #[test]
    fn fragments_long_packets_without_dont_fragment(len in 0..1472usize) {
        let mut nat = Nat::new("");
        nat.outbound(&udp6(A, 5000, embedded(REMOTE), 53)).unwrap();
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let frame = build::udp4(REMOTE, EXTERNAL, 53, 5000).id(77).payload(&payload).to_vec();
        let out = nat.feed(1, &frame).unwrap();
        prop_assert_eq!(out.len(), if len + 48 > 1280 { 2 } else { 1 });
        let packet = if out.len() == 1 { out[0].clone() } else { reassemble(&out).0 };
        prop_assert_eq!(parse(&packet), endpoints(embedded(REMOTE), 53, A, 5000));
        prop_assert_eq!(&packet[62..62 + len], &payload[..]);
    }
}

/// Shuffles deterministically (Fisher-Yates).
fn shuffle(frames: &mut [Vec<u8>], mut random: u64) {
    for n in (1..frames.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        frames.swap(n, (random >> 33) as usize % (n + 1));
    }
}
