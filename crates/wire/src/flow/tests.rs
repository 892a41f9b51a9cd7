use super::*;
use crate::build;
use crate::samples::{A, B, ip6};
use proptest::prelude::*;

fn v4(src_port: u16, dst_port: u16, protocol: IpProtocol) -> Option<FiveTuple> {
    Some(FiveTuple::v4(A.into(), B.into(), src_port, dst_port, protocol))
}

fn v6(src_port: u16, dst_port: u16, protocol: IpProtocol) -> Option<FiveTuple> {
    Some(FiveTuple::v6(ip6(1).into(), ip6(2).into(), src_port, dst_port, protocol))
}

#[test]
fn transports() {
    let of = FiveTuple::of_frame;
    assert_eq!(of(&build::udp4(A, B, 1, 2).to_vec()), v4(1, 2, IpProtocol::UDP));
    assert_eq!(of(&build::tcp4(A, B, 1, 2).vlan(1).pad_to(64).to_vec()), v4(1, 2, IpProtocol::TCP));
    assert_eq!(of(&build::echo4(A, B, 1, 2).to_vec()), v4(0, 0, IpProtocol::ICMPV4));
    assert_eq!(of(&build::ipv4(A, B, IpProtocol::SCTP).payload(&[1; 9]).to_vec()), v4(0, 0, IpProtocol::SCTP));
    let chain = build::udp6(ip6(1), ip6(2), 1, 2).extension(IpProtocol::HOP_BY_HOP, &[]);
    assert_eq!(of(&chain.to_vec()), v6(1, 2, IpProtocol::UDP));
    assert_eq!(of(&build::tcp6(ip6(1), ip6(2), 1, 2).qinq(1).vlan(2).to_vec()), v6(1, 2, IpProtocol::TCP));
    assert_eq!(of(&build::echo6(ip6(1), ip6(2), 1, 2).to_vec()), v6(0, 0, IpProtocol::ICMPV6));
}

#[test]
fn fragments_of_one_datagram_share_a_tuple() {
    let of = FiveTuple::of_frame;
    assert_eq!(of(&build::udp4(A, B, 1, 2).fragment(0, true).to_vec()), v4(0, 0, IpProtocol::UDP));
    let later = build::ipv4(A, B, IpProtocol::UDP).fragment(8, false).payload(&[1; 8]);
    assert_eq!(of(&later.to_vec()), v4(0, 0, IpProtocol::UDP));
    let first = build::udp6(ip6(1), ip6(2), 1, 2).fragment(0, true, 1).extension(IpProtocol::DESTINATION_OPTIONS, &[]);
    let later = build::ipv6(ip6(1), ip6(2), IpProtocol::DESTINATION_OPTIONS).fragment(8, false, 1).payload(&[1; 8]);
    assert_eq!(of(&first.to_vec()), v6(0, 0, IpProtocol::DESTINATION_OPTIONS));
    assert_eq!(of(&later.to_vec()), of(&first.to_vec()));
    let atomic = build::udp6(ip6(1), ip6(2), 1, 2).fragment(0, false, 1);
    assert_eq!(of(&atomic.to_vec()), v6(1, 2, IpProtocol::UDP));
}

#[test]
fn no_tuple() {
    assert_eq!(FiveTuple::of_frame(&build::arp_request(A, B).to_vec()), None);
    assert_eq!(FiveTuple::of_frame(&build::udp4(A, B, 1, 2).to_vec()[..33]), None);
    let tagged = |tags| (0..tags).fold(build::udp4(A, B, 1, 2), |frame, _| frame.vlan(1)).to_vec();
    assert_eq!(FiveTuple::of_frame(&tagged(MAX_TAGS)), v4(1, 2, IpProtocol::UDP));
    assert_eq!(FiveTuple::of_frame(&tagged(MAX_TAGS + 1)), None);
}

#[test]
fn ports_come_from_inside_the_packet() {
    let padded = build::ipv4(A, B, IpProtocol::UDP).payload(&[1; 3]).pad_to(60);
    assert_eq!(FiveTuple::of_frame(&padded.to_vec()), v4(0, 0, IpProtocol::UDP));
}

/// Returns the largest relative excess of a bucket over the mean.
fn excess(flows: &[FiveTuple], buckets: u32, hash: impl Fn(&FiveTuple) -> u32) -> f64 {
    let fair = flows.len() as f64 / f64::from(buckets);
    let worst = |bucket: &dyn Fn(u32) -> u32| {
        let mut counts = vec![0_u32; buckets as usize];
        flows.iter().for_each(|flow| counts[bucket(hash(flow)) as usize] += 1);
        counts.into_iter().map(|count| (f64::from(count) / fair - 1.0).abs()).fold(0.0, f64::max)
    };
    // Low bits, high bits, and the multiply-shift that serves any number of buckets.
    let low = worst(&|hash| hash % buckets);
    let high = worst(&|hash| hash.rotate_left(8) % buckets);
    low.max(high).max(worst(&|hash| ((u64::from(hash) * u64::from(buckets)) >> 32) as u32))
}

#[test]
fn regular_flows_spread_evenly() {
    let (a, b) = (Ipv4Addr::from(A).to_bits(), Ipv4Addr::from(B).to_bits());
    let udp = IpProtocol::UDP;
    let tuple = |i: u32, j: u32, s: u16, d: u16| FiveTuple::v4((a + i).into(), b.wrapping_add(j).into(), s, d, udp);
    let six = |i: u8, j: u8, s: u16| FiveTuple::v6(ip6(i).into(), ip6(j).into(), s, 443, udp);
    let families: [(&str, Vec<FiveTuple>); 7] = [
        ("source ports", (0..16384).map(|i| tuple(0, 0, 1024 + i, 80)).collect()),
        ("even source ports", (0..16384).map(|i| tuple(0, 0, 1024 + 2 * i, 80)).collect()),
        ("source addresses", (0..16384).map(|i| tuple(i, 0, 1024, 80)).collect()),
        ("networks", (0..16384).map(|i| tuple(i << 8, 0, 1024, 80)).collect()),
        ("pairs", (0..16384).map(|i| tuple(i & 127, i >> 7, 1024, 1024)).collect()),
        ("equal ends", (0..16384).map(|i| tuple(i, i.wrapping_sub(b - a), i as u16, i as u16)).collect()),
        ("six", (0..16384_u16).map(|i| six(i as u8, 1, i >> 8)).collect()),
    ];
    for (name, flows) in &families {
        for buckets in [2, 4, 8] {
            // Five standard deviations of a random spread over 16384 flows: 3.9 % to 10.3 %.
            let bound = 5.0 * (f64::from(buckets - 1) / 16384.0).sqrt();
            let found = excess(flows, buckets, FiveTuple::hash);
            assert!(found < bound, "{name} over {buckets}: {found}");
            let found = excess(flows, buckets, FiveTuple::symmetric_hash);
            assert!(found < bound, "{name} over {buckets}, symmetric: {found}");
        }
    }
}

#[test]
fn few_collisions() {
    let mut hashes = std::collections::HashSet::new();
    let (a, b) = (Ipv4Addr::from(A).to_bits(), Ipv4Addr::from(B));
    for i in 0..65536_u32 {
        hashes.insert(FiveTuple::v4((a + (i >> 8)).into(), b, i as u16, 80, IpProtocol::TCP).hash());
    }
    // 65536 random values among 2³² collide once in every other run.
    assert!(hashes.len() >= 65530, "{}", hashes.len());
}

fn tuples() -> impl Strategy<Value = FiveTuple> {
    let four = any::<(u32, u32, u16, u16, u8)>()
        .prop_map(|(src, dst, s, d, p)| FiveTuple::v4(src.into(), dst.into(), s, d, IpProtocol(p)));
    let six = any::<(u128, u128, u16, u16, u8)>()
        .prop_map(|(src, dst, s, d, p)| FiveTuple::v6(src.into(), dst.into(), s, d, IpProtocol(p)));
    prop_oneof![four, six]
}

proptest! {
    #[test]
    fn symmetric(flow in tuples()) {
        prop_assert_eq!(flow.reversed().reversed(), flow);
        prop_assert_eq!(flow.symmetric_hash(), flow.reversed().symmetric_hash());
        let same_host = FiveTuple { dst: flow.src, ..flow };
        prop_assert_eq!(same_host.symmetric_hash(), same_host.reversed().symmetric_hash());
    }

    #[test]
    fn every_field_counts(flow in tuples(), bit in 0_u32..16) {
        let flip = 1_u16 << bit;
        prop_assert_ne!(flow.hash(), FiveTuple { src_port: flow.src_port ^ flip, ..flow }.hash());
        prop_assert_ne!(flow.hash(), FiveTuple { dst_port: flow.dst_port ^ flip, ..flow }.hash());
        let protocol = IpProtocol(flow.protocol.0 ^ 1 << (bit % 8));
        prop_assert_ne!(flow.hash(), FiveTuple { protocol, ..flow }.hash());
        if flow.src != flow.dst {
            prop_assert_ne!(flow.hash(), FiveTuple { src: flow.dst, dst: flow.src, ..flow }.hash());
        }
    }

    #[test]
    fn the_short_way_leads_to_the_same(
        ends: (u32, u32, u16, u16),
        tcp: bool,
        len in 0..=60usize,
        changes in proptest::collection::vec((12..38usize, any::<u8>()), 0..3),
    ) {
        let (src, dst, from, to) = ends;
        let (src, dst) = (src.to_be_bytes(), dst.to_be_bytes());
        let mut frame = if tcp {
            build::tcp4(src, dst, from, to).pad_to(60).to_vec()
        } else {
            build::udp4(src, dst, from, to).pad_to(60).to_vec()
        };
        for (at, with) in changes {
            frame[at] = with;
        }
        for frame in [&frame[..], &frame[..len]] {
            let tuple = FiveTuple::of_frame(frame);
            prop_assert_eq!(symmetric_hash(frame), tuple.map_or(0, |flow| flow.symmetric_hash()));
        }
    }
}
