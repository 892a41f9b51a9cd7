//! The load balancer: connections, fragments and ICMP errors of a few clients, servers and virtual addresses, some of
//! them mutated. Every packet is accounted for, and well-formed packets stay well-formed.
#![no_main]

use bondstone_fuzz::Batches;
use graph::{Blueprint, BuildContext, CommonDrop, Graph, Hop, HopPlan, Named, NodePlan, Sink, Target};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{Batch, HeapPool};
use std::sync::Arc;
use std::time::Duration;
use wire::{EtherType, IpProtocol, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

const SETTINGS: &str = "\
table = 31
connections = 24
fragments = 8
idle = 2
mtu = 1280
source = [\"10.9.9.9\", \"fd09::9\"]
service.nat = { vip = [\"tcp 192.0.2.1:80\", \"udp 192.0.2.1:53\"], forward = \"nat\", backend = { a = { address = \"10.0.0.1\", port = 8080 }, b = { address = \"10.0.0.2\", weight = 3 } } }
service.nat6 = { vip = [\"tcp [2001:db8::1]:80\"], forward = \"nat\", backend = { a = { address = \"fd00::1\" }, b = { address = \"fd00::2\", drain = true } } }
service.gre = { vip = [\"tcp 192.0.2.2:80\", \"tcp [2001:db8::2]:80\"], forward = \"gre\", backend = { a = { address = \"10.0.0.1\" }, b = { address = \"fd00::2\" } } }
service.ipip = { vip = [\"udp 192.0.2.3:53\", \"udp [2001:db8::3]:53\"], forward = \"ipip\", backend = { a = { address = \"10.0.0.1\" }, b = { address = \"fd00::2\" } } }
service.dsr = { vip = [\"tcp 192.0.2.4:80\"], forward = \"l3dsr\", dscp = 9, backend = { a = { address = \"10.0.0.1\" } } }
service.none = { vip = [\"tcp 192.0.2.5:80\"], forward = \"nat\", backend = { a = { address = \"10.0.0.3\", drain = true } } }
";

/// Counts the packets that come out; checks them if all inputs were well-formed.
struct Count {
    packets: u64,
    well_formed: bool,
}

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        for packet in batch.drain() {
            self.packets += 1;
            if !self.well_formed {
                continue;
            }
            let frame = ethernet::Frame::new(packet.data()).expect("an Ethernet header");
            match frame.header().ether_type() {
                EtherType::IPV4 => {
                    assert!(ipv4::Packet::new(frame.payload()).expect("an IPv4 header").checksum_ok());
                }
                EtherType::IPV6 => drop(ipv6::Packet::new(frame.payload()).expect("an IPv6 header")),
                other => panic!("{other:?} batches_in out"),
            }
        }
    }
}

/// Returns a packet that connection_packet to some connection, and its input.
fn connection_packet(u: &mut Unstructured<'_>) -> Result<(u8, Vec<u8>)> {
    let (client, server, vip): (u8, u8, u8) = (u.int_in_range(1..=6)?, u.int_in_range(1..=3)?, u.int_in_range(1..=6)?);
    let (port, service) = (u16::from(u.int_in_range(1..=4u8)?), *u.choose(&[80u16, 53, 8080])?);
    let ipv6 = |net: [u8; 4], n: u8| {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&net);
        address[15] = n;
        address
    };
    let (clients, vips, servers) = ([0xfd, 1, 0, 0], [0x20, 1, 0x0d, 0xb8], [0xfd, 0, 0, 0]);
    let input = u.int_in_range(0..=3u8)? / 3;
    let v6: bool = u.arbitrary()?;
    // source, destination and ports
    let (src, dst) =
        if input == 0 { ([10, 1, 0, client], [192, 0, 2, vip]) } else { ([10, 0, 0, server], [10, 1, 0, client]) };
    let (src6, dst6) = if input == 0 {
        (ipv6(clients, client), ipv6(vips, vip))
    } else {
        (ipv6(servers, server), ipv6(clients, client))
    };
    let (sport, dport) = if input == 0 { (port, service) } else { (service, port) };
    let len = u.int_in_range(0..=40)?.min(u.len());
    let payload = u.bytes(len)?;
    let id: u16 = u.int_in_range(0..=3)?;
    let frame = match (u.int_in_range(0..=9u8)?, v6) {
        (0..=2, false) => build::tcp4(src, dst, sport, dport).payload(payload).pad_to(60).to_vec(),
        (0..=2, true) => build::tcp6(src6, dst6, sport, dport).payload(payload).to_vec(),
        (3..=4, false) => build::udp4(src, dst, sport, dport).payload(payload).to_vec(),
        (3..=4, true) => build::udp6(src6, dst6, sport, dport).payload(payload).to_vec(),
        (5..=6, v6) => {
            let (from, more) =
                if u.arbitrary()? { (0, true) } else { (u16::from(u.arbitrary::<u8>()?) << 3, u.arbitrary()?) };
            let upper = [&sport.to_be_bytes()[..], &dport.to_be_bytes(), &[0, 30, 1, 1], payload].concat();
            if v6 {
                build::ipv6(src6, dst6, IpProtocol::UDP).fragment(from, more, id.into()).payload(&upper).to_vec()
            } else {
                build::ipv4(src, dst, IpProtocol::UDP).id(id).fragment(from, more).payload(&upper).to_vec()
            }
        }
        (7..=8, false) => {
            // about a packet of the other side
            let about = build::tcp4(dst, if input == 0 { [10, 1, 0, client] } else { src }, dport, sport)
                .payload(payload)
                .to_vec();
            let cut = u.int_in_range(28..=about.len() - 14)?;
            let from = if u.arbitrary()? { src } else { [172, 16, 0, 1] };
            build::icmp4(from, dst, icmpv4::Repr::FragmentationNeeded { mtu: 1280 })
                .payload(&about[14..14 + cut])
                .to_vec()
        }
        (7..=8, true) => {
            let about = build::tcp6(dst6, src6, dport, sport).payload(payload).to_vec();
            build::icmp6(src6, dst6, icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(&about[14..]).to_vec()
        }
        (_, false) => build::echo4(src, dst, id, 1).payload(payload).to_vec(),
        (_, true) => build::echo6(src6, dst6, id, 1).payload(payload).to_vec(),
    };
    Ok((input, frame))
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let registry = nf::registry();
    let kind = registry.get("maglev").expect("a shipped NF");
    let settings = config::settings(SETTINGS).expect("TOML");
    let node = kind.parse(settings).expect("settings").build(&BuildContext::default()).expect("a load balancer");
    let hops = (0..2).map(|input| HopPlan { node: 0, input, next: Target::Port(0), fail_open: false }).collect();
    let blueprint =
        Blueprint { nodes: vec![NodePlan { name: "lb".to_owned(), edges: vec![Target::Unconnected] }], hops };
    let pool = Arc::new(HeapPool::new(1024));
    let mut graph = Graph::new(&blueprint, vec![node], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let (mut received, mut out, mut now) = (0, Count { packets: 0, well_formed: true }, 0);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u16>()? % 500);
        graph.run_timers(Duration::from_millis(now), &mut out);
        let mut batches_in = Batches::fill(u, &pool, connection_packet)?;
        received += batches_in.packets;
        // held packets may come out now
        out.well_formed = stats.held.get() == 0 && batches_in.mutated == 0;
        for (input, batch) in batches_in.batches.iter_mut().enumerate() {
            graph.run::<false>(Target::Hop(Hop(input as u16)), batch, &mut out);
            assert!(batch.is_empty());
        }
        assert_eq!(pool.in_use() as u64, stats.held.get(), "a packet was leaked");
        assert_eq!(received, out.packets + stats.held.get() + stats.dropped(), "accounting");
    }
    for (reason, count) in stats.reasons.iter().zip(&stats.drops) {
        assert!(!CommonDrop::NAMES.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(data));
});
